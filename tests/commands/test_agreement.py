"""One figure in all places: training, test, sweep, report, and an evaluator of the results.

The models find coloured objects by their pixels, so that a figure is neither 0 nor 1; scores and
errors depend on the place of an object in what the model sees.
"""

from __future__ import annotations

import contextlib
import io
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pytest
import torch
from mmdet.structures import SampleList
from mmengine.fileio import load
from mmengine.structures import InstanceData
from PIL import Image
from pycocotools import mask as coco_mask
from pycocotools.coco import COCO
from pycocotools.cocoeval import COCOeval
from torch import Tensor

from rope_dense.measure.results import headline
from rope_dense.models.deim.detector import DEIM
from rope_dense.project.load import load_config
from rope_dense.project.model import random_model
from rope_dense_command import command

pytestmark = pytest.mark.usefixtures('surroundings')
SIDE, STEP = 96, 8  # pixels of a picture, and from object to object
COLOURS = dict(cat=(210, 30, 30), dog=(30, 210, 30), owl=(30, 30, 210))
MODEL = """
model = dict(
    backbone=dict(
        arch=dict(_delete_=True, embed_dims=32, depth=4, num_heads=2),
        out_indices=(1, 2, 3),
        layer_scale_init_value=None,
        conv_stem=False,  # whose random values hardly differ from place to place
    ),
    neck=dict(in_channels=32, out_channels=32),
    encoder=dict(in_channels=(32, 32, 32), embed_dims=32, feedforward_channels=32),
    bbox_head=dict(embed_dims=32, decoder=dict(num_layers=2, feedforward_channels=32)),
)
"""
SEGMENTOR = """
model = dict(
    backbone=dict(
        arch=dict(_delete_=True, embed_dims=32, depth=4, num_heads=2),
        out_indices=(0, 1, 2, 3),
        layer_scale_init_value=None,
    ),
    neck=dict(embed_dim=32),
    decode_head=dict(in_channels=[32] * 4, channels=32),
    auxiliary_head=dict(in_channels=32, channels=32),
)
"""


def see(pixels: np.ndarray) -> list[tuple[int, float, np.ndarray]]:
    """Label, score and mask of what a picture [H, W, 3] of red, green and blue shows, with errors.

    Some are found twice, not at all, in another class, or beside their place.
    """
    found = []
    for label, colour in enumerate(COLOURS.values()):
        near = (np.abs(pixels - colour).max(2) < 60).astype(np.uint8)
        count, parts, stats, _ = cv2.connectedComponentsWithStats(near, connectivity=4)
        for part in range(1, count):
            left, top = stats[part, :2].tolist()
            draw = np.random.default_rng([left, top, label])
            mask = parts == part
            if mask.sum() < 4 or draw.random() < 0.15:
                continue
            shift = draw.choice([0, 0, 0, 1, 2], 2)
            seen = int(draw.choice([label, label, label, label, (label + 1) % 3]))
            found.append((seen, draw.uniform(0.02, 1), np.roll(mask, shift, (0, 1))))
            if draw.random() < 0.2:
                found.append((label, draw.uniform(0.02, 0.6), mask))
    return found


def predict(
    model: DEIM, batch_inputs: Tensor, samples: SampleList, rescale: bool = True
) -> SampleList:
    """``DEIM.predict`` of what is seen in the pixels that come to the model."""
    norm = model.data_preprocessor
    results = []
    for image, sample in zip(batch_inputs, samples, strict=True):
        pixels = image * norm.std + norm.mean if norm._enable_normalize else image
        found = see(pixels.permute(1, 2, 0).cpu().numpy())
        labels = torch.tensor([label for label, _, _ in found], dtype=torch.long)
        scores = torch.tensor([score for _, score, _ in found])
        masks = torch.from_numpy(np.stack([mask for _, _, mask in found]))
        result = InstanceData(scores=scores, labels=labels)
        height, width = sample.ori_shape
        assert sample.scale_factor == (1, 1) and masks.shape[1:] >= (height, width)
        result.bboxes = boxes_of(masks, hasattr(model.bbox_head, 'box_convention'))
        if model.bbox_head.mask_head is not None:
            result.masks = masks[:, :height, :width]
        results.append(result)
    return model.add_pred_to_datasample(samples, results)


