"""Folders in which the commands of pages find what they name: images, labels, weights, runs."""

import json
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import cv2
import numpy as np
import pytest
import torch
from mmengine.config import Config
from mmengine.registry import MODELS, DefaultScope
from PIL import Image
from safetensors.torch import save_file

from helpers import shared_backbone
from helpers.grid import CONFIGS
from helpers.small_checkpoints import vit
from helpers.small_configs import small_config
from rope_dense.backbones import RoPEViT
from rope_dense.backbones.archs import VIT_ARCHS
from rope_dense.checkpoints.detectors import to_published
from rope_dense.data.generated import ShapesSettings, write_shapes
from rope_dense_command import command

TINY = dict(embed_dims=32, depth=8, num_heads=2)  # half of the blocks in windows
SMALL = {  # models of a recipe
    'realtime': [
        *(
            '--cfg-options',
            'model.bbox_head.num_queries=20',
            'model.encoder.num_blocks=1',
        ),
        *(
            'model.bbox_head.decoder.num_layers=1',
            'model.bbox_head.denoising.num_queries=5',
        ),
    ],
    'detection': [
        *(
            '--cfg-options',
            'model.num_queries=20',
            'model.dn_cfg.group_cfg.num_dn_queries=4',
        ),
        *('model.encoder.num_layers=1', 'model.decoder.num_layers=1'),
    ],
}
WINDOWS = ['model.backbone.window_size=4', 'model.backbone.window_block_indexes=[0,2]']
RUN = [
    *(
        'realtime',
        '--data',
        'shapes/coco',
        '--weights',
        'None',
        '--epochs',
        '1',
        '--size',
        '96',
    ),
    *(*SMALL['realtime'], *WINDOWS, '--work-dir', 'work_dirs/run'),
]


