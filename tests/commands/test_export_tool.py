"""`rope-dense export`, the demo's detector, and docs/clients/draw.py."""

import json
import math
import re
import subprocess
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from types import SimpleNamespace

import cv2
import numpy as np
import pytest
import torch
from mmcv.transforms import TRANSFORMS
from mmdet.structures import DetDataSample
from mmengine.config import Config
from PIL import Image
from torch import nn

from helpers.deim import ours, randomise
from helpers.exported import assert_detected, detected, pixels, run, session, strong
from helpers.tool_names import TOOLS, Main
from rope_dense.export.exporter import file_metadata
from rope_dense.export.graphs import graph_of
from rope_dense.models.deim.oriented_boxes import corners_of
from rope_dense.project.model import build_model
from rope_dense_command import command

ROOT = TOOLS.parent
DEMO = str(ROOT / 'configs' / 'demo' / 'dino_vitdet_rope_mixed_shapes.py')
SMALL = {
    'model.backbone.arch.depth': 2,
    'model.backbone.window_block_indexes': (0,),
    'model.decoder.num_layers': 1,
}
OPTIONS = ['--cfg-options', *(f'{key}={value}' for key, value in SMALL.items())]
CLASSES = ('circle', 'square', 'triangle', 'star', 'cross', 'ring')
Refuse = Callable[..., None]


@pytest.fixture(scope='module')
def export() -> Main:
    return command('export')


@pytest.fixture(scope='module')
def demo() -> nn.Module:
    """The demo's detector, shallower."""
    cfg = Config.fromfile(DEMO)
    cfg.merge_from_dict(SMALL)
    model = build_model(cfg)
    model.init_weights()
    return strong(model)


@pytest.fixture
def checkpoint(demo: nn.Module, tmp_path: Path) -> str:
    path = tmp_path / 'demo.pth'
    meta = dict(dataset_meta=dict(classes=CLASSES))
    torch.save(dict(state_dict=demo.state_dict(), meta=meta), path)
    return str(path)


