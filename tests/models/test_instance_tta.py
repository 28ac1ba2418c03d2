"""InstanceTTAModel on objects drawn by hand."""

import pytest
import torch
from mmengine.structures import InstanceData
from torch import nn

pytest.importorskip('mmdet')
from mmdet.structures import DetDataSample

from rope_dense.models.instance_tta import InstanceTTAModel

HEIGHT, WIDTH = 10, 20


class Detector(nn.Module):
    """The least that a test-time augmentation model needs of the model that it wraps."""

    def test_step(self, data: dict) -> list[DetDataSample]:
        raise AssertionError(f'the views are given, and {data} is not asked for')


def view(
    *objects: tuple[float, int, tuple[int, int, int, int]], flip: str = ''
) -> DetDataSample:
    """(score, class, box) each; the mask of an object is its box without the right column."""
    masks = torch.zeros(len(objects), HEIGHT, WIDTH, dtype=torch.bool)
    for mask, (_, _, (left, top, right, bottom)) in zip(masks, objects, strict=True):
        mask[top:bottom, left : right - 1] = True
    sample = DetDataSample(
        metainfo=dict(
            ori_shape=(HEIGHT, WIDTH), flip=bool(flip), flip_direction=flip or None
        )
    )
    sample.pred_instances = InstanceData(
        bboxes=torch.tensor([box for *_, box in objects]).float().view(-1, 4),
        scores=torch.tensor([score for score, *_ in objects]),
        labels=torch.tensor([label for _, label, _ in objects], dtype=torch.long),
        masks=masks,
    )
    return sample


def merged(*views: DetDataSample, max_per_img: int = 10) -> InstanceData:
    settings = dict(nms=dict(type='nms', iou_threshold=0.5), max_per_img=max_per_img)
    model = InstanceTTAModel(tta_cfg=settings, module=Detector())
    return model.merge_preds([list(views)])[0].pred_instances


def test_the_surest_of_a_place_and_class_is_kept_with_its_mask() -> None:
    first = view((0.6, 0, (2, 2, 8, 6)), (0.5, 1, (2, 2, 8, 6)))
    second = view(
        (0.9, 0, (12, 2, 18, 6)), flip='horizontal'
    )  # the first object, seen in a mirror
    found = merged(first, second)
    assert found.scores.tolist() == pytest.approx([0.9, 0.5])
    assert found.labels.tolist() == [0, 1]
    assert found.bboxes.tolist() == [[2, 2, 8, 6]] * 2
    assert (
        found.masks[0, 2:6, 3:8].all() and found.masks[0].sum() == 20
    )  # without the left column
    assert found.masks[1, 2:6, 2:7].all() and found.masks[1].sum() == 20
    assert merged(first, second, max_per_img=1).labels.tolist() == [0]


def test_views_without_objects() -> None:
    empty = merged(view(), view(flip='horizontal'))
    assert len(empty) == 0 and empty.masks.shape == (0, HEIGHT, WIDTH)
    assert len(merged(view(), view((0.6, 0, (2, 2, 8, 6)), flip='vertical'))) == 1
