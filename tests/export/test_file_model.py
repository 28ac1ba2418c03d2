"""Exported files in place of their models."""

import json
from pathlib import Path
from typing import Any

import onnx
import pytest
import torch
from mmdet.models.detectors import BaseDetector
from mmdet.structures import DetDataSample
from mmengine.config import Config, ConfigDict
from mmseg.structures import SegDataSample
from test_check_file import detector
from test_export_compare import Rows
from torch import Tensor, nn

from helpers import eomt
from helpers.exported import pixels, strong
from helpers.exported_models import deim, dpt, linear, masked, oriented
from rope_dense.export import file_model
from rope_dense.export.exporter import file_metadata, graph_for
from rope_dense.export.file_model import FileModel, instances_of, metadata_of
from rope_dense.utils.errors import UsageError

CLASSES = 'cat', 'dog'


class Model:
    """What a file needs of a model."""

    add_pred_to_datasample: Any = BaseDetector.add_pred_to_datasample

    def test_step(self, data: dict) -> list:
        raise AssertionError('the model is not run')


def with_metadata(path: Path, **changes: object) -> Path:
    model = onnx.load(path)
    for entry in model.metadata_props:
        about = json.loads(entry.value) | dict(
            rgb=False, task='detection', classes=None
        )
        entry.value = json.dumps(about | changes)
    onnx.save(model, path)
    return path


def sample(**changes: object) -> DetDataSample:
    about = dict(ori_shape=(48, 33), img_shape=(24, 33), scale_factor=(1.0, 0.5))
    return DetDataSample(metainfo=about | changes)


@torch.no_grad()
def test_a_file_predicts_in_place_of_the_model(tmp_path: Path) -> None:
    exported = FileModel(with_metadata(detector(tmp_path)), 'onnxruntime')
    model, graph = Model(), Rows(0.0)
    exported.predict_for(model, CLASSES)
    graph.outputs, graph.detections = exported.metadata['outputs'], []
    exported.graph = graph
    pictures = list(torch.rand(2, 3, 24, 33))
    pictures[0][0, 0, :30] = -200.0  # whose score is 0
    found = model.test_step(dict(inputs=pictures, data_samples=[sample(), sample()]))
    assert [len(x.pred_instances) for x in found] == [3, 33]
    _, boxes, labels = graph(pictures[1][None])
    instances = found[1].pred_instances
    assert torch.allclose(instances.bboxes[:, 0], boxes[0, :, 0], atol=1e-5)
    assert torch.allclose(instances.bboxes[:, 3], boxes[0, :, 3] * 2, atol=1e-5)
    assert torch.equal(instances.labels, labels[0])
    assert 'ONNX Runtime' in exported.said() and ': 2 images' in exported.said()
    assert exported.difference < 1e-5
    exported.graph = lambda image: [2 * x for x in graph(image)]
    exported.graph.outputs, exported.graph.detections = graph.outputs, []
    exported.step(dict(inputs=pictures[1:], data_samples=[sample()]))
    assert exported.difference == pytest.approx(0.5, abs=0.01)


def test_files_that_do_not_fit_are_refused(tmp_path: Path) -> None:
    path = detector(tmp_path)
    with pytest.raises(UsageError, match=r'has the classes \[.bird.\], the model'):
        FileModel(with_metadata(path, classes=['bird'])).predict_for(Model(), CLASSES)
    exported = FileModel(with_metadata(path, size=[16, 16], smallest_size=[16, 16]))
    with pytest.raises(UsageError, match=r'takes images of 16 x 16, .* has 24 x 33'):
        exported.predict(torch.rand(3, 24, 33))
    with pytest.raises(UsageError, match='objects, labels or depth can be tested'):
        FileModel(with_metadata(path, task='backbone'))
    model = onnx.load(path)
    del model.metadata_props[:]
    onnx.save(model, path)
    with pytest.raises(
        UsageError, match=r'put model\.json, which export wrote, beside'
    ):
        metadata_of(path)
    path.with_suffix('.json').write_text('{"task": "depth"}')
    assert metadata_of(path) == dict(task='depth')
    path.write_text('no file')
    with pytest.raises(UsageError, match=r'model\.onnx is no ONNX file'):
        metadata_of(path)
    with pytest.raises(UsageError, match=r'give NAME\.onnx or NAME\.pt2'):
        metadata_of(path.with_suffix('.json'))


def test_a_file_that_resizes_gets_whole_images(tmp_path: Path) -> None:
    resize = dict(type='Resize', scale=(96, 64), keep_ratio=True)
    pipeline = [dict(type='LoadImageFromFile'), resize, dict(type='PackDetInputs')]
    dataset = dict(type='CocoDataset', pipeline=pipeline)
    cfg = Config(dict(test_dataloader=dict(dataset=dataset)))
    path = detector(tmp_path)
    FileModel(with_metadata(path, resized=None)).keep_sizes(cfg)
    assert cfg.test_dataloader.dataset.pipeline[1].scale == (96, 64)
    FileModel(with_metadata(path, resized=dict(scale=[96, 64]))).keep_sizes(cfg)
    step = cfg.test_dataloader.dataset.pipeline[1]
    assert step == dict(type='Resize', scale_factor=1.0, keep_ratio=True)


