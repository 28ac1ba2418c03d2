"""What a file can do for a client: the size and pixels of the test pipeline, RGB, a threshold."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import cv2
import numpy as np
import pytest
import torch
import torch.nn.functional as F
from mmcv.transforms import TRANSFORMS
from PIL import Image
from torch import nn

from helpers.exported import (
    assert_plain,
    assert_same,
    onnx,
    pixels,
    run,
    session,
    strong,
)
from helpers.exported_models import (
    KINDS,
    MIXED,
    classifier,
    linear,
    masked,
    oriented,
    rcnn,
    retinanet,
    shallow,
    vit,
    windowed,
)
from rope_dense.export import export
from rope_dense.export.client import Frame, Resize
from rope_dense.export.compare import largest_difference
from rope_dense.export.exporter import METADATA, graph_for
from rope_dense.predict.inferencer import pad_to_ratio

SCALES = ((1333, 800), (224, 160), (160, 224), (640, 640))
PIPELINE = dict(scale=[96, 64], keep_ratio=True, antialias=False)


@pytest.mark.parametrize('keep_ratio', [True, False])
def test_sizes_are_those_of_the_test_pipeline(keep_ratio: bool) -> None:
    rng = np.random.default_rng(0)
    for scale in SCALES:
        resize = TRANSFORMS.build(
            dict(type='Resize', scale=scale, keep_ratio=keep_ratio)
        )
        for height, width in rng.integers(20, 900, (40, 2)).tolist():
            expected = resize(dict(img=np.zeros((height, width, 1), np.uint8)))[
                'img'
            ].shape[:2]
            assert Resize(scale, keep_ratio).size(height, width) == expected
    assert Resize((64, 64), True, 16).size(10, 1000) == (16, 64)


def test_pixels_are_those_of_opencv_within_one_grey_level() -> None:
    image = pixels(1, 3, 211, 157)
    for scale in ((96, 64), (300, 400), (157, 211)):
        actual = Resize(scale, keep_ratio=False)(image)[0].permute(1, 2, 0).numpy()
        expected = cv2.resize(image[0].permute(1, 2, 0).numpy(), scale)
        assert actual.shape == expected.shape
        assert np.abs(actual - expected).max() <= 1
        actual = Resize(scale, False, antialias=True)(image)[0].permute(1, 2, 0).numpy()
        picture = Image.fromarray(image[0].permute(1, 2, 0).numpy())
        assert (
            np.abs(actual - np.asarray(picture.resize(scale, Image.BILINEAR))).max()
            <= 1
        )


@torch.no_grad()
@pytest.mark.parametrize('keep_ratio', [True, False])
def test_a_file_resizes_as_pillow(keep_ratio: bool, tmp_path: Path) -> None:
    """As test pipelines of real-time detectors; pictures that shrink, and that grow.

    What a detector does with its sizes is in the file with all options.
    """
    path = tmp_path / 'a.onnx'
    resize = dict(PIPELINE, keep_ratio=keep_ratio, antialias=True)
    resize['ratio'] = 2.5 if keep_ratio else None
    model = classifier()
    metadata = export(model, path, resize=resize, resize_inside=True)
    graph = graph_for(model, metadata)
    for height, width in ((250, 301), (40, 37), (64, 96), (30, 301)):
        image = pixels(2, 3, height, width)
        assert largest_difference(graph, run(session(path), image), graph(image)) < 1e-4
    plain = given(model, resized=dict(resize, antialias=False))
    image = pixels(1, 3, 250, 301)
    assert largest_difference(plain, run(session(path), image), plain(image)) > 1e-3


@torch.no_grad()
def test_long_images_are_padded_as_by_predict(tmp_path: Path) -> None:
    """The graph; what its file computes is compared for these sizes in the tests beside this."""
    model = shallow()
    ratio = dict(PIPELINE, ratio=2.5)
    graph, plain = given(model, resized=ratio), given(model, resized=PIPELINE)
    for height, width in ((30, 301), (211, 20), (110, 150)):
        image = pixels(2, 3, height, width)
        scores, boxes, labels = graph(image)
        whole = [pad_to_ratio(x.permute(1, 2, 0).numpy(), 2.5) for x in image]
        expected = plain(torch.from_numpy(np.stack(whole)).permute(0, 3, 1, 2))
        most = torch.tensor([width, height])
        inside = (expected[1][..., :2] < most).all(-1)
        assert inside.any() and inside.all() == (height == 110)
        assert torch.equal(scores, expected[0] * inside)
        kept = expected[1].minimum(most.repeat(2))[inside]
        assert torch.equal(boxes[inside], kept) and (labels[~inside] == -1).all()
    found = given(linear(tmp_path), resized=ratio)(pixels(1, 3, 30, 301))
    assert [x.shape[-2:] for x in found] == [(30, 301)] * 2


def test_points_are_in_pixels_of_the_input() -> None:
    frame = Frame((50, 80), (100, 240))
    assert frame.points(torch.tensor([[8.0, 5, 80, 50]])).tolist() == [
        [24, 10, 240, 100]
    ]


def given(model: nn.Module, **changes: object) -> nn.Module:
    """The graph of a model with options of a file."""
    return graph_for(
        model, dict(rgb=False, top=None, score=None, resized=None) | changes
    )


class Given:
    """A resized image."""

    padded = Resize((1, 1), False).padded

    def __init__(self, image: torch.Tensor, keep_ratio: bool = True) -> None:
        self.image = image
        self.keep_ratio = keep_ratio

    def __call__(self, _: torch.Tensor) -> torch.Tensor:
        return self.image


@torch.no_grad()
def test_graphs_with_options(tmp_path: Path) -> None:
    """Results of a resized image in its own pixels are those of the resized image, stretched."""
    image = pixels(2, 3, 110, 150)
    small = Resize((96, 64), True)(image).round().to(torch.uint8)
    for make in (shallow, retinanet, lambda: rcnn('faster')):
        model = make()
        scores, boxes, labels = given(model)(small)
        found = given(model, resized=PIPELINE)(small)
        assert_same(found, [scores, boxes, labels])  # of the right size
        exact = given(model, resized=PIPELINE, rgb=True)
        exact.resize = Given(small.flip(1))
        stretch = torch.tensor([150 / 87, 110 / 64] * 2)
        assert_same(exact(image.flip(1)), [scores, boxes * stretch, labels])
        assert_same(
            given(model, top=4)(small), [x[:, :4] for x in (scores, boxes, labels)]
        )
        level = float(scores[:, 5:7].mean())
        enough = scores >= level
        number = int(enough.sum(1).max())
        wanted = [
            scores.where(enough, 0),
            boxes.where(enough[..., None], 0),
            labels.where(enough, -1),
        ]
        wanted = [x[:, :number] for x in wanted]
        assert_same(given(model, score=level)(small), wanted)
    deim = masked()  # padded to 96 x 96 pixels
    deim.data_preprocessor.pad_size_divisor = 48
    masks = given(deim)(small)[3]
    graph = given(deim, resized=PIPELINE, top=3)
    assert masks.shape == (2, 30, 24, 24) and not graph.details()
    whole = F.interpolate(masks[:, :3], (96, 96), mode='bilinear')[..., :64, :87]
    graph.resize = Given(small)
    assert_same(graph(image)[3:], [F.interpolate(whole, (110, 150), mode='bilinear')])
    square = pixels(2, 3, 96, 96)  # not padded, so resized once, as by the model
    masks = given(deim)(square)[3][:, :3]
    graph.resize = Given(square, keep_ratio=False)
    assert_same(graph(image)[3:], [F.interpolate(masks, (110, 150), mode='bilinear')])
    model = linear(tmp_path)
    logits, labels = given(model, resized=PIPELINE)(image)
    assert logits.shape == (2, 7, 110, 150) and torch.equal(labels, logits.argmax(1))


@pytest.mark.slow
@torch.no_grad()
def test_a_file_with_all_options(tmp_path: Path) -> None:
    model, path = shallow(divisor=32), tmp_path / 'deim.onnx'
    resized = dict(PIPELINE, ratio=3.0)
    graph = given(model, resized=resized, rgb=True, top=9)
    images = [pixels(*size) for size in ((1, 3, 3, 5), (3, 3, 64, 87), (2, 3, 300, 50))]
    score = (
        float(torch.cat([graph(image)[0].flatten() for image in images]).median())
        + 1e-4
    )
    options = dict(resize_inside=True, rgb=True, top=9, score=score)
    metadata = export(model, path, resize=resized, classes=list('abcdefg'), **options)
    assert json.loads((tmp_path / 'deim.json').read_text()) == metadata
    expected = dict(
        rgb=True, top=9, score=score, resized=resized, resize=None, opset=20
    )
    assert expected.items() <= metadata.items() and metadata['smallest_size'] == [1, 1]
    assert (
        metadata['input']['channel_order']
        == metadata['input']['model_channel_order']
        == 'RGB'
    )
    assert set(metadata['meaning']) == {'scores', 'boxes', 'labels'}
    assert_plain(path)
    runtime, graph, counts = session(path), graph_for(model, metadata), []
    assert [x.shape for x in runtime.get_inputs()] == [['batch', 3, 'height', 'width']]
    assert runtime.get_outputs()[1].shape == ['batch', 'detections', 4]
    for image in images:
        found, wanted = run(runtime, image), graph(image)
        counts.append(wanted[0].shape[1])
        assert largest_difference(graph, found, wanted) < 1e-3
    assert len({*counts}) > 1


@pytest.mark.slow
@pytest.mark.parametrize(
    'kind', ['Mask R-CNN', 'EoMT (PMT), panoptic', 'SharedBackbone']
)
@torch.no_grad()
def test_other_outputs_of_resized_images(kind: str, tmp_path: Path) -> None:
    """To one size: the model inside has no dynamic size."""
    model, path = KINDS[kind](tmp_path), tmp_path / 'model.onnx'
    metadata = export(
        model, path, resize=dict(scale=[96, 64], keep_ratio=False), resize_inside=True
    )
    assert_plain(path)
    runtime, graph = session(path), graph_for(model, metadata)
    for size in ((1, 70, 131), (2, 160, 90)):
        image = pixels(size[0], 3, *size[1:])
        for name, actual, expected in zip(
            graph.outputs, run(runtime, image), graph(image), strict=True
        ):
            assert actual.shape == expected.shape and actual.dtype == expected.dtype
            actual, expected = actual.float(), expected.float()
            wrong = (actual - expected).abs() > 1e-3 * expected.abs().max()
            assert wrong.float().mean() < 0.01, name


# ONNX Runtime and OpenVINO have them, TensorRT's parser does not.
EIGHT_BITS = 'DynamicQuantizeLinear of FLOAT', 'MatMulInteger of UINT8'


@pytest.mark.slow
@torch.no_grad()
def test_weights_of_eight_bits(tmp_path: Path) -> None:
    model, path = shallow(), tmp_path / 'deim.onnx'
    metadata = export(model, path, size=(96, 128), dtype=torch.int8)
    assert_plain(path, rare=EIGHT_BITS)
    graph = graph_for(model, metadata)
    weights = sum(x.numel() * x.element_size() for x in graph.parameters())
    assert metadata['backbone_dtype'] == 'int8'
    assert path.stat().st_size < weights
    kinds = {tensor.data_type for tensor in onnx.load(path).graph.initializer}
    assert onnx.TensorProto.INT8 in kinds
    image = pixels(2, 3, 96, 128)
    scores, expected = run(session(path), image)[0], graph(image)[0]
    assert 1e-5 < (scores - expected).abs().max() < 0.1


@pytest.mark.slow
@pytest.mark.parametrize('opset, make', [(17, vit), (18, windowed), (24, windowed)])
@torch.no_grad()
def test_other_operator_sets(
    opset: int, make: Callable[..., nn.Module], tmp_path: Path
) -> None:
    model, path = strong(make(rope=MIXED)), tmp_path / 'backbone.onnx'
    metadata = export(model, path, opset=opset)
    # An operator since opset 23; the list of TensorRT 10.1 ends with opset 20.
    assert_plain(path, opset, ['Attention of FLOAT'] if opset >= 23 else [])
    runtime, image = session(path), torch.randn(2, 3, 70, 90)
    assert json.loads(runtime.get_modelmeta().custom_metadata_map[METADATA]) == metadata
    assert_same(run(runtime, image), model(image))


@pytest.mark.slow
def test_an_operator_set_that_has_not_all_operators(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """Padding of windows, of opset 18."""
    with pytest.raises(
        ValueError, match='opset 17: onnx cannot convert the model; 18 needs'
    ):
        export(windowed(), tmp_path / 'a.onnx', opset=17)
    assert not list(tmp_path.iterdir()) and capfd.readouterr() == ('', '')


REFUSED = {
    'backbone': (vit, dict(rgb=True), 'RoPEViT cannot be exported with rgb'),
    'top': (
        classifier,
        dict(top=3),
        'RoPEClassifier cannot be exported with top and score',
    ),
    'score': (shallow, dict(score=1.5), 'score must be .* less than 1, got 1.5'),
    'angle': (
        oriented,
        dict(resize=PIPELINE, resize_inside=True),
        'DEIM cannot be exported with resizing inside',
    ),
    'pipeline': (
        shallow,
        dict(resize_inside=True),
        'takes the size of a test pipeline',
    ),
    'two sizes': (
        shallow,
        dict(resize=PIPELINE, resize_inside=True, size=(64, 64)),
        'takes the size of a test pipeline: leave out size',
    ),
    'opset': (shallow, dict(opset=16), 'opset must be an integer from 17 up, got 16'),
}


@pytest.mark.parametrize('case', REFUSED.values(), ids=REFUSED)
def test_wrong_options_are_refused_before_tracing(case: tuple, tmp_path: Path) -> None:
    make, options, message = case
    with pytest.raises(ValueError, match=message):
        export(make(), tmp_path / 'a.onnx', **options)
    assert not list(tmp_path.iterdir())


def test_what_needs_onnx(tmp_path: Path) -> None:
    for options in (dict(dtype=torch.int8), dict(resize_inside=True)):
        with pytest.raises(ValueError, match=r'needs NAME\.onnx'):
            export(shallow(), tmp_path / 'a.pt2', **options)


@pytest.mark.parametrize('name', ['my.onnx', 'my.json', 'my.onnx.data', 'my.pt2'])
def test_another_file_is_found_before_tracing(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / name).write_text('{"rope_dense": "mine"}')
    monkeypatch.setattr(
        'rope_dense.export.exporter.graph_for', lambda *_: pytest.fail('traced')
    )
    path = tmp_path / ('my.pt2' if name == 'my.pt2' else 'my.onnx')
    with pytest.raises(
        ValueError, match=f'{tmp_path / name} was not written by rope-dense'
    ):
        export(vit(), path)
    assert [file.name for file in tmp_path.iterdir()] == [name]
    assert (tmp_path / name).read_text() == '{"rope_dense": "mine"}'


def test_weights_of_an_earlier_model_do_not_stay(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They are in a file of their own, by its final name; the second export has none."""
    limit = 'torch.onnx._internal.exporter._onnx_program._LARGE_MODEL_THRESHOLD'
    path, model, names = (
        tmp_path / 'my.onnx',
        strong(vit()),
        ['my.json', 'my.onnx', 'my.onnx.data'],
    )
    image = torch.randn(1, 3, 64, 64)
    for most in (0, 2**31):
        monkeypatch.setattr(limit, most)
        export(model, path, size=(64, 64))
        found = sorted(file.name for file in tmp_path.iterdir())
        assert found == ['.rope_dense', *names[: 3 if most == 0 else 2]]
        with torch.no_grad():
            assert_same(run(session(path), image), model(image))
