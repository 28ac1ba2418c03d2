"""Augmentation with many objects an image, against its formulas in plain loops."""

from __future__ import annotations

import colorsys
import copy
import importlib.util
import math
import os
import random
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
import torch
from mmdet.datasets.transforms import Expand, FilterAnnotations
from mmdet.structures import DetDataSample
from mmdet.structures.bbox import HorizontalBoxes
from mmdet.structures.mask import BitmapMasks
from mmengine.dataset import DefaultSampler
from mmengine.logging import MessageHub
from mmengine.registry import TRANSFORMS
from mmengine.structures import InstanceData
from torch import Tensor
from torch.utils.data import DataLoader

from rope_dense.data.dense import (
    AffineMosaic,
    MixUpCopyBlend,
    MosaicCocoDataset,
    MultiScaleBatch,
    PhotometricJitter,
    RandomIoUCrop,
    StageByEpoch,
)
from rope_dense.data.dense import batch as batch_module
from rope_dense.data.dense import mosaic as mosaic_module
from rope_dense.data.dense.batch import current_epoch, mix_up
from rope_dense.data.dense.iou_crop import centres_within, crop_objects
from rope_dense.engine.train_loop import SeededBatches, set_epoch


@pytest.fixture(autouse=True)
def epoch_of_its_own() -> Iterator[None]:
    hub = MessageHub.get_current_instance()
    before = hub.get_info('epoch')
    yield
    hub.update_info('epoch', before)


def example(
    height: int = 40, width: int = 60, number: int = 3, masks: bool = False
) -> dict:
    """An image of noise with boxes, and masks that fill them."""
    corners = np.sort(np.random.rand(number, 2, 2), 1) * (width, height)
    boxes = torch.from_numpy(corners.reshape(-1, 4)).float()
    results = dict(
        img=np.random.randint(0, 256, (height, width, 3), np.uint8),
        img_shape=(height, width),
        gt_bboxes=HorizontalBoxes(boxes),
        gt_bboxes_labels=np.arange(number),
        gt_ignore_flags=np.zeros(number, bool),
    )
    if masks:
        filled = np.zeros((number, height, width), np.uint8)
        for mask, (x1, y1, x2, y2) in zip(
            filled, boxes.round().int().tolist(), strict=True
        ):
            mask[y1:y2, x1:x2] = 1
        results['gt_masks'] = BitmapMasks(filled, height, width)
    return results


# ---------------------------------------------------------------- stages


