"""EoMT against transformers' and against attention token by token, and what it refuses."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from helpers.eomt import (
    ARCH,
    BLOCKS,
    CLASSES,
    QUERIES,
    SIZES,
    build,
    close,
    image,
    randomise,
    theirs,
)
from helpers.small_checkpoints import saved
from rope_dense.backbones import RoPEViT
from rope_dense.models.eomt.annealing import load_eomt
from rope_dense.models.eomt.queries import EoMT

PREFIX = 5  # class token and registers


@pytest.mark.parametrize('training', [False, True])
def test_predictions_are_those_of_transformers(tmp_path: Path, training: bool) -> None:
    """In training with all queries masked, as at its beginning."""
    model, (backbone, eomt) = theirs(), build()
    load_eomt(backbone, eomt, saved(model.state_dict(), tmp_path))
    model.attn_mask_probs.fill_(float(training))
    for part in (model, backbone, eomt):
        part.train(training)
    with torch.no_grad():
        expected = model(image())
        predictions = eomt(backbone, image())
    assert len(predictions) == (1 + BLOCKS if training else 1)
    classes, masks = predictions[-1]
    assert 0.01 < (masks > 0).float().mean() < 0.99
    assert masks.shape == (2, QUERIES, 16, 16)
    assert close(classes, expected.class_queries_logits)
    assert close(masks, expected.masks_queries_logits)


def attend_one_by_one(
    attn: nn.Module, x: Tensor, grid: tuple[int, int], mask: Tensor
) -> Tensor:
    """Masked attention [B, N, C], a query, a key and a head at a time, with rotations from the
    angles of the embedding, by complex products in float64."""
    batch, number, _ = x.shape
    heads, prefix = attn.num_heads, number - grid[0] * grid[1]
    rotary = attn.rope(x, grid)
    q, k, v = (
        attn.qkv(x).double().unflatten(-1, (3, heads, -1)).unbind(2)
    )  # [B, N, h, D]
    pairs = q.shape[-1] // 2
    turns = torch.polar(torch.ones_like(rotary.angles), rotary.angles).to(
        torch.complex128
    )
    for part in (q, k):
        tokens = (
            torch.complex(part[:, prefix:, :, :pairs], part[:, prefix:, :, pairs:])
            * turns
        )
        part[:, prefix:] = torch.cat([tokens.real, tokens.imag], -1)
    out = torch.zeros_like(q)
    for sample in range(batch):
        for head in range(heads):
            for query in range(number):
                keys = [key for key in range(number) if mask[sample, query, key]]
                scores = [q[sample, query, head] @ k[sample, key, head] for key in keys]
                weights = (torch.stack(scores) * q.shape[-1] ** -0.5).softmax(0)
                values = torch.stack([v[sample, key, head] for key in keys])
                out[sample, query, head] = weights @ values
    return attn.proj(out.flatten(2).float())


def reference(backbone: RoPEViT, eomt: EoMT, x: Tensor) -> list[tuple[Tensor, Tensor]]:
    """Predictions in training with all queries masked, token by token."""
    x, grid = backbone.embed(x)
    number = grid[0] * grid[1]
    for block in backbone.blocks[:-BLOCKS]:
        x = block(x, grid)
    x = torch.cat([eomt.query.weight.expand(len(x), -1, -1), x], 1)
    predictions = [predict(backbone, eomt, x, grid)]
    for block in backbone.blocks[-BLOCKS:]:
        small = nn.functional.interpolate(
            predictions[-1][1], size=grid, mode='bilinear'
        )
        mask = torch.ones(len(x), x.shape[1], x.shape[1], dtype=torch.bool)
        for token in range(number):
            row, column = divmod(token, grid[1])
            mask[:, :QUERIES, x.shape[1] - number + token] = (
                small[:, :, row, column] > 0
            )
        x = x + block.gamma_1 * attend_one_by_one(
            block.attn, block.norm1(x), grid, mask
        )
        x = x + block.gamma_2 * block.mlp(block.norm2(x))
        predictions.append(predict(backbone, eomt, x, grid))
    return predictions


def predict(
    backbone: RoPEViT, eomt: EoMT, x: Tensor, grid: tuple[int, int]
) -> tuple[Tensor, Tensor]:
    x = backbone.norm(x)
    queries, tokens = x[:, :QUERIES], x[:, QUERIES + PREFIX :]
    features = eomt.upscale(tokens.transpose(1, 2).reshape(len(x), -1, *grid))
    return eomt.class_head(queries), torch.einsum(
        'bqc,bchw->bqhw', eomt.mask_head(queries), features
    )


@torch.no_grad()
def test_probability_1_masks_token_by_token() -> None:
    backbone, eomt = build()
    randomise(backbone, eomt)
    backbone.train(), eomt.train()
    actual, expected = (
        eomt(backbone, image(48, 64)),
        reference(backbone, eomt, image(48, 64)),
    )
    assert len(actual) == len(expected) == 1 + BLOCKS
    for predicted, wanted in zip(actual, expected, strict=True):
        assert all(map(close, predicted, wanted))


@torch.no_grad()
def test_probability_0_is_evaluation() -> None:
    backbone, eomt = build()
    randomise(backbone, eomt)
    masked = eomt(backbone, image())[-1]
    eomt.mask_probs = [0.0] * BLOCKS
    trained = eomt(backbone, image())[-1]
    eomt.eval(), backbone.eval()
    (evaluated,) = eomt(backbone, image())
    assert all(map(close, trained, evaluated))
    assert not close(masked[1], evaluated[1], 1e-3)


def test_each_block_masks_with_its_own_probability() -> None:
    _backbone, eomt = build()
    masks = torch.full((200, QUERIES, 8, 8), -1.0)
    eomt.mask_probs = [0.25, 0.75]
    for step, probability in enumerate(eomt.mask_probs):
        mask = eomt.attention_mask(masks, QUERIES + PREFIX + 12, (3, 4), step)
        assert mask.shape == (200, 1, 27 - 5, 27 - 5)
        assert mask[:, :, QUERIES:].all() and mask[..., : QUERIES + PREFIX].all()
        hidden = ~mask[:, 0, :QUERIES, QUERIES + PREFIX :]
        assert (hidden.any(-1) == hidden.all(-1)).all()  # a query is masked as a whole
        assert hidden.all(-1).float().mean() == pytest.approx(probability, abs=0.05)


def test_no_mask_where_none_is_needed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Flash attention takes none. A block with a probability has one."""
    backbone, eomt = build()
    masks: list[Tensor | None] = []
    attend = functional.scaled_dot_product_attention

    def watched(*args: Tensor, attn_mask: Tensor | None, scale: float) -> Tensor:
        masks.append(attn_mask)
        return attend(*args, attn_mask=attn_mask, scale=scale)

    monkeypatch.setattr(functional, 'scaled_dot_product_attention', watched)
    eomt.mask_probs = [0.0, 0.5]
    eomt(backbone.train(), image())
    assert [mask is None for mask in masks[-BLOCKS:]] == [True, False]


