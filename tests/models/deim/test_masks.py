"""Masks as products of queries and a map: point by point, in training and in the original image."""

from __future__ import annotations

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from mmdet.structures import DetDataSample
from mmdet.structures.bbox import bbox_overlaps
from mmdet.structures.mask import BitmapMasks
from mmengine.structures import InstanceData
from torch import Tensor

from helpers.deim import CLASSES, close, ours
from rope_dense.models.deim import masks as module
from rope_dense.models.deim.masks import (
    MaskHead,
    end_at_boxes,
    in_image,
    mask_losses,
)
from rope_dense.models.deim.matching import Matcher
from rope_dense.models.deim.predictions import Masks, Pairs, Prediction, Targets
from rope_dense.models.deim.recipe import MASK_LOSSES

BATCH, QUERIES, CHANNELS, HEIGHT, WIDTH = 2, 5, 4, 8, 12
COUNTS = [2, 1]


def masks() -> tuple[Masks, Tensor]:
    """Masks, and all of their logits [B, Q, h, w]."""
    features = torch.randn(BATCH, CHANNELS + 1, HEIGHT, WIDTH)
    kernels = torch.randn(BATCH, QUERIES, CHANNELS + 1)
    return Masks(features, kernels), torch.einsum('bchw,bqc->bqhw', features, kernels)


def targets() -> Targets:
    number = sum(COUNTS)
    boxes = torch.cat([torch.rand(number, 2), 0.1 + 0.3 * torch.rand(number, 2)], -1)
    truth = (torch.rand(number, 4 * HEIGHT, 4 * WIDTH) < 0.5).to(torch.uint8)
    return Targets(torch.randint(0, CLASSES, (number,)), boxes, COUNTS, truth)


def test_products_of_some_queries_and_at_some_points() -> None:
    given, logits = masks()
    index = torch.tensor([[3, 0], [1, 1]])
    assert close(
        given.logits(index), torch.stack([logits[0, index[0]], logits[1, index[1]]])
    )
    pairs = Pairs(torch.tensor([4, 1, QUERIES + 2]), torch.arange(3), COUNTS)
    assert close(given.of_pairs(pairs), logits.flatten(0, 1)[pairs.queries])
    points = torch.rand(9, 2)
    grid = (2 * points - 1).expand(BATCH, 1, -1, -1)
    expected = F.grid_sample(logits, grid, align_corners=False)[:, :, 0]
    assert close(given.at(points), expected)
    first, second = given.split([2, 3])
    assert close(second.at(points), expected[:, 2:])
    assert first.features is given.features


def test_masks_end_at_their_boxes() -> None:
    """Resized by 8, a mask of high logits fills its box of several places; low ones stay."""
    boxes = torch.tensor([[[0.5, 0.5, 0.4, 0.3], [0.1, 0.8, 0.3, 0.35]]])
    logits = torch.full((1, 2, HEIGHT, WIDTH), 50.0)
    size = (8 * HEIGHT, 8 * WIDTH)
    found = in_image(end_at_boxes(logits, boxes)[0], size, size, size)
    rows, columns = (torch.arange(length) + 0.5 for length in size)
    for mask, (x, y, width, height) in zip(found, boxes[0], strict=True):
        is_row = (rows / size[0] - y).abs() < height / 2
        is_column = (columns / size[1] - x).abs() < width / 2
        assert (mask.any(1) != is_row).sum() <= 2
        assert (mask.any(0) != is_column).sum() <= 2
        whole = is_row.sum() * is_column.sum()
        assert 0.9 * whole < mask.sum() < 1.1 * whole  # corners are cut
    assert torch.equal(end_at_boxes(-100 - logits, boxes), -100 - logits)


