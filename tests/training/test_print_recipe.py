"""`rope-dense print-recipe`: what it prints of a config, and its errors."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest
import torch

from helpers import foundation
from helpers.grid import CONFIGS, GRID, Leaf, build_offline
from helpers.tool_names import Main
from rope_dense.project.checks.recipe import recipe_text
from rope_dense.project.load import load_config
from rope_dense.project.model import build_shapes
from rope_dense_command import command

LABELS = (
    *(
        'train data',
        'test data',
        'model',
        'weights',
        'frozen',
        'inputs',
        'maps',
        'position',
    ),
    *('windows', 'optimizer', 'groups', 'schedule', 'evaluation', '--tta'),
)


@pytest.fixture(scope='module')
def print_recipe() -> Main:
    return command('print_recipe')


def sections(text: str) -> dict[str, str]:
    """Text of each label, its lines joined."""
    actual: dict[str, str] = {}
    for line in text.splitlines():
        label = line[:11].strip()
        if label:
            current = label
            actual[current] = ''
        actual[current] += f' {line[11:].strip()}'
    return {label: text.strip() for label, text in actual.items()}


def words(leaf: Leaf) -> dict[str, list[str]]:
    """What must be said of a leaf, from the recipes."""
    position, windows = [], ['7 x 7 tokens in all blocks']
    if leaf.variant.startswith('rope'):
        position.append('AxialRoPE' if 'axial' in leaf.variant else 'MixedRoPE')
    if 'ape' in leaf.variant:
        position.append('absolute position embedding')
    if 'rpb' in leaf.variant:
        position.append('relative position bias')
    if leaf.experiment == 'upernet_vit':
        windows = ['global attention in all']
    elif leaf.experiment == 'dino_vitdet':
        last = {'b': 11, 'l': 23}[leaf.size]
        windows = ['14 x 14 tokens', f'{last}']
    parameters = sum(param.numel() for param in build_offline(leaf).parameters())
    return {
        'position': position,
        'windows': windows,
        'model': [f'{parameters:,d} parameters'],
        'weights': [leaf.weights or 'random values'],
        'frozen': ['nothing'],
        'inputs': [
            'mean=[123.675, 116.28, 103.53], std=[58.395, 57.12, 57.375], bgr_to_rgb=True'
        ],
        'maps': ['without the final norm' if leaf.is_vit else 'strides'],
        'schedule': [
            '90000' if leaf.experiment.startswith('dino') else '160000',
            '8 x 2',
        ],
        'evaluation': ['CocoMetric' if leaf.experiment.startswith('dino') else 'mIoU'],
    }


def a_few_fast(items: Sequence) -> list:
    """All parameters of a test, most of them marked as slow."""
    return [
        pytest.param(x, marks=[pytest.mark.slow] * (i % 8 > 0))
        for i, x in enumerate(items)
    ]


@pytest.mark.parametrize('leaf', a_few_fast(GRID), ids=lambda leaf: leaf.name)
def test_every_leaf_in_one_screen(leaf: Leaf) -> None:
    cfg = leaf.load()
    text = recipe_text(cfg, build_offline(leaf))
    assert len(text.splitlines()) <= 60 and max(map(len, text.splitlines())) <= 130
    actual = sections(text)
    assert tuple(actual) == LABELS
    for label, expected in words(leaf).items():
        for word in expected:
            assert word in actual[label], label


@pytest.mark.parametrize('name', a_few_fast([*foundation.RECIPES]))
def test_how_a_foundation_backbone_is_used(name: str) -> None:
    cfg, model = foundation.load(name), foundation.build_offline(name)
    (head, family), actual = (
        foundation.head_and_family(name),
        sections(recipe_text(cfg, model)),
    )
    frozen = sum(param.numel() for param in model.backbone.parameters())
    neck = ', neck 662,528 of 662,528' if head == 'linear-fine' else ''
    said = f'backbone {frozen:,d} of {frozen:,d}{neck} parameters'
    assert actual['frozen'] == (
        said if head in ('linear', 'linear-fine', 'dpt') else 'nothing'
    )
    colours = [
        f'{key}={numbers}' for key, numbers in foundation.COLOURS[family].items()
    ]
    assert all(text in actual['inputs'] for text in (*colours, 'bgr_to_rgb=True'))
    assert (
        f'blocks {str(foundation.MAPS[head, family]).strip("(,)")};' in actual['maps']
    )
    normed = foundation.FINAL_NORM[family] == 'all'
    assert ('each after' if normed else 'without') + ' the final norm' in actual['maps']
    assert ('with the class token' in actual['maps']) == (head == 'dpt')
    copied = head == 'dino-vitdet' and family != 'eva02'
    assert ('with a copy of the prefix tokens' in actual['windows']) == copied


def test_numbers_of_a_flagship(
    print_recipe: Main, capsys: pytest.CaptureFixture[str]
) -> None:
    assert print_recipe([str(CONFIGS / 'dino_vitdet_rope_mixed.py')]) == 0
    out = capsys.readouterr().out
    actual = sections(out)
    assert (
        'window' not in actual['position']
        and '9,216 learned parameters' in actual['position']
    )
    assert (
        'in blocks 0, 1, 3, 4, 6, 7, 9, 10; global attention in 2, 5, 8, 11'
        in actual['windows']
    )
    rows = {line.split()[0]: line.split()[1:] for line in found_rows(out)}
    assert rows['neck.0/decay'][:3] == ['x', '0.1', '0.0001']
    assert rows['backbone/frequency'][1:] == ['0.1', '0', '9,216']
    assert (
        'MultiStepLR(' in actual['schedule']
        and 'milestones=[82500]' in actual['schedule']
    )
    assert 'hf-hub:naver-ai/rope_mixed_deit_base_patch16_LS' in actual['weights']


def found_rows(out: str) -> list[str]:
    """The rows of the table of parameter groups."""
    return [
        line[11:] for line in out.splitlines() if '/' in line[11:30] and ' x ' in line
    ]


FROM_ENCODER = ('linear_vit_rope_mixed_shapes', 'pmt_vit_rope_mixed_shapes')


@pytest.mark.parametrize(
    'path', sorted((CONFIGS / 'demo').glob('*.py')), ids=lambda p: p.stem
)
def test_demos(
    print_recipe: Main, path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert print_recipe([str(path)]) == 0
    actual = sections(capsys.readouterr().out)
    assert tuple(actual) == ('config', *LABELS)
    if path.stem in FROM_ENCODER:
        assert actual['weights'].startswith('backbone from work_dirs/')
    else:
        assert actual['weights'] == 'backbone from random values'


OTHER_BACKBONE = """
_base_ = '{flagship}'
model = dict(
    backbone=dict(
        _delete_=True,
        type='SwinTransformer',
        embed_dims=96,
        depths=[2, 2, 2, 2],
        num_heads=[3, 6, 12, 24],
        out_indices=(1, 2, 3),
    )
)
optim_wrapper = dict(
    _delete_=True, type='OptimWrapper', optimizer=dict(type='SGD', lr=0.1, momentum=0.9)
)
param_scheduler = None
train_cfg = dict(_delete_=True, type='EpochBasedTrainLoop', max_epochs=12)
"""


def test_another_backbone(
    print_recipe: Main, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / 'another.py'
    path.write_text(OTHER_BACKBONE.format(flagship=CONFIGS / 'dino_swin_rope_mixed.py'))
    assert print_recipe([str(path)]) == 0
    actual = sections(capsys.readouterr().out)
    assert (
        actual['windows']
        == actual['maps']
        == 'as the backbone has them: none of rope_dense'
    )
    assert 'relative position bias' in actual['position']
    assert 'SwinTransformer' in actual['model'] and 'SGD' in actual['optimizer']
    assert actual['schedule'].startswith('12 epochs')


def test_options_of_a_training(
    print_recipe: Main, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    demo = str(CONFIGS / 'demo' / 'dino_vitdet_rope_mixed_shapes.py')
    torch.save(dict(state_dict={'x': torch.zeros(1)}), path := tmp_path / 'x.pth')
    options = ['--amp', 'bf16', '--ema', '--load-from', str(path), '--cfg-options']
    assert print_recipe([demo, *options, 'model.backbone.frozen_stages=all']) == 0
    captured = capsys.readouterr()
    actual = sections(captured.out)
    assert actual['optimizer'].startswith('BFloat16OptimWrapper')
    assert (
        actual['weights'].startswith(f'from {path}; what it has not: backbone from ')
        and 'warning' not in captured.err
    )
    assert (
        print_recipe([demo, '--cfg-options', 'model.backbone.frozen_stages=all']) == 0
    )
    assert 'are frozen' in capsys.readouterr().err


def test_a_model_is_described_without_memory_for_its_weights(
    surroundings: None,
) -> None:
    for name in ('demo/dino_vitdet_rope_mixed_shapes', 'mask2former_swin_rope_mixed'):
        model = build_shapes(load_config(str(CONFIGS / f'{name}.py')))
        in_memory = sum(
            param.numel() for param in model.parameters() if not param.is_meta
        )
        assert in_memory < 0.01 * sum(param.numel() for param in model.parameters())


@pytest.mark.parametrize(
    'arguments, says',
    [
        (
            [
                str(CONFIGS / 'dino_swin_rope_mixed.py'),
                *('--cfg-options', 'train_cfg.max_iters=2000'),
            ],
            'param_scheduler.0.milestones=[82500], train_cfg.val_interval=5000: after the end of',
        ),
        (['no_such.py'], "config 'no_such.py': no such file"),
        (
            [str(CONFIGS / 'dino_swin_rope_mixed.py'), '--cfg-options', 'modle.x=1'],
            "has no 'modle'",
        ),
        (
            [
                str(CONFIGS / 'dino_swin_rope_mixed.py'),
                '--cfg-options',
                'model.backbone.windowsize=9',
            ],
            "'windowsize'",
        ),
        (
            [
                str(CONFIGS / 'dino_swin_rope_mixed.py'),
                '--cfg-options',
                'optim_wrapper=None',
            ],
            'no optim_wrapper',
        ),
    ],
)
def test_mistakes_are_named(
    print_recipe: Main,
    arguments: list[str],
    says: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert print_recipe(arguments) == 2
    message = capsys.readouterr().err
    assert (
        message.startswith('error: ') and says in message and 'Traceback' not in message
    )
