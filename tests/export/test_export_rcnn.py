"""Faster, Mask and Cascade R-CNN as files, beside what mmdet predicts."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from mmcv.ops import nms
from mmdet.models.roi_heads.mask_heads.fcn_mask_head import _do_paste_mask
from mmdet.structures import DetDataSample
from torch import Tensor, nn

from helpers.exported import assert_same, pixels, session
from helpers.exported_models import rcnn
from rope_dense.export import export
from rope_dense.export.anchors import roi_align, suppress
from rope_dense.export.graphs import graph_of
from rope_dense.export.rcnn import paste_masks
from rope_dense.export.translations import TABLE


def predicted(model: nn.Module, image: Tensor) -> list:
    """mmdet's detections of images, in pixels of the input."""
    size = tuple(image.shape[2:])
    metainfo = dict(ori_shape=size, img_shape=size, scale_factor=(1.0, 1.0))
    samples = [DetDataSample(metainfo=metainfo) for _ in image]
    data = model.data_preprocessor(
        dict(inputs=list(image), data_samples=samples), False
    )
    return [sample.pred_instances for sample in model(**data, mode='predict')]


def assert_as_mmdet(actual: list[Tensor], model: nn.Module, image: Tensor) -> list[int]:
    """Detections are mmdet's, in order, with zeros behind them; returns their numbers."""
    counts = []
    for parts, expected in zip(
        zip(*actual, strict=True), predicted(model, image), strict=True
    ):
        number = len(expected)
        counts.append(number)
        assert_same(
            [part[:number] for part in parts[:3]],
            [expected.scores, expected.bboxes, expected.labels],
        )
        assert (parts[0][number:] == 0).all()
        if len(parts) == 4:
            masks = parts[3][:number]
            assert masks.dtype == torch.bool and masks.shape[1:] == image.shape[2:]
            assert (masks != expected.masks).float().mean() < 1e-4  # at the threshold
            assert masks.any()
    return counts


@pytest.mark.parametrize('kind', ['faster', 'mask', 'cascade'])
@torch.no_grad()
def test_graphs_predict_as_mmdet(kind: str) -> None:
    """Padded to 32 pixels, with none, fewer and more detections than the file has."""
    model = rcnn(kind)
    image = pixels(2, 3, 130, 170)
    results = graph_of(model)(image)
    assert assert_as_mmdet(list(results), model, image) == [12, 12]
    # In an image of one pixel many scores are equal.
    for batch, height, width in ((1, 3, 5), (3, 17, 300), (2, 113, 16)):
        small = pixels(batch, 3, height, width)
        assert_as_mmdet(list(graph_of(model)(small)), model, small)
    model.roi_head.test_cfg.score_thr = float(results[0][:, 4:6].mean())
    assert all(
        0 < count < 12
        for count in assert_as_mmdet(list(graph_of(model)(image)), model, image)
    )


@torch.no_grad()
def test_masks_are_pasted_as_by_mmdet() -> None:
    starts = torch.rand(20, 2) * 60 - 20
    boxes = torch.cat([starts, starts + torch.rand(20, 2) * 80 + 0.5], 1)
    masks = torch.rand(20, 28, 28)
    expected, _ = _do_paste_mask(masks[:, None], boxes, 50, 70, skip_empty=False)
    assert torch.allclose(paste_masks(masks, boxes, (50, 70)), expected, atol=1e-4)


def test_what_differs_from_mmdets_heads_is_refused(tmp_path: Path) -> None:
    for change, says in (
        ({'test_cfg.rcnn.nms.type': 'soft_nms'}, 'nms must be of type nms'),
        (
            {'roi_head.bbox_roi_extractor.roi_layer.aligned': False},
            'roi_layer must be RoIAlign',
        ),
        ({'roi_head.bbox_head.bbox_coder.clip_border': False}, 'bbox_coder must clip'),
    ):
        with pytest.raises(ValueError, match=says):
            export(rcnn('mask', **change), tmp_path / 'a.onnx')
    with pytest.raises(ValueError, match=r'path must be NAME\.onnx for MaskRCNN'):
        export(rcnn('mask'), tmp_path / 'a.pt2')
    assert not list(tmp_path.iterdir())


class Operators(nn.Module):
    def forward(
        self, maps: Tensor, rois: Tensor, boxes: Tensor, scores: Tensor
    ) -> tuple[Tensor, ...]:
        return roi_align(maps, rois, 7, 0.25, 0), suppress(boxes, scores, 0.5)


def corners(*shape: int) -> Tensor:
    """Boxes, some of them across the border of 100 x 120 pixels."""
    start = torch.rand(*shape, 2) * 100 - 10
    return torch.cat([start, start + torch.rand(*shape, 2) ** 3 * 100], -1)


@torch.no_grad()
def test_their_operators_are_translated(tmp_path: Path) -> None:
    """Regions without area, tiny ones, large ones; groups without a box, and with equal boxes."""
    regions = torch.cat([torch.randint(0, 2, (60, 1)).float(), corners(60)], 1)
    regions[0, 1:] = 0
    boxes, scores = corners(3, 40), torch.rand(3, 40)
    boxes[1, 20:] = boxes[1, :20]
    scores[0], scores[2, ::3] = 0, 0
    given = torch.randn(2, 4, 25, 30), regions, boxes, scores
    expected = Operators()(*given)
    assert (
        0 < (expected[1] > 0).sum() < (scores > 0).sum()
        and (expected[1][1] > 0).sum() <= 20
    )
    for group in (1, 2):  # beside mmcv's own
        used = scores[group] > 0
        kept, _ = nms(boxes[group, used], scores[group, used], 0.5)
        assert torch.equal(
            expected[1][group].sort(descending=True).values[: len(kept)], kept[:, 4]
        )
    exported = torch.export.export(Operators(), given, strict=False)
    program = torch.onnx.export(
        exported, dynamo=True, custom_translation_table=TABLE, verbose=False
    )
    assert program is not None
    program.save(tmp_path / 'operators.onnx')
    runtime = session(tmp_path / 'operators.onnx')
    names = [one.name for one in runtime.get_inputs()]
    actual = runtime.run(
        None, dict(zip(names, (x.numpy() for x in given), strict=True))
    )
    assert_same([torch.from_numpy(out) for out in actual], expected)