@pytest.fixture(scope='module')
def sources(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The folder, with a trained run; the backbones of own data are tiny, the hub is a folder."""
    folder = tmp_path_factory.mktemp('commands')
    hub = pytest.importorskip('huggingface_hub')
    words = {'small': ('small_test', ''), 'tiny': ('small_test', '')}
    words['large'] = 'small_test', 'work_dirs/adapt'  # the teacher, adapted before
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(VIT_ARCHS, 'small_test', TINY)
        patch.setattr('rope_dense.project.own.backbones.WORDS', words)
        patch.setattr(hub, 'HfApi', FolderHub)
        patch.setattr(hub, 'hf_hub_download', FolderHub.download)
        patch.chdir(folder)
        write_data(folder)
        write_sources(folder)
        write_models(folder)
        assert command('train')(RUN) == 0
        yield folder


@pytest.fixture
def workplace(sources: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of the sources, the current folder of a test; large files are links."""
    shutil.copytree(
        sources, tmp_path / 'work', symlinks=True, copy_function=copy_or_link
    )
    monkeypatch.chdir(tmp_path / 'work')
    return tmp_path / 'work'


def copy_or_link(source: str, target: str) -> None:
    """Copy a file; link weights, which commands only read or replace."""
    is_large = os.path.getsize(source) > 2**20
    (os.link if is_large else shutil.copyfile)(source, target)


def write_data(folder: Path) -> None:
    """Generated data of all layouts, named as the tables of the test name them."""
    write_shapes(folder / 'shapes', ShapesSettings(train=4, val=4, size=(64, 96)))
    write_shapes(folder / 'scenes', ShapesSettings(train=2, val=2, size=(128, 160)))
    for name, layout in (('rooms', 'depth'), ('fields', 'warm'), ('harbour', 'dota')):
        small = ShapesSettings(train=4, val=2, size=(96, 128), layouts=(layout,))
        write_shapes(folder / name, small)
    truth = json.loads(
        (folder / 'shapes/coco/annotations/instances_val2017.json').read_text()
    )
    truth['images'] = [
        dict(id=7 + i, file_name=f'{i}.png', height=64, width=96) for i in (0, 1)
    ]
    (folder / 'instances.json').write_text(json.dumps(truth))
    for name in ('configs', 'docs'):
        (folder / name).symlink_to(CONFIGS.with_name(name))


def write_models(folder: Path) -> None:
    """Published weights of a detector, weights of backbones, a small config, heads of two tasks."""
    write_detector(folder / 'hub/Intellindust/DEIMv2_DINOv3_S_COCO/model.safetensors')
    torch.save(vit(), folder / 'vit.pth')
    torch.save(RoPEViT('small_test').state_dict(), folder / 'small_test.pth')
    cfg = Config.fromfile(
        small_config('upernet_vit_rope_mixed', folder / 'shapes', folder)
    )
    heads = {}
    for name in ('classes', 'depth'):
        cfg.model = shared_backbone.ALL[name]()['model']
        heads[name] = cfg._cfg_dict.to_dict()
    model = dict(_delete_=True, type='SharedBackbone', features=True)
    model['tasks'] = shared_backbone.save(folder, **heads)
    (folder / 'street.py').write_text(f"_base_ = './classes.py'\nmodel = {model!r}\n")


def write_sources(folder: Path) -> None:
    """A picture and its labels for each converter."""
    pixels = np.random.default_rng(0).integers(0, 256, (64, 96, 3), np.uint8)
    for place in ('data/images/train', 'data/train', 'VOC/JPEGImages', 'pictures'):
        (folder / place).mkdir(parents=True)
        for index in range(2):
            Image.fromarray(pixels).save(folder / place / f'{index}.png')
    for name in ('city.tif', 'harbour.png'):
        Image.fromarray(np.tile(pixels, (2, 2, 1))).save(folder / name)
    (folder / 'street.jpg').write_bytes((folder / 'pictures' / '0.png').read_bytes())
    video = cv2.VideoWriter(
        str(folder / 'drive.mp4'), cv2.VideoWriter.fourcc(*'mp4v'), 5, (96, 64)
    )
    for _ in range(2):
        video.write(pixels)
    video.release()
    for name in ('data/labels/train', 'VOC/Annotations', 'labels', 'colour_masks'):
        (folder / name).mkdir(parents=True)
    (folder / 'VOC/ImageSets/Main').mkdir(parents=True)
    (folder / 'VOC/ImageSets/Main/test.txt').write_text('1\n')
    (folder / 'data/classes.txt').write_text('cat #ff0000\n')
    corners = dict(xmin=10, ymin=10, xmax=40, ymax=30)
    inner = ''.join(f'<{name}>{value}</{name}>' for name, value in corners.items())
    voc = f'<annotation><object><name>cat</name><bndbox>{inner}</bndbox></object></annotation>'
    outline = dict(
        label='cat', points=[[10, 10], [40, 10], [40, 30]], shape_type='polygon'
    )
    for index in range(2):
        (folder / f'data/labels/train/{index}.txt').write_text('0 0.5 0.5 0.25 0.25\n')
        (folder / f'VOC/Annotations/{index}.xml').write_text(voc)
        (folder / f'labels/{index}.json').write_text(json.dumps(dict(shapes=[outline])))
    Image.new('RGB', (96, 64), (255, 0, 0)).save(folder / 'colour_masks/0.png')
    (folder / 'annotations.xml').write_text(
        '<annotations><image name="0.png" width="96" height="64">'
        '<box label="cat" xtl="10" ytl="10" xbr="40" ybr="30"/></image></annotations>'
    )
    old = dict(
        images=[dict(id=1, file_name='0.png')],
        annotations=[dict(id=1, image_id=1, category_id=1, bbox=[10, 10, 30, 20])],
        categories=[dict(id=1, name='cat')],
    )
    (folder / 'old.json').write_text(json.dumps(old))


def write_detector(file: Path) -> None:
    """Random weights of DEIMv2-S as its authors publish theirs."""
    model = Config.fromfile(CONFIGS / 'deim/deimv2-s_vit-t_4xb8-488k_coco.py').model
    model.backbone.init_cfg = None
    with DefaultScope.overwrite_default_scope('mmdet'):
        weights = MODELS.build(model).state_dict()
    file.parent.mkdir(parents=True)
    save_file(
        {k: w.contiguous() for k, w in to_published(weights, 'deimv2').items()}, file
    )


class FolderHub:
    """The calls of huggingface_hub that the tools use, in a folder."""

    root = Path('hub')

    def create_repo(self, name: str, **settings: object) -> None:
        (self.root / name).mkdir(parents=True)

    def upload_folder(self, *, repo_id: str, folder_path: str) -> str:
        shutil.copytree(folder_path, self.root / repo_id, dirs_exist_ok=True)
        return repo_id

    @classmethod
    def download(cls, name: str, file: str, **settings: object) -> str:
        from huggingface_hub.utils import LocalEntryNotFoundError

        if not (cls.root / name / file).is_file():
            raise LocalEntryNotFoundError(file)
        return str(cls.root / name / file)
