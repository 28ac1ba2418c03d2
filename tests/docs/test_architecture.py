"""docs/architecture.md: its code runs, and its table of the path is true."""

import re
from pathlib import Path

import pytest
from mmengine.registry import MODELS

ROOT = Path(__file__).resolve().parents[2]
TEXT = (ROOT / 'docs' / 'architecture.md').read_text()


def test_the_code_runs():
    code = re.findall(r'```python\n(.*?)```', TEXT, re.DOTALL)
    assert len(code) == 7
    names: dict[str, object] = {}
    try:
        for block in code:
            exec(block, names)
    finally:
        for name in ('DirectionRoPE', 'TokenRoPE', 'RowColumnViT'):
            MODELS.module_dict.pop(name, None)


def test_the_path_is_six_files_that_exist_and_name_what_they_are_said_to():
    rows = re.findall(r'^\| \d \| (.+?) \| (.+?) \|$', TEXT, re.MULTILINE)
    assert len(rows) == 6
    for files, text in rows:
        function = re.match(r'`([\w.]+)`', text)[1].split('.')[-1]
        for file in re.findall(r'`([\w/]+\.py)`', files):
            path = file if '/' in file else f'backbones/{file}'
            assert f'def {function}(' in (ROOT / 'rope_dense' / path).read_text()


@pytest.mark.parametrize(
    'room, above',
    [
        ('rope', 'backbones checkpoints engine evaluation cli mmengine mmcv'),
        ('backbones', 'checkpoints engine evaluation cli'),
        ('checkpoints', 'engine evaluation cli'),
    ],
)
def test_packages_import_from_those_above(room: str, above: str):
    names = '|'.join(above.split())
    wrong = re.compile(rf'^\s*(?:from|import) (?:\.+|rope_dense\.)?(?:{names})\b', re.MULTILINE)
    for path in (ROOT / 'rope_dense' / room).rglob('*.py'):
        assert not wrong.search(path.read_text()), path
