"""rope-dense predict-large: whole images, tiles, going on after a kill, memory, and errors."""

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import mmcv
import numpy as np
import pytest
import torch
from mmdet.apis import inference_detector, init_detector
from mmengine.config import Config
from mmengine.registry import DefaultScope
from mmseg.apis import inference_model, init_model
from PIL import Image
from torch import nn

from helpers.small_configs import small_config
from helpers.tool_names import Fails, Main
from rope_dense.project.checks.schedule import training_crops
from rope_dense.project.model import build_model
from rope_dense.utils.journal import Journal
from rope_dense_command import command

pytest.importorskip('rasterio', reason="no rasterio: pip install -e '.[large]'")

Files = tuple[str, str]  # config and checkpoint


@pytest.fixture(scope='module')
def predict_large() -> Main:
    return command('predict_large')


def with_weights(config: str, folder: Path) -> Files:
    """Random weights whose results differ from pixel to pixel."""
    cfg = Config.fromfile(config)
    with DefaultScope.overwrite_default_scope(cfg.default_scope):
        model = build_model(cfg)
        model.init_weights()
    for name, parameter in model.named_parameters():
        if parameter.ndim > 1 and 'head' in name:
            torch.nn.init.normal_(parameter, std=0.3)
    path = folder / f'{Path(config).stem}_weights.pth'
    checkpoint = dict(state_dict=model.state_dict())
    if cfg.default_scope == 'mmseg':  # whose init_model asks for it
        checkpoint['meta'] = dict(
            dataset_meta=cfg.test_dataloader.dataset.metainfo.to_dict()
        )
    torch.save(checkpoint, path)
    return config, str(path)


def plain_segmentor(config: str, checkpoint: str, **options: object) -> nn.Module:
    """For mmseg's ``inference_model``."""
    cfg = Config.fromfile(config)
    cfg.merge_from_dict(options)
    cfg.test_pipeline = cfg.test_dataloader.dataset.pipeline
    return init_model(cfg, checkpoint, device='cpu')


@pytest.fixture(scope='module')
def segmenting(segmentor: str, folder: Path) -> Files:
    return with_weights(segmentor, folder)


@pytest.fixture(scope='module')
def detecting(detector: str, folder: Path) -> Files:
    return with_weights(detector, folder)


@pytest.fixture(scope='module')
def image(folder: Path) -> str:
    """Smooth colours, 150 x 200."""
    noise = np.random.default_rng(0).integers(256, size=(15, 20, 3), dtype=np.uint8)
    Image.fromarray(noise).resize((200, 150), Image.BICUBIC).save(folder / 'large.png')
    return str(folder / 'large.png')


@pytest.fixture(scope='module')
def small_image(image: str, folder: Path) -> str:
    """One tile of 64 pixels."""
    Image.open(image).crop((10, 10, 74, 66)).save(folder / 'small.png')  # 56 x 64
    return str(folder / 'small.png')


def labels_of(path: Path) -> np.ndarray:
    """The classes of a raster as ADE20K's masks number them, from 1."""
    return np.array(Image.open(path)) - np.uint8(1)


# ---------------------------------------------------------------- one tile


def test_one_tile_of_a_segmentor_is_the_whole_image(
    predict_large: Main, segmenting: Files, small_image: str, tmp_path: Path
) -> None:
    out = tmp_path / 'labels.tif'
    assert predict_large([*segmenting, small_image, '--out', str(out)]) == 0
    model = plain_segmentor(*segmenting)
    expected = inference_model(model, small_image).pred_sem_seg.data[0].numpy()
    assert len(np.unique(expected)) > 1
    assert (labels_of(out) == expected).all()


def test_one_tile_of_mask2former_is_the_whole_image(
    predict_large: Main, data: Path, folder: Path, small_image: str, tmp_path: Path
) -> None:
    files = with_weights(
        str(small_config('mask2former_swin_rope_mixed', data, folder)), folder
    )
    out = tmp_path / 'labels.png'
    assert predict_large([*files, small_image, '--out', str(out)]) == 0
    expected = (
        inference_model(plain_segmentor(*files), small_image)
        .pred_sem_seg.data[0]
        .numpy()
    )
    assert len(np.unique(expected)) > 1 and (labels_of(out) == expected).all()


