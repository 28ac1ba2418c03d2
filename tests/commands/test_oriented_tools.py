"""The tools on a detector of rotated boxes: tests, sweeps, pictures, tiles, results, refusals."""

import json
import zipfile
from pathlib import Path

import cv2
import numpy as np
import pytest
import torch
from mmengine.config import Config
from mmengine.registry import DefaultScope
from PIL import Image

from helpers.oriented import CHANNELS, FOLDER, SWIN
from helpers.tool_names import Fails, Main
from rope_dense.data.rotated import rectangle_corners
from rope_dense.data.tiles.plan import TilePredictor
from rope_dense.project.contents import angle_version, check_angle_convention
from rope_dense.project.load import load_config
from rope_dense.project.model import build_model
from rope_dense.utils.errors import UsageError
from rope_dense_command import command

NAME = 'rotated-retinanet_swin-t_rope-mixed_1xb2-12e_dota'
SIZE, CLASSES = 96, ('ship', 'tank')
LOADERS = ('train_dataloader', 'val_dataloader', 'test_dataloader')
SMALL = {
    'model.backbone.arch': dict(SWIN, _delete_=True),
    'model.backbone.init_cfg': None,
    'model.neck.in_channels': [32, 64, 128],
    'model.neck.out_channels': CHANNELS,
    'model.bbox_head.in_channels': CHANNELS,
    'model.bbox_head.feat_channels': CHANNELS,
    'model.bbox_head.stacked_convs': 1,
    'model.bbox_head.num_classes': len(CLASSES),
    'model.test_cfg.score_thr': 0.001,
    'model.test_cfg.max_per_img': 20,
}


def tool(name: str) -> Main:
    return command(name)


