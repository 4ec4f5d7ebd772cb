"""What is found wrong with a wheel or an sdist."""

from tests.distribution import problems_of_sdist, problems_of_wheel, wanted

WHEEL = [*wanted(), 'pygfuse-1.dist-info/METADATA', 'pygfuse-1.dist-info/licenses/LICENSE']
SDIST = [f'pygfuse-1/{name}' for name in (*wanted(), 'LICENSE', 'README.md', 'pyproject.toml')]


def test_what_is_whole_has_no_problems():
    assert problems_of_wheel(WHEEL) == []
    assert problems_of_sdist(SDIST) == []


def test_what_is_missing_is_named():
    assert problems_of_wheel([name for name in WHEEL if 'LICENSE' not in name]) == ['no LICENSE']
    assert problems_of_wheel([name for name in WHEEL if not name.endswith('py.typed')]) == ['no pygfuse/py.typed']
    assert problems_of_sdist([name for name in SDIST if not name.endswith('supported.json')]) == [
        'no pygfuse/conv/supported.json'
    ]


def test_what_is_no_part_of_the_package_is_named():
    assert problems_of_wheel([*WHEEL, 'benchmarks/run.py']) == ['benchmarks/']
    assert problems_of_sdist([*SDIST, 'pygfuse-1/tests/test_docs.py', 'pygfuse-1/setup.cfg']) == ['tests/']