@pytest.mark.parametrize(
    'settings',
    [
        dict(arch=SIZES | dict(final_norm=True)),  # RoPE-Mixed of the paper
        dict(
            arch=SIZES
            | dict(rope=dict(type='AxialRoPE', theta=100.0), with_cls_token=False)
        ),
        dict(arch=RoPEViT.ARCHS['eva02_base'] | SIZES),
        dict(arch=RoPEViT.ARCHS['pe_spatial_base'] | SIZES),
        dict(arch=ARCH, window_size=2, window_block_indexes=(0, 1)),
        dict(
            arch=ARCH, window_size=2, window_block_indexes=(1,), window_prefix='global'
        ),
        dict(arch=ARCH, with_cp=True),
        dict(arch=ARCH, lora=dict(rank=2)),
    ],
    ids=[
        'mixed',
        'axial',
        'eva02',
        'pe',
        'windows',
        'windows, global',
        'recomputed',
        'lora',
    ],
)
def test_any_family_trains_at_any_size(settings: dict) -> None:
    backbone, eomt = build(**settings)
    randomise(backbone, eomt)
    patch = backbone.arch.patch_size
    predictions = eomt(backbone, image(5 * patch, 3 * patch))
    scale = 4 if patch == 16 else 2
    for classes, masks in predictions:
        assert classes.shape == (2, QUERIES, CLASSES + 1)
        assert masks.shape == (2, QUERIES, 5 * scale, 3 * scale)
    sum(x.square().mean() for prediction in predictions for x in prediction).backward()
    trained = [
        p for part in (backbone, eomt) for p in part.parameters() if p.requires_grad
    ]
    assert trained and all(p.grad is not None and p.grad.any() for p in trained)


def test_frozen_blocks_before_the_queries_keep_nothing() -> None:
    backbone, eomt = build(frozen_stages=2)
    sum(masks.sum() for _, masks in eomt(backbone, image())).backward()
    trained = [
        key for key, param in backbone.named_parameters() if param.grad is not None
    ]
    with_gradient = {key.split('.')[1] for key in trained}
    assert with_gradient == {
        '2',
        '3',
        'weight',
        'bias',
    }  # the last two blocks, and the norm


def test_a_frozen_backbone_trains_queries_and_heads() -> None:
    backbone, eomt = build(frozen_stages='all')
    randomise(backbone, eomt)
    sum(masks.square().mean() for _, masks in eomt(backbone, image())).backward()
    assert eomt.query.weight.grad.any()
    assert all(param.grad is None for param in backbone.parameters())


def test_the_backbone_no_longer_runs_alone() -> None:
    backbone, _ = build()
    with pytest.raises(ValueError, match='angles'):
        backbone(image())


@pytest.mark.parametrize(
    'settings, message',
    [
        (
            dict(window_size=2, window_block_indexes=(1, 2)),
            r'window_block_indexes=\[1, 2\]',
        ),
        (dict(final_norm=False), 'final_norm=True'),
        (dict(arch=SIZES | dict(depth=1), final_norm=True), 'num_blocks=2'),
        (dict(arch=SIZES | dict(embed_dims=64), final_norm=True), "'in_channels': 64"),
        (dict(patch_size=8), "'patch_size': 8"),
        (
            dict(
                arch=SIZES,
                final_norm=True,
                rope=None,
                attention=dict(type='DecomposedBias'),
                with_cls_token=False,
            ),
            'DecomposedBias',
        ),
    ],
)
def test_what_does_not_fit_is_named(settings: dict, message: str) -> None:
    backbone = RoPEViT(**(dict(arch=ARCH) | settings))
    with pytest.raises(ValueError, match=message):
        EoMT(32, CLASSES, QUERIES, BLOCKS).join(backbone)