@pytest.mark.slow
@pytest.mark.parametrize(
    'options, sizes',
    [
        (['--size', '160x208', '--batch', '2'], [(2, 3, 160, 208)]),
        pytest.param(
            [],
            [(1, 3, 160, 160), (2, 3, 240, 200), (1, 3, 320, 333)],
            marks=pytest.mark.slow,
        ),
    ],
    ids=['one size', 'any size'],
)
@torch.no_grad()
def test_the_detector_of_the_demo_finds_the_same_boxes(
    export: Main,
    demo: nn.Module,
    checkpoint: str,
    options: list[str],
    sizes: list[tuple[int, ...]],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    path = tmp_path / 'demo.onnx'
    assert export([DEMO, checkpoint, str(path), *options, *OPTIONS]) == 0
    said = capsys.readouterr().out
    assert (
        "resize          {'scale': [160, 160], 'keep_ratio': True, 'antialias': False, "
        in said
    )
    assert 'colours         [[220, 20, 60]' in said
    assert "['circle', 'square', 'triangle', 'star', 'cross', 'ring']" in said
    lines = re.findall(
        r'Largest difference .* in fp32 for noise \d x 3 x .*: (.*)', said
    )
    found = [
        float(number) for line in lines for number in re.findall(r'(\S+) in \w+', line)
    ]
    assert len(lines) == (1 if options else 3) and max(found) < 1e-4
    assert json.loads(path.with_suffix('.json').read_text())['classes'] == [*CLASSES]
    runtime = session(path)
    for size in sizes:
        image = pixels(*size)
        assert_detected(run(runtime, image), detected(demo, image))
    if not options:
        draws(path, tmp_path)


def script() -> str:
    """The program docs/clients/draw.py."""
    return (ROOT / 'docs' / 'clients' / 'draw.py').read_text()


def draws(path: Path, folder: Path) -> None:
    """The program docs/clients/draw.py, on a picture, without torch, OpenMMLab and this package."""
    (folder / 'draw.py').write_text(script())
    noise = np.random.default_rng(0).integers(0, 256, (200, 200, 3), np.uint8)
    Image.fromarray(noise).save(folder / 'in.png')
    (folder / 'in').mkdir()
    (folder / 'in.png').rename(folder / 'in' / 'a.png')
    command = [
        sys.executable,
        '-X',
        'importtime',
        'draw.py',
        str(path),
        'in',
        'out',
        '0',
    ]
    result = subprocess.run(
        command, cwd=folder, capture_output=True, text=True, check=False
    )
    assert result.returncode == 0, result.stderr[-2000:]
    imported = {line.rpartition('|')[2].strip() for line in result.stderr.splitlines()}
    assert 'onnxruntime' in imported and not imported & {
        'torch',
        'mmengine',
        'rope_dense',
    }
    drawn = np.asarray(Image.open(folder / 'out' / 'a.png'))
    assert drawn.shape == noise.shape and (drawn != noise).any()
    assert re.search(r'a\.png: highest score 0\.\d\d, drawn from 0\.0', result.stdout)


@torch.no_grad()
def test_the_script_draws_masks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Coloured where the model finds instances, in an image that is padded to multiples of 32.

    The model itself runs in place of its file.
    """
    model = ours(head=dict(masks={}))
    randomise(model)
    picture = Image.fromarray(np.full((150, 200, 3), 255, np.uint8))
    picture.paste((40, 90, 160), (30, 20, 120, 140))
    picture.save(tmp_path / 'in.png')
    small = np.asarray(picture.resize((100, 75), Image.BILINEAR))[:, :, ::-1].copy()
    metainfo = dict(ori_shape=(150, 200), img_shape=(75, 100), scale_factor=(0.5, 0.5))
    inputs, samples = (
        [torch.from_numpy(small).permute(2, 0, 1)],
        [DetDataSample(metainfo=metainfo)],
    )
    data = model.data_preprocessor(dict(inputs=inputs, data_samples=samples), False)
    logits = model(data['inputs'], mode='tensor')[3]
    model.bbox_head.mask_head.bias -= logits.amax(1).median()
    (found,) = model(**data, mode='predict')
    inside = found.pred_instances.masks.any(0)

    graph = graph_of(model)
    about = file_metadata(graph, 'dynamic', 'dynamic', None)
    resize = dict(scale=[100, 100], keep_ratio=True, antialias=True)
    about |= dict(colours=[[255, 0, 0]] * 7, resize=resize)
    text = re.sub(r'canvas\.(rectangle|text)\(.*\)', 'pass', script())
    run_script(text, about, graph, tmp_path, monkeypatch)

    drawn = np.asarray(Image.open(tmp_path / 'out.png'))
    coloured = torch.from_numpy((drawn != np.asarray(picture)).any(2))
    assert 0.1 < inside.float().mean() < 0.9
    assert (coloured != inside).float().mean() < 0.02


def run_script(
    text: str,
    about: dict,
    model: Callable[[torch.Tensor], Iterable[torch.Tensor]],
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Draw on in.png of a folder, with a model in place of its file."""
    meta = SimpleNamespace(custom_metadata_map=dict(rope_dense=json.dumps(about)))
    session = SimpleNamespace(
        get_modelmeta=lambda: meta,
        run=lambda names, inputs: [
            x.numpy() for x in model(torch.from_numpy(inputs['image']))
        ],
    )
    runtime = SimpleNamespace(InferenceSession=lambda file: session)
    monkeypatch.setitem(sys.modules, 'onnxruntime', runtime)
    arguments = ['model.onnx', str(folder / 'in.png'), str(folder / 'out.png'), '0.3']
    monkeypatch.setattr(sys, 'argv', ['draw.py', *arguments])
    exec(text, {})


def test_the_script_draws_oriented_boxes_by_their_corners(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One box above the threshold, in a picture of twice the size that the model sees."""
    Image.new('RGB', (200, 150)).save(tmp_path / 'in.png')
    boxes = torch.tensor([[[50.0, 40, 40, 20, 0.5], [20, 20, 10, 10, 0]]])
    outputs = dict(
        scores=torch.tensor([[0.9, 0.1]]), boxes=boxes, labels=torch.tensor([[1, 0]])
    )
    outputs['corners'] = corners_of(boxes)
    about = dict(outputs=[*outputs], task='detection', size='dynamic', multiple_of=32)
    about['smallest_size'] = [32, 32]
    about |= dict(classes=['a', 'b'], num_classes=2, colours=[[255, 0, 0], [0, 255, 0]])
    about |= dict(resize=dict(scale=[100, 100], keep_ratio=True))
    text = re.sub(r'canvas\.text\(.*\)', 'pass', script())
    run_script(text, about, lambda image: outputs.values(), tmp_path, monkeypatch)

    drawn = np.asarray(Image.open(tmp_path / 'out.png'))
    expected = np.zeros((150, 200), np.uint8)
    corners = cv2.boxPoints(((100, 80), (80, 40), math.degrees(0.5)))
    cv2.polylines(expected, [np.rint(corners).astype(np.int32)], True, 255, thickness=5)
    assert not drawn[..., ::2].any() and 200 < (drawn[..., 1] > 0).sum() < 300
    assert not drawn[expected == 0].any()


@pytest.mark.parametrize('keep_ratio', [True, False])
def test_the_script_resizes_as_the_test_pipeline(keep_ratio: bool) -> None:
    (function,) = re.findall(r'(def test_size.*?)\n\n\n', script(), re.DOTALL)
    for scale in ((1333, 800), (224, 160), (160, 224)):
        about = dict(size='dynamic', resize=dict(scale=scale, keep_ratio=keep_ratio))
        exec(function, names := dict(about=about))
        resize = TRANSFORMS.build(
            dict(type='Resize', scale=scale, keep_ratio=keep_ratio)
        )
        for height, width in ((480, 640), (641, 427), (100, 1000), (37, 53)):
            resized = resize(dict(img=np.zeros((height, width, 3), np.uint8)))['img']
            assert tuple(names['test_size'](width, height)) == resized.shape[1::-1]


def test_wrong_requests(
    export: Main,
    checkpoint: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    assert export([DEMO, checkpoint, 'a.onnx', '--size', '8x64', *OPTIONS]) == 2
    assert 'error: size must be an integer from 32 up' in capsys.readouterr().err
    assert export([DEMO, checkpoint, 'a.engine']) == 2
    assert 'a.engine: give NAME.onnx or NAME.pt2' in capsys.readouterr().err
    assert [file.name for file in tmp_path.iterdir()] == ['demo.pth']


def test_weights_that_are_not_there(
    export: Main, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for checkpoint, says in (
        ('no.pth', 'no such file'),
        ('https://a.invalid/b.pth', 'the download failed'),
    ):
        assert export([DEMO, checkpoint, str(tmp_path / 'a.onnx'), *OPTIONS]) == 2
        assert says in capsys.readouterr().err
