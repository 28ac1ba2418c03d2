"""Data sets that are missing, broken or do not fit: one message, before anything begins."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from mmdet.datasets import CocoPanopticDataset
from mmengine.config import Config
from PIL import Image

from helpers.small_configs import CONFIGS
from helpers.tool_names import TRAIN_DATA, Fails, Main
from rope_dense.data.generated import ShapesSettings, write_shapes
from rope_dense.project.checks import data as data_checks
from rope_dense.project.model import random_model
from rope_dense.utils.errors import UsageError


def with_data_root(root: str) -> list[str]:
    keys = ['train_dataloader', 'val_dataloader']
    return ['--cfg-options', *(f'{key}.dataset.data_root={root}' for key in keys)]


@pytest.mark.parametrize(
    'name, paths',
    [
        (
            'dino_vitdet_rope_mixed',
            [
                'instances_train2017.json  (train_dataloader.dataset.ann_file)',
                'instances_val2017.json  (val_evaluator.ann_file)',
            ],
        ),
        (
            'upernet_vit_rope_mixed',
            ['data/ade/ADEChallengeData2016/annotations/validation'],
        ),
    ],
)
def test_missing_data_set_of_a_flagship(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, paths: list[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    cfg = Config.fromfile(CONFIGS / f'{name}.py')
    with pytest.raises(UsageError, match='DIR of --data-root DIR') as caught:
        data_checks.check_paths(cfg, ('train_dataloader', 'val_dataloader'))
    assert all(text in str(caught.value) for text in (*paths, str(tmp_path)))


@pytest.mark.parametrize('tool', ['train', 'test'])
def test_data_root_is_where_everything_is_looked_for(
    request: pytest.FixtureRequest, detector: str, weights: str, fails: Fails, tool: str
) -> None:
    """Data sets and the evaluators' annotation files, for both tools."""
    arguments = [detector] if tool == 'train' else [detector, weights]
    main, name = request.getfixturevalue(tool), 'val' if tool == 'train' else 'test'
    annotations = 'nowhere/annotations/instances_val2017.json'
    says = [
        f'{annotations}  ({name}_{key}.ann_file'
        for key in ('evaluator', 'dataloader.dataset')
    ]
    message = fails(
        main, *arguments, '--data-root', 'nowhere', says=[*says, '--data-root DIR']
    )
    assert all(
        'nowhere' in line for line in message.splitlines() if '.ann_file)' in line
    )


def test_data_root_needs_one_to_replace(
    train: Main, tmp_path: Path, fails: Fails
) -> None:
    config = tmp_path / 'config.py'
    config.write_text(
        "default_scope = 'mmdet'\nmodel = dict()\ntrain_dataloader = dict(dataset=dict())\n"
    )
    says = ['--data-root x: no data set of the config has a data_root']
    fails(train, str(config), '--data-root', 'x', says=says)


def test_only_what_is_used_must_be_there(
    train: Main, test: Main, detector: str, weights: str, fails: Fails
) -> None:
    """Training needs no test set, and no validation set without validation."""
    options, next_check = ['--cfg-options'], 'model.bbox_head.num_classes=5'
    absent = {
        name: f'{name}_dataloader.dataset.data_root=nowhere' for name in ('val', 'test')
    }
    no_validation = [f'val_{part}=None' for part in ('dataloader', 'cfg', 'evaluator')]
    for used in ([absent['test']], no_validation):
        fails(train, detector, *options, *used, next_check, says=[f'{next_check}, but'])
    for main, name, more in ((train, 'val', []), (test, 'test', [weights])):
        says = [f'({name}_dataloader.dataset.data_prefix']
        fails(main, detector, *more, *options, absent[name], says=says)


def test_wrapped_data_sets_are_searched(
    train: Main, detector: str, fails: Fails, tmp_path: Path
) -> None:
    cfg = Config.fromfile(detector)
    leaf = dict(cfg.train_dataloader.dataset, data_root='nowhere')
    repeated = dict(type='RepeatDataset', times=2, dataset=leaf)
    cfg.train_dataloader.dataset = dict(type='ConcatDataset', datasets=[leaf, repeated])
    cfg.dump(tmp_path / 'wrapped.py')
    keys = [f'({TRAIN_DATA}.datasets.{inner}.ann_file)' for inner in ('0', '1.dataset')]
    fails(train, str(tmp_path / 'wrapped.py'), says=keys)


@pytest.fixture
def own_data(data: Path, tmp_path: Path) -> Path:
    """A copy of the data to spoil."""
    shutil.copytree(data, tmp_path / 'data')
    return tmp_path / 'data'


@pytest.mark.parametrize(
    'content', ['{"images": [{"id": 1}, {"id"', '{"data_list": []}']
)
def test_broken_annotation_file(
    train: Main, detector: str, fails: Fails, own_data: Path, content: str
) -> None:
    path = own_data / 'coco' / 'annotations' / 'instances_train2017.json'
    path.write_text(content)
    fails(train, detector, *with_data_root(str(own_data / 'coco')), says=[TRAIN_DATA])


