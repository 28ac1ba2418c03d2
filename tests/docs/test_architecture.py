"""docs/architecture.md and extending.md: code runs, and what the tables name is there."""

import re
import sys
import tomllib
from pathlib import Path
from types import FrameType

import pytest
import torch
from mmengine.registry import MODELS
from torch import Tensor

from rope_dense.backbones import RoPENAT, RoPESwin, RoPEViT
from rope_dense.backbones.base import Backbone
from rope_dense.utils import memo

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / 'rope_dense'
TEXT = (ROOT / 'docs' / 'architecture.md').read_text()
EXTENDING = (ROOT / 'docs' / 'extending.md').read_text()


def calls_to_the_rotation(model: Backbone, image: Tensor) -> list[tuple[str, str, int]]:
    """File, name and first line of the functions of the package in the order of their first calls,
    until queries are rotated."""
    calls: dict[tuple[str, str, int], None] = {}

    def profile(frame: FrameType, event: str, argument: object) -> None:
        code = frame.f_code
        if not code.co_filename.startswith(f'{PACKAGE}/') or code.co_name.startswith(
            '<'
        ):
            return
        if event == 'call':
            file = code.co_filename.removeprefix(f'{PACKAGE}/')
            calls[file, code.co_name, code.co_firstlineno] = None
        elif code.co_name == 'rotate_packed':
            sys.setprofile(None)

    sys.setprofile(profile)
    try:
        with torch.no_grad():
            model(image)
    finally:
        sys.setprofile(None)
    return list(calls)


SMALL = dict(embed_dims=32, depth=2, num_heads=2)
STAGES = dict(embed_dims=16, depths=(2, 2), num_heads=(1, 2))
PATHS = {  # column of the calls, row of the counts
    '`RoPEViT`, global attention': (0, lambda: RoPEViT(SMALL)),
    '`RoPEViT`, windows': (
        0,
        lambda: RoPEViT(SMALL, window_size=3, window_block_indexes=(0, 1)),
    ),
    '`RoPESwin`': (1, lambda: RoPESwin(STAGES, out_indices=(1,))),
    '`RoPENAT`': (2, lambda: RoPENAT(STAGES, out_indices=(1,))),
}


@pytest.mark.parametrize('name', PATHS)
def test_the_path_from_an_image_to_a_rotation(name: str):
    column, build = PATHS[name]
    model, image = build().eval(), torch.rand(1, 3, 72, 232)
    model(image)  # reasons why an implementation cannot be used are logged once
    memo.RESULTS.clear()
    calls = calls_to_the_rotation(model, image)
    counts = re.search(
        rf'^\| {re.escape(name)} \| (\d+) \| (\d+) \|$', TEXT, re.MULTILINE
    )
    assert tuple(map(int, counts.groups())) == (
        len({file for file, *_ in calls}),
        len(calls),
    ), calls
    # The calls of the table, in its order.
    table = re.search(
        r'^\| \| `RoPEViT` \| `RoPESwin`.*\n((?:\|.*\n)+)', TEXT, re.MULTILINE
    )[1]
    rows = [line.strip('| ').split(' | ')[1:] for line in table.splitlines()[1:]]
    windowed = [row for row in rows if 'window_plan' not in row[0]]
    position = -1
    order = [(file, function) for file, function, _ in calls]
    for row in windowed if name == '`RoPEViT`, global attention' else rows:
        cell = row[0] if row[column] == 'as ViT' else row[column]
        if cell.startswith('as Swin'):
            cell = f'{row[1]}; {cell}'
        for file, functions in re.findall(
            r'`([\w/]+\.py)` ((?:`[\w.]+`(?:, )?)+)', cell
        ):
            path = file if file.startswith('rope/') else f'backbones/{file}'
            for function in re.findall(r'`(?:\w+\.)?(\w+)`', functions):
                later = [n for n, call in enumerate(order) if call == (path, function)]
                assert later and later[0] > position, (path, function, order)
                position = later[0]


def rooms() -> list[str]:
    """Folders of the package in the order of the table."""
    table = TEXT.partition('## Packages')[2].partition('\n## ')[0]
    return [name for name in re.findall(r'`([\w/]+)/`', table) if name != 'rope_dense']


def test_every_package_is_listed():
    folders = {
        path.parent.relative_to(PACKAGE).as_posix()
        for path in PACKAGE.rglob('__init__.py')
    }
    assert set(rooms()) == folders - {'.'}


def test_packages_are_listed_in_their_order():
    """The lowest first, as import-linter has them from the highest; : and | join a level."""
    with (ROOT / 'pyproject.toml').open('rb') as stream:
        contracts = tomllib.load(stream)['tool']['importlinter']['contracts']
    layers = next(
        item['layers'] for item in contracts if item['containers'] == ['rope_dense']
    )
    level_of = {}
    for number, level in enumerate(reversed(layers)):
        level_of |= dict.fromkeys(re.split(' [:|] ', level), number)
    listed = [name for name in rooms() if '/' not in name]
    assert {*listed} == {*level_of} - {'api', 'demo', 'training'}  # modules
    wings = [
        contract['source_modules']
        for contract in contracts
        if 'wing' in contract['name']
    ]
    assert len(wings) == 2
    for wing in wings:  # in a wing, and outside of the other one, levels rise
        other = {name.removeprefix('rope_dense.') for name in wing}
        levels = [level_of[name] for name in listed if name not in other]
        assert levels == sorted(levels)


def files_named(text: str) -> set[Path]:
    """Files whose paths end as a text names them."""
    found = set()
    for name in {*re.findall(r'`([\w/]+(?<!NAME)\.py)`', text)}:
        files = {*PACKAGE.rglob(name), *ROOT.glob(name)}
        assert files, f'{name} is named, and is not there'
        found |= files
    return found


def test_every_file_that_is_named_is_there():
    assert files_named(TEXT) and files_named(EXTENDING)


def test_the_code_runs():
    code = re.findall(r'```python\n(.*?)```', EXTENDING, re.DOTALL)
    assert len(code) == 8
    names: dict[str, object] = {}
    try:
        for block in code:
            exec(block, names)
    finally:
        for name in ('HeadDirectionRoPE', 'TokenRoPE', 'Decay', 'RowColumnViT'):
            MODELS.module_dict.pop(name, None)


def test_what_rows_of_new_code_name_is_in_their_files():
    table = EXTENDING.partition('as in | register in |\n')[2].partition('\n\nOutside')[
        0
    ]
    rows = table.strip().splitlines()[1:]
    assert len(rows) >= 15
    for row in rows:
        code = ''.join(path.read_text() for path in files_named(row))
        for name in re.findall(r'`([A-Za-z_]\w+(?:\.(?!py\b)\w+)?)`', row):
            assert all(re.search(rf'\b{part}\b', code) for part in name.split('.')), (
                name,
                row,
            )
