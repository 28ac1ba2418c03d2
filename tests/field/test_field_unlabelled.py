"""Pictures without labels as people have them: copies, masks, damaged files, videos, channels."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pytest
import torch
from mmengine.logging import MessageHub
from mmengine.registry import DATASETS, MODELS, DefaultScope
from safetensors import safe_open
from safetensors.torch import load_file

from helpers.field import files
from rope_dense.data.unlabelled import FeatureMetric
from rope_dense.project.load import find_model, load_config
from rope_dense.project.model import build_model
from rope_dense.project.own.text import Text
from rope_dense.training import train
from rope_dense.utils.errors import UsageError
from rope_dense.utils.results import ForeignFileError

pytestmark = pytest.mark.usefixtures('surroundings')
SMALL: dict[str, Any] = dict(
    backbone='tiny', weights=None, size=64, batch_size=2, epochs=1
)


def picture(path: Path, number: int) -> Path:
    """A picture of noise, other for each number."""
    path.parent.mkdir(parents=True, exist_ok=True)
    noise = np.random.default_rng(number).integers(
        256, size=(60, 80, 3), dtype=np.uint8
    )
    cv2.imwrite(str(path), noise)
    return path


def listed(config: Any) -> dict:
    return json.loads(Path(config.train_dataloader.dataset.ann_file).read_text())


def samples(config: Any) -> list:
    with DefaultScope.overwrite_default_scope('mmseg'):
        return [*DATASETS.build(config.train_dataloader.dataset)]


def test_copies_masks_and_damaged_files_are_left_out_and_said(tmp_path: Path) -> None:
    """Copies contradict the loss: the same image would be two classes."""
    for number in range(4):
        picture(tmp_path / f'trip {number % 2}/{number}.png', number)
    shutil.copy(tmp_path / 'trip 0/0.png', tmp_path / 'trip 1/copy.png')
    picture(tmp_path / 'masks/0.png', 9)
    (tmp_path / 'broken.jpg').write_bytes(b'')
    (tmp_path / 'broken.mp4').write_bytes(b'')
    cfg = load_config('adapt', own=dict(SMALL, data_root=tmp_path))
    places = ['trip 0/0.png', 'trip 0/2.png', 'trip 1/1.png', 'trip 1/3.png']
    assert listed(cfg) == dict(images=places, frames=[])
    assert cfg.model.num_pictures == 4
    for part in ('4 pictures', 'copy.png', 'masks/0.png', 'broken.jpg', 'broken.mp4'):
        assert part in cfg.own_data
    below = load_config('adapt', own=dict(SMALL, data_root=tmp_path, train='trip 1'))
    assert len(listed(below)['images']) == 3


def test_a_folder_without_pictures_is_one_line(tmp_path: Path) -> None:
    (tmp_path / 'a.txt').write_text('x')
    with pytest.raises(UsageError, match=r'no picture; there are 1 \.txt'):
        load_config('adapt', own=dict(SMALL, data_root=tmp_path))


def test_of_a_video_one_frame_a_second_is_taken(tmp_path: Path) -> None:
    picture(tmp_path / 'a.png', 1)
    out = cv2.VideoWriter(
        str(tmp_path / 'b.avi'), cv2.VideoWriter_fourcc(*'MJPG'), 5, (64, 48)
    )
    for number in range(12):
        out.write(np.full((48, 64, 3), 20 * number, np.uint8))
    out.release()
    cfg = load_config('adapt', own=dict(SMALL, data_root=tmp_path))
    assert '4 pictures without labels, 3 of them frames of 1 videos' in cfg.own_data
    assert [sample['data_samples'].number for sample in samples(cfg)] == [0, 1, 2, 3]
    frames = [
        cv2.imread(sample['data_samples'].img_path) for sample in samples(cfg)[1:]
    ]
    assert [round(frame.mean() / 20) for frame in frames] == [0, 5, 10]


def test_frames_stay_while_a_training_uses_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Commands that see other pictures, as often as they start, remove those of no training."""
    data, out = tmp_path / 'data', tmp_path / 'own_data'
    monkeypatch.setattr('rope_dense.project.own.data.CONVERTED', out)

    def grow(number: int) -> Path:
        picture(data / f'{number}.png', number)
        cfg = load_config('adapt', own=dict(SMALL, data_root=data))
        return Path(cfg.train_dataloader.dataset.ann_file)

    def train_meanwhile(*given: object) -> None:
        used.extend([grow(3), grow(4), grow(5)])
        raise UsageError('trained')

    picture(data / '1.png', 1)
    used = [grow(2)]
    monkeypatch.setattr('rope_dense.training.run_training', train_meanwhile)
    with pytest.raises(UsageError, match='trained'):
        train('adapt', own=dict(SMALL, data_root=data), work_dir=str(tmp_path / 'run'))
    assert [path.exists() for path in used] == [True, False, False, True]
    used.append(grow(6))
    assert [path.exists() for path in used] == [False, False, False, False, True]
    assert [path.name for path in used[-1].parents[1].iterdir() if path.is_dir()] == [
        used[-1].parent.name
    ]


