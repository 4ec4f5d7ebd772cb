"""The wheel and the sdist, built, looked into, and each installed and tried apart: ``python -m tests.distribution``.

PyTorch and the other libraries are large, so an environment of its own sees those of another one: this interpreter's,
or what ``--libraries`` names. Needs the package `build`.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import sysconfig
import tarfile
import tempfile
import venv
import zipfile
from pathlib import Path

ROOT = Path(__file__).parents[1]
# what is no module, and would be missed only when it is read
DATA = ('py.typed', 'conv/supported.json', 'mapping/group_sizes/classifier.pt')
TRIAL = """
import sys, torch, pygfuse
from pathlib import Path
from pygfuse.conv import GATConv

assert Path(pygfuse.__file__).is_relative_to(sys.prefix), pygfuse.__file__
assert len(list(pygfuse.supported())) > 50
conv, x = GATConv(16, 8, heads=4), torch.randn(100, 16)
conv(x, torch.randint(100, (2, 600))).sum().backward()
assert conv.note.reason is None and all(p.grad is not None for p in conv.parameters())
with pygfuse.group_sizes('learned'):
    conv(x, torch.randint(100, (2, 600)))
"""


def wanted() -> set[str]:
    """All files of the package, as a wheel names them."""
    modules = {str(path.relative_to(ROOT)) for path in (ROOT / 'pygfuse').rglob('*.py')}
    return modules | {f'pygfuse/{name}' for name in DATA}


def problems_of_wheel(names: list[str]) -> list[str]:
    """What a wheel lacks, and what it holds beside the package."""
    missing = [f'no {name}' for name in sorted(wanted() - set(names))]
    others = {name.split('/')[0] for name in names} - {'pygfuse'}
    if not any(name.endswith('.dist-info/licenses/LICENSE') for name in names):
        missing.append('no LICENSE')
    return missing + [f'{name}/' for name in sorted(others) if not name.endswith('.dist-info')]


def problems_of_sdist(names: list[str]) -> list[str]:
    """The same of an sdist, all of which lies in one folder."""
    inside = [name.partition('/')[2] for name in names]
    missing = (wanted() | {'LICENSE', 'README.md', 'pyproject.toml'}) - set(inside)
    folders = {name.split('/')[0] for name in inside if '/' in name} - {'pygfuse', 'pygfuse.egg-info'}
    return [f'no {name}' for name in sorted(missing)] + [f'{name}/' for name in sorted(folders)]


def built(folder: Path) -> tuple[Path, Path]:
    """A new wheel and sdist in a folder, the wheel made from the sdist."""
    subprocess.run([sys.executable, '-m', 'build', '--outdir', folder, ROOT], check=True, stdout=subprocess.DEVNULL)
    (wheel,), (sdist,) = folder.glob('*.whl'), folder.glob('*.tar.gz')
    return wheel, sdist


def tried(package: Path, folder: Path, libraries: str) -> None:
    """Installs a package into an environment of its own, and runs a training step and a benchmark there."""
    home = folder / package.suffix[1:]
    venv.create(home, with_pip=False)
    python = home / 'bin' / 'python'
    install = [sys.executable, '-m', 'pip', '--python', python, 'install', '--quiet', '--no-deps', package]
    subprocess.run(install, check=True)
    # only now: pip must not see what is installed there
    site = Path(sysconfig.get_path('purelib', vars={'base': str(home)}))
    (site / 'libraries.pth').write_text(libraries + '\n')
    empty = home / 'empty'
    empty.mkdir()
    environment = {**os.environ, 'PYGFUSE_CACHE_DIR': str(home / 'kernels')}
    for trial in (['-c', TRIAL], ['-m', 'pygfuse.bench', '--quick']):
        subprocess.run([python, '-I', *trial], check=True, cwd=empty, env=environment)
    print(f'{package.name}: installed and tried')


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('--libraries', default=sysconfig.get_path('purelib'), help='site-packages that hold PyTorch')
    parser.add_argument('--out', type=Path, default=ROOT / 'dist', help='where the wheel and the sdist go')
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        wheel, sdist = built(folder / 'dist')
        with zipfile.ZipFile(wheel) as archive:
            found = [f'{wheel.name}: {line}' for line in problems_of_wheel(archive.namelist())]
        with tarfile.open(sdist) as archive:
            files = [member.name for member in archive.getmembers() if member.isfile()]
            found += [f'{sdist.name}: {line}' for line in problems_of_sdist(files)]
        print('\n'.join(found), end='\n' if found else '', file=sys.stderr)
        if found:
            return 1
        for package in (wheel, sdist):
            tried(package, folder, options.libraries)
        options.out.mkdir(parents=True, exist_ok=True)
        for package in (wheel, sdist):
            package.replace(options.out / package.name)
    return 0


if __name__ == '__main__':
    sys.exit(main())
