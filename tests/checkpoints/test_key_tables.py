"""The language of key tables: what rows do to keys and tensors, back again, and wrong rows."""

import re
from pathlib import Path

import pytest
import torch

from helpers.small_checkpoints import VIT, load, refusal, saved, vit
from rope_dense.backbones import RoPEViT
from rope_dense.checkpoints import CheckpointError
from rope_dense.checkpoints.detectors import EOMT, PUBLISHED_MODELS
from rope_dense.checkpoints.keys import (
    Layout,
    Rows,
    check_rows,
    new_keys,
    rename_weights,
    reversed_rows,
    rows_within,
)
from rope_dense.checkpoints.publishers import LAYOUTS, deim, naver, timm_vit

ROWS: Rows = [
    ('stem.conv.*', 'stem.0.*'),
    *rows_within(
        'layers.#', 'blocks.#', ('w{1,2}.*', 'mlp.fc{1,2}.*'), ('ls#', 'gamma_#')
    ),
    ('layers.#.{q,k,v}.*', 'blocks.#.qkv.*'),
    ('layers.#.kv', 'blocks.#.{k,v}'),
    ('freqs', 'blocks.%.freqs'),
    ('*.mask', None),
    (None, 'periods'),
]


@pytest.mark.parametrize(
    'key, new',
    [
        ('stem.conv.norm.weight', ['stem.0.norm.weight']),
        ('layers.10.w2.bias', ['blocks.10.mlp.fc2.bias']),
        ('layers.3.ls1', ['blocks.3.gamma_1']),
        ('layers.3.k.bias', ['blocks.3.qkv.bias']),
        ('layers.3.kv', ['blocks.3.k', 'blocks.3.v']),
        ('freqs', ['blocks.%.freqs']),
        ('layers.3.mask', []),
        *(
            (key, [key])
            for key in ('layers.x.ls1', 'stemXconv.weight', 'stem.conv.', 'periods')
        ),
    ],
)
def test_rows_rename_keys(key: str, new: list[str]) -> None:
    assert new_keys(key, ROWS) == new


def test_tensors_are_concatenated_split_and_stacked_and_back() -> None:
    theirs = {
        f'layers.{i}.{x}.weight': torch.randn(4, 3) for i in range(12) for x in 'vqk'
    }
    theirs |= {f'layers.{i}.kv': torch.randn(6) for i in range(12)}
    theirs |= {'freqs': torch.randn(2, 12, 5), '100%': torch.randn(2, 3)}
    ours = rename_weights(theirs, ROWS)
    parts = [theirs[f'layers.10.{x}.weight'] for x in 'qkv']
    assert torch.equal(ours['blocks.10.qkv.weight'], torch.cat(parts))
    assert torch.equal(ours['blocks.10.v'], theirs['layers.10.kv'][3:])
    assert torch.equal(ours['blocks.10.freqs'], theirs['freqs'][:, 10])
    back = rename_weights({**ours, 'periods': torch.ones(1)}, reversed_rows(ROWS))
    assert back.keys() == theirs.keys()
    assert all(torch.equal(back[key], x) for key, x in theirs.items())


@pytest.mark.parametrize(
    'rows, message',
    [
        ([('a.#.*', 'b.*.#')], 'same # and'),
        ([('a.#', 'b')], 'same # and'),
        ([('a.{q,k}', 'b.{q,k,v}')], 'as many alternatives'),
        ([('a.{q,k}.{w,b}', 'b')], 'one pair of braces'),
        ([('a.%', 'b.%')], '% is for one'),
    ],
)
def test_wrong_rows_are_refused_when_they_are_imported(
    rows: Rows, message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        Layout('wrong', ('a',), rows)


@pytest.mark.parametrize(
    'rows, hidden',
    [
        ([('a.*', 'b.*'), ('a.#.w', 'c.#')], r"\('a\.#\.w', 'c\.#'\)"),
        ([('{a,b}', 'c'), ('b', 'd')], r"\('b', 'd'\)"),
    ],
)
def test_rows_that_no_key_reaches_are_refused(rows: Rows, hidden: str) -> None:
    with pytest.raises(ValueError, match=f'{hidden} is never used'):
        check_rows(rows)


def test_rows_without_an_exact_way_back_are_refused() -> None:
    with pytest.raises(ValueError, match='never used'):
        reversed_rows([('old.*', 'ours.*'), ('new.*', 'ours.*')])


def test_two_keys_of_one_name_are_refused() -> None:
    with pytest.raises(CheckpointError, match=r'b more than once: a, b'):
        rename_weights({'a': torch.ones(1), 'b': torch.ones(1)}, [('a', 'b')])


PUBLISHED = [*LAYOUTS, *PUBLISHED_MODELS.values(), *EOMT]


@pytest.mark.parametrize('layout', PUBLISHED, ids=lambda layout: layout.name)
def test_every_row_can_match_a_key(layout: Layout) -> None:
    """None is hidden by a row before it, or has a trace of a regular expression."""
    check_rows(layout.keys)
    names = [name for row in layout.keys for name in row if name]
    for name in (*names, *layout.signs, *layout.tensors):
        assert re.fullmatch(
            r'[\w.#*%]+(\{[\w.#*,]+\}[\w.#*]*)?|\{[\w.#*,]+\}[\w.#*]*', name
        ), name


@pytest.mark.parametrize(
    'rows',
    [naver.VIT, naver.SWIN, timm_vit.PACKED, deim.ECVIT, deim.DEIMV2, deim.EDGECRAFTER],
)
def test_the_way_back_ends_where_it_began(rows: Rows) -> None:
    """Of a key of each row, whatever its letters stand for; names stay as they are."""
    back = reversed_rows(rows)
    for old, new in rows:
        if old is None or new is None or '{' in old + new or '%' in new:
            continue
        key = old.replace('#', '7').replace('*', 'weight')
        (ours,) = new_keys(key, rows)
        assert new_keys(ours, back) == [key]


# ---------------------------------------------------------------- prefixes that all keys share


@pytest.mark.parametrize(
    'shared',
    [
        '_orig_mod.',
        'model.',
        'net.',
        'model.backbone.',
        'module._orig_mod.',
        'model._orig_mod.',
    ],
)
def test_prefixes_of_wrappers_are_removed(
    shared: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lines = []
    monkeypatch.setattr(
        'rope_dense.checkpoints.weights.print_log',
        lambda text, logger: lines.append(text),
    )
    weights = {key: x for key, x in vit().items() if not key.startswith('freqs_t')}
    path = saved(
        {'state_dict': {f'{shared}{key}': x for key, x in weights.items()}}, tmp_path
    )
    model = load(RoPEViT, path, **VIT)
    assert torch.equal(model.cls_token, weights['cls_token'])
    (line,) = lines
    assert repr(shared.removesuffix('backbone.')) in line


def test_a_prefix_may_begin_with_one_of_them(tmp_path: Path) -> None:
    """And what not all keys share stays."""
    weights = {f'model.visual.{key}': x for key, x in vit().items()}
    weights['model.language.weight'] = torch.ones(1)
    path = saved(weights, tmp_path)
    for prefix in ('model.visual', 'visual'):
        load(RoPEViT, path, prefix, **VIT)
    weights['head.weight'] = torch.ones(1)
    path = saved(weights, tmp_path)
    load(RoPEViT, path, 'model.visual', **VIT)
    assert "Perhaps prefix='model.visual.'" in refusal(RoPEViT, path, **VIT)
