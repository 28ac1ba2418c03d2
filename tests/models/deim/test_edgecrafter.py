"""ECDet's encoder, decoder and losses against its source, where a checkout is at hand."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from mmengine.registry import MODELS
from torch import Tensor, nn

from helpers.deim import CLASSES, close, randomise
from helpers.edgecrafter import edgecrafter
from rope_dense.checkpoints.keys import Rows, rename_weights
from rope_dense.checkpoints.publishers.deim import COMPUTED, EDGECRAFTER
from rope_dense.models.deim.predictions import Targets

HIDDEN, COUNTS, LAYERS = 32, [3, 0, 4], 3
COSTS = dict(cost_class=2, cost_bbox=5, cost_giou=2)
WEIGHTS = dict(loss_mal=1, loss_bbox=5, loss_giou=2, loss_fgl=0.15, loss_ddf=1.5)
MASK_COSTS = dict(
    cost_class=2, cost_bbox=1, cost_giou=1, cost_mask_ce=5, cost_mask_dice=5
)
MASK_WEIGHTS = WEIGHTS | dict(loss_mask_ce=5, loss_mask_dice=5)
SIDE = 96


def part(theirs: str, ours: str) -> Rows:
    """Rows of a part of the detector alone, without its prefix in either."""
    rows = COMPUTED + EDGECRAFTER
    return [
        (old.removeprefix(theirs), new and new.removeprefix(ours))
        for old, new in rows
        if old and old.startswith((theirs, '*'))
    ]


ENCODER, HEAD = part('encoder.', 'encoder.'), part('decoder.', 'bbox_head.')


def models(
    *, masks: bool = False, random: bool = True, **settings: Any
) -> tuple[nn.Module, nn.Module, nn.Module, nn.Module]:
    """Their encoder and decoder, and our encoder and head with the same weights."""
    encoder = edgecrafter('hybrid_encoder').HybridEncoder(
        [HIDDEN] * 3,
        hidden_dim=HIDDEN,
        nhead=4,
        dim_feedforward=48,
        dropout=0.0,
        expansion=0.75,
        depth_mult=0.67,
        csp_type='csp2',
        fuse_op='sum',
    )
    decoder = edgecrafter('decoder').ECTransformer(
        num_classes=CLASSES,
        hidden_dim=HIDDEN,
        num_queries=20,
        feat_channels=[HIDDEN] * 3,
        num_points=[3, 6, 3],
        nhead=4,
        num_layers=LAYERS,
        dim_feedforward=64,
        num_denoising=20,
        **(
            dict(mask_downsample_ratio=4, eval_spatial_size=[SIDE, SIDE])
            if masks
            else {}
        ),
    )
    config = dict(
        type='DEIMEncoder',
        in_channels=(HIDDEN,) * 3,
        embed_dims=HIDDEN,
        feedforward_channels=48,
        num_blocks=2,
        expansion=0.75,
        num_heads=4,
        act='SiLU',
    )
    layers = dict(num_layers=LAYERS, feedforward_channels=64, num_heads=4)
    head = dict(
        type='DEIMHead',
        num_classes=CLASSES,
        embed_dims=HIDDEN,
        num_queries=20,
        decoder=layers | dict(norm='layer', ffn='mlp'),
        denoising=dict(num_queries=20),
    )
    if masks:
        head['masks'] = dict(eval_blocks=settings.pop('eval_blocks', None))
    ours = MODELS.build(config), MODELS.build(head | settings)
    if not random:
        return encoder, decoder, *ours
    randomise(encoder)
    randomise(decoder)
    ours[0].load_state_dict(rename_weights(encoder.state_dict(), ENCODER))
    ours[1].load_state_dict(rename_weights(decoder.state_dict(), HEAD))
    return encoder, decoder, *ours


def maps() -> list[Tensor]:
    """Of a square image: the source orders the positions of others by columns."""
    return [
        torch.randn(3, HIDDEN, SIDE // stride, SIDE // stride) for stride in (8, 16, 32)
    ]


def names_of_ours(name: str) -> str:
    """Ours of a loss that is called loss_mal_aux_0, loss_mal_dn_pre and so on there."""
    name = name.replace('mask_ce', 'mask').replace('mask_dice', 'dice')
    _, loss, *place = name.split('_')
    prefixes = {
        ('pre',): 'pre.',
        ('enc', '0'): 'enc.',
        ('dn', 'pre'): 'dn_pre.',
        (): '',
    }
    prefix = prefixes.get(tuple(place))
    if prefix is None:
        prefix = ('d' if place[0] == 'aux' else 'dn_d') + place[1] + '.'
    return f'{prefix}loss_{loss}'


def test_evaluation_is_that_of_the_source() -> None:
    their_encoder, decoder, encoder, head = (part.eval() for part in models())
    given = maps()
    with torch.no_grad():
        encoded = encoder(given)
        for x, expected in zip(encoded, their_encoder(list(given)), strict=True):
            assert close(x, expected)
        prediction, expected = head(encoded), decoder(list(encoded))
    assert close(prediction.logits, expected['pred_logits'])
    assert close(prediction.boxes, expected['pred_boxes'])


def test_masks_in_evaluation_are_those_of_the_source() -> None:
    """Which has the first block alone there."""
    _, decoder, _, head = (part.eval() for part in models(masks=True, eval_blocks=1))
    given = maps()
    with torch.no_grad():
        prediction, expected = head(given), decoder(list(given), spatial_feat=given[0])
    every = torch.arange(20).expand(3, -1)
    assert close(prediction.masks.logits(every), expected['pred_masks'])


def test_weights_begin_as_those_of_the_source() -> None:
    """Constants are the same, and other weights as large."""
    their_encoder, decoder, encoder, head = models(masks=True, random=False)
    expected = rename_weights(their_encoder.state_dict(), ENCODER)
    pairs = [(encoder.state_dict(), expected)]
    pairs.append((head.state_dict(), rename_weights(decoder.state_dict(), HEAD)))
    for ours, theirs in pairs:
        assert set(ours) == set(theirs)
        for name, tensor in ours.items():
            other = theirs[name]
            if other.float().unique().numel() <= 2 or 'sampling_offsets' in name:
                assert torch.equal(tensor, other), name
            elif tensor.numel() >= 500:
                assert (tensor.std() / other.std() - 1).abs() < 0.15, name


def same_points(patch: pytest.MonkeyPatch) -> None:
    """Let the points of masks depend on nothing but their number."""
    rand = torch.rand

    def fixed(*size: Any, **settings: Any) -> Tensor:
        if len(size) < 2 or size[-1] != 2:
            return rand(*size, **settings)
        generator = torch.Generator().manual_seed(math.prod(size))
        return rand(*size, generator=generator, **settings)

    patch.setattr(torch, 'rand', fixed)


@pytest.mark.parametrize('masks', [False, True], ids=['boxes', 'masks'])
def test_losses_and_gradients_are_those_of_the_source(
    masks: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All of them, with the same noise; transformers' caller computes some otherwise."""
    costs = dict(
        class_cost=2.0, bbox_cost=1.0, giou_cost=1.0, mask_cost=5.0, dice_cost=5.0
    )
    settings = dict(matching=costs) if masks else {}
    their_encoder, decoder, encoder, head = models(masks=masks, **settings)
    matcher = edgecrafter('matcher').HungarianMatcher(
        MASK_COSTS if masks else COSTS,
        use_focal_loss=True,
        mask_point_sample_ratio=16 if masks else None,
    )
    criterion = edgecrafter('criterion').ECCriterion(
        matcher,
        MASK_WEIGHTS if masks else WEIGHTS,
        ['mal', 'boxes', 'local', 'masks'][: 3 + masks],
        gamma=1.5,
        num_classes=CLASSES,
    )
    same_points(monkeypatch)
    number = sum(COUNTS)
    boxes = torch.cat([torch.rand(number, 2), 0.1 + 0.3 * torch.rand(number, 2)], -1)
    truth = (torch.rand(number, SIDE, SIDE) < 0.4).to(torch.uint8) if masks else None
    targets = Targets(torch.randint(0, CLASSES, (number,)), boxes, COUNTS, truth)
    given = maps()
    torch.manual_seed(3)
    encoded = encoder(given)
    losses = head.criterion(head.forward_training(encoded, targets), targets)
    torch.manual_seed(3)
    labels = [dict(labels=label, boxes=box) for label, box in targets.per_image]
    encoded = their_encoder(list(given))
    if truth is not None:
        for label, part in zip(labels, truth.split(COUNTS), strict=True):
            label['masks'] = part
    outputs = decoder(encoded, labels, encoded[0] if masks else None)
    expected = {
        names_of_ours(name): x for name, x in criterion(outputs, labels).items()
    }
    own = expected.pop(
        f'dn_d{LAYERS - 1}.loss_ddf'
    )  # what the last layer learns from itself
    assert own == 0
    assert set(losses) == set(expected)
    for name, loss in losses.items():
        assert abs(loss - expected[name]) <= 1e-5 * max(1, abs(expected[name])), name
    sum(losses.values()).backward()
    sum(expected.values()).backward()
    for ours, theirs, rows in (
        (encoder, their_encoder, ENCODER),
        (head, decoder, HEAD),
    ):
        gradients = {
            name: torch.zeros_like(param) if param.grad is None else param.grad
            for name, param in theirs.named_parameters()
        }
        expected = rename_weights(gradients, rows)
        largest = max(gradient.abs().max() for gradient in expected.values())
        for name, param in ours.named_parameters():
            assert (param.grad - expected[name]).abs().max() <= 5e-5 * largest, name
