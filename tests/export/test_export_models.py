"""Segmentors, detectors and classifiers as files, beside what they predict in OpenMMLab."""

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from mmdet.structures import DetDataSample
from mmengine.config import Config, ConfigDict
from mmengine.registry import MODELS, DefaultScope
from torch import nn

from helpers.exported import (
    assert_detected,
    assert_plain,
    assert_same,
    assert_segmented,
    detected,
    pixels,
    run,
    session,
    sizes_from,
)
from helpers.exported_models import (
    SHALLOW,
    classifier,
    five_channels,
    linear,
    mask2former,
    retinanet,
    small_model,
    upernet,
)
from helpers.small_configs import CONFIGS
from rope_dense.export import export
from rope_dense.export.compare import compare_file
from rope_dense.export.exporter import trace
from rope_dense.export.graphs import graph_of

# Segmentors


@pytest.mark.parametrize(
    'make, least',
    [(linear, 16), (upernet, 32), (mask2former, 1)],  # the second halves the map
)
@torch.no_grad()
def test_graphs_segment_as_mmseg(
    make: Callable[[Path], nn.Module], least: int, tmp_path: Path
) -> None:
    model = make(tmp_path)
    graph = graph_of(model)
    assert graph.min_side == least
    for size in sizes_from(least):
        image = pixels(size[0], 3, *size[1:])
        assert_segmented(model, list(graph(image)), image)


@torch.no_grad()
def test_a_segmentor(tmp_path: Path) -> None:
    """test_export_runtimes.py has files of the others."""
    model, path = linear(tmp_path), tmp_path / 'segmentor.onnx'
    metadata = export(model, path, classes=list('abcdefg'))
    assert metadata['task'] == 'segmentation' and metadata['classes'] == list('abcdefg')
    assert metadata['input']['mean'] == pytest.approx([123.675, 116.28, 103.53])
    assert metadata['smallest_size'] == [16, 16]
    assert_plain(path)
    runtime = session(path)
    for size in sizes_from(16):
        image = pixels(size[0], 3, *size[1:])
        assert_segmented(model, run(runtime, image), image)


@pytest.mark.slow
def test_images_of_other_channels_have_their_own_values(tmp_path: Path) -> None:
    model, path = five_channels(tmp_path), tmp_path / 'segmentor.onnx'
    metadata = export(model, path)
    about = metadata['input']
    assert about['channels'] == 5 and about['channel_order'] == 'as trained'
    assert about['dtype'] == 'float32'
    assert about['mean'] == [900, 800, 700, 3000, 20]
    image = 1000 * torch.rand(2, 5, 40, 70)
    with torch.no_grad():
        assert_segmented(model, run(session(path), image), image)
    for line in compare_file(path, model, metadata):
        assert float(line.rpartition(': ')[2].split()[0]) < 1e-4


@pytest.mark.slow
@pytest.mark.parametrize('make', [upernet, mask2former])
@torch.no_grad()
def test_segmentors_at_a_fixed_size(
    make: Callable[[Path], nn.Module], tmp_path: Path
) -> None:
    model, path = make(tmp_path), tmp_path / 'segmentor.onnx'
    export(model, path, size=(123, 141), batch=2)
    assert_plain(path)
    image = pixels(2, 3, 123, 141)
    assert_segmented(model, run(session(path), image), image)


@pytest.mark.slow
@torch.no_grad()
def test_a_segmentor_that_slides_is_exported_for_whole_images(tmp_path: Path) -> None:
    model = small_model('upernet_vit_rope_mixed', tmp_path)
    assert model.test_cfg.mode == 'slide'
    traced = trace(graph_of(model), (137, 101), 2).module()
    model.test_cfg = ConfigDict(mode='whole')
    image = pixels(2, 3, 137, 101)
    assert_segmented(model, traced(image), image)


# Detectors