def test_one_tile_of_a_detector_is_the_whole_image(
    predict_large: Main, detecting: Files, small_image: str, tmp_path: Path
) -> None:
    out = tmp_path / 'boxes.json'
    arguments = ['--out', str(out), '--score', '0', '--merge-iou', '0']
    assert predict_large([*detecting, small_image, *arguments]) == 0
    found = json.loads(out.read_text())['annotations']
    model = init_detector(*detecting, device='cpu')
    expected = inference_detector(model, small_image).pred_instances
    assert len(found) == len(expected) == 10
    for annotation, box, score, label in zip(
        found,
        expected.bboxes.tolist(),
        expected.scores.tolist(),
        expected.labels,
        strict=True,
    ):
        left, top, width, height = annotation['bbox']
        assert [left, top, left + width, top + height] == pytest.approx(box, abs=1e-9)
        assert (annotation['score'], annotation['category_id']) == (score, label + 1)


# ---------------------------------------------------------------- many tiles


def test_tiles_of_a_segmentor(
    predict_large: Main,
    segmenting: Files,
    image: str,
    tmp_path: Path,
    monkeypatch,
    capsys,
) -> None:
    """Batches change nothing, a killed run continues, and the result is the blend made by hand."""
    one, two, png = (tmp_path / name for name in ('one.tif', 'two.tif', 'three.png'))
    assert predict_large([*segmenting, image, '--out', str(one)]) == 0
    assert '12 tiles of 64 pixels, 12 of them not finished' in capsys.readouterr().out
    picture = tmp_path / 'picture.jpg'
    more = ['--out', str(png), '--batch', '3', '--picture', str(picture)]
    assert predict_large([*segmenting, image, *more]) == 0
    assert (labels_of(png) == labels_of(one)).all()
    assert mmcv.imread(str(picture)).shape == (150, 200, 3)

    finish, steps = Journal.finish_step, []

    def kill(self: Journal, content: bytes) -> None:
        finish(self, content)
        steps.append(content)
        if len(steps) == 2:
            raise KeyboardInterrupt

    capsys.readouterr()
    with monkeypatch.context() as patch:
        patch.setattr(Journal, 'finish_step', kill)
        assert predict_large([*segmenting, image, '--out', str(two)]) == 130
    assert 'the same command continues' in capsys.readouterr().err and not two.exists()
    assert predict_large([*segmenting, image, '--out', str(two)]) == 0
    assert '12 tiles of 64 pixels, 4 of them not finished' in capsys.readouterr().out
    assert (labels_of(two) == labels_of(one)).all()
    assert {path.name for path in tmp_path.rglob('*') if path.is_file()} == {
        'one.tif', 'two.tif', 'three.png', 'picture.jpg', 'record.jsonl'
    }  # fmt: skip

    model, pixels = plain_segmentor(*segmenting), mmcv.imread(image)
    total = np.zeros((7, 150, 200))
    ramp = np.minimum(np.arange(64) + 0.5, 63.5 - np.arange(64))
    for top in (0, 43, 86):
        for left in (0, 45, 90, 136):
            tile = pixels[top : top + 64, left : left + 64]
            scores = inference_model(model, tile).seg_logits.data.numpy()
            total[:, top : top + 64, left : left + 64] += np.outer(ramp, ramp) * scores
    rows, columns = (
        covering((0, 43, 86), 150, ramp),
        covering((0, 45, 90, 136), 200, ramp),
    )
    expected = (total / np.outer(rows, columns)).argmax(0)
    assert (labels_of(one) == expected).mean() > 0.9999  # rounding of ties


def covering(starts: tuple[int, ...], length: int, ramp: np.ndarray) -> np.ndarray:
    total = np.zeros(length)
    for start in starts:
        total[start : start + 64] += ramp
    return total


