"""Pictures without labels as people have them: copies, masks, damaged files, videos, channels."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pytest
import torch
from mmengine.registry import MODELS
from safetensors import safe_open

from helpers.field import image
from rope_dense.project.errors import UsageError
from rope_dense.project.load import find_model, load_config
from rope_dense.training.train import train

pytestmark = pytest.mark.usefixtures('surroundings')
SMALL: dict[str, Any] = dict(backbone='tiny', weights=None, size=64, batch_size=2, epochs=1)


def picture(path: Path, number: int) -> Path:
    """A picture of noise, other for each number."""
    path.parent.mkdir(parents=True, exist_ok=True)
    noise = np.random.default_rng(number).integers(256, size=(60, 80, 3), dtype=np.uint8)
    cv2.imwrite(str(path), noise)
    return path


def listed(config: Any) -> dict:
    return json.loads(Path(config.train_dataloader.dataset.ann_file).read_text())


def test_copies_masks_and_damaged_files_are_left_out_and_said(tmp_path: Path) -> None:
    """Copies contradict the loss: the same image would be two classes."""
    for number in range(4):
        picture(tmp_path / f'trip {number % 2}/{number}.png', number)
    shutil.copy(tmp_path / 'trip 0/0.png', tmp_path / 'trip 1/copy.png')
    picture(tmp_path / 'masks/0.png', 9)
    (tmp_path / 'broken.jpg').write_bytes(b'')
    cfg = load_config('adapt', own=dict(SMALL, data_root=tmp_path))
    content = listed(cfg)
    assert [path for _, path in content['pictures']] == [
        'trip 0/0.png', 'trip 0/2.png', 'trip 1/1.png', 'trip 1/3.png'
    ]  # fmt: skip
    assert cfg.model.num_pictures == content['total'] == 4
    for part in ('4 pictures', 'copy.png', 'masks/0.png', 'broken.jpg'):
        assert part in cfg.own_data
    masks = load_config('adapt', own=dict(SMALL, data_root=tmp_path, train='trip 1'))
    assert len(listed(masks)['pictures']) == 3


def test_a_folder_without_pictures_is_one_line(tmp_path: Path) -> None:
    (tmp_path / 'a.txt').write_text('x')
    with pytest.raises(UsageError, match=r'no picture; there are 1 \.txt'):
        load_config('adapt', own=dict(SMALL, data_root=tmp_path))


def test_of_a_video_one_frame_a_second_is_taken(tmp_path: Path) -> None:
    picture(tmp_path / 'a.png', 1)
    out = cv2.VideoWriter(str(tmp_path / 'b.avi'), cv2.VideoWriter_fourcc(*'MJPG'), 5, (64, 48))
    for number in range(12):
        out.write(np.full((48, 64, 3), 20 * number, np.uint8))
    out.release()
    cfg = load_config('adapt', own=dict(SMALL, data_root=tmp_path))
    assert '4 pictures without labels, 3 of them frames of 1 videos' in cfg.own_data
    from mmengine.registry import DATASETS, DefaultScope

    with DefaultScope.overwrite_default_scope('mmseg'):
        dataset = DATASETS.build(cfg.train_dataloader.dataset)
    assert [sample['data_samples'].number for sample in dataset] == [0, 1, 2, 3]


@pytest.mark.parametrize(
    'settings, message',
    [
        (dict(teacher='dinov3_large'), 'teacher_weights: name the weights of dinov3_large'),
        (dict(teacher_size=448), 'give own.teacher, too'),
        (dict(lora=4), 'adapters are for trained weights'),
        (dict(weights='a.pth', blocks=99), 'own.blocks'),
    ],
    ids=['teacher', 'size', 'lora', 'blocks'],
)
def test_settings_that_contradict(tmp_path: Path, settings: dict, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        load_config('adapt', own=dict(SMALL, data_root=tmp_path) | settings)


def test_from_pictures_to_the_weights_of_a_detector(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Trained twice: from random values, and on by adapters, which are merged; then loaded."""
    monkeypatch.chdir(tmp_path)
    for number in range(4):
        picture(tmp_path / f'pictures/{number}.png', number)
    own = dict(SMALL, data_root='pictures', size=32)
    train('adapt', own=own, work_dir='first')
    train('adapt', own=own | dict(weights='first', lora=2), work_dir='second')
    with safe_open('second/backbone.safetensors', 'pt') as file:
        assert not any('lora' in key for key in file.keys())  # noqa: SIM118
        assert file.metadata()['weights'] == 'first/backbone.safetensors'
    cfg = torch.load('second/iter_2.pth', weights_only=False)['state_dict']
    assert any('lora' in key for key in cfg)
    with open('second/report/report.json') as stream:
        report = json.load(stream)
    assert len(report['directions']) == 2 and report['about']['pictures looked at'] == 4
    assert (tmp_path / 'second/report/neighbours.png').is_file()
    for name in ('train', 'valid'):
        for number in range(2):
            image(tmp_path / f'data/{name}/{number}.png')
    backbone = MODELS.build(
        dict(
            type='RoPEViT',
            arch='pe_spatial_tiny',
            img_size=32,
            init_cfg=dict(type='Pretrained', checkpoint='second/backbone.safetensors'),
        )
    )
    backbone.init_weights()
    with pytest.raises(UsageError, match='a backbone without a head; train one with --weights'):
        find_model('second')