def boxes_of(masks: Tensor, rotated: bool) -> Any:
    """Boxes around masks; mmrotate's, if they are rotated."""
    if not rotated:
        found = [coco_mask.toBbox(lengths(mask)) for mask in masks]
        boxes = torch.from_numpy(np.array(found)).float().reshape(-1, 4)
        boxes[:, 2:] += boxes[:, :2]
        return boxes
    from mmrotate.structures.bbox import RotatedBoxes

    found = []
    for mask in masks.numpy():
        points = np.argwhere(mask)[:, ::-1].astype(np.float32)
        (x, y), (width, height), angle = cv2.minAreaRect(points)
        found.append([x, y, width + 1, height + 1, np.deg2rad(angle)])
    noise = np.random.default_rng(len(found)).normal(0, 0.2, (len(found), 5))
    boxes = RotatedBoxes(torch.from_numpy(found + noise).float())
    boxes.regularize_boxes('le90')
    return boxes


def lengths(mask: Tensor) -> dict:
    return coco_mask.encode(np.asfortranarray(mask.numpy(), np.uint8))


def draw_picture(
    size: tuple[int, int], number: int, seed: int
) -> tuple[np.ndarray, list[tuple[int, np.ndarray]]]:
    """A picture of a size (height, width), and the class and corners of its objects."""
    draw = np.random.default_rng(seed)
    height, width = size
    pixels = draw.integers(90, 130, (height, width, 3)).astype(np.uint8)
    cells = draw.permutation(height // STEP * (width // STEP))[:number]
    objects = []
    for cell in cells.tolist():
        row, column = divmod(cell, width // STEP)
        label = int(draw.choice(3, p=[0.5, 0.4, 0.1]))
        start = np.array([column, row]) * STEP + draw.integers(0, 2, 2)
        sides = draw.integers(3, 6, 2)
        corners = start + np.array([[0, 0], [1, 0], [1, 1], [0, 1]]) * sides
        left, top = start.tolist()
        right, bottom = corners[2].tolist()
        pixels[top:bottom, left:right] = list(COLOURS.values())[label]
        objects.append((label + 1, corners))
    return pixels, objects


def write_data(
    root: Path, sizes: Sequence[tuple[int, int]], deep: bool, crowds: bool = False
) -> Path:
    """Pictures with many or few objects as COCO; with crowds each ninth one is ignored."""
    (root / 'annotations').mkdir(parents=True)
    for split in ('train', 'val'):
        (root / split).mkdir()
        images: list[dict] = []
        annotations: list[dict] = []
        for index, size in enumerate(sizes):
            seed = index + 100 * (split == 'val')
            number = (10, 12, 144)[index % 3]
            pixels, objects = draw_picture(size, number, seed)
            name = f'{index}.png'
            if deep:
                values = pixels.astype(np.uint16) * 16
                values[-1, -1] = 4095
                cv2.imwrite(str(root / split / name), values[..., ::-1])
            else:
                Image.fromarray(pixels).save(root / split / name)
            image = dict(id=50 - index, file_name=name, height=size[0], width=size[1])
            images.append(image)
            for label, corners in objects:
                low, high = corners.min(0), corners.max(0)
                item = dict(
                    id=len(annotations) + 1,
                    image_id=image['id'],
                    category_id=11 * label,
                    bbox=[*low.tolist(), *(high - low).tolist()],
                    area=int(np.prod(high - low)),
                    segmentation=[corners.ravel().tolist()],
                    iscrowd=int(crowds and len(annotations) % 9 == 0),
                )
                annotations.append(item)
        content = dict(images=images, annotations=annotations)
        content['categories'] = [
            dict(id=11 * label, name=name) for label, name in enumerate(COLOURS, 1)
        ]
        path = root / 'annotations' / f'{split}.json'
        path.write_text(json.dumps(content))
    return root


@dataclass
class Case:
    """A run whose figures are compared: a task, its settings, and the pictures.

    Args:
        metric: the main one.
        deep: 12 bits of 16.
        sizes: height and width of each picture of a split.
        tile: side of the tiles; None for whole pictures.
    """

    task: str
    metric: str = 'coco/bbox_mAP'
    deep: bool = False
    sizes: Sequence[tuple[int, int]] = ((SIDE, SIDE),) * 3
    tile: int | None = None


LARGE = (128, 160), (SIDE, SIDE), (128, SIDE)
MASKS = 'coco/segm_mAP'
CASES = dict(
    boxes=Case('realtime'),
    deep=Case('realtime', deep=True),
    masks=Case('realtime_masks', MASKS),
    rotated=Case('oriented', 'dota/mAP'),
    tiles=Case('realtime', sizes=LARGE, tile=SIDE),
    tiled_masks=Case('realtime_masks', MASKS, sizes=LARGE, tile=SIDE),
    tiled_rotated=Case('oriented', 'dota/mAP', sizes=LARGE, tile=SIDE),
)


SLOW = [pytest.param(name, marks=pytest.mark.slow) for name in CASES if name != 'boxes']


@pytest.mark.parametrize('name', ['boxes', *SLOW])
def test_one_figure_in_all_places(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    case = CASES[name]
    monkeypatch.setattr(DEIM, 'predict', predict)
    if case.task == 'oriented':
        pytest.importorskip('mmrotate')
    crowds = case.task != 'oriented'  # DOTA has none
    data = write_data(tmp_path / 'data', case.sizes, case.deep, crowds)
    run = train(case, data, tmp_path)
    found = figures(run, data / 'val', case)
    truth = data / 'annotations' / 'val.json'
    evaluate = dota_figures if case.task == 'oriented' else coco_figures
    expected = evaluate(truth, run / 'predictions', case.metric)
    main, half, _ = expected.values()
    assert 0.05 < main < half < 0.95
    for place in ('training', 'test', 'sweep'):
        for name, value in expected.items():
            assert round(found[place][name], 3) == round(value, 3), (place, name)
    assert headline(found['sweep']) == case.metric
    assert [*run.glob(f'best_{case.metric.replace("/", "_")}_iter_*.pth')]
    if case.task != 'oriented':
        report = json.loads((run / 'report' / 'report.json').read_text())
        choice = json.loads((run / 'scaling' / 'choice.json').read_text())
        row = choice['sizes'][0]['rows'][0]
        mean = report['classes'][0]
        exact = [row['metric'], mean['AP'], mean['AP50']]
        assert exact == pytest.approx([main, main, half], abs=1e-9)


def train(case: Case, data: Path, folder: Path) -> Path:
    own = {} if case.tile is None else dict(tile=case.tile, overlap=32)
    config = own_file(folder, case.task, data, **own)
    assert call('train', config, '--work-dir', folder / 'run') == 0
    return folder / 'run'


def own_file(
    folder: Path, task: str, data: Path, model: str = MODEL, **own: object
) -> Path:
    """A config of a small model."""
    given = dict(data_root=str(data), backbone='tiny', weights=None, size=SIDE)
    given |= dict(batch_size=2, epochs=1, augment='light') | own
    path = folder / 'small.py'
    path.write_text(f'task = {task!r}\nown = {given!r}\n{model}')
    return path


def call(name: str, *arguments: object) -> int:
    return command(name)([*map(str, arguments)])


def figures(run: Path, images: Path, case: Case) -> dict[str, dict[str, float]]:
    """The figures of the training's log, of a test, and of a sweep; and predictions."""
    (log,) = run.glob('*/vis_data/scalars.json')
    lines = [json.loads(line) for line in log.read_text().splitlines()]
    trained = next(line for line in lines if case.metric in line)
    before = {*run.glob('*/*.json')}
    assert call('test', run) == 0
    (tested,) = {*run.glob('*/*.json')} - before
    assert call('eval_resolutions', run) == 0
    content = json.loads((run / 'resolutions.json').read_text())
    if case.task != 'oriented':
        side = 64 if case.task == 'semantic' else SIDE
        given = ['--sizes', side, '--scaling', 'linear:2', '--draws', 100]
        assert call('choose_scaling', run, *given) == 0
    given = []
    if case.task != 'semantic':
        ids = images.parent / 'annotations' / f'{images.name}.json'
        given = ['--write', 'coco', 'results', '--ids', ids]
    # A test on tiles counts no boxes below it.
    given += ['--score', 0 if case.tile is None else 0.01]
    assert call('predict', run, images, *given) == 0
    sweep = content['rows'][0]['metrics']
    return dict(training=trained, test=json.loads(tested.read_text()), sweep=sweep)


def coco_figures(truth: Path, folder: Path, metric: str) -> dict[str, float]:
    """AP of all IoUs, of 0.5 and of 0.75 by pycocotools, which counts all boxes."""
    kind = 'segm' if metric == MASKS else 'bbox'
    found = json.loads((folder / 'results.json').read_text())
    for item in found:
        if kind == 'segm':
            del item['bbox']
    with contextlib.redirect_stdout(io.StringIO()):
        coco = COCO(str(truth))
        evaluation = COCOeval(coco, coco.loadRes(found), kind)
        evaluation.params.maxDets = [1, 10, 1000]
        evaluation.evaluate()
        evaluation.accumulate()
    precision = evaluation.eval['precision'][..., 0, -1]  # [IoU, recall, class]
    assert (precision > -1).all()
    aps = [precision.mean(), precision[0].mean(), precision[5].mean()]
    return dict(zip([metric, f'{metric}_50', f'{metric}_75'], aps, strict=True))


def dota_figures(truth: Path, folder: Path, metric: str) -> dict[str, float]:
    """AP at eleven recalls of rotated boxes, whose IoU is shapely's; of the same IoUs."""
    shapely = pytest.importorskip('shapely')
    shapes: list[dict[tuple[str, int], list[tuple[float, Any]]]] = []
    for file in (truth, folder / 'predictions.json'):
        content = json.loads(file.read_text())
        names = {image['id']: image['file_name'] for image in content['images']}
        numbers = {x['id']: n for n, x in enumerate(content['categories'])}
        found: dict[tuple[str, int], list[tuple[float, Any]]] = {}
        for item in content['annotations']:
            shape = shapely.Polygon(np.reshape(item['segmentation'][0], (4, 2)))
            place = names[item['image_id']], numbers[item['category_id']]
            found.setdefault(place, []).append((item.get('score', 1), shape))
        shapes.append(found)
    aps = np.zeros((10, len(COLOURS)))
    for index, threshold in enumerate(np.linspace(0.5, 0.95, 10)):
        for label in range(len(COLOURS)):
            aps[index, label] = dota_ap(*shapes, label, threshold)
    names = [metric, 'dota/AP50', 'dota/AP75']
    return dict(zip(names, [aps.mean(), aps[0].mean(), aps[5].mean()], strict=True))


def dota_ap(truth: dict, predicted: dict, label: int, threshold: float) -> float:
    """AP at eleven recalls of a class; a prediction is of the object that it overlaps most."""
    outcomes = []
    for image in {image for image, _ in predicted}:
        objects = [shape for _, shape in truth.get((image, label), ())]
        taken = set()
        guesses = predicted.get((image, label), ())
        for score, shape in sorted(guesses, key=lambda item: -item[0]):
            ious = [shape.intersection(x).area / shape.union(x).area for x in objects]
            best = int(np.argmax(ious)) if ious else -1
            is_right = bool(ious) and ious[best] >= threshold and best not in taken
            if is_right:
                taken.add(best)
            outcomes.append((-score, is_right))
    right = np.cumsum([is_right for _, is_right in sorted(outcomes)])
    recall = right / sum(len(truth[place]) for place in truth if place[1] == label)
    precision = right / np.arange(1, len(right) + 1)
    reached = [precision[recall >= at] for at in np.arange(11) / 10]
    return float(np.mean([part.max(initial=0) for part in reached]))


@pytest.mark.slow
@pytest.mark.parametrize('tile', [None, SIDE // 2])
def test_one_mean_iou_in_all_places(tile: int | None, tmp_path: Path) -> None:
    """Of masks with unlabelled pixels and 12 bits of 16, also joined from tiles."""
    data = write_data(tmp_path, ((SIDE, SIDE),) * 3, deep=tile is None)
    for split in ('train', 'val'):
        for kind in ('images', 'masks'):
            (tmp_path / kind / split).mkdir(parents=True)
        for path in sorted((data / split).glob('*.png')):
            labels = np.zeros((SIDE, SIDE), np.uint8)
            number = (10, 12, 144)[int(path.stem)]
            seed = int(path.stem) + 100 * (split == 'val')
            for label, corners in draw_picture((SIDE, SIDE), number, seed)[1]:
                (left, top), (right, bottom) = corners[0], corners[2]
                labels[top:bottom, left:right] = label
            labels[:, :10] = 255
            Image.fromarray(labels).save(tmp_path / 'masks' / split / path.name)
            path.rename(tmp_path / 'images' / split / path.name)
    own: dict = dict(classes=['none', *COLOURS], size=64)
    if tile:
        own |= dict(tile=tile, overlap=16)
    config = own_file(tmp_path, 'semantic', tmp_path, SEGMENTOR, **own)
    run = tmp_path / 'run'
    assert call('train', config, '--work-dir', run) == 0
    case = Case('semantic', 'mIoU', tile=tile)
    found = figures(run, tmp_path / 'images' / 'val', case)
    table = np.zeros((4, 256), int)
    for path in sorted((run / 'predictions' / 'labels').glob('*.png')):
        truth = np.asarray(Image.open(tmp_path / 'masks' / 'val' / path.name))
        labels = np.asarray(Image.open(path))[truth < 255]
        np.add.at(table, (truth[truth < 255], labels), 1)
    right = np.diag(table)
    union = table.sum(0)[:4] + table.sum(1) - right
    expected = float(np.mean(right[union > 0] / union[union > 0]))
    assert 0.01 < expected < 0.9
    for place, values in found.items():
        assert values['mIoU'] == pytest.approx(100 * expected, abs=0.006), place
    report = json.loads((run / 'report' / 'report.json').read_text())
    assert report['classes'][0]['IoU'] == pytest.approx(expected, abs=1e-9)
    choice = json.loads((run / 'scaling' / 'choice.json').read_text())
    row = choice['sizes'][0]['rows'][0]
    assert row['metric'] == pytest.approx(100 * expected, abs=1e-6)


@pytest.mark.parametrize(
    'task', ['realtime', pytest.param('oriented', marks=pytest.mark.slow)]
)
def test_an_image_is_tested_as_if_alone(task: str, tmp_path: Path) -> None:
    """Of images of other shapes, and so predicted in a batch: no padding comes to a model."""
    if task == 'oriented':
        pytest.importorskip('mmrotate')
    sizes = (SIDE, SIDE), (SIDE, SIDE // 2), (SIDE // 2, SIDE)
    data = write_data(tmp_path / 'data', sizes, deep=False)
    own = {} if task == 'oriented' else dict(keep_ratio=True)
    config = own_file(tmp_path, task, data, report=False, **own)
    cfg = load_config(str(config), work_dir=str(tmp_path / 'run'))
    cfg.dump(tmp_path / 'whole.py')
    model = random_model(cfg)
    for name, parameter in model.named_parameters():
        if parameter.ndim > 1 and 'head' in name:
            torch.nn.init.normal_(parameter, std=0.3)
    torch.save(dict(state_dict=model.state_dict()), tmp_path / 'weights.pth')
    files = tmp_path / 'whole.py', tmp_path / 'weights.pth'
    assert call('test', *files, '--out', tmp_path / 'a.pkl') == 0
    given = ['--out', tmp_path / 'out', '--score', 0, '--batch', 3]
    assert call('predict', *files, data / 'val', *given) == 0
    content = json.loads((tmp_path / 'out' / 'predictions.json').read_text())
    tested = {Path(x['img_path']).name: x for x in load(tmp_path / 'a.pkl')}
    for image in content['images']:
        items = content['annotations']
        scores = [x['score'] for x in items if x['image_id'] == image['id']]
        expected = tested[image['file_name']]['pred_instances']['scores']
        assert scores == pytest.approx(expected.tolist(), abs=1e-4)
        assert np.ptp(scores) > 0.05
