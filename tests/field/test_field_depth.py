"""Depth maps as people have them: folders, names, maps without a known depth, and macOS's files."""

from __future__ import annotations

from pathlib import Path

import cv2
import numpy as np
import pytest
from mmengine.config import Config
from mmengine.registry import DATASETS, DefaultScope

from helpers.field import SIZE, image, write
from helpers.grid import CONFIGS
from rope_dense.data.depth_maps import read_depth
from rope_dense.data.labels.inventory import Inventory
from rope_dense.data.labels.maps import DEPTH, MapFolder, find_maps
from rope_dense.data.labels.splits import BY_HASH
from rope_dense.data.map_datasets import LoadDepth
from rope_dense.project.load import load_config
from rope_dense.utils.errors import UsageError

pytestmark = pytest.mark.usefixtures('surroundings')


def depth_map(path: Path, millimetres: int = 1500) -> Path:
    """A depth map of one number, a PNG of 16 bits or an array."""
    path.parent.mkdir(parents=True, exist_ok=True)
    values = np.full(SIZE, millimetres, np.uint16)
    np.save(path, values) if path.suffix == '.npy' else cv2.imwrite(str(path), values)
    return path


def found(root: Path, **given: list[str]) -> MapFolder:
    return find_maps(Inventory(root), DEPTH, given)


def test_without_a_split_and_with_hidden_files(tmp_path: Path) -> None:
    """B10: '._a.png' was read as a depth map."""
    for number in range(10):
        image(tmp_path / f'images/{number}.jpg')
        depth_map(tmp_path / f'depth/{number}.png')
    write(tmp_path / 'images/._0.jpg', 'x')
    write(tmp_path / 'depth/._0.png', 'x')
    folder = found(tmp_path)
    assert folder.split_by == BY_HASH
    assert sum(len(part.files.pairs) for part in folder.splits.values()) == 10
    for name in ('7', '8'):
        (tmp_path / f'depth/{name}.png').unlink()
    with pytest.raises(
        ValueError, match=r'images of .* have no depth map .*: 7\.jpg, 8\.'
    ):
        found(tmp_path)


def test_folders_that_are_not_known_are_said(tmp_path: Path) -> None:
    image(tmp_path / 'photos/a.jpg')
    depth_map(tmp_path / 'ranges/a.png')
    with pytest.raises(
        ValueError, match=r'photos: 1 \.jpg; ranges: 1 \.png\. .*IMAGES,DEPTH\]"'
    ):
        found(tmp_path)
    folders = ['photos', 'ranges']
    assert (
        len(found(tmp_path, train=folders, val=folders).splits['val'].files.pairs) == 1
    )


def recipe(root: Path, *options: str) -> Config:
    given = [f'own.data_root={root}', 'own.weights=None', 'own.size=64', *options]
    return load_config(str(CONFIGS / 'own' / 'depth.py'), given)


@pytest.mark.parametrize('bits', [8, 16])
def test_maps_without_a_known_depth_end_in_a_line(tmp_path: Path, bits: int) -> None:
    """B3: "need at least one array to concatenate"; and 8 bits were a wrong unit."""
    for split in ('train', 'val'):
        image(tmp_path / f'images/{split}/a.jpg')
        depth_map(tmp_path / f'depth/{split}/a.png', 0)
        if bits == 8:
            image(tmp_path / f'depth/{split}/a.png', mode='L')
    said = (
        '8 bits, which are too few' if bits == 8 else 'no known depth: all its numbers'
    )
    with pytest.raises(UsageError, match=rf'depth/train/a\.png has {said}'):
        recipe(tmp_path)


def test_a_data_set_without_a_split_is_trained_and_evaluated_apart(
    tmp_path: Path,
) -> None:
    for number in range(10):
        image(tmp_path / f'rgb/{number}.jpg')
        depth_map(tmp_path / f'depth/{number}.npy')
    cfg = recipe(tmp_path)
    files = []
    with DefaultScope.overwrite_default_scope('mmseg'):
        for name in ('train', 'val'):
            built = DATASETS.build(cfg[f'{name}_dataloader'].dataset)
            files += [
                built.get_data_info(index)['img_path'] for index in range(len(built))
            ]
    assert len({*files}) == len(files) == 10
    assert 'median 1.5 m' in cfg.own_data


def test_suffixes_in_capitals(tmp_path: Path) -> None:
    path = depth_map(tmp_path / 'a.npy').rename(tmp_path / 'a.NPY')
    loaded = LoadDepth(0.001)(dict(depth_map_path=str(path), seg_fields=[]))
    assert loaded['gt_depth_map'].max() == pytest.approx(1.5)


@pytest.mark.parametrize('name', ['a.png', 'a.npy'])
@pytest.mark.parametrize('content', [b'', b'text'])
def test_files_that_are_no_maps_are_named(
    tmp_path: Path, name: str, content: bytes
) -> None:
    path = write(tmp_path / name, content)
    with pytest.raises(ValueError, match=rf'{name}:? .*(cannot be read|one channel)'):
        read_depth(path)