@torch.no_grad()
def test_dino_on_swin_detects_as_mmdet(tmp_path: Path) -> None:
    model = small_model('dino_swin_rope_mixed', tmp_path)
    graph = graph_of(model)
    assert graph.min_side == 1
    for size in sizes_from(1):
        image = pixels(size[0], 3, *size[1:])
        assert_detected(list(graph(image)), detected(model, image))


@pytest.mark.slow
@torch.no_grad()
def test_a_detector_at_a_fixed_size(tmp_path: Path) -> None:
    model, path = (
        small_model('dino_swin_rope_mixed', tmp_path),
        tmp_path / 'detector.onnx',
    )
    model.backbone.set_window_size('auto')
    export(model, path, size=(112, 150), batch=2)
    assert_plain(path)
    image = pixels(2, 3, 112, 150)
    assert_detected(run(session(path), image), detected(model, image))


@pytest.mark.parametrize('scores', [0.2, 0.003])
@torch.no_grad()
def test_candidates_of_retinanet_are_suppressed_as_by_mmdet(scores: float) -> None:
    model = retinanet(scores)
    graph, image = graph_of(model), pixels(2, 3, 256, 288)
    assert graph.min_side == 1  # padded to a multiple of 32
    size = tuple(image.shape[2:])
    metainfo = dict(ori_shape=size, img_shape=size, scale_factor=(1.0, 1.0))
    samples = [DetDataSample(metainfo=metainfo) for _ in image]
    data = model.data_preprocessor(
        dict(inputs=list(image), data_samples=samples), False
    )
    counts = []
    for sample, actual in zip(
        model(**data, mode='predict'), zip(*graph(image), strict=True), strict=True
    ):
        expected = sample.pred_instances
        counts.append(len(expected))
        assert_same(
            [part[: len(expected)] for part in actual],
            [expected.scores, expected.bboxes, expected.labels],
        )
        assert (actual[0][len(expected) :] == 0).all()
    assert all(
        count == 100 if scores == 0.2 else 0 < count < 100 for count in counts
    ), counts


def test_models_that_predict_in_another_way_are_refused(tmp_path: Path) -> None:
    """A subclass of what is exported would be exported as what it is not."""
    folder = CONFIGS / 'stock_heads'
    for name, says in (
        (
            'ddq-detr-4scale_swin-t_rope-mixed_8xb2-12e_coco',
            'model must be DINO .* DDQDETR has',
        ),
        (
            'mask2former_swin-t_rope-mixed_8xb2-lsj-50e_coco-instance',
            'it is Mask2Former',
        ),
    ):
        cfg = Config.fromfile(folder / f'{name}.py')
        with torch.device('meta'), DefaultScope.overwrite_default_scope('mmdet'):
            model = MODELS.build(cfg.model)
        with pytest.raises(ValueError, match=says):
            export(model, tmp_path / 'a.onnx')
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize('divisor', [1, 14, 32])
@torch.no_grad()
def test_dino_masks_padding_as_mmdet(divisor: int, tmp_path: Path) -> None:
    """Also where it has more queries than the image has tokens."""
    padded = SHALLOW | {'data_preprocessor.pad_size_divisor': divisor}
    model = small_model('dino_vitdet_rope_mixed', tmp_path, **padded)
    graph = graph_of(model)
    for batch, height, width in (
        (1, graph.min_side, graph.min_side),
        (2, 35, 150),
        (1, 97, 131),
    ):
        image = pixels(batch, 3, height, width)
        assert_detected(list(graph(image)), detected(model, image))


# Classifiers


@pytest.mark.parametrize('kind', ['vit', pytest.param('swin', marks=pytest.mark.slow)])
@torch.no_grad()
def test_classifiers(kind: str, tmp_path: Path) -> None:
    model = classifier(kind)
    graph = graph_of(model)
    traced = trace(graph, 'dynamic', 'dynamic').module()
    least = graph.min_side
    for batch, height, width in ((1, least, least), (3, least + 9, 200), (2, 97, 131)):
        image = pixels(batch, 3, height, width)
        data = model.data_preprocessor(dict(inputs=list(image)), False)
        assert_same(traced(image), [model(data['inputs'])])
