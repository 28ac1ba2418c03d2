"""The checks that all commands share, before a model is used."""

from pathlib import Path

import pytest
import torch
from mmengine.config import Config

from rope_dense.project.model import random_model
from rope_dense_command import command

CLASSES = 'circle', 'square', 'triangle'
COMMANDS = {  # what they need beside a config and a checkpoint
    'test': (),
    'eval_resolutions': ('--sizes', '64'),
    'choose_scaling': ('--sizes', '64'),
    'report': (),
    'predict': ('PICTURES',),
    'export': ('OUT',),
}


@pytest.fixture(scope='module')
def segmentor_weights(segmentor: str, tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp('weights') / 'segmentor.pth'
    torch.save(
        dict(state_dict=random_model(Config.fromfile(segmentor)).state_dict()), path
    )
    return str(path)


def given(name: str, config: str, weights: str, data: Path, out: Path) -> list[str]:
    places = dict(PICTURES=str(data / 'coco' / 'val2017'), OUT=str(out / 'out.pt2'))
    return [config, weights, *(places.get(word, word) for word in COMMANDS[name])]


@pytest.mark.parametrize('name', COMMANDS)
def test_windows_that_leave_gaps_are_refused_by_all(
    name: str,
    segmentor: str,
    segmentor_weights: str,
    data: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    gaps = 'mode=slide crop_size=(64,64) stride=(65,64)'.split()
    options = ['--cfg-options', *(f'model.test_cfg.{setting}' for setting in gaps)]
    arguments = given(name, segmentor, segmentor_weights, data, tmp_path)
    assert command(name)([*arguments, *options]) == 2
    assert 'is more than model.test_cfg.crop_size=(64, 64)' in capsys.readouterr().err
    assert [*tmp_path.iterdir()] == []


@pytest.mark.parametrize(
    'name', ['test', 'eval_resolutions', 'choose_scaling', 'report']
)
def test_classes_in_another_order_are_refused_and_other_words_are_said(
    name: str,
    detector: str,
    weights: str,
    data: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    names = [*Config.fromfile(detector).test_dataloader.dataset.metainfo.classes]
    content = torch.load(weights)
    for classes in (names[::-1], [*names[:-1], 'disc']):
        content['meta'] = dict(dataset_meta=dict(classes=tuple(classes)))
        torch.save(content, tmp_path / 'other.pth')
        arguments = given(name, detector, str(tmp_path / 'other.pth'), data, tmp_path)
        code = command(name)([*arguments, '--work-dir', str(tmp_path / classes[-1])])
        said = capsys.readouterr().err
        assert (
            f'classes of the checkpoint: {", ".join(classes)}; of test_dataloader'
            in said
        )
        assert (
            ('in the order of the checkpoint' in said)
            is (code == 2)
            is ('disc' not in classes)
        )


def test_a_training_that_starts_from_other_classes_says_so(
    detector: str, weights: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    names = [*Config.fromfile(detector).train_dataloader.dataset.metainfo.classes]
    content = torch.load(weights)
    content['meta'] = dict(dataset_meta=dict(classes=tuple(names[::-1])))
    torch.save(content, tmp_path / 'other.pth')
    options = [
        '--load-from',
        str(tmp_path / 'other.pth'),
        '--work-dir',
        str(tmp_path / 'run'),
    ]
    assert (
        command('train')(
            [
                detector,
                *options,
                '--cfg-options',
                'val_cfg=None',
                'val_dataloader=None',
                'val_evaluator=None',
            ]
        )
        == 0
    )
    said = capsys.readouterr()
    assert f'load_from: classes kept: {", ".join(names)}; new: none' in said.out
    assert 'classes of the checkpoint' not in said.err
