"""All pages: links lead somewhere, Python parses, commands and their options exist."""

import ast
import re
import shlex
import textwrap
from collections.abc import Iterator
from pathlib import Path

import pytest

from rope_dense.project.errors import UsageError
from rope_dense.utils.configs import DOCS
from rope_dense_command import COMMANDS, RESEARCH, import_early

ROOT = Path(__file__).resolve().parents[2]
PAGES = sorted(
    path
    for pattern in ('*.md', 'docs/**/*.md', 'configs/**/*.md', 'benchmarks/**/*.md')
    for path in ROOT.glob(pattern)
)
# Of detectron2 and detrex, and programs of docs/clients, which docs/export.md copies.
ELSEWHERE = {'tools/lazyconfig_train_net.py', 'tools/train_net.py', 'draw.py', 'detect.py'}
OTHER_OPTIONS = {  # of timm's script, naver's and BEiT's, benchmarks/gpu.py, torchrun and Slurm
    *('--device-modules', '--grad-accum-steps', '--initial-checkpoint', '--layer-decay'),
    *('--model-kwargs', '--eval-crop-ratio', '--deterministic', '--pretend'),
    *('--max-restarts', '--shutdown-timeout', '--signals-to-handle', '--requeue'),
}
TARGETS = set(re.findall(r'^(\w+):', (ROOT / 'Makefile').read_text(), re.MULTILINE))

every_page = pytest.mark.parametrize('page', PAGES, ids=lambda page: str(page.relative_to(ROOT)))


def prose(page: Path) -> str:
    """Text without blocks of code."""
    return re.sub(r'```.*?```', '', page.read_text(), flags=re.DOTALL)


def links(page: Path) -> list[str]:
    """Targets of the links of a page, those to the web left out."""
    targets = re.findall(r'\]\(([^)\s]+)\)', re.sub(r'`[^`\n]*`', '', prose(page)))
    return [target for target in targets if not re.match('[a-z]+:', target)]


def anchors(page: Path) -> set[str]:
    """Of the headings, as GitHub makes them."""
    headings = re.findall(r'^#+ (.+)$', prose(page), re.MULTILINE)
    return {re.sub(r'[^\w\- ]', '', heading.lower()).replace(' ', '-') for heading in headings}


@every_page
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


def test_messages_and_help_name_pages_that_exist() -> None:
    source = '\n'.join(path.read_text() for path in (ROOT / 'rope_dense').rglob('*.py'))
    named = set(re.findall(r'(?:\{DOCS\}|\bdocs)/([\w/]+\.md)', source))
    assert {'own_data.md', 'evaluation.md', 'use.md'} <= named
    assert all((DOCS / name).is_file() for name in named)


@every_page
def test_python_parses(page: Path) -> None:
    for block in re.findall(r'^ *```python\n(.*?)```', page.read_text(), re.DOTALL | re.MULTILINE):
        ast.parse(textwrap.dedent(block))


def commands(page: Path) -> Iterator[list[str]]:
    """Words of every command: of blocks called bash, and in the text between backticks.

    Blocks called sh are programs with loops and variables; their commands are not read.
    """
    blocks = re.findall(r'```bash\n(.*?)```', page.read_text(), re.DOTALL)
    lines = '\n'.join(blocks).replace('\\\n', ' ').splitlines()
    inline = re.findall(r'`((?:rope-dense|python|make|torchrun|bash)\s[^`]+)`', prose(page))
    for line in [*lines, *(' '.join(text.split()) for text in inline)]:
        words = shlex.split(line.rpartition(' | ')[2], comments=True)
        while words and re.match(r'[A-Z_]+=|nice$|-n$|\d+$', words[0]):
            words.pop(0)
        yield [word for word in words if word != '&']


def check_command(words: list[str]) -> None:
    """Fail for a command that is not there, or for options that it does not take."""
    configs = {word for word in words if re.match(r'configs/(?!own/cats)\S+\.py$', word)}
    assert all((ROOT / config).is_file() for config in configs), configs
    if words[:2] == ['rope-dense', 'research']:
        check_arguments(RESEARCH, words[2:])
    elif words[:1] == ['rope-dense']:
        check_arguments(COMMANDS, words[1:])
    elif '-m' in words and words[words.index('-m') + 1] == 'rope_dense_command':
        check_arguments(COMMANDS, words[words.index('rope_dense_command') + 1 :])
    elif tools := [word for word in words if word.startswith('tools/') and word not in ELSEWHERE]:
        rest = words[words.index(tools[0]) + 1 :]
        assert (ROOT / tools[0]).is_file(), tools[0]
        name = Path(tools[0]).stem.removeprefix('dist_')
        is_script = tools[0].endswith('.sh')  # CONFIG, number of GPUs, arguments
        check_arguments(COMMANDS, [name, *(rest[:1] + rest[2:] if is_script else rest)])
    elif words[:1] == ['python'] and words[1].endswith('.py'):
        assert words[1] in ELSEWHERE or (ROOT / words[1]).is_file(), words[1]
    elif words[:1] == ['make']:
        assert {word for word in words[1:] if '=' not in word} <= TARGETS, words


def check_arguments(names: tuple[str, ...], words: list[str]) -> None:
    """Parse the arguments of a command, unless only its name is given; files may be missing."""
    if words[:1] in ([], ['NAME'], ['COMMAND'], ['--help']):
        return
    name = words[0].replace('-', '_')
    assert name in names, words
    if words[1:] and '...' not in words and '--help' not in words:
        try:
            import_early(name).parse_args(words[1:])
        except UsageError as error:  # of a file
            assert 'unrecognized' not in str(error)


@every_page
def test_commands_parse(page: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for words in commands(page):
        try:
            check_command(words)
        except SystemExit:
            pytest.fail(f'{shlex.join(words)}: {capsys.readouterr().err}')


def test_options_in_the_text_exist(capsys: pytest.CaptureFixture[str]) -> None:
    known = set(OTHER_OPTIONS)
    for name in (*COMMANDS, *RESEARCH):
        with pytest.raises(SystemExit):
            import_early(name).parse_args(['--help'])
        known |= set(re.findall(r'--[a-z-]+', capsys.readouterr().out))
    for page in set(PAGES) - {ROOT / 'CHANGELOG.md'}:
        named = set(re.findall(r'`(--[a-z-]+)(?![\w-])', prose(page)))
        assert named <= known, (page, named - known)
