"""Runs on tiles: a test has the results of `predict-large`, which takes the tiles of the run."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterable, Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
from mmengine.fileio import load
from mmengine.registry import DATASETS, DefaultScope
from mmengine.runner import Runner
from mmengine.structures import BaseDataElement
from PIL import Image
from pycocotools import mask as coco_mask

from helpers.large_scenes import draw_scene, write_scenes
from rope_dense.data.images.band_files import write_bands
from rope_dense.data.tiles.evaluation import TileJoiner
from rope_dense.data.tiles.plan import TileGrid
from rope_dense.measure.evaluator import Evaluator
from rope_dense.measure.settings import Setting
from rope_dense.project.load import load_config
from rope_dense.project.model import random_model
from rope_dense_command import command

rasterio = pytest.importorskip(
    'rasterio', reason="no rasterio: pip install -e '.[large]'"
)
pytestmark = pytest.mark.usefixtures('surroundings')
DETECTOR = """
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
    auxiliary_head=dict(in_channels=[32, 32, 32, 32][0], channels=32),
)
"""


DEPTH = """
model = dict(
    backbone=dict(
        arch=dict(_delete_=True, embed_dims=32, depth=4, num_heads=2),
        out_indices=(0, 1, 2, 3),
        layer_scale_init_value=None,
    ),
    decode_head=dict(in_channels=32, channels=32, post_process_channels=[8, 16, 32, 32]),
)
"""


def write_masks(root: Path, train: int, val: int) -> Path:
    """Scenes with masks of three classes; the left third of each has no label."""
    for split, number in dict(train=train, val=val).items():
        for kind in ('images', 'masks'):
            (root / kind / split).mkdir(parents=True)
        for index in range(number):
            pixels, objects = draw_scene(200, 300, 30, index + 1000 * (split == 'val'))
            labels = np.zeros((200, 300), np.uint8)
            for label, (x, y, w, h) in objects:
                labels[y : y + h, x : x + w] = label + 1
            labels[:, :110] = 255
            Image.fromarray(pixels).save(root / 'images' / split / f'{index}.png')
            Image.fromarray(labels).save(root / 'masks' / split / f'{index}.png')
    return root


@pytest.fixture(scope='module')
def scenes(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_scenes(
        tmp_path_factory.mktemp('scenes'), dict(train=2, val=2), outlines=True
    )


@pytest.fixture(scope='module')
def masked(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_masks(tmp_path_factory.mktemp('masked'), 2, 2)


def own_file(folder: Path, task: str, data: Path, **own: object) -> Path:
    """A config of a small model that is trained on tiles of 96 pixels."""
    given = dict(
        data_root=str(data), backbone='tiny', weights=None, size=64, tile=96, overlap=32
    )
    given |= dict(batch_size=2, epochs=1, augment='light', report=False) | own
    text = f'task = {task!r}\nown = {given!r}\n'
    path = folder / f'{task}.py'
    more = dict(semantic=SEGMENTOR, depth=DEPTH).get(task, DETECTOR)
    path.write_text(text + more)
    return path


def model_files(folder: Path, config: Path) -> tuple[str, str]:
    """The complete config and random weights, whose predictions differ from place to place."""
    cfg = load_config(str(config), work_dir=str(folder / 'work'))
    cfg.dump(folder / 'whole.py')
    torch.manual_seed(0)
    model = random_model(cfg)
    for name, parameter in model.named_parameters():
        if parameter.ndim > 1 and 'head' in name:
            torch.nn.init.normal_(parameter, std=0.3)
    meta = dict(dataset_meta=cfg.test_dataloader.dataset.metainfo.to_dict())
    torch.save(dict(state_dict=model.state_dict(), meta=meta), folder / 'weights.pth')
    return str(folder / 'whole.py'), str(folder / 'weights.pth')


def whole_samples(
    config: str, weights: str, joiner: TileJoiner
) -> list[BaseDataElement]:
    """The samples of the whole images of a test."""
    cfg = load_config(config)
    cfg.test_dataloader.num_workers = 0
    model = random_model(cfg).eval()
    model.load_state_dict(torch.load(weights)['state_dict'])
    with DefaultScope.overwrite_default_scope(cfg.default_scope), torch.no_grad():
        loader = Runner.build_dataloader(cfg.test_dataloader)
        return [one for batch in loader for one in joiner.join(model.test_step(batch))]


def run(name: str, *arguments: object) -> int:
    return command(name)([*map(str, arguments)])


@pytest.mark.parametrize(
    'task, own',
    [
        ('realtime', {}),
        ('realtime', dict(scales=[0.5, 1])),
        ('realtime_masks', {}),
        ('oriented', dict(scales=[0.5, 1])),
    ],
)
def test_a_test_has_the_objects_of_predict_large(
    task: str,
    own: dict,
    scenes: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    files, out = (
        model_files(tmp_path, own_file(tmp_path, task, scenes, **own)),
        tmp_path / 'a.json',
    )
    least = 0.05
    image = scenes / 'val' / '0.png'
    assert run('predict_large', *files, image, '--out', out, '--score', least) == 0
    number = 15 if not own else 15 + 4
    assert f'{number} tiles of 96 pixels' in capsys.readouterr().out
    expected = json.loads(out.read_text())['annotations']
    sample, _ = whole_samples(*files, TileJoiner(min_score=least))
    found = sample.pred_instances
    assert sample.ori_shape == (200, 300) and len(found) == len(expected) > 10
    key = 'rbox' if task == 'oriented' else 'bbox'
    for box, score, label, item in zip(
        found.bboxes.tolist(),
        found.scores.tolist(),
        found.labels.tolist(),
        expected,
        strict=True,
    ):
        if key == 'bbox':
            box = [box[0], box[1], box[2] - box[0], box[3] - box[1]]
        assert score == pytest.approx(item['score'], abs=1e-5)
        assert label + 1 == item['category_id']
        assert box[:2] == pytest.approx(item[key][:2], abs=1e-2)
    if task == 'realtime_masks':
        assert [x['counts'].decode() for x in found.masks] == [
            x['segmentation']['counts'] for x in expected
        ]
        assert coco_mask.decode(found.masks[0]).shape == (200, 300)


@pytest.mark.parametrize('task', ['realtime', 'semantic'])
def test_nothing_is_tested_without_data(
    task: str, scenes: Path, masked: Path, tmp_path: Path
) -> None:
    """As in predict-large: scenes of four channels, of which the left 130 pixels have no data."""
    data, own = (masked, dict(CLASSED)) if task == 'semantic' else (scenes, {})
    shutil.copytree(data, tmp_path / 'data')
    for path in (tmp_path / 'data').rglob('*.png'):
        if 'masks' not in path.parts:
            pixels = np.maximum(np.asarray(Image.open(path)), 1).astype(np.uint16)
            pixels[:, :130] = 0
            out = path.with_suffix('.tif')
            write_bands(out, np.concatenate([pixels, pixels[..., :1]], 2))
            with rasterio.open(out, 'r+') as file:
                file.nodata = 0
            path.unlink()
    for listing in (tmp_path / 'data').glob('annotations/*.json'):
        listing.write_text(listing.read_text().replace('.png', '.tif'))
    own = own | dict(channels=4, scales=[1] if task == 'semantic' else [0.5, 1])
    files = model_files(tmp_path, own_file(tmp_path, task, tmp_path / 'data', **own))
    image = (
        tmp_path / 'data' / ('images/val' if task == 'semantic' else 'val') / '0.tif'
    )
    out = tmp_path / ('a.tif' if task == 'semantic' else 'a.json')
    assert run('predict_large', *files, image, '--out', out, '--score', 0.05) == 0
    samples = whole_samples(*files, TileJoiner(min_score=0.05))
    if task == 'semantic':
        found, expected = (
            labels_of(samples[: len(samples) // 2]),
            np.array(Image.open(out)),
        )
        assert (found == expected).all() and (found[:, :130] == 255).all()
        assert len(np.unique(found)) > 2
        return
    boxes, expected = (
        samples[0].pred_instances.bboxes,
        json.loads(out.read_text())['annotations'],
    )
    assert len(boxes) == len(expected) > 10
    assert np.allclose(boxes[:, :2], [x['bbox'][:2] for x in expected], atol=1e-2)
    assert (boxes[:, ::2].mean(1) > 128).all()  # a pixel of a halved image is two


def labels_of(parts: list[BaseDataElement]) -> np.ndarray:
    """The labels of a whole image, from the parts that its tiles complete."""
    labels = np.full((200, 300), 99)
    for part in parts:
        place, (rows, columns) = part.metainfo['place'], part.pred_sem_seg.shape
        top, left = (
            place.level.grid.tops[place.row],
            place.level.grid.lefts[place.column],
        )
        labels[top : top + rows, left : left + columns] = part.pred_sem_seg.data[0]
    return labels


def test_a_model_of_the_hub_has_its_tiles(scenes: Path, tmp_path: Path) -> None:
    files = model_files(
        tmp_path, own_file(tmp_path, 'realtime', scenes, scales=[0.5, 1])
    )
    assert run('push_to_hub', *files, 'me/ships', '--folder', tmp_path / 'ships') == 0
    found = []
    for index, source in enumerate((files, [tmp_path / 'ships'])):
        out = tmp_path / f'{index}.json'
        given = ['--out', out, '--score', 0.05, '--work-dir', tmp_path / 'out']
        assert run('predict_large', *source, scenes / 'val' / '0.png', *given) == 0
        found.append(out.read_bytes())
    assert found[0] == found[1] and len(json.loads(found[0])['annotations']) > 10


def write_depths(root: Path) -> Path:
    """Two scenes a split with depths; the left of each is unknown."""
    random = np.random.default_rng(0)
    for split in ('train', 'val'):
        for kind in ('images', 'depth'):
            (root / kind / split).mkdir(parents=True)
        for index in range(2):
            depth = random.integers(1000, 5000, (20, 30)).repeat(10, 0).repeat(10, 1)
            pixels = (depth / 20).astype(np.uint8)
            depth[:, :20] = 0
            Image.fromarray(depth.astype(np.uint16)).save(
                root / 'depth' / split / f'{index}.png'
            )
            Image.fromarray(pixels).save(root / 'images' / split / f'{index}.png')
    return root


class Apart(TileJoiner):
    """Joins nothing."""

    def join(self, samples: Iterable[BaseDataElement]) -> Iterator[BaseDataElement]:
        return iter(samples)


def test_a_test_has_the_depth_of_predict_large(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The blend of tiles that are predicted by hand, and its error over a whole image."""
    data = write_depths(tmp_path / 'data')
    files = model_files(tmp_path, own_file(tmp_path, 'depth', data))
    image, out = data / 'images' / 'val' / '0.png', tmp_path / 'a.tif'
    drawn = ['--picture', tmp_path / 'a.jpg']
    assert run('predict_large', *files, image, '--out', out, *drawn) == 0
    expected = rasterio.open(out).read(1)
    assert expected.dtype == np.float32 and expected.std() > 0.001
    assert Image.open(tmp_path / 'a.jpg').size[0] > 600
    samples = whole_samples(*files, TileJoiner())
    sample, _ = samples
    assert np.allclose(sample.pred_depth_map.data[0], expected, atol=1e-4)
    truth = np.array(Image.open(data / 'depth' / 'val' / '0.png')) / 1000
    assert np.allclose(sample.gt_depth_map.data[0], truth)
    grid = TileGrid(200, 300, 96, 32)
    total, tiles = np.zeros((200, 300)), iter(whole_samples(*files, Apart()))
    for row, top in enumerate(grid.tops):
        for column, left in enumerate(grid.lefts):
            weights = np.outer(grid.row_weights[row], grid.column_weights[column])
            found = next(tiles).pred_depth_map.data[0].numpy()
            total[top : top + 96, left : left + 96] += weights * found
    assert np.allclose(total, expected, atol=1e-4)
    options = ['--cfg-options', *OFFLINE, '--work-dir', tmp_path / 'work']
    assert run('eval_resolutions', *files, '--tiles', 96, *options) == 0
    (row,) = json.loads((tmp_path / 'work' / 'resolutions.json').read_text())['rows']
    errors = []
    for one in samples:
        found_depth, true = (
            one.pred_depth_map.data[0].numpy(),
            one.gt_depth_map.data[0].numpy(),
        )
        known = true > 0
        errors.append(
            np.sqrt(np.square(found_depth.clip(0.001, 10) - true)[known].mean())
        )
    assert row['metrics']['rmse'] == pytest.approx(np.mean(errors), abs=1e-3)