class Mark:
    """A transform that says which pipeline it is in."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __call__(self, results: dict) -> dict:
        return {**results, 'mark': self.name}


def test_a_stage_begins_with_its_epoch() -> None:
    TRANSFORMS.register_module(name='Mark', module=Mark, force=True)
    marks = [[dict(type='Mark', name=name)] for name in 'ab']
    stages = StageByEpoch([4, 9], [[], *marks])
    names = {}
    for epoch in (0, 3, 4, 8, 9, 50):
        set_epoch(epoch)
        names[epoch] = stages({}).get('mark')
    assert names == {0: None, 3: None, 4: 'a', 8: 'a', 9: 'b', 50: 'b'}


@pytest.mark.parametrize('starts, number', [([4, 4], 3), ([4, 9], 2)])
def test_stages_that_do_not_fit(starts: list[int], number: int) -> None:
    with pytest.raises(ValueError, match='starts'):
        StageByEpoch(starts, [[]] * number)


class Epochs:
    """A data set of 11 images, each the epoch in which it is loaded."""

    def __len__(self) -> int:
        return 11

    def __getitem__(self, index: int) -> int:
        return current_epoch()


@pytest.mark.parametrize('workers', [0, 2])
def test_epochs_of_images_and_batches_are_exact_after_a_resume(workers: int) -> None:
    """Batches of 2 without the last: 5 iterations an epoch."""
    dataset = Epochs()
    loader = DataLoader(
        dataset, 2, sampler=DefaultSampler(dataset), drop_last=True, num_workers=workers
    )
    for start in (0, 3, 5):
        batches = SeededBatches(loader, 0, 0)
        batches.skip_iter(start)
        for iteration in range(start, 11):
            images = next(batches).tolist()
            assert images == [iteration // 5] * 2 and current_epoch() == iteration // 5


# ---------------------------------------------------------------- mosaic


def nearest(image: np.ndarray, matrix: np.ndarray) -> np.ndarray:
    """The affine transform of pixel corners, by the inverse for the centre of each pixel."""
    out = np.zeros_like(image)
    inverse = np.linalg.inv(np.vstack([matrix, [0, 0, 1]]))
    height, width = image.shape[:2]
    for row in range(height):
        for column in range(width):
            x, y, _ = inverse @ (column + 0.5, row + 0.5, 1)
            if 0 <= x < width and 0 <= y < height:
                out[row, column] = image[int(y), int(x)]
    return out


def published_matrix(
    size: tuple[int, int], angle: float, shift: tuple[int, int], scale: float
) -> np.ndarray:
    """T C RS C^-1 of torchvision's documentation, factor by factor."""
    height, width = size
    move = np.eye(3)
    move[:2, 2] = shift
    centre = np.eye(3)
    centre[:2, 2] = width / 2, height / 2
    turn = math.radians(angle)
    rotation = np.diag([scale, scale, 1.0])
    rotation[:2, :2] = [
        [scale * math.cos(turn), -scale * math.sin(turn)],
        [scale * math.sin(turn), scale * math.cos(turn)],
    ]
    return (move @ centre @ rotation @ np.linalg.inv(centre))[:2]


@pytest.mark.parametrize(
    'angle, shift, scale', [(0, (0, 0), 1), (10, (3, -5), 0.7), (-7, (0, 4), 1.4)]
)
def test_affine_transform_is_its_formula(
    angle: float, shift: tuple[int, int], scale: float
) -> None:
    results = example(33, 48, masks=True)
    matrix = published_matrix((33, 48), angle, shift, scale)
    ours = mosaic_module.affine_matrix((33, 48), angle, shift, scale)
    np.testing.assert_allclose(ours, matrix, atol=1e-12)
    out = mosaic_module.warp_affine(results, ours)
    same = (out['img'] == nearest(results['img'], matrix)).all(-1).mean()
    assert same > 0.99  # OpenCV rounds its coordinates
    for mask, found in zip(
        results['gt_masks'].masks, out['gt_masks'].masks, strict=True
    ):
        assert (found == nearest(mask, matrix)).mean() > 0.99
    for box, found in zip(
        results['gt_bboxes'].tensor, out['gt_bboxes'].tensor, strict=True
    ):
        x1, y1, x2, y2 = box.double().tolist()
        xs, ys = (matrix @ [[x1, x2, x1, x2], [y1, y1, y2, y2], [1, 1, 1, 1]]).tolist()
        expected = [
            *(min(max(min(v), 0), side) for v, side in ((xs, 48), (ys, 33))),
            *(min(max(max(v), 0), side) for v, side in ((xs, 48), (ys, 33))),
        ]
        np.testing.assert_allclose(found.numpy(), expected, atol=1e-3)


