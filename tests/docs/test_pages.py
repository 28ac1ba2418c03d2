"""All pages: links lead somewhere and Python parses."""

import ast
import re
import textwrap
from pathlib import Path

from helpers.page_commands import ROOT, every_page, prose
from rope_dense.utils.configs import DOCS


def links(page: Path) -> list[str]:
    """Targets of the links of a page, those to the web left out."""
    targets = re.findall(r'\]\(([^)\s]+)\)', re.sub(r'`[^`\n]*`', '', prose(page)))
    return [target for target in targets if not re.match('[a-z]+:', target)]


def anchors(page: Path) -> set[str]:
    """Of the headings, as GitHub makes them."""
    headings = re.findall(r'^#+ (.+)$', prose(page), re.MULTILINE)
    return {
        re.sub(r'[^\w\- ]', '', heading.lower()).replace(' ', '-')
        for heading in headings
    }


@every_page
def test_links_exist(page: Path) -> None:
    for link in links(page):
        path, _, anchor = link.partition('#')
        target = page.parent / path if path else page
        assert target.exists(), link
        assert not anchor or anchor in anchors(target), link


def test_every_guide_is_linked() -> None:
    index = ROOT / 'docs' / 'README.md'
    linked = {
        (index.parent / link.partition('#')[0]).resolve() for link in links(index)
    }
    places = ('*.md', '*/README.md', 'research/*.md', 'research/*/README.md')
    guides = {path for place in places for path in index.parent.glob(place)} - {index}
    assert guides <= linked


def test_messages_and_help_name_pages_that_exist() -> None:
    source = '\n'.join(path.read_text() for path in (ROOT / 'rope_dense').rglob('*.py'))
    named = set(re.findall(r'(?:\{DOCS\}|\bdocs)/([\w/]+\.md)', source))
    assert {'own_data.md', 'evaluation.md', 'use.md'} <= named
    assert all((DOCS / name).is_file() for name in named)


def test_the_guides_are_short() -> None:
    """As ``wc -w`` counts, with the bars of tables."""
    pages = [ROOT / 'README.md', *(ROOT / 'docs').glob('*.md')]
    assert sum(len(page.read_text().split()) for page in pages) <= 42_700


@every_page
def test_python_parses(page: Path) -> None:
    for block in re.findall(
        r'^ *```python\n(.*?)```', page.read_text(), re.DOTALL | re.MULTILINE
    ):
        ast.parse(textwrap.dedent(block))
