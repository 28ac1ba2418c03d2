"""tools/analyze_positions.py on small models: its figures, its numbers, what it refuses."""

from __future__ import annotations

import csv
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
from mmengine.config import Config
from mmengine.registry import MODELS
from PIL import Image

from helpers.published import naver_swin, naver_vit
from helpers.small_configs import make_data, small_config
from helpers.tool_names import Main
from research import attention_statistics
from research.classifier import classifier_config
from research.named_classifiers import AXIAL, CLASSIFIERS, MIXED, NamedClassifier, vit
from rope_dense.checkpoints import load_pretrained
from rope_dense.project.model import random_model
from rope_dense_command import command

NAMES = ('fourier', 'decay', 'angles', 'distance', 'entropy')
MEAN, STD = [0.485, 0.456, 0.406], [0.229, 0.224, 0.225]


@pytest.fixture(scope='module')
def analyze() -> Main:
    return command('analyze_positions')


@pytest.fixture(scope='module')
def images(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Two squares of 64 pixels, so that a crop of 64 needs no resizing; one folder deeper."""
    folder = tmp_path_factory.mktemp('images')
    (folder / 'deeper').mkdir()
    draw = np.random.default_rng(0)
    for path in (folder / 'a.png', folder / 'deeper' / 'b.jpg'):
        Image.fromarray(draw.integers(0, 256, (64, 64, 3), np.uint8)).save(path)
    (folder / 'notes.txt').write_text('no image')
    return str(folder)


VIT = dict(embed_dims=128, depth=3, num_heads=2)
SMALL = {
    'small_vit_axial': NamedClassifier(vit(VIT, 0.0, rope=AXIAL)),
    'small_vit_mixed': NamedClassifier(vit(VIT, 0.0, rope=MIXED)),
    'small_vit_ape': NamedClassifier(vit(VIT, 0.0, rope=None, use_ape=True)),
    'small_vit_axial_ape': NamedClassifier(vit(VIT, 0.0, rope=AXIAL, use_ape=True)),
    'small_swin_mixed': NamedClassifier(
        dict(
            type='RoPESwin',
            arch=dict(embed_dims=32, depths=(1, 1), num_heads=(1, 2)),
            rope=MIXED,
            shift_single_window=False,
            out_indices=(1,),
        )
    ),
}


@pytest.fixture(autouse=True, scope='module')
def small_names() -> Iterator[None]:
    """Classifiers with a name that are small."""
    with pytest.MonkeyPatch.context() as patched:
        for name, named in SMALL.items():
            patched.setitem(CLASSIFIERS, name, named)
        yield


def small(path: Path, kind: str) -> str:
    if kind == 'swin':
        weights = naver_swin(32, (1, 1), (1, 2), 'mixed')
    else:
        weights = naver_vit(128, 3, mixed=kind == 'mixed', ape=kind == 'ape')
    torch.save(dict(model=weights), path)
    return str(path)


def read(path: Path) -> list[dict[str, str]]:
    with open(path, newline='') as stream:
        return list(csv.DictReader(stream))


def is_a_small_picture(path: Path) -> bool:
    with Image.open(path) as picture:
        return (
            picture.format == 'PNG'
            and min(picture.size) > 100
            and path.stat().st_size < 2e5
        )


def test_a_checkpoint_alone(analyze: Main, images: str, tmp_path: Path) -> None:
    """All figures, their tables; attention as measured on the images as PIL has them."""
    checkpoint, work_dir = small(tmp_path / 'vit.pth', 'mixed'), tmp_path / 'work'
    options = ['--sizes', '32', '64', '--head', '1', '--work-dir', str(work_dir)]
    assert analyze([checkpoint, '--images', images, *options]) == 0
    folder = work_dir / 'positions'
    assert sorted(path.name for path in folder.iterdir()) == sorted(
        f'{name}.{suffix}' for name in NAMES for suffix in ('csv', 'png')
    )
    assert all(is_a_small_picture(folder / f'{name}.png') for name in NAMES)
    backbone = MODELS.build(classifier_config(checkpoint)['model']['backbone']).eval()
    load_pretrained(backbone, checkpoint)
    found = []
    for path in ('a.png', 'deeper/b.jpg'):
        pixels = (
            np.asarray(Image.open(Path(images) / path).convert('RGB'), np.float64) / 255
        )
        normalised = torch.from_numpy((pixels - MEAN) / STD).float().permute(2, 0, 1)
        found.append(normalised[None])
    expected = attention_statistics(backbone, found)
    rows = [row for row in read(folder / 'distance.csv') if row['size'] == '64']
    for row, of in zip(rows, expected, strict=True):
        assert float(row['distance_patches']) == pytest.approx(of.distance, rel=1e-3)
        assert float(row['distance_px']) == pytest.approx(16 * of.distance, rel=1e-3)
        assert (row['label'], row['images'], row['stride']) == ('vit.pth', '2', '16')
    entropies = [row for row in read(folder / 'entropy.csv') if row['size'] == '64']
    for row, of in zip(entropies, expected, strict=True):
        assert float(row['entropy_nats']) == pytest.approx(of.entropy, rel=1e-3)
    freqs = backbone.blocks[0].attn.rope.freqs.detach()  # [2, h, P]
    (at,) = (
        row
        for row in read(folder / 'fourier.csv')
        if row['frequencies'] == 'vit.pth, block 0, head 1'
        and (row['points'], row['x'], row['y']) == ('(1, 1)', '-4', '2')
    )
    value = torch.cos(-5 * freqs[0, 1] + freqs[1, 1]).mean().item()
    assert float(at['value']) == pytest.approx(value, abs=1e-4)


def test_several_models_in_one_figure(
    analyze: Main, images: str, tmp_path: Path
) -> None:
    """APE, which has no frequencies, under a Swin; then the figure of the two is another."""
    folders = {name: tmp_path / name for name in ('ape', 'swin', 'both')}
    files = {kind: small(tmp_path / f'{kind}.pth', kind) for kind in ('ape', 'swin')}
    options = ['--images', images, '--max-images', '1', '--sizes', '64']
    ape = [files['ape'], '--rope', 'none', *options, '--work-dir', str(folders['ape'])]
    assert analyze(ape) == 0
    written = sorted(path.name for path in (folders['ape'] / 'positions').iterdir())
    assert written == ['distance.csv', 'distance.png', 'entropy.csv', 'entropy.png']
    overlay = ['--overlay', str(folders['ape'] / 'positions')]
    for name, more in (('swin', []), ('both', overlay)):
        work_dir = ['--work-dir', str(folders[name])]
        assert analyze([files['swin'], '--distance', *options, *more, *work_dir]) == 0
    one, both = ((folders[name] / 'positions') for name in ('swin', 'both'))
    assert (one / 'distance.csv').read_text() == (both / 'distance.csv').read_text()
    assert (one / 'distance.png').read_bytes() != (both / 'distance.png').read_bytes()
    assert [row['stride'] for row in read(one / 'distance.csv')] == ['4', '8']
    assert not (both / 'entropy.png').exists()


@pytest.mark.slow
def test_a_detector_with_its_config(analyze: Main, images: str, tmp_path: Path) -> None:
    """Its trained and its initial weights, and a scaling by --cfg-options."""
    path = small_config(
        'dino_vitdet_rope_mixed', make_data(tmp_path / 'data'), tmp_path
    )
    detector, weights = str(path), str(tmp_path / 'weights.pth')
    torch.manual_seed(1)  # the tool's initial weights have seed 0
    torch.save(
        dict(state_dict=random_model(Config.fromfile(path)).state_dict()), weights
    )
    options = ['--images', images, '--max-images', '1', '--sizes', '64']
    rows = {}
    for name, model in dict(
        trained=[detector, weights], initial=['initial', '--config', detector]
    ).items():
        assert analyze([*model, *options, '--work-dir', str(tmp_path / name)]) == 0
        rows[name] = read(tmp_path / name / 'positions' / 'entropy.csv')
        assert is_a_small_picture(tmp_path / name / 'positions' / 'entropy.png')
    assert len(rows['trained']) == len(rows['initial']) > 1
    assert rows['trained'] != rows['initial']


def test_what_stops_it(
    analyze: Main, capsys: pytest.CaptureFixture[str], images: str, tmp_path: Path
) -> None:
    mixed, ape = (small(tmp_path / f'{kind}.pth', kind) for kind in ('mixed', 'ape'))
    empty, broken = tmp_path / 'empty', tmp_path / 'broken'
    empty.mkdir()
    broken.mkdir()
    (broken / 'a.png').write_text('no image')
    (empty / 'distance.csv').write_text('label,size\nold,64\n')
    none = ['--rope', 'none']
    for argv, says in (
        ([mixed, '--images', 'nowhere'], 'nowhere: no such file or folder'),
        ([mixed, '--images', str(empty)], 'empty: no image in it. Looked for'),
        (
            [mixed, '--images', str(broken), '--sizes', '32'],
            'cannot identify image file',
        ),
        ([mixed, '--distance'], '--distance and --entropy need --images FOLDER'),
        (
            [mixed, '--fourier', '--overlay', str(empty)],
            '--overlay is for --distance and',
        ),
        (
            [mixed, '--images', images, '--sizes', '64', '8'],
            '8 x 8 (height x width) pixels, less',
        ),
        ([mixed, '--sizes', '16'], 'rotates 1 x 1 tokens'),
        (
            [mixed, '--crop-ratio', '1.5'],
            'crop_ratio must be over 0 and up to 1, got 1.5',
        ),
        ([mixed, '--block', '3'], '--block must be an integer from 0 to 2, got 3'),
        ([mixed, '--head', '2'], '--head must be an integer from 0 to 1, got 2'),
        ([mixed, '--cfg-options', 'model.a=1'], '--cfg-options need the --config'),
        ([mixed, '--device', 'abacus'], '(--device) abacus'),
        ([ape, *none, '--fourier'], '--fourier: block 0 has no rotary embedding'),
        ([ape, *none], 'the model has no rotary embedding: give --images FOLDER'),
        ([ape], '--rope axial or --rope none'),
        (['initial'], 'initial weights need the --config of the model'),
        ([str(tmp_path / 'none.pth')], 'none.pth'),
        (
            [mixed, '--images', images, '--sizes', '32', '--overlay', str(empty)],
            'empty: no distance.csv that this tool wrote',
        ),
    ):
        assert analyze(argv) == 2
        assert says in capsys.readouterr().err


def test_labels_are_told_apart(
    analyze: Main, images: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    checkpoint, work_dir = small(tmp_path / 'vit.pth', 'axial'), tmp_path / 'work'
    options = [checkpoint, '--images', images, '--sizes', '32', '--distance']
    assert analyze([*options, '--work-dir', str(work_dir)]) == 0
    again = [
        *options,
        '--overlay',
        str(work_dir / 'positions'),
        '--work-dir',
        str(tmp_path / 'b'),
    ]
    assert analyze(again) == 2
    assert "the label 'vit.pth' is taken, give --label" in capsys.readouterr().err
    assert not (tmp_path / 'b').exists()
    assert analyze([*again, '--label', 'other']) == 0