def test_tiles_of_a_detector(
    predict_large: Main, detecting: Files, image: str, tmp_path: Path, capsys
) -> None:
    out, picture = tmp_path / 'boxes.json', tmp_path / 'picture.png'
    arguments = ['--out', str(out), '--picture', str(picture)]
    scores = ['--score', 'circle=0.95', '0.2']
    assert predict_large([*detecting, image, *arguments, *scores]) == 0
    # 12 tiles, 4 of the halved image (75 x 100), one of the image halved twice
    assert '17 tiles of 64 pixels, 17 of them not finished' in capsys.readouterr().out
    result = json.loads(out.read_text())
    assert result['images'] == [
        dict(id=1, file_name='large.png', height=150, width=200)
    ]
    assert len(result['categories']) == 6
    for annotation in result['annotations']:
        left, top, width, height = annotation['bbox']
        assert annotation['score'] >= (0.95 if annotation['category_id'] == 1 else 0.2)
        assert 0 <= left <= left + width <= 200 and 0 <= top <= top + height <= 150
    assert mmcv.imread(str(picture)).shape == (150, 200, 3)
    assert {path.name for path in tmp_path.glob('[!.]*')} == {
        'boxes.json',
        'picture.png',
    }


def test_the_model_sees_tiles_at_the_size_asked_for(
    predict_large: Main, segmenting: Files, small_image: str, tmp_path: Path
) -> None:
    """And settings of the backbone, such as the scaling of frequencies, come by --cfg-options."""
    out = tmp_path / 'labels.tif'
    options = ['model.test_cfg.mode=whole', 'model.backbone.rope_scaling.type=by_parts']
    arguments = ['--size', '128', '--tile', '64', '--cfg-options', *options]
    assert predict_large([*segmenting, small_image, '--out', str(out), *arguments]) == 0
    changes = {
        'model.test_cfg.mode': 'whole',
        'model.backbone.rope_scaling': dict(type='by_parts'),
        'test_dataloader.dataset.pipeline.1.scale': (192, 128),
    }
    model = plain_segmentor(*segmenting, **changes)
    expected = (
        inference_model(model, mmcv.imread(small_image)).pred_sem_seg.data[0].numpy()
    )
    assert (labels_of(out) == expected).all()