def test_large_annotation_file(
    train: Main,
    detector: str,
    fails: Fails,
    own_data: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Read by mmengine only; the number of classes is known before."""
    monkeypatch.setattr(data_checks, 'PARSED_BYTES', 8)
    says = ['model.bbox_head.num_classes=5', f'{TRAIN_DATA} has 6 classes']
    fails(train, detector, '--cfg-options', 'model.bbox_head.num_classes=5', says=says)
    (own_data / 'coco' / 'annotations' / 'instances_train2017.json').write_text(
        '{"images": [{"id'
    )
    options = [*with_data_root(str(own_data / 'coco')), 'visualizer.name=large']
    work_dir = str(tmp_path / 'large')
    assert (
        train([detector, *options, 'experiment_name=large', '--work-dir', work_dir])
        == 2
    )
    message = capsys.readouterr().err
    assert 'error: train_' in message
    assert 'Traceback' not in message


def test_classes_that_the_file_does_not_have(
    train: Main, detector: str, fails: Fails
) -> None:
    options = [
        '--cfg-options',
        f'{TRAIN_DATA}.metainfo.classes=(circle,dog,cat,ring,star,cross)',
    ]
    says = ["'cat'", 'triangle', f'{TRAIN_DATA}.metainfo.classes']
    fails(train, detector, *options, says=says)


def test_no_image_left_after_filtering(
    train: Main, detector: str, fails: Fails
) -> None:
    options = ['--cfg-options', f'{TRAIN_DATA}.filter_cfg.min_size=1000']
    fails(train, detector, *options, says=[f'{TRAIN_DATA}: no image is left'])


def test_images_that_are_elsewhere(
    train: Main, detector: str, fails: Fails, own_data: Path
) -> None:
    (own_data / 'coco' / 'train2017' / '00000000.jpg').unlink()
    options = with_data_root(str(own_data / 'coco'))
    fails(
        train,
        detector,
        *options,
        says=['1 of 4 files do not exist', '00000000.jpg', 'data_prefix'],
    )


def test_label_images_that_are_elsewhere(
    train: Main, segmentor: str, fails: Fails, own_data: Path
) -> None:
    shutil.rmtree(own_data / 'ade' / 'annotations' / 'training')
    (own_data / 'ade' / 'annotations' / 'training').mkdir()
    options = with_data_root(str(own_data / 'ade'))
    fails(
        train,
        segmentor,
        *options,
        says=['4 of 8 files do not exist', 'annotations/training/'],
    )


def test_number_of_classes(
    train: Main, detector: str, segmentor: str, fails: Fails
) -> None:
    for config, head, has in (
        (detector, 'bbox_head', 6),
        (segmentor, 'auxiliary_head', 7),
    ):
        options = ['--cfg-options', f'model.{head}.num_classes=5']
        says = [f'model.{head}.num_classes=5', f'{TRAIN_DATA} has {has} classes']
        fails(train, config, *options, says=says)


def test_labels_that_the_head_does_not_have(
    train: Main, segmentor: str, fails: Fails, own_data: Path
) -> None:
    path = min((own_data / 'ade' / 'annotations' / 'training').iterdir())
    labels = np.asarray(Image.open(path)).copy()
    labels[0, 0] = 11
    Image.fromarray(labels).save(path)
    options = with_data_root(str(own_data / 'ade'))
    says = [
        f'{path} has label 10',
        'model.auxiliary_head (7 classes, ',
        'model.decode_head (7 classes, ignore_index=255)',
    ]
    fails(train, segmentor, *options, says=says)
    path.write_bytes(b'')
    fails(train, segmentor, *options, says=[f'{path} cannot be loaded: '])


def test_images_that_the_model_refuses(
    test: Main,
    segmentor: str,
    own_data: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Narrower than a patch; of two sizes in a batch: the message names the images."""
    data, weights = own_data / 'ade', tmp_path / 'x.pth'
    torch.save(random_model(Config.fromfile(segmentor)).state_dict(), weights)
    narrow = min((data / 'images' / 'validation').iterdir())
    names = ['experiment_name=refused', 'visualizer.name=refused']
    argv = [
        segmentor,
        str(weights),
        '--data-root',
        str(data),
        '--work-dir',
        str(tmp_path / 'work'),
    ]
    for width, batch in ((4, 1), (40, 2)):
        for folder, suffix in (('images', '.jpg'), ('annotations', '.png')):
            path = (data / folder / 'validation' / narrow.name).with_suffix(suffix)
            Image.open(path).crop((0, 0, width, 64)).save(path)
        options = ['--cfg-options', f'test_dataloader.batch_size={batch}', *names]
        assert test([*argv, *options]) == 2
        message = capsys.readouterr().err
        assert (
            'less than one patch' in message
            or 'size in a batch should be the same' in message
        )
        assert f'(test_dataloader.batch_size={batch}, images {narrow}' in message
        assert 'Traceback' not in message


def test_segments_that_mmdet_leaves_out(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Of a panoptic file the things count, but crowds; stuff does not."""
    write_shapes(
        tmp_path / 'set', ShapesSettings(4, 0, (64, 64), layouts=('panoptic',))
    )
    capsys.readouterr()
    file = tmp_path / 'set/panoptic/annotations/panoptic_train2017.json'
    content = json.loads(file.read_text())
    names = [item['name'] for item in content['categories']]
    first = content['annotations'][0]['segments_info'][0]

    def warning() -> str:
        file.write_text(json.dumps(content))
        metainfo = dict(
            classes=names, thing_classes=names[:-1], stuff_classes=names[-1:]
        )
        paths = dict(ann_file=str(file), data_prefix=dict(img='', seg=''))
        built = CocoPanopticDataset(metainfo=metainfo, serialize_data=False, **paths)
        data_checks.check_objects('data', built, str(file))
        return capsys.readouterr().err

    given = sum(len(item['segments_info']) - 1 for item in content['annotations'])
    assert warning() == ''
    first.update(iscrowd=1)
    assert warning() == ''
    first.update(iscrowd=0, area=0)
    assert f'mmdet hands out {given - 1} of the {given} objects' in warning()
