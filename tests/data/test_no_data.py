"""Pixels without data: found, and without predictions."""

import numpy as np
import pytest
import torch
from mmengine.structures import BaseDataElement, InstanceData, PixelData

from rope_dense.data.images.bands import drop_predictions_without_data, no_data
from rope_dense.data.mask_colours import ignored_label


def image_without_left_half() -> np.ndarray:
    image = np.ones((8, 12, 3), np.float32)
    image[:, :6] = np.nan
    image[:, 6:, 1] = np.nan  # the other channels are known
    return image


def test_pixels_without_any_channel_have_no_data():
    missing = no_data(image_without_left_half())
    assert missing[:, :6].all()
    assert not missing[:, 6:].any()
    assert no_data(np.ones((4, 4, 2), np.float32)) is None
    assert no_data(np.zeros((4, 4, 3), np.uint8)) is None


@pytest.mark.parametrize('classes, label', [(1, 255), (3, 255), (300, 65535)])
def test_labels_and_depth_are_unknown_there(classes, label):
    assert ignored_label(classes) == label
    sample = BaseDataElement()
    sample.seg_logits = PixelData(data=torch.zeros(classes, 8, 12))
    sample.pred_sem_seg = PixelData(data=torch.ones(1, 8, 12, dtype=torch.long))
    sample.pred_depth_map = PixelData(data=torch.ones(1, 8, 12))
    drop_predictions_without_data(sample, no_data(image_without_left_half()))
    assert (sample.pred_sem_seg.data[:, :, :6] == label).all()
    assert (sample.pred_sem_seg.data[:, :, 6:] == 1).all()
    assert sample.pred_depth_map.data.sum() == 48


OBJECTS = {
    'boxes': dict(
        bboxes=torch.tensor([[0.0, 0, 11, 7], [2, 0, 12, 8], [5, 6, 20, 20]])
    ),
    'rotated': dict(
        bboxes=torch.tensor([[5.9, 4, 9, 9, 1], [6.0, 4, 9, 9, 1], [13, 9, 1, 1, 0]])
    ),
    'masks': dict(
        bboxes=torch.zeros(3, 4),
        masks=torch.tensor([[0, 0, 1, 1, 1, 1, 1, 0, 0, 0, 0, 0], [1] * 12, [0] * 12])
        .bool()[:, None]
        .expand(3, 8, 12),
    ),
}


@pytest.mark.parametrize('kind', OBJECTS)
def test_objects_are_dropped_by_their_centre_or_most_of_their_mask(kind):
    found = InstanceData(scores=torch.tensor([0.9, 0.8, 0.7]), **OBJECTS[kind])
    sample = BaseDataElement()
    sample.pred_instances = found
    drop_predictions_without_data(sample, no_data(image_without_left_half()))
    torch.testing.assert_close(sample.pred_instances.scores, torch.tensor([0.8, 0.7]))
    drop_predictions_without_data(sample, np.ones((8, 12), bool))
    assert len(sample.pred_instances) == (
        0 if kind != 'masks' else 1
    )  # a mask without pixels