def test_default_tiles_of_another_size_than_the_crops_give_a_warning(
    predict_large: Main,
    segmenting: Files,
    small_image: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    config, weights = segmenting
    (side,) = {
        side for crop in training_crops(Config.fromfile(config)) for side in crop
    }
    says = f'tiles of 128 pixels, as test images; the training had crops of {side} x {side}'
    arguments = [config, weights, small_image, '--size', '128', '--device', 'cpu']
    assert predict_large([*arguments, '--out', str(tmp_path / 'a.png')]) == 0
    assert (says in capsys.readouterr().err) == (side != 128)
    assert (
        predict_large([*arguments, '--out', str(tmp_path / 'b.png'), '--tile', '128'])
        == 0
    )
    assert says not in capsys.readouterr().err


# ---------------------------------------------------------------- several processes


def test_processes_share_a_folder(
    predict_large: Main,
    segmenting: Files,
    image: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """The second of two, then one alone: each image once, with the bytes of an image alone."""
    scenes, out = tmp_path / 'scenes', tmp_path / 'out'
    for number, name in enumerate(['a/one.png', 'a/two.png', 'b/one.png', 'b/two.png']):
        (scenes / name).parent.mkdir(parents=True, exist_ok=True)
        Image.open(image).crop((number, 0, 90 + number, 80)).save(scenes / name)
    command = [*segmenting, str(scenes), '--out', str(out)]
    monkeypatch.setenv('RANK', '1')
    monkeypatch.setenv('WORLD_SIZE', '2')
    assert predict_large(command) == 0
    there = {path: path.stat().st_mtime_ns for path in out.rglob('*.tif')}
    names = {path.relative_to(out).as_posix() for path in there}
    assert names == {'a/two_labels.tif', 'b/two_labels.tif'}
    monkeypatch.delenv('RANK')
    monkeypatch.delenv('WORLD_SIZE')
    assert predict_large(command) == 0
    said = capsys.readouterr().out
    assert '2 of 4 images are predicted by this process' in said
    assert len([*out.rglob('*_labels.tif')]) == 4
    assert {
        path.name for path in (out / '.rope_dense').rglob('*') if path.is_file()
    } == {'record.jsonl'}
    assert all(path.stat().st_mtime_ns == time for path, time in there.items())
    for name in ('a/one', 'b/two'):
        alone = tmp_path / 'alone.tif'
        arguments = [str(scenes / f'{name}.png'), '--out', str(alone), '--overwrite']
        assert predict_large([*segmenting, *arguments]) == 0
        assert (out / f'{name}_labels.tif').read_bytes() == alone.read_bytes()


@pytest.mark.parametrize(  # with an overlap of 40 up to three rows of tiles cover a pixel
    'kind, overlap', [('labels.tif', '10'), ('labels.tif', '40'), ('boxes.json', '10')]
)
def test_processes_share_an_image(
    kind: str,
    overlap: str,
    predict_large: Main,
    segmenting: Files,
    detecting: Files,
    image: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Three processes, of which the second is killed and goes on, and the bytes of one."""
    files = segmenting if kind == 'labels.tif' else detecting
    given = [*files, image, '--overlap', overlap, '--score', '0.1']
    assert predict_large([*given, '--out', str(tmp_path / kind)]) == 0
    number = int(re.findall(r'(\d+) tiles of 64', capsys.readouterr().out)[0])
    monkeypatch.setenv('MASTER_ADDR', 'here')
    monkeypatch.setenv('WORLD_SIZE', '3')
    monkeypatch.setattr(
        'rope_dense.predict.tiles.should_merge', lambda rank, count: rank == 0
    )
    (tmp_path / 'shared').mkdir()
    out, tiles, finish = tmp_path / 'shared' / kind, [], Journal.finish_step

    def kill(self: Journal, content: bytes) -> None:
        finish(self, content)
        raise KeyboardInterrupt

    for rank, is_killed in ((2, False), (1, True), (1, False), (0, False)):
        assert not out.exists()
        monkeypatch.setenv('RANK', str(rank))
        monkeypatch.setattr(Journal, 'finish_step', kill if is_killed else finish)
        assert predict_large([*given, '--out', str(out)]) == (130 if is_killed else 0)
        said = capsys.readouterr().out
        tiles.append(
            [*map(int, re.findall(r'(\d+) tiles of 64 pixels, (\d+) of', said)[0])]
        )
    (last, second, again, first) = tiles
    assert last[0] + second[0] + first[0] == number and min(last[0], first[0]) > 0
    assert second[0] == second[1] == again[0] > again[1]
    assert out.read_bytes() == (tmp_path / kind).read_bytes()
    assert [path.name for path in out.parent.rglob('*') if path.is_file()] == [
        kind,
        'record.jsonl',
    ]


@pytest.mark.slow
@pytest.mark.skipif(torch.cuda.is_available(), reason='the GPU path needs as many GPUs')
def test_torchrun_shares_an_image(
    predict_large: Main, segmenting: Files, image: str, tmp_path: Path, unused_port: str
) -> None:
    one, two = tmp_path / 'one.tif', tmp_path / 'two.tif'
    assert predict_large([*segmenting, image, '--out', str(one)]) == 0
    torchrun = [
        '-m',
        'torch.distributed.run',
        '--nproc_per_node=2',
        f'--master_port={unused_port}',
    ]
    arguments = [
        '-m',
        'rope_dense',
        'predict-large',
        *segmenting,
        image,
        '--out',
        str(two),
    ]
    result = subprocess.run(
        [sys.executable, *torchrun, *arguments],
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert result.returncode == 0, result.stderr
    assert result.stdout.count('two.tif; ') == 1
    assert two.read_bytes() == one.read_bytes()


def test_what_processes_do_not_share(
    predict_large: Main,
    segmenting: Files,
    image: str,
    fails: Fails,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    drawn = [str(Path(image).parent), '--picture', 'drawn.png']
    fails(
        predict_large, *segmenting, *drawn, says=['--picture drawn.png: of one image']
    )
    monkeypatch.setenv('WORLD_SIZE', '2')
    fails(
        predict_large,
        *segmenting,
        image,
        says=['of torchrun share one image, of a job array a folder'],
    )


# ---------------------------------------------------------------- errors


@pytest.mark.parametrize(
    'arguments, says',
    [
        (['--overlap', '64'], ['tile 64, overlap 64']),
        (['--out', 'labels.jpg'], ['--out labels.jpg', '.tif or .tiff or .png']),
        (['--picture', 'drawn.gif'], ['--picture drawn.gif', '.png or .jpg or .jpeg']),
        (['--device', 'gpu'], ['device (--device) gpu']),
    ],
)
def test_errors(
    predict_large: Main,
    segmenting: Files,
    image: str,
    fails: Fails,
    arguments: list[str],
    says: list[str],
) -> None:
    fails(predict_large, *segmenting, image, *arguments, says=says)


def test_files_that_are_not_there(
    predict_large: Main, segmenting: Files, image: str, fails: Fails, tmp_path: Path
) -> None:
    missing = str(Path(image).with_name('larg.png'))
    fails(
        predict_large,
        *segmenting,
        missing,
        says=[f'{missing}: no such file', f'mean {image}?'],
    )
    fails(
        predict_large,
        segmenting[0],
        'none.pth',
        image,
        says=['none.pth', 'no such file'],
    )
    (tmp_path / 'text.png').write_text('no image')
    says = ['text.png: cannot be read as an image']
    fails(predict_large, *segmenting, str(tmp_path / 'text.png'), says=says)


def test_a_result_and_other_settings_stay_what_they_are(
    predict_large: Main, segmenting: Files, image: str, tmp_path: Path, capsys
) -> None:
    out = tmp_path / 'labels.tif'
    command = [*segmenting, image, '--out', str(out)]
    journal = tmp_path / '.rope_dense' / 'labels.tif' / 'journal' / 'labels.tif'
    Journal(journal, dict(tile=32)).note()
    assert predict_large(command) == 2
    message = capsys.readouterr().err
    assert 'tile 32, now 64' in message and '--overwrite' in message
    assert predict_large([*command, '--overwrite']) == 0
    assert labels_of(out).shape == (150, 200)
    assert predict_large(command) == 2
    assert 'labels.tif exists' in capsys.readouterr().err
    assert predict_large([*command, '--overwrite', '--overlap', '8']) == 0


@pytest.mark.parametrize(
    'foreign, more',
    [
        ('trees.json', ['--overwrite']),
        ('trees.geojson', []),
        ('trees_dota/Task1_tree.txt', []),
        ('drawn.png', ['--picture', 'drawn.png']),
        ('scene.tif', ['--picture', 'link.png']),
    ],
)
def test_nothing_of_the_users_is_replaced(
    predict_large: Main,
    detecting: Files,
    fails: Fails,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    foreign: str,
    more: list[str],
) -> None:
    """What is there is found before the model is built."""
    import rasterio

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(
        'rope_dense.predict.large.ready', lambda *_, **__: pytest.fail('is built')
    )
    if 'dota' in foreign:
        monkeypatch.setattr('rope_dense.predict.tiles.task_of', lambda cfg: 'oriented')
    profile = dict(
        driver='GTiff', dtype='uint8', count=3, height=64, width=64, photometric='rgb'
    )
    profile |= dict(
        crs='EPSG:25832', transform=rasterio.Affine(1, 0, 500_000, 0, -1, 5_000_000)
    )
    with rasterio.open('scene.tif', 'w', **profile) as file:
        file.write(np.zeros((3, 64, 64), np.uint8))
    Path('link.png').symlink_to('scene.tif')
    if foreign != 'scene.tif':
        Path(foreign).parent.mkdir(exist_ok=True)
        Path(foreign).write_text('mine')
    before = {path: path.read_bytes() for path in tmp_path.rglob('*') if path.is_file()}
    named = more[-1] if '--picture' in more else foreign
    fails(
        predict_large,
        *detecting,
        'scene.tif',
        '--out',
        'trees.json',
        *more,
        says=[f'{named} '],
    )
    assert {
        path: path.read_bytes() for path in tmp_path.rglob('*') if path.is_file()
    } == before


def test_an_edited_result_stays(
    predict_large: Main,
    segmenting: Files,
    small_image: str,
    tmp_path: Path,
    fails: Fails,
) -> None:
    """Also one of a folder, of which the others are predicted anew."""
    scenes, out = tmp_path / 'scenes', tmp_path / 'out'
    for name in ('camA/0.png', 'camB/0.png', 'camB/0.tif'):
        (scenes / name).parent.mkdir(parents=True, exist_ok=True)
        Image.open(small_image).save(scenes / name)
    command = [*segmenting, str(scenes), '--out', str(out)]
    assert predict_large(command) == 0
    names = ['camA/0_labels.tif', 'camB/0.png_labels.tif', 'camB/0.tif_labels.tif']
    assert (
        sorted(path.relative_to(out).as_posix() for path in out.rglob('*.tif')) == names
    )
    assert predict_large([*command, '--overwrite']) == 0
    (out / names[1]).write_text('corrected')
    says = [f'{names[1]} was changed after']
    fails(predict_large, *command, '--overwrite', says=says)
    assert (out / names[1]).read_text() == 'corrected' and predict_large(command) == 0


# ---------------------------------------------------------------- memory


@pytest.mark.slow
@pytest.mark.parametrize('task, ending', [('segmenting', 'tif'), ('detecting', 'png')])
def test_memory_of_a_large_image(
    request: pytest.FixtureRequest, task: str, ending: str, tmp_path: Path
) -> None:
    """20,000 x 20,000 pixels, 1.2 GB, in less than 2 GB together with Python and PyTorch."""
    path = tmp_path / f'large.{ending}'
    write_large(path, 6_000)
    files = request.getfixturevalue(task)
    words = [
        sys.executable,
        '-m',
        'rope_dense_command',
        'predict-large',
        *files,
        str(path),
    ]
    words += ['--tile', '2000', '--work-dir', str(tmp_path)]
    result = subprocess.run(words, capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
    memory = int(re.search(r'peak memory (\d+) MB', result.stdout)[1])
    print(f'{task}, {ending}: {memory} MB')
    assert memory < 2000
    shutil.rmtree(tmp_path)


def write_large(path: Path, side: int) -> None:
    import rasterio.shutil

    profile = dict(
        driver='GTiff', dtype='uint8', count=3, height=side, width=side, tiled=True
    )
    profile |= dict(compress='deflate', zlevel=1, interleave='pixel')
    block = np.random.default_rng(0).integers(256, size=(3, 16, 200), dtype=np.uint8)
    rows = np.tile(block.repeat(16, 1), (1, 1, side // 200))  # [3, 256, side]
    tiff = path.with_suffix('.tif')
    with rasterio.open(tiff, 'w', **profile) as file:
        for top in range(0, side, 256):
            height = min(256, side - top)
            file.write(rows[:, :height], window=((top, top + height), (0, side)))
    if path != tiff:
        rasterio.shutil.copy(tiff, path, driver='PNG', zlevel=1)
        tiff.unlink()


def test_a_folder_names_what_is_not_its_result(
    predict_large: Main,
    segmenting: Files,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """A file of the user's is no result that is done; an edited one stays."""
    given, out = tmp_path / 'in', tmp_path / 'out'
    given.mkdir()
    for name in 'ab':
        Image.new('RGB', (64, 64)).save(given / f'{name}.png')
    command = [*segmenting, str(given), '--out', str(out)]
    out.mkdir()
    (out / 'a_labels.tif').write_text('mine')
    assert predict_large(command) == 2
    assert (
        f'{out}/a_labels.tif was not written by rope-dense' in capsys.readouterr().err
    )
    (out / 'a_labels.tif').unlink()
    assert predict_large(command) == 0
    (out / 'b_labels.tif').write_text('edited')
    assert (
        predict_large(command) == 0 and (out / 'b_labels.tif').read_text() == 'edited'
    )
    assert predict_large([*command, '--overwrite']) == 2
    assert f'{out}/b_labels.tif was changed after' in capsys.readouterr().err
    assert predict_large([*segmenting, str(given), '--out', str(given)]) == 2
    assert f'--out {given} contains the images of {given}' in capsys.readouterr().err