def write_patches(root: Path) -> None:
    """Two patches of one image, as mmrotate's img_split.py names them, with an object each."""
    for name in ('images', 'annfiles'):
        (root / name).mkdir(parents=True)
    for left in (0, SIZE // 2):
        box = np.array([40.0, 40, 30, 12, 0.5])
        picture = np.random.default_rng(left).integers(
            90, size=(SIZE, SIZE, 3), dtype=np.uint8
        )
        corners = rectangle_corners(box)
        cv2.fillPoly(picture, [corners.reshape(4, 2).astype(np.int32)], (250, 200, 180))
        name = f'P0__{SIZE}__{left}___0'
        Image.fromarray(picture).save(root / 'images' / f'{name}.png')
        text = (
            ' '.join(f'{value:.1f}' for value in corners) + f' {CLASSES[left > 0]} 0\n'
        )
        (root / 'annfiles' / f'{name}.txt').write_text(text)


@pytest.fixture(scope='module')
def files(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, str]:
    """A small config on the patches, and random weights with their convention."""
    folder = tmp_path_factory.mktemp('oriented')
    write_patches(folder / 'data')
    options: dict = dict(SMALL)
    for loader in LOADERS:
        options |= {
            f'{loader}.dataset.{key}': value
            for key, value in dict(
                data_root=str(folder / 'data'),
                ann_file='annfiles/',
                data_prefix=dict(img_path='images/'),
                metainfo=dict(classes=CLASSES, palette=[(255, 0, 0), (0, 0, 255)]),
            ).items()
        }
        options |= {f'{loader}.num_workers': 0, f'{loader}.persistent_workers': False}
        step = 3 if loader == 'train_dataloader' else 1
        options[f'{loader}.dataset.pipeline.{step}.scale'] = (SIZE, SIZE)
    cfg = Config.fromfile(FOLDER / f'{NAME}.py')
    cfg.merge_from_dict(options)
    cfg.dump(folder / 'small.py')
    cfg = load_config(str(folder / 'small.py'))
    with DefaultScope.overwrite_default_scope(cfg.default_scope):
        torch.manual_seed(0)
        model = build_model(cfg)
        model.init_weights()
    for name, parameter in model.bbox_head.named_parameters():
        if name.endswith('weight'):
            torch.nn.init.normal_(parameter, std=0.15)
    meta = dict(dataset_meta=cfg.test_dataloader.dataset.metainfo.to_dict())
    torch.save(dict(state_dict=model.state_dict(), meta=meta), folder / 'weights.pth')
    return str(folder / 'small.py'), str(folder / 'weights.pth')


def test_the_convention_is_in_data_sets_and_weights(files: tuple[str, str]) -> None:
    cfg = load_config(files[0])
    assert angle_version(cfg) == 'le90'
    for loader in LOADERS:
        assert cfg[loader].dataset.metainfo.box_convention == ('le90', 'radian')
    assert torch.load(files[1])['meta']['dataset_meta']['box_convention'] == (
        'le90',
        'radian',
    )


@pytest.mark.parametrize(
    'name', ['test', 'predict', 'predict_large', 'eval_resolutions']
)
def test_weights_of_another_convention_are_refused(
    files: tuple[str, str], fails: Fails, tmp_path: Path, name: str
) -> None:
    config, other = files[0], tmp_path / 'other.pth'
    checkpoint = torch.load(files[1])
    checkpoint['meta']['dataset_meta']['box_convention'] = ('oc', 'radian')
    torch.save(checkpoint, other)
    picture = str(next(Path(config).parent.rglob('*.png')))
    more = dict(eval_resolutions=['--sizes', '64'], test=[]).get(name, [picture])
    says = ['the checkpoint was trained with angle_version=oc, the config has le90']
    fails(tool(name), config, str(other), *more, says=says)


def test_one_model_has_one_convention(files: tuple[str, str]) -> None:
    key = 'model.bbox_head.bbox_coder.angle_version'
    with pytest.raises(
        UsageError, match=rf'{key}=oc: give one of le90, le135, oc for all'
    ):
        load_config(files[0], [f'{key}=oc'])
    cfg = load_config(files[0])
    check_angle_convention(cfg, dict(state_dict={}))  # of mmrotate: it says none
    cfg.val_dataloader.dataset.metainfo.box_convention = ['oc', 'radian']
    cfg.dump(Path(files[0]).with_name('mixed.py'))
    with pytest.raises(
        UsageError, match=r'val_dataloader\.dataset\.metainfo\.box_convention='
    ):
        load_config(str(Path(files[0]).with_name('mixed.py')))


def test_a_test_gives_dota_s_map(
    files: tuple[str, str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    argv = [*files, '--work-dir', str(tmp_path), '--out', str(tmp_path / 'found.pkl')]
    thresholds = 'test_evaluator.iou_thrs=[0.5,0.75]'
    argv += ['--cfg-options', thresholds]
    assert tool('test')(argv) == 0
    assert (tmp_path / 'found.pkl').is_file()
    printed = ''.join(path.read_text() for path in tmp_path.rglob('*.json'))
    assert {'dota/mAP', 'dota/AP50', 'dota/AP75'} <= json.loads(printed).keys()


def test_patches_are_merged_in_dota_s_form(
    files: tuple[str, str], tmp_path: Path
) -> None:
    """By mmrotate's own means: its metric moves the boxes of a patch to their place."""
    out = tmp_path / 'Task1'
    options = [
        f'test_evaluator.{name}=True' for name in ('format_only', 'merge_patches')
    ]
    options.append(f'test_evaluator.outfile_prefix={out}')
    argv = [*files, '--work-dir', str(tmp_path), '--cfg-options', *options]
    assert tool('test')(argv) == 0
    with zipfile.ZipFile(out / 'Task1.zip') as content:
        assert sorted(content.namelist()) == ['Task1_ship.txt', 'Task1_tank.txt']
    lines = [
        line for path in out.glob('*.txt') for line in path.read_text().splitlines()
    ]
    assert lines and {line.split()[0] for line in lines} == {'P0'}


def test_a_sweep_over_sizes(files: tuple[str, str], tmp_path: Path) -> None:
    argv = [*files, '--sizes', '64', '96', '--work-dir', str(tmp_path)]
    assert tool('eval_resolutions')(argv) == 0
    rows = json.loads((tmp_path / 'resolutions.json').read_text())['rows']
    assert [row['size'] for row in rows] == ['64', '96']
    assert all('dota/mAP' in row['metrics'] for row in rows)
    assert (tmp_path / 'resolutions.png').is_file()


def test_pictures_and_boxes_of_predict_are_the_model_s(
    files: tuple[str, str], tmp_path: Path
) -> None:
    images = Path(files[0]).parent / 'data' / 'images'
    argv = [*files, str(images), '--out', str(tmp_path), '--score', '0.01']
    assert tool('predict')(argv) == 0
    content = json.loads((tmp_path / 'predictions.json').read_text())
    assert content['info'] == dict(angle_version='le90', angle_unit='radian')
    (expected, *_) = predictions(files, images)
    found = [item for item in content['annotations'] if item['image_id'] == 1]
    assert len(found) == (expected.scores >= 0.01).sum() > 0
    for item, box, score in zip(found, expected.bboxes, expected.scores, strict=False):
        assert item['score'] == pytest.approx(float(score), abs=1e-5)
        corners = rectangle_corners(box.numpy())
        distances = [
            np.abs(np.roll(corners, 2 * k) - item['segmentation'][0]).max()
            for k in range(4)
        ]
        assert min(distances) < 1e-2
    lines = (tmp_path / 'dota' / 'Task1_ship.txt').read_text().splitlines()
    lines += (tmp_path / 'dota' / 'Task1_tank.txt').read_text().splitlines()
    assert len(lines) == len(content['annotations']) and len(lines[0].split()) == 10
    drawn = np.array(Image.open(tmp_path / 'pictures' / f'P0__{SIZE}__0___0.jpg'))
    assert drawn.shape == (SIZE, SIZE, 3)


def predictions(files: tuple[str, str], images: Path) -> list:
    """Instances of each image, by the model itself."""
    cfg = load_config(files[0])
    with DefaultScope.overwrite_default_scope(cfg.default_scope):
        model = build_model(cfg).eval()
        model.load_state_dict(torch.load(files[1])['state_dict'])
        predict = TilePredictor(model, cfg, batch=1, report=lambda: None)
        return [
            sample.pred_instances
            for path in sorted(images.glob('*.png'))
            for sample in predict(
                [np.ascontiguousarray(np.array(Image.open(path))[..., ::-1])]
            )
        ]


def test_one_tile_of_predict_large_is_the_image(
    files: tuple[str, str], tmp_path: Path
) -> None:
    pytest.importorskip('rasterio', reason="no rasterio: pip install -e '.[large]'")
    images = Path(files[0]).parent / 'data' / 'images'
    first, out = sorted(images.glob('*.png'))[0], tmp_path / 'boxes.json'
    argv = [
        *files,
        str(first),
        '--out',
        str(out),
        '--picture',
        str(tmp_path / 'boxes.png'),
    ]
    assert tool('predict_large')([*argv, '--score', '0.01']) == 0
    content = json.loads(out.read_text())
    assert content['info']['angle_version'] == 'le90'
    (expected, *_) = predictions(files, images)
    scores = [item['score'] for item in content['annotations']]
    np.testing.assert_allclose(
        scores, expected.scores[expected.scores >= 0.01], atol=1e-5
    )
    assert (tmp_path / 'boxes_dota' / 'Task1_tank.txt').is_file()
    assert (tmp_path / 'boxes.png').is_file() and not (
        tmp_path / 'boxes.geojson'
    ).exists()


@pytest.mark.parametrize('is_placed', [True, False])
def test_a_transform_without_a_coordinate_system_gives_no_geojson_and_a_warning(
    files: tuple[str, str],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    is_placed: bool,
) -> None:
    rasterio = pytest.importorskip(
        'rasterio', reason="no rasterio: pip install -e '.[large]'"
    )
    profile = dict(driver='GTiff', dtype='uint8', count=3, height=SIZE, width=SIZE)
    profile['transform'] = rasterio.transform.from_origin(500_000, 5_000_000, 0.3, 0.3)
    profile |= dict(crs='EPSG:32633') if is_placed else {}
    with rasterio.open(tmp_path / 'scene.tif', 'w', **profile) as file:
        file.write(np.zeros((3, SIZE, SIZE), np.uint8))
    argv = [*files, str(tmp_path / 'scene.tif'), '--out', str(tmp_path / 'boxes.json')]
    assert tool('predict_large')(argv) == 0
    said = 'has a transform but no coordinate system: no GeoJSON is written\n'
    assert (said in capsys.readouterr().err) is not is_placed
    assert (tmp_path / 'boxes.geojson').exists() is is_placed


def test_what_the_model_sees_is_drawn(files: tuple[str, str], tmp_path: Path) -> None:
    for split in ('train', 'val'):
        out = tmp_path / split
        argv = [
            files[0],
            '--split',
            split,
            '--out',
            str(out),
            '--work-dir',
            str(tmp_path),
        ]
        assert tool('browse_data')(argv) == 0
        assert len(list(out.glob('*.png'))) == 2


def test_what_rotated_boxes_have_not_is_refused_in_one_line(
    files: tuple[str, str],
    capsys: pytest.CaptureFixture[str],
    fails: Fails,
    tmp_path: Path,
) -> None:
    assert tool('export')([*files, str(tmp_path / 'a.onnx')]) == 2
    error = capsys.readouterr().err
    assert error.count('error: ') == 1 and 'it is DeltaXYWHTRBBoxCoder' in error
    fails(tool('report'), *files, says=['report: it compares upright boxes'])
    folder = tmp_path / 'stored'
    assert tool('push_to_hub')([*files, 'a/b', '--folder', str(folder)]) == 2
    assert "default_scope must be one of ('mmdet', 'mmseg')" in capsys.readouterr().err
    assert not folder.exists()
    fails(tool('test'), *files, '--tta', says=['--tta: the config lacks tta_model'])
