"""README.md: its code runs, its configs fit data, its commands parse. The links of all pages."""

import re
import shlex
from pathlib import Path
from typing import Any

import pytest
import torch
from mmengine.config import Config
from mmengine.registry import MODELS, init_default_scope

from rope_dense_command import import_early

ROOT = Path(__file__).resolve().parents[2]
TEXT = (ROOT / 'README.md').read_text()
CONFIG, EXAMPLE = re.findall(r'```python\n(.*?)```', TEXT, re.DOTALL)
BASH = '\n'.join(re.findall(r'```bash\n(.*?)```', TEXT, re.DOTALL))
PROSE = ' '.join(re.sub(r'```.*?```', '', TEXT, flags=re.DOTALL).split())
INLINE = [text for text in re.findall(r'`(python tools/[^`]+)`', PROSE) if '--help' not in text]
COMMANDS = [line for line in [*BASH.splitlines(), *INLINE] if line.startswith('python tools/')]
PAGES = sorted(
    path
    for pattern in ('*.md', 'docs/**/*.md', 'configs/**/*.md', 'benchmarks/**/*.md')
    for path in ROOT.glob(pattern)
)


def links(page: Path) -> list[str]:
    """Targets of the links of a page, those to the web left out."""
    text = re.sub(r'```.*?```|`[^`\n]*`', '', page.read_text(), flags=re.DOTALL)
    targets = re.findall(r'\]\(([^)\s]+)\)', text)
    return [target for target in targets if not re.match('[a-z]+:', target)]


def anchors(page: Path) -> set[str]:
    """Of the headings, as GitHub makes them."""
    text = re.sub(r'```.*?```', '', page.read_text(), flags=re.DOTALL)
    headings = re.findall(r'^#+ (.+)$', text, re.MULTILINE)
    return {re.sub(r'[^\w\- ]', '', heading.lower()).replace(' ', '-') for heading in headings}


@pytest.mark.parametrize('page', PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_exist(page: Path) -> None:
    for link in links(page):
        path, _, anchor = link.partition('#')
        target = page.parent / path if path else page
        assert target.exists(), link
        assert not anchor or anchor in anchors(target), link


def test_every_guide_is_linked() -> None:
    index = ROOT / 'docs' / 'README.md'
    linked = {(index.parent / link.partition('#')[0]).resolve() for link in links(index)}
    places = ('*.md', '*/README.md', 'research/*.md', 'research/*/README.md')
    guides = {path for place in places for path in index.parent.glob(place)} - {index}
    assert guides <= linked


def test_the_code_runs() -> None:
    names: dict[str, Any] = {}
    exec(EXAMPLE, names)
    assert len(names['maps']) == 4
    assert {feature_map.shape for feature_map in names['maps']} == {torch.Size([1, 384, 30, 40])}


def test_the_config_builds(tmp_path: Path) -> None:
    """A stock detector of mmdet with a backbone of this package."""
    path = tmp_path / 'mine.py'
    path.write_text(CONFIG)
    cfg = Config.fromfile(path)
    init_default_scope(cfg.default_scope)
    with torch.device('meta'):
        model = MODELS.build(cfg.model)
        maps = model.extract_feat(torch.rand(1, 3, 64, 96))
    assert [list(x.shape[1:]) for x in maps][:2] == [[256, 16, 24], [256, 8, 12]]
    assert len(maps) == cfg.model.neck.num_outs == 5


def test_it_is_short() -> None:
    assert len(TEXT.splitlines()) <= 135


def test_every_command_parses() -> None:
    assert INLINE and len(COMMANDS) > len(INLINE)
    for command in COMMANDS:
        _, tool, *arguments = shlex.split(command, comments=True)
        import_early(Path(tool).stem).parse_args(arguments)


def test_every_flag_exists() -> None:
    flags = set(re.findall(r'[`;] ?(--[a-z-]+)', TEXT)) - {'--help'}
    sources = ''.join(path.read_text() for path in (ROOT / 'rope_dense').glob('*/*.py'))
    sources += ''.join(path.read_text() for path in (ROOT / 'rope_dense').glob('commands/*/*.py'))
    assert {flag for flag in flags if f"'{flag}'" not in sources} == set()
