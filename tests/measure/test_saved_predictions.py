"""`rope-dense test --out`: files named by the paths of the images, in the form of the data set."""

import hashlib
import json
import os
from pathlib import Path

import cv2
import numpy as np
import pytest
import torch
from mmdet.datasets import CocoPanopticDataset
from mmdet.evaluation.functional import pq_compute_single_core
from mmengine.config import Config
from mmengine.registry import init_default_scope
from PIL import Image

import rope_dense
from helpers.panoptic import provide_panopticapi, read_ids, small_panoptic
from helpers.rows import column, read_json
from helpers.tool_names import Main
from rope_dense.data.generated import SEGMENTATION_METAINFO
from rope_dense.data.mask_labels import label_map, read_labels
from rope_dense.export import file_model
from rope_dense.measure.evaluate import saved_predictions
from rope_dense.project.load import load_config
from rope_dense.project.model import random_model

VALUES = [40, 0, 200, 7, 9, 2, 1]  # numbers in the masks
FILES = ['camA/0.png', 'camA/1.png', 'camB/0.png', 'camB/1.jpg', 'camB/2.png']


def digests(folder: Path) -> dict[str, str]:
    files = [path for path in folder.rglob('*') if path.is_file()]
    return {str(path): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


@pytest.fixture
def masks(segmentor: str, tmp_path: Path) -> list[str]:
    """Config and weights of a segmentor of own masks, in folders of two cameras."""
    cfg = Config.fromfile(segmentor)
    root = tmp_path / 'data'
    random = np.random.default_rng(0)
    for name in FILES:
        image = root / 'images' / name
        mask = (root / 'masks' / name).with_suffix('.png')
        for file in (image, mask):
            file.parent.mkdir(parents=True, exist_ok=True)
        cv2.imwrite(str(image), random.integers(256, size=(64, 96, 3)).astype(np.uint8))
        labels = np.array(VALUES, np.uint8)[random.integers(7, size=(64, 96))]
        Image.fromarray(labels).save(mask)
    load = dict(type='LoadClassMask')
    steps = cfg.test_dataloader.dataset.pipeline
    steps = [load if step.type == 'LoadAnnotations' else step for step in steps]
    cfg.test_dataloader.dataset = dict(
        type='ImageMaskDataset',
        data_root=str(root),
        data_prefix=dict(img_path='images', seg_map_path='masks'),
        metainfo=dict(SEGMENTATION_METAINFO),
        values=VALUES,
        pipeline=steps,
    )
    cfg.custom_imports.imports.append('rope_dense.data.map_datasets')
    config = tmp_path / 'masks.py'
    weights = tmp_path / 'masks.pth'
    cfg.dump(config)
    model = random_model(load_config(str(config)))
    torch.save(dict(state_dict=model.state_dict()), weights)
    return [str(config), str(weights), '--work-dir', str(tmp_path / 'work')]


def test_a_file_of_other_classes_is_not_tested(
    test: Main,
    masks: list[str],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    path = tmp_path / 'model.pt2'
    path.touch()
    about = dict(task='segmentation', outputs=['labels'], classes=['a'], resized=None)
    path.with_suffix('.json').write_text(json.dumps(about))
    monkeypatch.setattr(file_model, 'runners', lambda _: dict(program=list))
    assert test([*masks, '--file', str(path)]) == 2
    said = "model.pt2 has the classes ['a'], the model ['background', 'circle'"
    assert said in capsys.readouterr().err


def test_masks_are_named_and_numbered_as_in_the_data_set(
    test: Main,
    masks: list[str],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    out = tmp_path / 'tested'
    given = digests(tmp_path / 'data')
    assert test([*masks, '--out', str(out)]) == 0
    written = {path.relative_to(out).as_posix() for path in out.rglob('*.png')}
    assert written == {name.replace('.jpg', '.png') for name in FILES}
    model = rope_dense.load(*masks[:2], device='cpu')
    labels = label_map(SEGMENTATION_METAINFO['classes'], VALUES)
    for name in FILES:
        found = read_labels((out / name).with_suffix('.png'), labels)
        (sample,) = model(str(tmp_path / 'data/images' / name))
        same = found == model.plain(sample)['labels']
        assert same.mean() > 0.99  # windows of the test
    assert test([*masks, '--out', str(out)]) == 0  # replaces its own

    masks_folder = tmp_path / 'data/masks'
    assert test([*masks, '--out', str(masks_folder)]) == 2
    said = capsys.readouterr().err
    assert f'{masks_folder}/camA/0.png is read by this command' in said
    assert digests(tmp_path / 'data') == given

    (out / 'camB/0.png').write_bytes((out / 'camA/0.png').read_bytes())  # corrected
    given = digests(tmp_path)
    assert test([*masks, '--out', str(out)]) == 2
    said = capsys.readouterr().err
    assert f'{out}/camB/0.png was changed after rope-dense wrote it' in said
    kept = digests(tmp_path)
    assert {path: kept[path] for path in given} == given
    assert not [*out.rglob('lock')]


def test_masks_of_a_test_that_ends_early(masks: list[str], tmp_path: Path) -> None:
    """What was there stays as it was, and nothing is left beside it."""
    cfg = load_config(masks[0])
    out = tmp_path / 'tested'
    init_default_scope('mmseg')

    def write(label: int, error: type[Exception] | None = None) -> None:
        with saved_predictions(cfg, str(out)) as (metric,):
            for name in FILES:
                labels = torch.full((1, 64, 96), label)
                path = str(tmp_path / 'data/images' / name)
                sample = dict(img_path=path, pred_sem_seg=dict(data=labels))
                metric.process({}, [sample])
            if error:
                raise error
            metric.evaluate(len(FILES))

    write(1)
    given = digests(tmp_path)
    with pytest.raises(MemoryError):
        write(2, MemoryError)
    assert digests(tmp_path) == given


def test_a_pickle_of_the_user_stays(
    test: Main,
    detector: str,
    weights: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    out = tmp_path / 'boxes.pkl'
    argv = [detector, weights, '--work-dir', str(tmp_path / 'work'), '--out', str(out)]
    out.write_bytes(b'mine')
    assert test(argv) == 2
    assert f'{out} was not written by rope-dense' in capsys.readouterr().err
    assert out.read_bytes() == b'mine'
    out.unlink()
    assert test(argv) == 0 == test(argv)
    assert {*os.listdir(tmp_path)} == {'boxes.pkl', '.rope_dense', 'work'}


def test_panoptic_files_are_read_back(
    test: Main,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """By mmdet as a data set, whose segments are the predictions; with itself its PQ is 1."""
    provide_panopticapi(monkeypatch)
    config, weights = small_panoptic(tmp_path)
    out = tmp_path / 'tested'
    argv = [config, weights, '--work-dir', str(tmp_path / 'work'), '--out', str(out)]
    assert test(argv) == 0
    truth = read_json(Config.fromfile(config).test_evaluator.ann_file)
    content = read_json(out / 'panoptic.json')
    for key in ('id', 'name', 'isthing'):
        names = column(content['categories'], key)
        assert names == column(truth['categories'], key)
    assert content['images'] == truth['images']
    pairs = [(entry, entry) for entry in content['annotations']]
    categories = {x['id']: x for x in content['categories']}
    stat = pq_compute_single_core(
        0,
        pairs,
        f'{out}/panoptic',
        f'{out}/panoptic',
        categories,
    )
    mean = stat.pq_average(categories, isthing=None)[0]
    assert (mean['pq'], mean['sq'], mean['rq']) == (1, 1, 1)
    assert mean['n'] > 3

    dataset = CocoPanopticDataset(
        ann_file=f'{out}/panoptic.json',
        data_prefix=dict(
            img=f'{tmp_path}/data/panoptic/val2017/',
            seg=f'{out}/panoptic/',
        ),
        metainfo=Config.fromfile(config).test_dataloader.dataset.metainfo,
    )
    model = rope_dense.load(config, weights, device='cpu')
    for index, entry in enumerate(content['annotations']):
        info = dataset.get_data_info(index)
        (sample,) = model(info['img_path'])
        plain = model.plain(sample)
        ids = read_ids(info['seg_map_path'])
        np.testing.assert_array_equal(ids, plain['ids'])
        assert (ids == 0).any()
        assert ids.max() == len(plain['labels']) == len(entry['segments_info'])
        for segment, known, label, area in zip(
            entry['segments_info'],
            info['segments_info'],
            plain['labels'],
            plain['areas'],
            strict=True,
        ):
            mask = ids == segment['id']
            rows = np.flatnonzero(mask.any(1))
            columns = np.flatnonzero(mask.any(0))
            box = [columns[0], rows[0], np.ptp(columns) + 1, np.ptp(rows) + 1]
            assert segment['bbox'] == box
            assert segment['area'] == area == mask.sum()
            assert known['category'] == label == segment['category_id'] - 1
            assert bool(known['is_thing']) == (label < 6)

    (out / 'panoptic.json').write_text('{}')
    assert test(argv) == 2
    said = capsys.readouterr().err
    assert f'{out}/panoptic.json was changed after rope-dense' in said