def test_masks_in_boxes_are_learned_there_alone_and_begin_at_zero() -> None:
    given, _ = masks()
    truth = targets()
    pairs = Pairs(torch.tensor([4, 1, QUERIES + 2]), torch.arange(3), COUNTS)
    features = given.features.requires_grad_()
    sums = mask_losses(given, truth, pairs, 1, in_boxes=True)
    (gradient,) = torch.autograd.grad(sum(sums.values()), features)
    far = torch.ones(BATCH, HEIGHT, WIDTH) > 0
    rows = (torch.arange(HEIGHT) + 0.5) / HEIGHT
    columns = (torch.arange(WIDTH) + 0.5) / WIDTH
    for image, boxes in enumerate(truth.boxes.split(COUNTS)):
        for x, y, width, height in boxes:
            is_row = (rows - y).abs() < height / 2 + 1 / HEIGHT
            is_column = (columns - x).abs() < width / 2 + 1 / WIDTH
            far[image] &= ~(is_row[:, None] & is_column)
    change = gradient.abs().sum(1)
    assert change[~far].sum() > 0 and (change[far] == 0).all()
    head = MaskHead(8, 1, in_boxes=True)
    (begun,) = head(torch.randn(1, 8, 4, 4), [torch.randn(1, 3, 8)])
    assert (begun.logits(torch.tensor([[0, 1, 2]])) == 0).all()


def test_targets_are_sampled_at_the_nearest_pixel() -> None:
    given = targets()
    index, points = torch.tensor([2, 0, 0]), torch.rand(3, 50, 2)
    points[0, 0], points[0, 1] = (
        0.0,
        torch.nextafter(torch.tensor(1.0), torch.tensor(0.0)),
    )
    grid = (2 * points - 1)[:, :, None]
    whole = given.masks[index][:, None].float()
    expected = F.grid_sample(whole, grid, mode='nearest', align_corners=False)[
        :, 0, :, 0
    ]
    assert torch.equal(given.sample_masks(index, points), expected)


def test_losses_point_by_point(monkeypatch: pytest.MonkeyPatch) -> None:
    given, truth = masks()[0], targets()
    pairs = Pairs(torch.tensor([4, 1, QUERIES + 2]), torch.tensor([1, 0, 2]), COUNTS)
    points = torch.rand(3, 8, 2)
    asked: list[int] = []

    def chosen(logits: Tensor, labels: None, number: int, *settings: float) -> Tensor:
        asked.append(number)
        return points

    monkeypatch.setattr(module, 'get_uncertain_point_coords_with_randomness', chosen)
    losses = mask_losses(given, truth, pairs, ratio=16)
    assert asked == [HEIGHT]  # 96 places / 16 are fewer than rows
    grid = (2 * points - 1)[:, :, None]
    logits = F.grid_sample(
        given.of_pairs(pairs)[:, None], grid, align_corners=False
    ).view(3, 8)
    labels = truth.sample_masks(pairs.targets, points)
    entropy = dice = 0.0
    for row, label in zip(logits.double(), labels, strict=True):
        p = row.sigmoid()
        entropy += -(label * p.log() + (1 - label) * (1 - p).log()).mean().item()
        dice += 1 - ((2 * (p * label).sum() + 1) / (p.sum() + label.sum() + 1)).item()
    assert losses['mask'].item() == pytest.approx(entropy, rel=1e-5)
    assert losses['dice'].item() == pytest.approx(dice, rel=1e-5)


def test_matching_by_masks_alone() -> None:
    """Boxes and classes are all the same; the masks of some queries are those of annotations."""
    wanted = (torch.rand(sum(COUNTS), 1, HEIGHT, WIDTH) < 0.5).float()
    whole = F.interpolate(wanted, scale_factor=4.0, mode='nearest')[:, 0].to(
        torch.uint8
    )
    truth = targets()._replace(masks=whole)
    plain = Masks(torch.randn(BATCH, 3, HEIGHT, WIDTH), torch.zeros(BATCH, QUERIES, 3))
    plain.features[0, :2] = 8 * wanted[:2, 0] - 4
    plain.features[1, 0] = 8 * wanted[2, 0] - 4
    plain.kernels[0, 3, 0], plain.kernels[0, 1, 1], plain.kernels[1, 4, 0] = (
        1.0,
        1.0,
        1.0,
    )
    prediction = Prediction(
        torch.zeros(BATCH, QUERIES, CLASSES),
        torch.full((BATCH, QUERIES, 4), 0.5),
        masks=plain,
    )
    without = prediction._replace(masks=None)
    matcher = Matcher(0.0, 0.0, 0.0, mask_cost=1.0, dice_cost=1.0)
    (pairs, _), _ = matcher([prediction, without], truth)
    assert set(zip(pairs.queries.tolist(), pairs.targets.tolist(), strict=True)) == {
        (3, 0),
        (1, 1),
        (QUERIES + 4, 2),
    }
    costs = matcher.mask_costs([prediction, without], truth)
    assert [tuple(cost.shape) for cost in costs] == [(2 * QUERIES, 2), (2 * QUERIES, 1)]
    assert all((cost[QUERIES:] == 0).all() for cost in costs)