def test_four_bands_of_16_bits(tmp_path: Path) -> None:
    """The teacher of a distillation has the same channels, mean and deviation."""
    for number in range(3):
        values = np.random.default_rng(number).integers(
            2**16, size=(40, 50, 4), dtype=np.uint16
        )
        np.save(tmp_path / f'{number}.npy', values)
    own = dict(SMALL, data_root=tmp_path, channels=4, teacher='dinov3_small')
    cfg = load_config('adapt', own=own | dict(teacher_weights='a.pth', teacher_size=96))
    assert {tuple(sample['inputs'].shape) for sample in samples(cfg)} == {(4, 64, 64)}
    pixels = cfg.model.data_preprocessor
    assert [*cfg.model.teacher_pixels] == [pixels.mean, pixels.std] and len(
        pixels.mean
    ) == 4
    cfg.model.teacher.init_cfg = None
    model = build_model(cfg)
    data = dict(inputs=[sample['inputs'] for sample in samples(cfg)])
    data['data_samples'] = [sample['data_samples'] for sample in samples(cfg)]
    losses = model(**model.data_preprocessor(data, training=True), mode='loss')
    assert losses.keys() == {'loss_maps'}  # the teacher's token is of unknown training


@pytest.mark.parametrize(
    'settings, trained',
    [
        (dict(), {'lora', 'head'}),
        (dict(blocks=2), {'10', '11', 'head'}),
        (dict(lora=0), {'patch_embed', '0', '11', 'head'}),
    ],
    ids=['lora', 'blocks', 'all'],
)
def test_what_is_trained(tmp_path: Path, settings: dict, trained: set[str]) -> None:
    for number in range(2):
        picture(tmp_path / f'{number}.png', number)
    own = dict(SMALL, data_root=tmp_path, weights='a.pth') | settings
    cfg = load_config('adapt', own=own)
    cfg.model.backbone.init_cfg = None
    model = build_model(cfg)
    names = [name.split('.') for name, x in model.named_parameters() if x.requires_grad]
    assert trained <= {part for name in names for part in name}
    if 'lora' in trained:
        assert all('lora' in name or name[0] == 'head' for name in names)
    if 'blocks' in settings:
        assert {name[2] for name in names if 'blocks' in name} == {'10', '11'}


def test_a_collapse_is_said(capsys: pytest.CaptureFixture) -> None:
    """Once the features fill less than half of the directions of the first evaluation."""
    metric = FeatureMetric()
    MessageHub.get_instance('collapse')
    for spread in (1.0, 0.9, 0.0):
        features = torch.randn(40, 8, generator=torch.Generator().manual_seed(0))
        features[:, 2:] *= spread
        metric.process(
            None, [dict(feature=x, is_named=torch.tensor(True)) for x in features]
        )
        figures = metric.evaluate(40)
        assert figures['features/named'] == 100
        assert ('they collapse' in capsys.readouterr().err) == (spread == 0)


