"""Tables over the positions of a grid or the offsets of a window that are not square."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from helpers.small_checkpoints import saved
from rope_dense.backbones import RoPESwin, RoPEViT
from rope_dense.backbones.base import Backbone
from rope_dense.checkpoints import CheckpointError

Size = tuple[int, int]
TABLE = 'layers.1.blocks.1.attn.relative_position_bias_table'


def vit(grid: Size, init_cfg: dict | None = None) -> RoPEViT:
    arch = dict(embed_dims=8, depth=1, num_heads=1)
    img_size = (16 * grid[0], 16 * grid[1])
    return RoPEViT(arch, use_ape=True, img_size=img_size, rope=None, init_cfg=init_cfg)


def swin(window: Size, init_cfg: dict | None = None) -> RoPESwin:
    settings = dict(
        arch=dict(embed_dims=8, depths=(1, 2), num_heads=(1, 2)), out_indices=(0, 1)
    )
    return RoPESwin(
        **settings,
        rope=None,
        attention=dict(type='TableBias'),
        pretrain_window_size=window,
        init_cfg=init_cfg,
    )


def loaded(
    make: Callable[..., Backbone],
    size: Size,
    old: Backbone,
    folder: Path,
    **settings: object,
) -> Backbone:
    path = saved(old.state_dict(), folder)
    model = make(size, dict(type='Pretrained', checkpoint=path, **settings))
    model.init_weights()
    return model


def bicubic(table: Tensor, old: Size, new: Size) -> Tensor:
    """A table [1, entries, C], by definition."""
    as_map = table.reshape(1, *old, -1).permute(0, 3, 1, 2)
    resized = F.interpolate(as_map, new, mode='bicubic', align_corners=False)
    return resized.permute(0, 2, 3, 1).flatten(1, 2)


@pytest.fixture
def lines(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What loading logs."""
    lines: list[str] = []
    monkeypatch.setattr(
        'rope_dense.checkpoints.load.print_log', lambda text, logger: lines.append(text)
    )
    return lines


@pytest.mark.parametrize(
    'old, new',
    [((4, 16), (8, 32)), ((10, 20), (20, 40)), ((9, 12), (3, 4)), ((8, 8), (3, 5))],
)
def test_a_table_keeps_the_aspect_of_the_model(
    old: Size, new: Size, tmp_path: Path, lines: list[str]
) -> None:
    """Also 64 = 4 x 16 entries for 8 x 32, if ``grid`` says that they are no square."""
    grid = dict(grid=old) if old == (4, 16) else {}
    trained = vit(old)
    model = loaded(vit, new, trained, tmp_path, **grid)
    torch.testing.assert_close(model.pos_embed, bicubic(trained.pos_embed, old, new))
    assert ('assumed pos_embed over {} x {}'.format(*old) in lines[0]) == (not grid)
    assert 'resized pos_embed' in lines[0]


def test_as_many_entries_are_copied_and_it_is_said(
    tmp_path: Path, lines: list[str]
) -> None:
    trained = vit((4, 16))
    model = loaded(vit, (4, 16), trained, tmp_path)
    assert torch.equal(model.pos_embed, trained.pos_embed)
    assert 'assumed pos_embed over 4 x 16' in lines[0] and 'resized' not in lines[0]
    square = vit((8, 8))
    model = loaded(vit, (4, 16), square, tmp_path, grid=(8, 8))
    torch.testing.assert_close(
        model.pos_embed, bicubic(square.pos_embed, (8, 8), (4, 16))
    )
    assert 'assumed' not in lines[1]
    loaded(vit, (8, 8), square, tmp_path)
    assert 'assumed' not in lines[2]


def test_two_grids_that_fit_are_refused(tmp_path: Path) -> None:
    path = saved(vit((4, 16)).state_dict(), tmp_path)
    init_cfg = dict(type='Pretrained', checkpoint=path)
    for settings, words in (
        ({}, r'set grid=\(4, 16\) or grid=\(8, 8\) in init_cfg'),
        (dict(grid=(2, 16)), r'pos_embed has 64 entries, grid=\(2, 16\) has 2 x 16'),
    ):
        with pytest.raises(CheckpointError, match=words):
            vit((8, 32), init_cfg | settings).init_weights()
    with pytest.raises(CheckpointError, match='no position tables'):
        RoPEViT(
            dict(embed_dims=8, depth=1, num_heads=1), init_cfg=init_cfg | dict(grid=4)
        ).init_weights()
    with pytest.raises(ValueError, match='init_cfg: grid'):
        vit((8, 32), init_cfg | dict(grid=(0, 4)))


def test_tables_of_windows_that_are_not_square(
    tmp_path: Path, lines: list[str]
) -> None:
    trained = swin((5, 10))
    old = trained.get_parameter(TABLE)
    for grid in ({}, dict(grid=(5, 10))):
        model = loaded(swin, (7, 14), trained, tmp_path, **grid)
        expected = bicubic(old[None], (9, 19), (13, 27))[0]
        torch.testing.assert_close(model.get_parameter(TABLE), expected)
    assert (
        'relative_position_bias_table over 5 x 10' in lines[0]
        and 'assumed' not in lines[1]
    )


@pytest.mark.parametrize(
    'settings',
    [
        dict(arch='tiny', depth=1),  # the grid of a named architecture
        dict(arch=dict(embed_dims=8, depth=1, num_heads=1), use_ape=True),  # of a table
    ],
)
def test_a_scaling_relative_to_another_grid_is_named(
    settings: dict, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """img_size as in mmseg's configs, the size of the crops, turns a scaling off up to it."""
    lines: list[str] = []
    monkeypatch.setattr(
        'rope_dense.checkpoints.load.print_log', lambda text, **_: lines.append(text)
    )
    path = saved(RoPEViT(**settings).state_dict(), tmp_path)

    def warnings(**given: object) -> list[str]:
        lines.clear()
        init_cfg = dict(type='Pretrained', checkpoint=path)
        RoPEViT(**settings | given, init_cfg=init_cfg).init_weights()
        return lines[1:]

    linear = dict(type='linear')
    (line,) = warnings(img_size=512, rope_scaling=linear)
    assert 'relative to 32 x 32 tokens' in line
    assert 'set model.backbone.rope_scaling.grid=(14, 14)' in line
    assert not warnings(rope_scaling=linear)
    assert not warnings(img_size=512, rope_scaling=dict(linear, grid=(14, 14)))
    assert not warnings(img_size=512, rope_scaling=dict(type='none'))