def test_masks_of_the_original_image() -> None:
    logits = torch.full((2, 4, 6), -1.0)
    logits[0, :2, :3], logits[1, 2:] = 1.0, 1.0
    whole = in_image(logits, (16, 24), (16, 24), (32, 48))
    assert whole.shape == (2, 32, 48)
    assert whole[0, :14, :22].all()
    assert not whole[0, 17:].any()
    assert not whole[0, :, 25:].any()
    padded = in_image(logits, (16, 24), (8, 12), (8, 12))  # the first quarter alone
    assert padded[0, :6, :10].all()
    assert not padded[1, :7].any()


def samples(
    numbers: tuple[int, ...], height: int = 64, width: int = 96
) -> list[DetDataSample]:
    made = []
    for number in numbers:
        corners = torch.rand(number, 2) * 40
        truth = InstanceData(
            bboxes=torch.cat([corners, corners + 8 + torch.rand(number, 2) * 24], 1),
            labels=torch.randint(0, CLASSES, (number,)),
            masks=BitmapMasks(
                (np.random.rand(number, height, width) < 0.5).astype(np.uint8),
                height,
                width,
            ),
        )
        made.append(DetDataSample(gt_instances=truth))
    return made


MASKS = dict(masks={}, matching=dict(mask_cost=5.0, dice_cost=5.0))


@pytest.mark.parametrize('numbers', [(3, 0, 2), (0, 0)])
def test_each_parameter_has_a_gradient(numbers: tuple[int, ...]) -> None:
    model = ours('s', head=MASKS).train()
    losses = model(torch.randn(len(numbers), 3, 64, 96), samples(numbers), mode='loss')
    for name in ('', 'd0.', 'pre.', 'dn_d0.', 'dn_d1.', 'dn_pre.'):
        assert {f'{name}loss_mask', f'{name}loss_dice'} <= set(losses)
    assert 'enc.loss_mask' not in losses
    sum(losses.values()).backward()
    for name, param in model.named_parameters():
        assert param.grad is not None, name
        assert torch.isfinite(param.grad).all(), name


def test_losses_in_bfloat16() -> None:
    """They are float32, and near those of float32."""
    model = ours('s', head=MASKS).train()
    image, data = torch.randn(2, 3, 64, 96), samples((3, 2))
    torch.manual_seed(1)
    expected = model(image, data, mode='loss')
    torch.manual_seed(1)
    with torch.autocast('cpu', torch.bfloat16):
        losses = model(image, data, mode='loss')
    sum(losses.values()).backward()
    for name in ('loss_mask', 'loss_dice', 'dn_d0.loss_mask'):
        assert losses[name].dtype == torch.float32
        assert losses[name].item() == pytest.approx(expected[name].item(), rel=0.05)
    with torch.no_grad(), torch.autocast('cpu', torch.bfloat16):
        assert model.eval()(image, mode='tensor')[3].shape == (2, 30, 16, 24)


def test_results_have_masks_of_the_original_image() -> None:
    model = ours('s', head=MASKS)
    image = torch.randn(1, 3, 64, 96)
    *_, logits = model(image, mode='tensor')
    assert logits.shape == (1, 30, 16, 24)
    meta = dict(scale_factor=(0.5, 0.5), ori_shape=(120, 150), img_shape=(60, 75))
    (sample,) = model(image, [DetDataSample(metainfo=meta)], mode='predict')
    assert sample.pred_instances.masks.shape == (30, 120, 150)
    assert sample.pred_instances.masks.dtype == torch.bool


