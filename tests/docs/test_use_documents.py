"""docs/use.md and docs/own_data.md: commands parse, and settings are those of configs/own."""

import dataclasses
import re
import shlex
from pathlib import Path

import pytest

from rope_dense.own.recipes import RECIPES
from rope_dense_command import import_early

ROOT = Path(__file__).resolve().parents[2]
PAGES = {name: (ROOT / 'docs' / f'{name}.md').read_text() for name in ('use', 'own_data')}


@pytest.mark.parametrize('page', PAGES)
def test_commands_parse(page: str) -> None:
    blocks = '\n'.join(re.findall(r'```bash\n(.*?)```', PAGES[page], re.DOTALL))
    commands = [line for line in blocks.splitlines() if 'python tools/' in line]
    assert len(commands) > 4
    for command in commands:
        _, tool, *arguments = shlex.split(command.rpartition('| ')[2], comments=True)
        import_early(Path(tool).stem).parse_args(arguments)


def test_every_setting_is_explained() -> None:
    table = PAGES['own_data'].split('## Settings')[1].split('## Folders')[0]
    rows = '\n'.join(re.findall(r'^\| (`.+?) \|', table, re.MULTILINE))
    assert set(re.findall(r'`(\w+)`', rows)) - {'own'} == {
        field.name for recipe in RECIPES.values() for field in dataclasses.fields(recipe.settings)
    }


def test_options_of_predict_are_its_own(capsys: pytest.CaptureFixture[str]) -> None:
    options = set(re.findall(r'`(--[a-z-]+)', PAGES['use'])) - {'--private', '--folder'}
    with pytest.raises(SystemExit):
        import_early('predict').parse_args(['--help'])
    shown = capsys.readouterr().out
    assert {option for option in options if option not in shown} == set()