def test_parts_of_a_mosaic_lie_in_a_grid_in_their_own_size() -> None:
    """Without the affine transform; Pillow's resizing is the published one."""
    from PIL import Image

    mosaic = AffineMosaic(part_size=32, rotation=0, translation=(0, 0), scaling=(1, 1))
    images = [example(40, 60), example(64, 32), example(50, 50)]
    for image in images[:2]:
        mosaic(dict(image))
    random.seed(1)
    out = mosaic(dict(images[2]))
    random.seed(1)
    chosen = [images[2], *random.choices(images, k=3)]
    height = max(round(32 * max(1, len(i['img']) / i['img'].shape[1])) for i in chosen)
    width = max(round(32 * max(1, i['img'].shape[1] / len(i['img']))) for i in chosen)
    assert out['img_shape'] == out['img'].shape[:2] == (2 * height, 2 * width)
    boxes = out['gt_bboxes'].tensor.split(3)
    for index, (image, moved) in enumerate(zip(chosen, boxes, strict=True)):
        rows, columns = image['img'].shape[:2]
        factor = 32 / min(rows, columns)
        size = (
            int(columns * factor) if columns > rows else 32,
            int(rows * factor) if rows > columns else 32,
        )
        part = np.asarray(
            Image.fromarray(image['img']).resize(size, Image.Resampling.BILINEAR)
        )
        top, left = index // 2 * height, index % 2 * width
        assert np.array_equal(
            out['img'][top : top + size[1], left : left + size[0]], part
        )
        scale = torch.tensor([size[0] / columns, size[1] / rows] * 2)
        expected = image['gt_bboxes'].tensor * scale + torch.tensor([left, top] * 2)
        torch.testing.assert_close(moved, expected)
    assert len(out['gt_bboxes_labels']) == len(out['gt_ignore_flags']) == 12


def test_masks_of_a_mosaic_stay_with_their_objects() -> None:
    """Each mask fills its box, whatever was done to both, if nothing turns."""
    mosaic = AffineMosaic(part_size=64, rotation=0, scaling=(0.8, 1.2))
    out = mosaic(example(80, 120, masks=True))
    assert out['gt_masks'].masks.shape == (12, *out['img_shape'])
    for box, mask in zip(
        out['gt_bboxes'].tensor.tolist(), out['gt_masks'].masks, strict=True
    ):
        rows, columns = mask.nonzero()
        if len(rows):
            found = [columns.min(), rows.min(), columns.max() + 1, rows.max() + 1]
            np.testing.assert_allclose(found, box, atol=3)


def test_the_cache_keeps_the_newest_and_a_number_of_images() -> None:
    mosaic = AffineMosaic(part_size=16, max_cached_images=3)
    for number in range(8):
        mosaic(example(20, 30))
        assert len(mosaic.cache) == min(number + 1, 3)


def test_images_of_the_data_set_make_the_same_mosaic_again(shared_data: Path) -> None:
    """With the same random state, whatever was loaded before."""
    annotations = dict(type='mmdet.LoadAnnotations', with_bbox=True, with_mask=True)
    loading = [dict(type='LoadImageFromFile'), annotations]
    dataset = MosaicCocoDataset(
        ann_file=str(next(shared_data.rglob('coco_mini/annotations/*val*.json'))),
        data_prefix=dict(img=str(next(shared_data.rglob('coco_mini/val*')))),
        pipeline=[*loading, dict(type='AffineMosaic', max_cached_images=0)],
        test_mode=True,
    )
    mosaics = []
    for _ in range(2):
        random.seed(3)
        mosaics.append(dataset[1])
    assert np.array_equal(mosaics[0]['img'], mosaics[1]['img'])
    assert min(mosaics[0]['img_shape']) >= 640
    assert len(mosaics[0]['gt_masks']) == len(mosaics[0]['gt_bboxes'])


def test_a_mosaic_without_data_set_or_cache_is_an_error() -> None:
    mosaic = AffineMosaic(max_cached_images=0)
    with pytest.raises(ValueError, match=r"dataset\.type='MosaicCocoDataset'"):
        mosaic(example())


# ---------------------------------------------------------------- colours


def blended(image: np.ndarray, other: np.ndarray | float, factor: float) -> np.ndarray:
    return np.clip(image * factor + other * (1 - factor), 0, 255)


def grey(image: np.ndarray) -> np.ndarray:
    return image @ np.array([0.114, 0.587, 0.299])  # BGR


NONE = dict(brightness=(1, 1), contrast=(1, 1), saturation=(1, 1), hue=(0, 0))


