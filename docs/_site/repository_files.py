"""What the site has beside the pages in docs/: the files of the repository that these link to.

Links are written for the repository, where docs/ has neighbours. A Markdown file outside of docs/ that is linked to
becomes a page, a source file a page that shows it, and a figure's link to its result one to the page with its table.
"""

from __future__ import annotations

import functools
import posixpath
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files, InclusionLevel

ROOT = Path(__file__).resolve().parents[2]
DOCS = 'docs/'
RESULTS = 'benchmarks/results/'
# [text](target) and [label]: target, with what follows a file's name
LINK = re.compile(
    r'(?P<before>\]\(|^\[[^\]\n]+\]:[ ]+<?)(?P<file>[\w./-]+)(?P<place>#[^)>\n]*)?(?P<after>\)|>?$)', re.M
)
CODE = re.compile(r'^```.*?^```|`[^`\n]+`', re.MULTILINE | re.DOTALL)
TABLE = re.compile(r'<!-- rendered: ([\w-]+)')


def on_files(files: Files, config: Any) -> Files:
    """Adds a page for each file outside of docs/ that a page links to, directly or through another."""
    waiting = [DOCS + file.src_uri for file in files.documentation_pages()]
    seen = set(waiting)
    while waiting:
        path = waiting.pop()
        if not path.startswith(DOCS):
            files.append(_page(path, config))
        if path.endswith('.md'):
            found = {target for target in _targets(path) if target not in seen and not target.startswith(DOCS)}
            seen |= found
            waiting += sorted(found)
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Links as the site has them."""
    here = page.file.src_uri
    path = _path_of(here)

    def linked(match: re.Match[str]) -> str:
        target = _target(path, match['file'])
        if target is None:
            return match[0]
        place = '' if match['file'].endswith('.json') else match['place'] or ''
        relative = posixpath.relpath(_uri_of(target), posixpath.dirname(here) or '.')
        return f'{match["before"]}{relative}{place}{match["after"]}'

    return _outside_of_code(markdown, linked)


def _page(path: str, config: Any) -> File:
    if path.endswith('.md'):
        return File.generated(config, path, abs_src_path=str(ROOT / path), inclusion=InclusionLevel.NOT_IN_NAV)
    language = {'.py': 'python', '.json': 'json'}.get(Path(path).suffix, 'text')
    text = f'# {path}\n\n```{language}\n{(ROOT / path).read_text()}```\n'
    return File.generated(config, _uri_of(path), content=text, inclusion=InclusionLevel.NOT_IN_NAV)


def _targets(path: str) -> Iterator[str]:
    """Files of the repository that a Markdown file links to."""
    found: list[str] = []
    _outside_of_code((ROOT / path).read_text(), lambda match: found.append(_target(path, match['file'])) or match[0])
    return (target for target in found if target is not None)


def _target(path: str, link: str) -> str | None:
    """The file of the repository that a link in `path` leads to, if it is one for which the site has a page."""
    target = posixpath.normpath(posixpath.join(posixpath.dirname(path), link))
    if target.startswith(RESULTS) and target.endswith('.json'):
        return _tables().get(Path(target).stem, target)
    is_page = target.endswith(('.md', '.py', '.json')) and (ROOT / target).is_file()
    return target if is_page else None


@functools.cache
def _tables() -> dict[str, str]:
    """The page that shows each result as a table."""
    pages = sorted((ROOT / RESULTS).glob('*.md'), reverse=True)
    return {name: RESULTS + page.name for page in pages for name in TABLE.findall(page.read_text())}


def _uri_of(path: str) -> str:
    """The place of a file of the repository in the site."""
    uri = path.removeprefix(DOCS)
    return uri if uri.endswith('.md') else f'{uri}.md'


def _path_of(uri: str) -> str:
    """The file of the repository that a page of the site shows."""
    return DOCS + uri if (ROOT / DOCS / uri).is_file() else uri


def _outside_of_code(text: str, linked: Any) -> str:
    """A text in which each link that is not in code is what `linked` makes of it."""
    pieces, end = [], 0
    for code in CODE.finditer(text):
        pieces += [LINK.sub(linked, text[end : code.start()]), code[0]]
        end = code.end()
    return ''.join([*pieces, LINK.sub(linked, text[end:])])