@pytest.mark.parametrize(
    'settings, message',
    [
        (
            dict(teacher='dinov3_large'),
            'teacher_weights=default: name the weights of own.teacher=dinov3_large',
        ),
        (
            dict(teacher='small', teacher_weights=Text('None')),
            'own.teacher_weights=None: name the weights of own.teacher=small',
        ),
        (dict(teacher='huge', teacher_weights='a.pth'), "own.teacher='huge': no such"),
        (dict(teacher_size=448), 'give own.teacher, too'),
        (dict(lora=4), 'adapters are for runs without'),
        (dict(patience=3), 'own.patience: not for pictures without labels'),
        (dict(weights='a.pth', blocks=99), 'own.blocks'),
        (dict(teacher='sliding'), 'own.weights=None: with own.teacher=sliding'),
        (
            dict(teacher='sliding', weights='a.pth', teacher_weights='b.pth'),
            'own.teacher_weights=b.pth: .* leave it out',
        ),
        (dict(max_growth=2), 'give own.teacher=sliding, too'),
        (dict(teacher='sliding', weights='a.pth', max_growth=1), 'more than 1'),
    ],
    ids='teacher none huge size lora patience blocks random other growth least'.split(),
)
def test_settings_that_contradict(tmp_path: Path, settings: dict, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        load_config('adapt', own=dict(SMALL, data_root=tmp_path) | settings)


def test_sliding_windows_take_whole_pictures_of_any_size(tmp_path: Path) -> None:
    """Pictures smaller than the window, and bands: as large as the largest size, once."""
    for number in range(3):
        picture(tmp_path / f'{number}.png', number)
        noise = np.random.default_rng(number).integers(2**16, size=(40, 50, 4))
        (tmp_path / 'bands').mkdir(exist_ok=True)
        np.save(tmp_path / f'bands/{number}.npy', noise.astype(np.uint16))
    own = dict(SMALL, data_root=tmp_path, weights='a.pth', teacher='sliding')
    cfg = load_config('adapt', own=dict(own, teacher_size=176))
    assert (cfg.model.window, cfg.model.smallest) == (176, 64)
    assert cfg.model.backbone.lora.rank == 8 and 'num_pictures' not in cfg.model
    assert load_config('adapt', own=dict(own, size=224)).model.window == 512
    assert {tuple(x['inputs'].shape) for x in samples(cfg)} == {(3, 192, 192)}
    bands = dict(own, train='bands', channels=4, max_growth=1.5, teacher_size=48)
    for augment in ('published', 'light', 'none'):
        cfg = load_config('adapt', own=dict(bands, augment=augment))
        assert {tuple(x['inputs'].shape) for x in samples(cfg)} == {(4, 96, 96)}
    assert cfg.model.window == 48
    for part in (cfg.model.backbone, cfg.model):
        part.pop('init_cfg', None)
    model = build_model(cfg).train()
    data = dict(inputs=[sample['inputs'] for sample in samples(cfg)])
    data['data_samples'] = [sample['data_samples'] for sample in samples(cfg)]
    loss = model(**model.data_preprocessor(data, training=True), mode='loss')['loss']
    loss.backward()
    trained = [name for name, x in model.named_parameters() if x.grad is not None]
    assert trained and all('lora' in name for name in trained)


@pytest.mark.parametrize(
    'settings, window, largest',
    [
        (dict(), 512, 192),
        (dict(teacher_size=192), 192, 192),
        (dict(teacher_size=96, max_growth=1.6), 96, 102),  # of 6 tokens each
        (dict(backbone='small', size=80), 256, 240),
    ],
)
def test_a_window_of_the_whole_picture_is_refused(
    tmp_path: Path, settings: dict, window: int, largest: int
) -> None:
    """Its map is the student's own: a loss of 0, of which nothing is learned."""
    for number in range(2):
        picture(tmp_path / f'{number}.png', number)
    own = dict(SMALL, data_root=tmp_path, weights='a.pth', teacher='sliding')
    said = f'a window of {window} pixels covers the largest picture, of {largest}, so'
    with pytest.raises(UsageError, match=said):
        load_config('adapt', own=own | settings)


def test_a_student_of_its_sliding_windows_starts_another_task(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Stopped and resumed, its teacher has the weights that it started from; then reported."""
    monkeypatch.chdir(tmp_path)
    for number in range(4):
        picture(tmp_path / f'pictures/{number}.png', number)
    own = dict(SMALL, data_root='pictures', size=32, report=False)
    train('adapt', own=own, work_dir='first')
    slide = dict(own, weights='first', teacher='sliding', teacher_size=32, epochs=2)
    stop = {'train_cfg.max_iters': 2, 'param_scheduler.1.end': 2}
    train('adapt', own=slide, work_dir='slid', cfg_options=stop)
    longer = {'train_cfg.max_iters': 4, 'param_scheduler.1.end': 4}
    train('slid', work_dir='slid', resume='auto', cfg_options=longer)
    weights = load_file('first/backbone.safetensors')
    state = torch.load('slid/iter_4.pth', weights_only=False)['state_dict']
    for key in weights.keys() - {'pos_embed'}:  # resized to the arch's grid
        assert torch.equal(state[f'teacher.{key}'], weights[key])
    with safe_open('slid/backbone.safetensors', 'pt') as file:
        about = file.metadata()
    assert about['teacher'] == 'sliding windows of first/backbone.safetensors'
    assert about['img_size'] == '(96, 96)'
    student = load_file('slid/backbone.safetensors')
    assert student.keys() == weights.keys()
    assert any(
        not torch.equal(student[key], state[f'teacher.{key}']) for key in weights
    )
    cfg = train('adapt', own=dict(slide, weights='slid', report=True), work_dir='again')
    assert cfg.model.backbone.init_cfg.checkpoint == 'slid/backbone.safetensors'
    assert Path('again/report/neighbours.png').is_file()


def test_from_pictures_to_the_weights_of_a_detector(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Trained twice: from random values, and on by adapters, which are merged; then loaded."""
    monkeypatch.chdir(tmp_path)
    for number in range(4):
        picture(tmp_path / f'pictures/{number}.png', number)
    own = dict(SMALL, data_root='pictures', size=32)
    train('adapt', own=own, work_dir='first')
    cfg = train(
        'adapt', own=own | dict(weights='first', lora=2, lr=0.1), work_dir='second'
    )
    umask = os.umask(0)
    os.umask(umask)
    assert os.stat('second/backbone.safetensors').st_mode & 0o777 == 0o666 & ~umask
    with safe_open('second/backbone.safetensors', 'pt') as file:
        assert file.metadata()['weights'] == 'first/backbone.safetensors'
    report = json.loads((tmp_path / 'second/report/report.json').read_text())
    assert report['about']['pictures looked at'] == 4
    assert (tmp_path / 'second/report/neighbours.png').is_file()
    image, trained = torch.randn(1, 3, 32, 32), build_model(cfg).eval()
    trained.load_state_dict(
        torch.load('second/iter_2.pth', weights_only=False)['state_dict']
    )
    files(
        tmp_path / 'data',
        {f'{split}/{x}.png': None for split in ('train', 'valid') for x in 'ab'},
    )
    labels = {
        f'{split}/{x}.txt': '0 .5 .5 .5 .5'
        for split in ('train', 'valid')
        for x in 'ab'
    }
    files(tmp_path / 'data', labels | {'data.yaml': 'names: [box]'})
    settings = dict(data_root='data', backbone='tiny', weights='second')
    backbones = []
    for folder in ('first', 'second'):
        detector = load_config(
            'realtime', own=settings | dict(weights=folder)
        ).model.backbone
        where = detector.get('backbone', detector)
        assert where.init_cfg.checkpoint == f'{folder}/backbone.safetensors'
        alone = dict(type='RoPEViT', arch=where.arch, init_cfg=where.init_cfg)
        backbones.append(MODELS.build(alone).eval())
        backbones[-1].init_weights()
    before, after = (x(image)[-1].mean((2, 3)) for x in backbones)
    torch.testing.assert_close(after, trained(image), atol=1e-4, rtol=1e-4)
    assert (after - before).abs().max() > 0.01
    with pytest.raises(
        UsageError, match='a backbone without a head; train one with --weights'
    ):
        find_model('second')
    picture(tmp_path / 'pictures/new.png', 9)
    with pytest.raises(
        UsageError, match='its classes are 5 pictures; the config was made for 4'
    ):
        train('second', resume='auto', work_dir='second')

    def stop(*given: object) -> None:
        raise UsageError('stopped')

    monkeypatch.setattr('rope_dense.training.run_training', stop)
    Path('second/report/mine.txt').write_text('mine')
    with pytest.raises(
        UsageError, match=r'would remove second/backbone\.safetensors, from which'
    ):
        train(
            'adapt', own=own | dict(weights='second'), work_dir='second', overwrite=True
        )
    with pytest.raises(UsageError, match='stopped'):
        train('adapt', own=own, work_dir='second', overwrite=True)
    left = {str(path.relative_to('second')) for path in Path('second').rglob('*')}
    assert not [
        name for name in left if name.endswith(('.safetensors', '.pth', 'scalars.json'))
    ]
    assert {name for name in left if name.startswith('report/')} >= {'report/mine.txt'}
    Path('second/backbone.safetensors').write_text('mine')
    with pytest.raises(
        ForeignFileError, match=r'second/backbone\.safetensors was changed'
    ):
        train('adapt', own=own, work_dir='second', overwrite=True)


def test_class_tokens_are_of_published_weights(tmp_path: Path) -> None:
    """Trainings of detectors and segmentors leave the token as it was, so it names no picture."""
    for number in range(2):
        picture(tmp_path / f'{number}.png', number)
    own = dict(SMALL, data_root=tmp_path)
    for settings, prefix in (
        (dict(weights='default'), 'cls'),
        (dict(weights='a.pth'), None),
        (dict(teacher='large'), 'cls'),
        (dict(teacher='large', teacher_weights='a.pth'), None),
    ):
        model = load_config('adapt', own=own | settings).model
        assert model.backbone.output_prefix == prefix
        assert model.get('teacher', model.backbone).output_prefix == prefix