def test_results_end_at_their_boxes() -> None:
    """Which are smaller than a place of a mask, of 4 pixels, here."""
    model = ours('s', head=dict(MASKS, masks=dict(in_boxes=True)))
    model.bbox_head.mask_head.bias.data.fill_(50.0)  # each mask is the whole image
    meta = dict(scale_factor=(1.0, 1.0), ori_shape=(64, 96), img_shape=(64, 96))
    image = torch.randn(1, 3, 64, 96)
    (sample,) = model(image, [DetDataSample(metainfo=meta)], mode='predict')
    found = sample.pred_instances
    assert found.masks.any((1, 2)).all()
    for mask, (left, top, right, bottom) in zip(found.masks, found.bboxes, strict=True):
        rows, columns = mask.nonzero().unbind(1)
        assert top - 4 < rows.min() and rows.max() < bottom + 4
        assert left - 4 < columns.min() and columns.max() < right + 4


def test_blocks_in_evaluation() -> None:
    """All of a layer, as in training, or fewer."""
    x, queries = torch.randn(2, 8, 6, 4), torch.randn(2, 3, 8)
    head = MaskHead(8, 3)
    every = head(x, [queries] * 3)
    for layer in range(3):
        assert close(head.evaluate(x, queries, layer).features, every[layer].features)
    head.eval_blocks = 1
    assert close(head.evaluate(x, queries, 2).features, every[0].features)


def ellipses(images: int = 2, number: int = 6, side: int = 128) -> tuple[Tensor, list]:
    """Bright ellipses of 8 to 16 pixels in noise, which do not touch, and their annotations."""
    y, x = np.mgrid[:side, :side] + 0.5
    pictures = 0.2 * torch.randn(images, 3, side, side)
    data = []
    meta = dict(scale_factor=(1.0, 1.0), ori_shape=(side, side), img_shape=(side, side))
    for picture in pictures:
        found: list[np.ndarray] = []
        corners = []
        while len(found) < number:
            centre, half = (
                np.random.uniform(10, side - 10, 2),
                np.random.uniform(4, 8, 2),
            )
            mask = ((x - centre[0]) / half[0]) ** 2 + (
                (y - centre[1]) / half[1]
            ) ** 2 < 1
            if not any((mask & other).any() for other in found):
                found.append(mask)
                corners.append([*(centre - half), *(centre + half)])
                picture[:, torch.from_numpy(mask)] += 2
        truth = InstanceData(
            bboxes=torch.tensor(corners).float(),
            labels=torch.zeros(number, dtype=torch.long),
            masks=BitmapMasks(np.stack(found).astype(np.uint8), side, side),
        )
        data.append(DetDataSample(gt_instances=truth, metainfo=meta))
    return pictures, data


@pytest.mark.slow
def test_masks_of_small_objects_are_learned_in_boxes() -> None:
    """In 100 steps. At points of the whole image the mean IoU is 0.02 to 0.04 then."""
    model = ours(
        's', head=dict(MASKS, masks=dict(in_boxes=True), loss_weights=MASK_LOSSES)
    )
    optimizer = torch.optim.AdamW(model.parameters(), lr=5e-4)
    for _ in range(100):
        losses = model.train()(*ellipses(), mode='loss')
        optimizer.zero_grad()
        sum(losses.values()).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 0.1)
        optimizer.step()
    pictures, data = ellipses(4)
    with torch.no_grad():
        results = model.eval()(pictures, data, mode='predict')
    overlaps = []
    for result in results:
        found = result.pred_instances
        best = bbox_overlaps(result.gt_instances.bboxes, found.bboxes[:12]).argmax(1)
        truth = torch.from_numpy(result.gt_instances.masks.masks) > 0
        masks = found.masks[best]
        overlaps.append((truth & masks).sum((1, 2)) / (truth | masks).sum((1, 2)))
    assert torch.cat(overlaps).mean() > 0.4