@pytest.mark.parametrize('kept', [0, 2])
def test_masks_are_on_the_pixels_of_the_picture(kept: int) -> None:
    def outputs(masks: Tensor) -> dict[str, Tensor]:
        scores = torch.tensor([0.9, 0.5]) * (kept > 0)
        boxes = torch.ones(2, 4)
        return dict(scores=scores, boxes=boxes, labels=torch.zeros(2), masks=masks)

    small = torch.full((2, 8, 12), -4.0)  # of 32 x 48 pixels, a quarter
    small[:, :3] = 4.0
    for divisor, masks in ((16, small), (None, torch.zeros(2, 24, 33) > 1)):
        if divisor is None:
            masks[:, :12] = True
        found = instances_of(outputs(masks), sample(), (24, 33), divisor).masks
        assert found.shape == (kept, 48, 33) and found.dtype == torch.bool
        assert found[:, :23].all() and not found[:, 25:].any()


def file_of(
    model: nn.Module, path: Path, monkeypatch: pytest.MonkeyPatch, **changes: Any
) -> FileModel:
    """A file in a program that computes what the graph does."""
    options = dict(rgb=False, top=None, score=None, resized=None)
    graph = graph_for(model, options)
    about = file_metadata(graph, 'dynamic', 'dynamic', None) | options | changes
    path.with_suffix('.json').write_text(json.dumps(about))
    before = [torch.zeros(1)] * (len(about['outputs']) - len(graph.outputs))
    programs = {'a program': lambda image: [*before, *graph(image)]}
    monkeypatch.setattr(file_model, 'runners', lambda _: programs)
    return FileModel(path)


@torch.no_grad()
def test_a_file_of_another_kind_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    exported = file_of(oriented(), tmp_path / 'model.pt2', monkeypatch)
    exported.predict_for(deim(), CLASSES)
    for _ in range(2):
        with pytest.raises(UsageError, match=r'computes .*, corners, the model scores'):
            exported.predict(pixels(3, 64, 96))


def panoptic() -> nn.Module:
    return strong(eomt.build_model('panoptic', 'pmt'))


@pytest.mark.parametrize('make', [deim, masked, oriented, panoptic])
@torch.no_grad()
def test_samples_are_those_of_the_model(
    make: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Boxes, masks, rotated boxes and segments in pixels of the picture."""
    model: Any = make()
    picture, about = pixels(3, 64, 96), dict(ori_shape=(128, 96), img_shape=(64, 96))
    data = dict(inputs=[picture], data_samples=[sample(**about)])
    (expected,) = model.test_step(data)
    exported = file_of(model, tmp_path / 'model.pt2', monkeypatch)
    exported.predict_for(model, CLASSES)
    (found,) = model.test_step(dict(inputs=[picture], data_samples=[sample(**about)]))
    assert exported.difference == 0 and ' a program: 1 images' in exported.said()
    if make is panoptic:
        same = found.pred_panoptic_seg.sem_seg == expected.pred_panoptic_seg.sem_seg
        assert same.float().mean() > 0.99 and same.shape[-2:] == (128, 96)
        return
    wanted, instances = expected.pred_instances, found.pred_instances
    if make is masked:
        assert torch.equal(instances.masks, wanted.masks)
    assert len(instances) == len(wanted) > 5
    assert torch.equal(instances.labels, wanted.labels)
    assert torch.allclose(instances.scores, wanted.scores, atol=1e-5)
    boxes = getattr(instances.bboxes, 'tensor', instances.bboxes)
    wanted_boxes = getattr(wanted.bboxes, 'tensor', wanted.bboxes)
    assert type(instances.bboxes) is type(wanted.bboxes)
    assert torch.allclose(boxes, wanted_boxes, atol=1e-3)


@pytest.mark.parametrize('kind', ['depth', 'whole', 'slide'])
@torch.no_grad()
def test_maps_are_those_of_the_model(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model: Any = dpt() if kind == 'depth' else linear(tmp_path)
    name = 'pred_depth_map' if kind == 'depth' else 'pred_sem_seg'
    if kind == 'slide':
        model.test_cfg = ConfigDict(mode='slide', crop_size=(64, 64), stride=(48, 48))
    about = dict(ori_shape=(128, 192), img_shape=(64, 96))
    samples = [SegDataSample(metainfo=about) for _ in range(2)]
    inputs = [pixels(3, 64, 96)]
    (expected,) = model.test_step(dict(inputs=inputs, data_samples=samples[:1]))
    exported = file_of(model, tmp_path / 'model.pt2', monkeypatch)
    exported.predict_for(model, CLASSES)
    (found,) = model.test_step(dict(inputs=inputs, data_samples=samples[1:]))
    same = torch.isclose(found.get(name).data, expected.get(name).data, rtol=1e-4)
    assert same.shape[-2:] == (128, 192)
    assert same.all() == (kind != 'slide')
    assert ('the model sliding windows' in exported.said()) == (kind == 'slide')


@torch.no_grad()
def test_a_task_of_several_is_found_by_its_classes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = [f'animals_{name}' for name in ('scores', 'boxes', 'labels')]
    animals = dict(task='detection', outputs=names, classes=['cat', 'dog'])
    ways = dict(task='segmentation', outputs=['ways_labels'], classes=['road'])
    about = dict(task='several', outputs=['ways_labels', *names])
    about['tasks'] = dict(ways=ways, animals=animals)
    model: Any = deim()
    picture = pixels(3, 64, 96)
    several = file_of(model, tmp_path / 'model.pt2', monkeypatch, **about)
    several.predict_for(model, CLASSES)
    found = several.predict(picture)
    assert list(found) == ['scores', 'boxes', 'labels'] and several.difference == 0
    several = file_of(model, tmp_path / 'model.pt2', monkeypatch, **about)
    with pytest.raises(UsageError, match=r'0 of its tasks \(ways, animals\) have the'):
        several.predict_for(model, ['bird'])