@pytest.mark.parametrize('factor', [0.6, 1.4])
@pytest.mark.parametrize('name', ['brightness', 'contrast', 'saturation'])
def test_colours_are_blended_as_published(
    name: str, factor: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(random, 'sample', lambda channels, number: list(channels))
    results = example()
    image = results['img'].astype(float)
    jitter = PhotometricJitter(**{**NONE, name: (factor, factor)}, prob=1.0)
    others = dict(
        brightness=0, contrast=grey(image).mean(), saturation=grey(image)[..., None]
    )
    expected = blended(image, others[name], factor)
    out = jitter(results)['img']
    # Hues have 8 bits, which the round trip of a shift by 0 shows.
    assert np.abs(out - expected).mean() < 1.5 and out.dtype == np.uint8


@pytest.mark.parametrize('share', [0.05, -0.05])
def test_hue_is_turned(share: float) -> None:
    jitter = PhotometricJitter(**{**NONE, 'hue': (share, share)}, prob=1.0)
    jitter.happens = iter([False, False, False, True, False]).__next__  # type: ignore[method-assign]
    random.seed(1)  # contrast first
    image = np.full((1, 1, 3), (40, 80, 200), np.uint8)
    out = jitter(dict(img=image))['img'][0, 0]
    hues = [
        colorsys.rgb_to_hsv(*(c / 255 for c in pixel[::-1]))[0]
        for pixel in (image[0, 0], out)
    ]
    assert (hues[1] - hues[0]) % 1 == pytest.approx(share % 1, abs=0.01)


def test_half_of_the_colours_change() -> None:
    jitter, same = PhotometricJitter(prob=0.5), PhotometricJitter(prob=0.0)
    image = example(4, 4)['img']
    assert np.array_equal(same(dict(img=image))['img'], image)
    channels = sum(
        not np.array_equal(
            np.argsort(jitter(dict(img=image.copy()))['img'].mean((0, 1))),
            np.argsort(image.mean((0, 1))),
        )
        for _ in range(300)
    )
    assert (
        0.25 * 300 < channels < 0.6 * 300
    )  # half times five sixths of the orders, and colours


# ---------------------------------------------------------------- crops


def iou(first: list[float], second: tuple[int, ...]) -> float:
    width = min(first[2], second[2]) - max(first[0], second[0])
    height = min(first[3], second[3]) - max(first[1], second[1])
    common = max(width, 0) * max(height, 0)
    areas = [(box[2] - box[0]) * (box[3] - box[1]) for box in (first, second)]
    return common / (sum(areas) - common)


@pytest.mark.parametrize('least', [0.0, 0.3, 0.7])
def test_crops_keep_objects_as_published(
    least: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    cropping, crops = RandomIoUCrop(min_ious=(least, 1.0)), []
    draw = cropping.draw
    monkeypatch.setattr(
        cropping, 'draw', lambda *size: crops.append(draw(*size)) or crops[-1]
    )
    for seed in range(30):
        random.seed(seed)
        np.random.seed(seed)
        results = example(60, 90, 4, masks=True)
        boxes = results['gt_bboxes'].tensor.tolist()
        crops.clear()
        out = cropping(results)
        if out['img_shape'] == (60, 90) and len(out['gt_bboxes']) == 4:
            continue  # 1.0 was drawn
        for crop in crops:
            if crop is None:
                continue
            inside = [
                index
                for index, box in enumerate(boxes)
                if crop[0] < (box[0] + box[2]) / 2 < crop[2]
                and crop[1] < (box[1] + box[3]) / 2 < crop[3]
            ]
            taken = bool(inside) and max(iou(boxes[i], crop) for i in inside) >= least
            assert taken == (
                crop is crops[-1]
                and out['img_shape'] == (crop[3] - crop[1], crop[2] - crop[0])
            )
        left, top, right, bottom = crops[-1]
        assert out['gt_bboxes_labels'].tolist() == inside == sorted(inside)
        assert (
            0.3 * 90 - 1 <= right - left <= 90
            and 0.5 <= (right - left) / (bottom - top) <= 2
        )
        for index, box, mask in zip(
            inside, out['gt_bboxes'].tensor.tolist(), out['gt_masks'].masks, strict=True
        ):
            x1, y1, x2, y2 = boxes[index]
            expected = [
                max(x1 - left, 0),
                max(y1 - top, 0),
                min(x2 - left, right - left),
                min(y2 - top, bottom - top),
            ]
            np.testing.assert_allclose(box, expected, atol=1e-4)
            assert mask.shape == out['img_shape']


def test_a_crop_keeps_any_part_of_an_ignored_object() -> None:
    corners = torch.tensor([[0.0, 0, 60, 40], [2, 2, 8, 8], [40, 30, 58, 38]])
    results = example() | dict(gt_bboxes=HorizontalBoxes(corners))
    results['gt_ignore_flags'] = np.array([True, False, True])
    out = crop_objects(results, (0, 0, 20, 20))
    assert out['gt_bboxes'].tensor.tolist() == [[0, 0, 20, 20], [2, 2, 8, 8]]
    assert out['gt_ignore_flags'].tolist() == [True, False]
    alone = example(number=1) | dict(gt_ignore_flags=np.array([True]))
    assert RandomIoUCrop(min_ious=(0.0, 1.0))(alone)['img_shape'] == (40, 60)


def test_a_threshold_of_one_leaves_the_image() -> None:
    results = example()
    assert RandomIoUCrop(min_ious=(1.0,))(dict(results))['img'] is results['img']
    assert RandomIoUCrop(prob=0.0)(dict(results))['img'] is results['img']
    with pytest.raises(ValueError, match='min_ious'):
        RandomIoUCrop(min_ious=(0.0, 0.9))


# ---------------------------------------------------------------- mmdet's


def test_expand_is_torchvision_s_zoom_out() -> None:
    """A side of the canvas is 1 to 4 times as long, the image lies anywhere, the rest is black."""
    expand = Expand(mean=(0, 0, 0), to_rgb=False, ratio_range=(1, 4), prob=0.5)
    ratios = []
    for _ in range(200):
        results = example(20, 30, 1)
        box = results['gt_bboxes'].tensor.clone()
        out = expand(dict(results))
        height, width = out['img_shape']
        if (height, width) == (20, 30):
            continue
        ratios.append(width / 30)
        left, top = (out['gt_bboxes'].tensor - box)[0, :2].round().int().tolist()
        assert np.array_equal(
            out['img'][top : top + 20, left : left + 30], results['img']
        )
        assert out['img'].sum() == results['img'].sum(dtype=int)
    assert 70 < len(ratios) < 130 and 1 <= min(ratios) < 1.3 and 3.7 < max(ratios) <= 4


def test_filter_keeps_images_without_objects() -> None:
    """As torchvision's SanitizeBoundingBoxes with min_size=1; ``keep_empty`` drops them."""
    keep = FilterAnnotations(min_gt_bbox_wh=(1, 1), keep_empty=False)
    results = example(number=2)
    results['gt_bboxes'] = HorizontalBoxes(
        torch.tensor([[1.0, 1, 1.5, 30], [2, 2, 5, 5]])
    )
    out = keep(results)
    assert out['gt_bboxes_labels'].tolist() == [1]
    out['gt_bboxes'] = HorizontalBoxes(torch.tensor([[1.0, 1, 1.5, 30]]))
    assert len(keep(out)['gt_bboxes']) == 0


# ---------------------------------------------------------------- batches


def batch(
    size: tuple[int, int] = (32, 48), number: int = 3
) -> tuple[Tensor, list[DetDataSample]]:
    samples = []
    for index in range(number):
        corners = (
            torch.rand(2 + index, 2, 2).sort(1)[0] * torch.tensor(size[::-1])
        ).flatten(1)
        labels = torch.arange(2 + index) + 10 * index
        sample = DetDataSample(metainfo=dict(img_shape=size, batch_input_shape=size))
        sample.gt_instances = InstanceData(bboxes=corners, labels=labels)
        samples.append(sample)
    return torch.randn(number, 3, *size), samples


def test_mix_up_is_its_formula() -> None:
    images, samples = batch()
    boxes = [sample.gt_instances.bboxes for sample in samples]
    set_epoch(4)
    random.seed(0)
    mixed, out = MixUpCopyBlend(mixup_prob=1.0, mixup_epochs=(4, 9))(images, samples)
    random.seed(0)
    beta = random.uniform(0.45, 0.55)
    for index in range(3):
        expected = beta * images[index] + (1 - beta) * images[(index - 1) % 3]
        torch.testing.assert_close(mixed[index], expected)
        both = torch.cat([boxes[index], boxes[(index - 1) % 3]])
        assert torch.equal(out[index].gt_instances.bboxes, both)
        assert len(out[index].gt_instances.labels) == len(both)


def test_copy_blend_is_its_formula(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pixel by pixel, from the boxes and places that were drawn."""
    images, samples = batch()
    before = images.clone()
    given = [sample.gt_instances for sample in samples]
    blend, drawn = MixUpCopyBlend(min_area=60.0), []
    with_margin = blend.with_margin

    def note(*boxes: object) -> tuple:
        drawn.append((boxes[:2], with_margin(*boxes)))
        return drawn[-1][1]

    monkeypatch.setattr(blend, 'with_margin', note)
    blended, out = blend.copy_blend(images, samples, 0.5)
    pool = [
        (index, tuple(box.clamp(min=0).long().tolist()), label)
        for index, instances in enumerate(given)
        for box, label in zip(instances.bboxes, instances.labels, strict=True)
        if (box[2] - box[0]) * (box[3] - box[1]) >= 60
    ]
    sources = {box: index for index, box, _ in pool}
    labels = {box: int(label) for _, box, label in pool}
    expected, copies = before.clone(), iter(drawn)
    for index, sample in enumerate(out):
        number = len(sample.gt_instances) - len(given[index])
        assert number == min(3, len(pool))
        for place in range(number):
            (box, spot), (wider, target) = next(copies)
            added = sample.gt_instances[len(given[index]) + place]
            assert tuple(added.bboxes[0].int().tolist()) == spot
            assert int(added.labels[0]) == labels[box]
            assert (box[2] - box[0], box[3] - box[1]) == (
                spot[2] - spot[0],
                spot[3] - spot[1],
            )
            for row in range(target[1], target[3]):
                for column in range(target[0], target[2]):
                    source = before[
                        sources[box],
                        :,
                        row - target[1] + wider[1],
                        column - target[0] + wider[0],
                    ]
                    expected[index, :, row, column] = (
                        0.5 * expected[index, :, row, column] + 0.5 * source
                    )
            for edge in range(4):  # no wider than published, and within both images
                margin = abs(wider[edge] - box[edge])
                assert margin == abs(target[edge] - spot[edge])
                assert margin <= 0.25 * (box[2 + edge % 2] - box[edge % 2])
    torch.testing.assert_close(blended, expected)
    assert torch.equal(images, before)


def test_copies_lie_within_the_image_not_its_padding() -> None:
    """Objects that are taller than an image are not copied to it."""
    images, samples = batch(number=4)
    samples[0].set_metainfo(dict(img_shape=(12, 48)))
    samples[1].gt_instances.bboxes[:2] = torch.tensor(
        [[3.0, 2, 30, 11], [3, 2, 20, 30]]
    )
    blend = MixUpCopyBlend(min_area=40.0, num_objects=99)
    _, out = blend.copy_blend(images, samples, 0.5)
    added = out[0].gt_instances.bboxes[2:]
    assert len(added) and added[:, 1].min() >= 0 and added[:, 3].max() <= 12
    assert (
        len(added) < len(out[1].gt_instances) - 3
    )  # whose image is as high as the batch


def test_one_of_the_two_in_its_epochs(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = []
    monkeypatch.setattr(
        batch_module, 'mix_up', lambda *args: calls.append('mixup') or args[:2]
    )
    augment = MixUpCopyBlend(0.5, (4, 8), 0.5, (4, 12))
    monkeypatch.setattr(
        augment, 'copy_blend', lambda *args: calls.append('copy') or args[:2]
    )
    counts = {}
    for epoch in (3, 4, 8, 12):
        set_epoch(epoch)
        calls.clear()
        for _ in range(400):
            augment(torch.zeros(1), [])
        counts[epoch] = calls.count('mixup') / 400, calls.count('copy') / 400
    assert counts[3] == counts[12] == (0, 0)
    assert counts[4] == pytest.approx((0.5, 0.25), abs=0.08)
    assert counts[8] == pytest.approx((0, 0.5), abs=0.08)


def test_what_is_ignored_in_the_other_image_is_ignored_in_the_blended_one() -> None:
    images, samples = batch(number=2)
    ignored = torch.tensor([[2.0, 3, 40, 30]])
    samples[1].ignored_instances = InstanceData(bboxes=ignored, labels=torch.zeros(1))
    _, mixed = mix_up(images, copy.deepcopy(samples), 0.5)
    assert [len(sample.ignored_instances) for sample in mixed] == [1, 1]
    assert torch.equal(mixed[0].ignored_instances.bboxes, ignored)
    samples[0].gt_instances = samples[0].gt_instances[:0]
    samples[1].gt_instances = samples[1].gt_instances[:1]
    samples[1].gt_instances.bboxes = torch.tensor([[30.0, 20, 48, 32]])
    _, out = MixUpCopyBlend(margin=(0, 0)).copy_blend(images, samples, 0.5)
    (place,) = out[0].gt_instances.bboxes.tolist()
    corner = [place[0], place[1], place[0] + 10, place[1] + 10]
    assert out[0].ignored_instances.bboxes.tolist() == [corner]
    assert len(out[1].ignored_instances) == 2
    assert torch.equal(out[1].ignored_instances.bboxes[:1], ignored)


def test_no_object_to_copy() -> None:
    images, samples = batch()
    blended, out = MixUpCopyBlend(min_area=1e9).copy_blend(images, samples, 0.5)
    assert torch.equal(blended, images) and len(out[0].gt_instances) == 2


def test_copies_of_masks_are_refused() -> None:
    images, samples = batch()
    samples[0].gt_instances.masks = BitmapMasks(np.zeros((2, 32, 48), np.uint8), 32, 48)
    with pytest.raises(ValueError, match='copyblend_prob'):
        MixUpCopyBlend().copy_blend(images, samples, 0.5)


def test_sizes_are_those_published() -> None:
    scaled = MultiScaleBatch(base=640, repeat=20).sizes
    assert sorted(set(scaled)) == list(range(480, 801, 32))
    assert scaled.count(640) == 20 and len(scaled) == 30


@pytest.mark.parametrize('size', [(64, 64), (64, 128)])
def test_a_batch_keeps_its_aspect_ratio(size: tuple[int, int]) -> None:
    images, samples = batch(size)
    for sample in samples:
        count = len(sample.gt_instances)
        sample.gt_instances.masks = BitmapMasks(
            np.ones((count, *size), np.uint8), *size
        )
    before = [sample.gt_instances.bboxes for sample in samples]
    scale = MultiScaleBatch(base=64, epochs=(0, 2))
    set_epoch(2)
    assert scale(images, samples)[0] is images
    out, samples = scale.resized(images, samples, 1.5)
    assert (
        tuple(out.shape[2:]) == (96, size[1] * 3 // 2) == samples[0].batch_input_shape
    )
    rows, columns = (torch.arange(side * 3 // 2) * 2 // 3 for side in size)
    assert torch.equal(out, images[:, :, rows][..., columns])
    for sample, boxes in zip(samples, before, strict=True):
        torch.testing.assert_close(sample.gt_instances.bboxes, 1.5 * boxes)
        assert sample.gt_instances.masks.masks.shape[1:] == out.shape[2:]
        assert sample.img_shape == sample.pad_shape == tuple(out.shape[2:])


def test_centres_decide() -> None:
    boxes = torch.tensor([[0.0, 0, 10, 10], [8, 8, 20, 20]])
    assert centres_within(boxes, (0, 0, 12, 12)).tolist() == [True, False]


# ---------------------------------------------------------------- the source


def published_collate(monkeypatch: pytest.MonkeyPatch) -> type:
    """DEIMv2's collate function, executed from a checkout that ROPE_DENSE_DEIMV2 names.

    Of torchvision, which it imports, MixUp and CopyBlend need nothing.
    """
    folder = os.environ.get('ROPE_DENSE_DEIMV2')
    if not folder:
        pytest.skip('ROPE_DENSE_DEIMV2 names no checkout of DEIMv2')
    parts = {
        'torchvision': dict(disable_beta_transforms_warning=lambda: None),
        'torchvision.transforms': {},
        'torchvision.transforms.v2': dict(functional=None, InterpolationMode=None),
        'deimv2_source': {},
        'deimv2_source.core': dict(register=lambda: lambda decorated: decorated),
        'deimv2_source.data': {},
    }
    for name, attributes in parts.items():
        module = ModuleType(name)
        vars(module).update(attributes, __path__=[])
        monkeypatch.setitem(sys.modules, name, module)
    path = Path(folder, 'engine', 'data', 'dataloader.py')
    spec = importlib.util.spec_from_file_location('deimv2_source.data.dataloader', path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.BatchImageCollateFunction


def as_targets(samples: list[DetDataSample], size: tuple[int, int]) -> list[dict]:
    """Centres and sides relative to the image, labels, areas."""
    targets, limits = [], torch.tensor([size[1], size[0]])
    for sample in samples:
        corners = sample.gt_instances.bboxes
        centres, sides = (
            (corners[:, :2] + corners[:, 2:]) / 2,
            corners[:, 2:] - corners[:, :2],
        )
        boxes = torch.cat([centres / limits, sides / limits], 1)
        labels = sample.gt_instances.labels
        targets.append(dict(boxes=boxes, labels=labels, area=sides.prod(1)))
    return targets


def test_batches_are_those_of_deimv2(monkeypatch: pytest.MonkeyPatch) -> None:
    """With the same random numbers: images, boxes and labels of MixUp, CopyBlend and neither."""
    collate = published_collate(monkeypatch)(
        **dict(
            mixup_prob=0.5,
            mixup_epochs=[4, 64],
            copyblend_prob=0.5,
            copyblend_epochs=[4, 120],
        ),
        **dict(
            area_threshold=100,
            num_objects=3,
            with_expand=True,
            expand_ratios=[0.1, 0.25],
        ),
        base_size_repeat=20,
    )
    assert sorted(collate.scales) == sorted(MultiScaleBatch(640, repeat=20).sizes)
    ours, kinds = MixUpCopyBlend(0.5, (4, 64), 0.5, (4, 120)), set()
    for seed in range(40):
        torch.manual_seed(seed)
        images, samples = batch((96, 128), 4)
        targets = as_targets(samples, (96, 128))
        collate.set_epoch(10)
        random.seed(seed)
        expected, targets = collate.apply_mixup(images.clone(), targets)
        random.seed(seed)  # the source draws beta once more for MixUp, and rounds it
        beta, coin = round(random.uniform(0.45, 0.55), 6), random.random()
        if coin < 0.5:
            mixed, out = mix_up(images, samples, round(random.uniform(0.45, 0.55), 6))
        elif random.random() < 0.5:
            mixed, out = ours.copy_blend(images, samples, beta)
        else:
            mixed, out = images, samples
        kinds.add((coin < 0.5, len(out[0].gt_instances) > 2))
        torch.testing.assert_close(mixed, expected, atol=1e-5, rtol=0)
        for sample, target, wanted in zip(
            out, as_targets(out, (96, 128)), targets, strict=True
        ):
            torch.testing.assert_close(
                target['boxes'], wanted['boxes'], atol=1e-5, rtol=0
            )
            assert torch.equal(sample.gt_instances.labels, wanted['labels'])
    assert kinds == {(True, True), (False, True), (False, False)}
