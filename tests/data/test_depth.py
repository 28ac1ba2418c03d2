"""Depth maps: reading, augmentation, evaluation."""

from __future__ import annotations

import math
from pathlib import Path

import cv2
import numpy as np
import pytest
import torch

from rope_dense.data.images.drawing import BAR, GAP, LEGEND, depth_picture
from rope_dense.data.map_datasets import (
    CropBox,
    LoadDepth,
    RandomColourGain,
    ValidDepthMetric,
)


def loaded(path: Path, unit: float) -> np.ndarray:
    results = LoadDepth(unit)(dict(depth_map_path=str(path), seg_fields=[]))
    assert results['seg_fields'] == ['gt_depth_map']
    assert results['gt_depth_map'].dtype == np.float32
    return results['gt_depth_map']


def test_a_png_of_16_bits_and_an_array_are_the_same(tmp_path: Path) -> None:
    millimetres = np.array([[0, 1, 1500], [65535, 300, 20]], np.uint16)
    cv2.imwrite(str(tmp_path / 'a.png'), millimetres)
    np.save(tmp_path / 'a.npy', millimetres[..., None] / 1000)
    expected = millimetres / np.float32(1000)
    np.testing.assert_allclose(loaded(tmp_path / 'a.png', 0.001), expected, rtol=1e-6)
    np.testing.assert_allclose(loaded(tmp_path / 'a.npy', 1.0), expected, rtol=1e-6)


def test_unknown_depths_are_0(tmp_path: Path) -> None:
    np.save(tmp_path / 'a.npy', np.array([[np.nan, np.inf, -np.inf], [-1.0, 0.0, 2.0]]))
    assert loaded(tmp_path / 'a.npy', 0.5).tolist() == [[0, 0, 0], [0, 0, 1]]


def test_three_channels_are_no_depth(tmp_path: Path) -> None:
    cv2.imwrite(str(tmp_path / 'a.png'), np.zeros((4, 5, 3), np.uint8))
    with pytest.raises(
        ValueError, match=r'a.png: got shape \(4, 5, 3\); .*one channel'
    ):
        loaded(tmp_path / 'a.png', 1.0)


def test_a_box_is_cut_out_of_image_and_depth() -> None:
    image, depth = np.random.rand(480, 640, 3), np.random.rand(480, 640)
    results = dict(img=image, gt_depth_map=depth, seg_fields=['gt_depth_map'])
    cut = CropBox((43, 45, 608, 472))(results)
    assert cut['img_shape'] == cut['gt_depth_map'].shape == (427, 565)
    assert (cut['img'][0, 0] == image[45, 43]).all()
    assert cut['gt_depth_map'][-1, -1] == depth[471, 607]


def test_colours_by_the_formula() -> None:
    image = np.random.randint(0, 256, (6, 8, 3), np.uint8)
    transform = RandomColourGain(
        1.0, gamma=(1.1, 1.1), brightness=(0.8, 0.8), gain=(0.9, 0.9)
    )
    actual = transform(dict(img=image))['img']
    expected = np.minimum(255, 0.9 * 0.8 * image.astype(float) ** 1.1)
    np.testing.assert_allclose(actual, expected, rtol=1e-5)


def test_each_channel_has_a_gain_within_the_range() -> None:
    """And half of the images stay as they are."""
    image, ratios = np.full((2, 2, 3), 100, np.uint8), []
    transform = RandomColourGain(0.5, gamma=(1, 1), brightness=(1, 1), gain=(0.9, 1.1))
    for _ in range(200):
        ratios.append(transform(dict(img=image))['img'][0, 0] / 100)
    changed = np.array([ratio for ratio in ratios if (ratio != 1).any()])
    assert 70 < len(changed) < 130
    assert 0.9 <= changed.min() < 0.92 and 1.08 < changed.max() <= 1.1
    assert (changed.std(1) > 0).all()


def sample(depth: list[float], target: list[float]) -> dict:
    return {
        'pred_depth_map': dict(data=torch.tensor([[depth]])),
        'gt_depth_map': dict(data=torch.tensor([[target]])),
    }


def test_metrics_by_hand() -> None:
    """Means of the images; the third has nothing to compare, 12 is clipped to 10."""
    metric = ValidDepthMetric(min_depth_eval=0.001, max_depth_eval=10.0)
    metric.process(
        {}, [sample([1.0, 3.0, 7.0], [1.0, 2.0, 0.0]), sample([12.0], [9.0])]
    )
    metric.process({}, [sample([1.0], [0.0])])
    results = metric.compute_metrics(metric.results)
    assert results['rmse'] == pytest.approx((math.sqrt(1 / 2) + 1) / 2)
    assert results['abs_rel'] == pytest.approx((0.25 + 1 / 9) / 2)
    assert results['d1'] == pytest.approx((0.5 + 1) / 2)


def test_nothing_to_evaluate_is_an_error() -> None:
    metric = ValidDepthMetric(min_depth_eval=0.001, max_depth_eval=10.0)
    metric.process({}, [sample([1.0], [0.0]), sample([1.0], [4000.0])])
    with pytest.raises(ValueError, match=r'no image has a depth between 0\.001 and 10'):
        metric.compute_metrics(metric.results)


def test_a_picture_has_near_red_far_blue_and_unknown_black() -> None:
    depth = np.linspace(1, 5, 60, dtype=np.float32)[:, None].repeat(20, 1)
    depth[30, 10] = 0
    drawn = depth_picture(depth)
    assert drawn.shape == (60, 20 + LEGEND, 3) and not drawn[30, 10].any()
    assert drawn[5, 0].argmax() == 2 and drawn[-5, 0].argmax() == 0  # BGR
    bar = drawn[:, 20 + GAP]
    assert (bar == drawn[:, 0]).all() and (drawn[:, 20 + GAP + BAR :] < 128).any()
    assert not depth_picture(np.zeros((60, 20), np.float32))[:, :20].any()
