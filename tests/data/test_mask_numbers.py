"""Masks that are written with the numbers of the data set: what is read from them is the same."""

from pathlib import Path

import cv2
import numpy as np
import pytest
from mmengine.config import Config
from mmengine.registry import TRANSFORMS, init_default_scope
from mmseg.datasets import ADE20KDataset
from PIL import Image

from rope_dense.data.map_datasets import ImageMaskDataset
from rope_dense.data.mask_colours import write_labels
from rope_dense.data.mask_labels import (
    class_numbers,
    label_map,
    read_labels,
    stored_numbers,
)
from rope_dense.project.model import mask_numbers

COLOURS = [(200, 10, 10), (10, 200, 10), (10, 10, 200)]
LABELS = np.array([[0, 1, 2], [2, 255, 0]], np.uint8)


@pytest.mark.parametrize(
    'values, void, stored',
    [
        (None, (), [0, 1, 2, 255]),
        (None, (0,), [1, 2, 3, 255]),
        (None, (1, 2), [0, 3, 4, 255]),
        ((7, 0, 255), (9,), [7, 0, 255, 9]),
        ((7, 0, 255), (), [7, 0, 255, 1]),
        ((300, 20, 65535), (), [300, 20, 65535, 255]),
    ],
)
def test_masks_of_own_data_are_read_as_they_were_written(
    values: tuple[int, ...] | None,
    void: tuple[int, ...],
    stored: list[int],
    tmp_path: Path,
) -> None:
    known = label_map('abc', values, void)
    numbers = stored_numbers([*class_numbers('abc', values, void)], void)
    assert numbers[[0, 1, 2, 255]].tolist() == stored
    path = tmp_path / 'a.png'
    write_labels(LABELS.astype(np.int64), path, COLOURS, numbers)
    with Image.open(path) as image:
        pixels = np.asarray(image)
        np.testing.assert_array_equal(pixels, numbers[LABELS])
        if max(stored) < 256:
            shown = np.asarray(image.convert('RGB'))[LABELS < 255]
            np.testing.assert_array_equal(
                shown, np.array(COLOURS)[LABELS[LABELS < 255]]
            )
    if stored[3] == 1:  # no number says that a pixel is ignored
        with pytest.raises(ValueError, match=r'a\.png has 1'):
            read_labels(path, known)
    else:
        np.testing.assert_array_equal(read_labels(path, known), LABELS)


@pytest.mark.parametrize('value', [-1, 2**16])
def test_numbers_that_no_png_has(value: int) -> None:
    with pytest.raises(
        ValueError, match=rf'own\.values=\[0, {value}\]: .*PNGs, of 0 to 65535'
    ):
        stored_numbers((0, value))


ADE = ADE20KDataset.METAINFO['classes']


def config_of(**dataset: object) -> Config:
    inner = dict(dataset, type='TiledDataset', kind=dataset['type'])
    return Config(dict(default_scope='mmseg', test_dataloader=dict(dataset=inner)))


@pytest.mark.parametrize(
    'dataset, labels, numbers',
    [
        (dict(type='ADE20KDataset'), [0, 149, 255], [1, 150, 255]),
        (dict(type='ADE20KDataset', reduce_zero_label=False), [0, 149], [0, 149]),
        (
            dict(type='ADE20KDataset', metainfo=dict(classes=(ADE[7], ADE[2]))),
            [0, 1, 255],
            [8, 3, 255],
        ),
        (dict(type='CityscapesDataset'), [0, 18], [0, 18]),
        (
            dict(type='BaseSegDataset', metainfo=dict(classes=('a', 'b'))),
            [0, 1],
            [0, 1],
        ),
        (
            dict(
                type=ImageMaskDataset.__name__,
                void=[0],
                metainfo=dict(classes=('a', 'b')),
            ),
            [0, 1, 255],
            [1, 2, 255],
        ),
        (
            dict(type='ImageMaskDataset', metainfo=dict(classes=('a', 'b'))),
            [0, 1],
            [0, 1],
        ),
        (dict(type='CocoDataset'), [], None),
        (dict(type='of another package'), [], None),
    ],
    ids=str,
)
def test_numbers_by_the_data_set_of_a_config(
    dataset: dict, labels: list[int], numbers: list[int] | None, tmp_path: Path
) -> None:
    """The files of the data set need not be there; mmseg reads the numbers as these labels."""
    found = mask_numbers(config_of(**dataset))
    if found is None or numbers is None:
        assert found is numbers
        return
    assert found[labels].tolist() == numbers
    if not dataset['type'].startswith('ADE'):
        return
    init_default_scope('mmseg')
    cv2.imwrite(str(tmp_path / 'a.png'), found[[labels]].astype(np.uint8))
    settings = {name: value for name, value in dataset.items() if name != 'type'}
    kind = ADE20KDataset(**settings, lazy_init=True)
    load = TRANSFORMS.build(dict(type='mmseg.LoadAnnotations'))
    about = dict(
        label_map=kind.label_map,
        reduce_zero_label=kind.reduce_zero_label,
        seg_fields=[],
    )
    loaded = load(dict(about, seg_map_path=str(tmp_path / 'a.png')))
    assert loaded['gt_seg_map'].tolist() == labels  # mmseg squeezes