def test_a_test_has_the_labels_of_predict_large(masked: Path, tmp_path: Path) -> None:
    files, out = (
        model_files(tmp_path, own_file(tmp_path, 'semantic', masked, classes=CLASSES)),
        (tmp_path / 'a.png'),
    )
    assert (
        run('predict_large', *files, masked / 'images' / 'val' / '0.png', '--out', out)
        == 0
    )
    expected, labels = np.array(Image.open(out)), np.full((200, 300), 99)
    truth = labels.copy()
    parts = whole_samples(*files, TileJoiner())
    for part in parts[: len(parts) // 2]:  # of the first image
        place = part.metainfo['place']
        top, left = (
            place.level.grid.tops[place.row],
            place.level.grid.lefts[place.column],
        )
        rows, columns = part.pred_sem_seg.shape
        where = slice(top, top + rows), slice(left, left + columns)
        labels[where], truth[where] = part.pred_sem_seg.data[0], part.gt_sem_seg.data[0]
    assert (labels == expected).all() and len(np.unique(expected)) > 1
    assert (truth == np.array(Image.open(masked / 'masks' / 'val' / '0.png'))).all()


CLASSES = ['ground', 'disc', 'square']
CLASSED = dict(classes=CLASSES)
OFFLINE = ['test_dataloader.num_workers=0', 'val_dataloader.num_workers=0']


def test_tiles_without_a_label_are_left_out(masked: Path, tmp_path: Path) -> None:
    cfg = load_config(str(own_file(tmp_path, 'semantic', masked, classes=CLASSES)))
    assert '2 training images are 24 tiles of 96 pixels, resized to 64' in cfg.own_data
    assert '6 tiles without a labelled pixel are left out' in cfg.own_data
    with DefaultScope.overwrite_default_scope('mmseg'):
        dataset = DATASETS.build(cfg.train_dataloader.dataset)
    assert len(dataset) == 24
    for index in range(len(dataset)):
        labels = dataset[index]['data_samples'].gt_sem_seg.data
        assert (labels != 255).any()


@pytest.mark.slow
@pytest.mark.parametrize('task', ['realtime', 'semantic', 'depth'])
def test_a_run_is_trained_tested_reported_and_predicts(
    task: str,
    scenes: Path,
    masked: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    name, data, own = 'mAP', scenes, {}
    if task == 'semantic':
        name, data, own = 'mIoU', masked, CLASSED
    elif task == 'depth':
        name, data = 'rmse', write_depths(tmp_path / 'data')
    config = own_file(tmp_path, task, data, **own, val_epochs=1)
    folder, options = (
        tmp_path / 'run',
        ['--cfg-options', 'train_dataloader.num_workers=0'],
    )
    assert run('train', config, '--work-dir', folder, *options) == 0
    assert run('test', folder) == 0
    assert name in capsys.readouterr().out
    assert run('report', folder) == 0
    assert 'not drawn' not in (folder / 'report' / 'index.html').read_text()
    picture = data / ('val' if task == 'realtime' else 'images/val')
    assert run('predict', folder, picture, '--out', tmp_path / 'out') == 0
    said = capsys.readouterr().out
    assert 'in tiles' in said and '15 tiles of 96 pixels' in said
    small = tmp_path / 'small.tif'  # of a compression that OpenCV does not read
    about = dict(driver='GTiff', dtype='uint8', photometric='rgb', compress='zstd')
    with rasterio.open(small, 'w', height=60, width=80, count=3, **about) as file:
        file.write(np.random.default_rng(0).integers(0, 255, (3, 60, 80), np.uint8))
    assert run('predict', folder, small, '--out', tmp_path / 'out') == 0
    assert f'{small}: in tiles' in capsys.readouterr().out
    assert run('eval_resolutions', folder, '--sizes', '64', '96') == 0
    assert len(json.loads((folder / 'resolutions.json').read_text())['rows']) == 2


@pytest.mark.parametrize('task', ['detection', 'instance', 'depth'])
def test_recipes_of_other_tasks(task: str, scenes: Path, tmp_path: Path) -> None:
    """Their loaders give batches of tiles, and whole images to the evaluator."""
    if task == 'depth':
        scenes = write_depths(tmp_path)
    own = dict(
        data_root=str(scenes),
        backbone='tiny',
        weights=None,
        size=64,
        tile=96,
        overlap=32,
    )
    cfg = load_config(
        task, own=own | dict(augment='light'), work_dir=str(tmp_path / 'work')
    )
    cfg.train_dataloader.num_workers = cfg.val_dataloader.num_workers = 0
    assert (task == 'detection') == bool(
        (cfg.model.get('bbox_head') or {}).get('skip_ignored')
    )
    with DefaultScope.overwrite_default_scope(cfg.default_scope):
        batch = next(iter(Runner.build_dataloader(cfg.train_dataloader, seed=0)))
        loader = Runner.build_dataloader(cfg.val_dataloader, seed=0)
        assert len(loader.dataset) == 30 and cfg.val_evaluator.type == 'TiledEvaluator'
        assert max(batch['inputs'][0].shape[1:]) <= 160
        if task == 'depth':
            whole = np.array(Image.open(tmp_path / 'depth' / 'val' / '0.png'))
            for index in range(15):
                left, top, right, bottom = loader.dataset.get_data_info(index)['window']
                found = (
                    loader.dataset[index]['data_samples'].gt_depth_map.data[0].numpy()
                )
                assert np.allclose(found, whole[top:bottom, left:right] / 1000)


def write_truth(path: Path, found: list[dict]) -> None:
    """Predictions of images, in their order, as the labels of a data set."""
    content = json.loads(path.read_text())
    names = [item['name'] for item in found[0]['categories']]
    ids = {item['name']: item['id'] for item in content['categories']}
    content['annotations'] = [
        dict(
            image_id=image,
            category_id=ids[names[item['category_id'] - 1]],
            bbox=item['bbox'],
        )
        for image, one in enumerate(found)
        for item in one['annotations']
        if min(item['bbox'][2:]) > 4
    ]
    for number, item in enumerate(content['annotations'], start=1):
        item.update(id=number, iscrowd=0, area=item['bbox'][2] * item['bbox'][3])
    path.write_text(json.dumps(content))


@pytest.mark.parametrize('task', ['realtime', 'semantic'])
def test_tiles_and_scalings_are_compared(
    task: str, masked: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The figures of a sweep, and of a choice among whole images, are those of a test."""
    data, own = masked, CLASSED
    if task == 'realtime':
        data, own = write_scenes(tmp_path / 'data', dict(train=1, val=2)), {}
    files = model_files(tmp_path, own_file(tmp_path, task, data, **own))
    if task == 'realtime':  # its boxes are the truth, so that a random model has an AP
        found = [tmp_path / f'{index}.json' for index in range(2)]
        for index, out in enumerate(found):
            image = data / 'val' / f'{index}.png'
            given = ['--out', out, '--score', 0.1, '--tile', 144, '--size', 96]
            assert run('predict_large', *files, image, *given) == 0
        write_truth(
            data / 'annotations' / 'val.json',
            [json.loads(x.read_text()) for x in found],
        )
    folder = ['--work-dir', tmp_path / 'work', '--cfg-options', *OFFLINE]
    slides = ['--slide', 'scale'] if task == 'semantic' else []
    assert run('eval_resolutions', *files, '--tiles', 96, 144, *slides, *folder) == 0
    rows = json.loads((tmp_path / 'work' / 'resolutions.json').read_text())['rows']
    assert [(row['tile'], row['height']) for row in rows] == [(96, 64), (144, 96)]
    assert 'tile' in capsys.readouterr().out
    name = 'mIoU' if task == 'semantic' else 'coco/bbox_mAP'
    figures = [row['metrics'][name] for row in rows]
    assert figures[0] != figures[1] > 0.2
    tried = ['--sizes', 96, '--tiles', 144, '--draws', 120, '--scaling', 'linear:2']
    assert run('choose_scaling', *files, *tried, *folder) == 0
    content = json.loads((tmp_path / 'work' / 'scaling' / 'choice.json').read_text())
    assert content['images'] == 2 and content['metric'] == name
    (choice,) = content['sizes']
    found = [(row['tile'], row['scaling']) for row in choice['rows']]
    assert found == [
        (tile, scaling) for tile in (96, 144) for scaling in ('config', 'linear:2')
    ]
    assert choice['rows'][2]['metric'] == pytest.approx(
        figures[1], abs=0.0051 if task == 'semantic' else 6e-4
    )
    chosen = load_config(str(tmp_path / 'work' / 'scaling' / '96.py'))
    assert (
        chosen.test_dataloader.dataset.tile == choice['rows'][choice['chosen']]['tile']
    )


def test_processes_share_the_tests_of_a_run_on_tiles(
    masked: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two processes, of which the second is killed after a test, and the figures of one."""
    files = model_files(tmp_path, own_file(tmp_path, 'semantic', masked, **CLASSED))
    tests = [*files, '--tiles', 96, 144, '--scaling', 'none', 'linear:2']
    options = ['--cfg-options', *OFFLINE]
    assert (
        run('eval_resolutions', *tests, '--work-dir', tmp_path / 'one', *options) == 0
    )
    seen, measure = list[str](), Evaluator.evaluate
    monkeypatch.setattr(
        'rope_dense.measure.sweep.should_merge', lambda rank, count: rank == 0
    )
    monkeypatch.setenv('WORLD_SIZE', '2')

    def evaluate(self: Evaluator, setting: Setting) -> dict:
        if is_killed and seen:
            raise KeyboardInterrupt
        seen.append(f'{setting.tile} {setting.scaling}')
        return measure(self, setting)

    monkeypatch.setattr(Evaluator, 'evaluate', evaluate)
    arguments = [
        *tests,
        '--launcher',
        'pytorch',
        '--work-dir',
        tmp_path / 'two',
        *options,
    ]
    expected = [['96 linear:2'], ['144 linear:2'], ['96 none', '144 none']]
    for rank, is_killed, tested in zip(
        (1, 1, 0), (True, False, False), expected, strict=True
    ):
        monkeypatch.setenv('RANK', str(rank))
        seen.clear()
        assert run('eval_resolutions', *arguments) == (130 if is_killed else 0)
        assert seen == tested
        assert (tmp_path / 'two' / 'resolutions.json').exists() == (rank == 0)
    one, two = (
        json.loads((tmp_path / x / 'resolutions.json').read_text())
        for x in ('one', 'two')
    )
    figures = [
        [(x['tile'], x['scaling'], x['metrics']) for x in y['rows']] for y in (one, two)
    ]
    assert figures[0] == figures[1] and len(figures[0]) == 4
    assert {path.name for path in (tmp_path / 'two').glob('resolutions*')} == {
        *('resolutions.json', 'resolutions.csv', 'resolutions.png'),
    }


def test_files_of_a_test_have_whole_images(
    scenes: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    files = model_files(tmp_path, own_file(tmp_path, 'realtime', scenes))
    assert (
        run('test', *files, '--out', tmp_path / 'a.pkl', '--cfg-options', *OFFLINE) == 0
    )
    written = load(tmp_path / 'a.pkl')
    joiner = TileJoiner()
    assert len(written) == 2
    for sample, whole in zip(written, whole_samples(*files, joiner), strict=True):
        assert sample['ori_shape'] == (200, 300) and 'place' not in sample
        assert (sample['pred_instances']['bboxes'] == whole.pred_instances.bboxes).all()


def test_what_tests_in_tiles_refuse(
    scenes: Path, masked: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for task, data, own in (
        ('realtime_masks', scenes, {}),
        ('semantic', masked, CLASSED),
    ):
        files = model_files(tmp_path, own_file(tmp_path, task, data, **own))
        assert run('test', *files, '--out', tmp_path / 'a.pkl') == 2
        assert (
            '--out: of a test in tiles only boxes; rope-dense predict'
            in capsys.readouterr().err
        )
    own = dict(tile=None, overlap=None)
    files = model_files(
        tmp_path, own_file(tmp_path, 'semantic', masked, **CLASSED, **own)
    )
    assert run('eval_resolutions', *files, '--tiles', 64) == 2
    assert (
        '--tiles 64: only of a run that was trained on tiles' in capsys.readouterr().err
    )
