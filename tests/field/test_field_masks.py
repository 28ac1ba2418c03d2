"""Folders and names of images and their masks, as tools and data sets have them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from mmengine.config import Config
from mmengine.dataset import BaseDataset
from mmengine.registry import DATASETS, DefaultScope

from helpers.field import SIZE, image, mask, write
from helpers.grid import CONFIGS
from rope_dense.data.classes import find_class_numbers
from rope_dense.data.labels.inventory import Inventory
from rope_dense.data.labels.maps import DEPTH, MASKS, MapFolder, find_maps, report_text
from rope_dense.data.labels.objects import Report
from rope_dense.data.labels.places import FileKind
from rope_dense.data.labels.splits import BY_HASH, is_for_validation
from rope_dense.project.checks.data import check_data
from rope_dense.project.load import load_config
from rope_dense.utils.errors import UsageError

pytestmark = pytest.mark.usefixtures('surroundings')

LABELS = np.zeros(SIZE, np.uint8)


def files(root: Path, *names: str) -> Path:
    """Write images, masks (png, tif, bmp or gif) and texts of these names."""
    for name in names:
        path = root / name
        if path.suffix in ('.txt', '.json', '.csv', '.xml'):
            write(path, '')
        elif path.suffix in ('.png', '.tif', '.bmp', '.gif'):
            mask(path, LABELS)
        elif path.suffix == '.npy':
            path.parent.mkdir(parents=True, exist_ok=True)
            np.save(path, LABELS)
        else:
            image(path)
    return root


def pairs_of(root: Path, folder: MapFolder) -> dict[str, list]:
    """The pairs of each split as names below the folder."""
    return {
        split: sorted(
            (str(image.relative_to(root)), str(file.relative_to(root)))
            for file, image in part.files.pairs.items()
        )
        for split, part in folder.splits.items()
    }


def found(root: Path, kind: FileKind = MASKS, **given: list[str] | None) -> MapFolder:
    return find_maps(Inventory(root), kind, given)


def text_of(root: Path, kind: FileKind = MASKS) -> str:
    inventory = Inventory(root)
    return report_text(find_maps(inventory, kind), inventory, Report())


# (image, mask) of the training image; the validation image has 'val' for 'train'.
LAYOUTS = {
    'ADE20K': ('images/training/a.jpg', 'annotations/training/a.png', 'validation'),
    'masks': ('images/train/a.jpg', 'masks/train/a.png', 'val'),
    'labels, tif': ('images/train/a.jpg', 'labels/train/a.tif', 'valid'),
    'split first': ('train/images/a.jpg', 'train/masks/a.png', 'test'),
    'in capitals': ('Images/Train/a.JPG', 'Masks/Train/a.png', 'Val'),
    'train_images': ('train_images/a.jpg', 'train_masks/a.png', 'val'),
    'Carvana': ('train/a.jpg', 'train_masks/a_mask.gif', 'val'),
    'CamVid of SegNet': ('train/a.png', 'trainannot/a.png', 'val'),
    'CamVid': ('train/a.png', 'train_labels/a_L.png', 'val'),
    'Cityscapes': (
        'leftImg8bit/train/aachen/a_leftImg8bit.png',
        'gtFine/train/aachen/a_gtFine_labelTrainIds.png',
        'val',
    ),
    'Roboflow': ('train/a_jpg.rf.0c1.jpg', 'train/a_jpg.rf.0c1_mask.png', 'valid'),
    'DeepGlobe': ('train/1_sat.jpg', 'train/1_mask.png', 'valid'),
    'png beside jpg': ('train/a.jpg', 'train/a.png', 'val'),
    'name_mask of png': ('train/images/a.png', 'train/masks/a_mask.png', 'val'),
    'name.mask': ('images/train/a.jpg', 'masks/train/a.mask.png', 'val'),
    'name_seg': ('images/train/a.jpg', 'masks/train/a_seg.png', 'val'),
    'name_label': ('images/train/a_image.jpg', 'masks/train/a_label.png', 'val'),
    'ISIC': ('train/images/a.jpg', 'train/masks/a_segmentation.png', 'val'),
    'CamVid of fastai': ('train/images/a.png', 'train/labels/a_P.png', 'valid'),
    'word before': ('train/images/image_7.jpg', 'train/masks/mask_7.png', 'val'),
    'word before, in one folder': ('train/img-7.png', 'train/mask-7.png', 'val'),
    'a word of masks in the image': (
        'images/train/a_mask.jpg',
        'masks/train/a_mask.png',
        'val',
    ),
    'Oxford-IIIT Pet': (
        'train/images/a.jpg',
        'train/annotations/trimaps/a.png',
        'test',
    ),
    'KITTI': ('training/image_2/a_10.png', 'training/semantic/a_10.png', 'val'),
    'suffix of the image and a word': (
        'img/train/a.jpg',
        'masks/train/a.jpg_mask.png',
        'val',
    ),
    'suffix of the image': ('img/train/a.jpg', 'masks/train/a.jpg.png', 'val'),
    'mmsegmentation': ('img_dir/train/a.jpg', 'ann_dir/train/a.png', 'val'),
    'dots': ('images/train/a.v1.0.jpg', 'masks/train/a.v1.0.png', 'val'),
    'masks below the images': ('train/a.png', 'train/mask/a.png', 'val'),
    'masks in one folder': ('images/train/a.jpg', 'masks/a.png', 'val'),
    'letters decomposed by macOS': (
        'images/train/\xe9.jpg',
        'masks/train/e\u0301.png',
        'val',
    ),
    'another case': ('images/train/IMG_1.jpg', 'masks/train/img_1.png', 'val'),
    'masks without folders': ('images/train/x/a.jpg', 'masks/train/a.png', 'val'),
}


DEPTH_LAYOUTS = {
    'depth': ('images/train/a.jpg', 'depth/train/a.png', 'val'),
    'depth, split first': ('train/rgb/a.png', 'train/depth/a.png', 'test'),
    'arrays of depth': ('images/train/a.jpg', 'depth/train/a.npy', 'val'),
    'name_depth': ('train/images/a.png', 'train/depth/a_depth.png', 'valid'),
    'DIODE': ('train/x/a.png', 'train/x/a_depth.npy', 'val'),
    'depth in one folder': ('train/a_rgb.png', 'train/a_depth.png', 'val'),
    'arrays beside images': ('train/a.png', 'train/a.npy', 'val'),
}


@pytest.mark.parametrize('layout', [*LAYOUTS, *DEPTH_LAYOUTS])
def test_common_folders_and_names_are_found(tmp_path: Path, layout: str) -> None:
    """Folders and names by label tools and the data sets of the issue's section 4."""
    kind = DEPTH if layout in DEPTH_LAYOUTS else MASKS
    *names, word = (LAYOUTS | DEPTH_LAYOUTS)[layout]
    old = next(one for one in ('training', 'train', 'Train') if one in names[0])
    other = 'b' if names[1] == 'masks/a.png' else 'a'
    val = [name.replace(old, word).replace('/a.', f'/{other}.') for name in names]
    files(tmp_path, *names, *val)
    folder = found(tmp_path, kind)
    assert pairs_of(tmp_path, folder) == {'train': [tuple(names)], 'val': [tuple(val)]}
    title = kind.what.split(maxsplit=1)[1]
    assert text_of(tmp_path, kind).startswith(
        f'{title}s, 1 training and 1 validation images, by folder'
    )


FLAT = {
    'images and masks': ('images/{}.jpg', 'masks/{}.png'),
    'img and mask': ('img/{}.png', 'mask/{}_mask.png'),
    'one folder': ('{}.jpg', '{}_mask.png'),
    'one folder of images': ('images/{}.png', 'images/{}_mask.png'),
    'masks below the images': ('{}.png', 'masks/{}.png'),
    'labelme2voc': ('JPEGImages/{}.jpg', 'SegmentationClassPNG/{}.png'),
    'train only': ('images/train/{}.jpg', 'masks/train/{}.png'),
}


@pytest.mark.parametrize('layout', FLAT)
def test_without_a_split_a_hash_decides_as_it_does_for_boxes(
    tmp_path: Path, layout: str
) -> None:
    names = [f'n{number}' for number in range(12)]
    files(tmp_path, *(form.format(name) for form in FLAT[layout] for name in names))
    folder = found(tmp_path)
    pairs = pairs_of(tmp_path, folder)
    of = {split: {Path(picture).stem for picture, _ in pairs[split]} for split in pairs}
    assert folder.split_by == BY_HASH and of['train'] | of['val'] == {*names}
    stems = {Path(form).stem for form in FLAT[layout]}
    assert of['val'] == {name for name in names if is_for_validation(name)}, stems
    assert text_of(tmp_path).startswith(
        f'masks, {len(of["train"])} training and {len(of["val"])} validation images, by a hash'
    )


def test_voc_lists_say_which_image_is_in_which_split(tmp_path: Path) -> None:
    """VOC has masks for a part of its images only; a list may name paths and masks, too."""
    files(tmp_path, *(f'JPEGImages/{n}.jpg' for n in ('a', 'b c', 'd', 'e', 'f')))
    files(tmp_path, *(f'SegmentationClass/{n}.png' for n in ('a', 'b c', 'd')))
    write(tmp_path / 'ImageSets/Segmentation/train.txt', 'a\nb c\n')
    write(
        tmp_path / 'ImageSets/Segmentation/val.txt',
        'JPEGImages/d.jpg SegmentationClass/d.png\n',
    )
    folder = found(tmp_path)
    pairs = pairs_of(tmp_path, folder)
    assert [Path(p).stem for p, _ in pairs['train']] == ['a', 'b c']
    assert [Path(p).stem for p, _ in pairs['val']] == ['d']
    assert folder.split_by.endswith('(train.txt, val.txt)')
    write(tmp_path / 'ImageSets/Segmentation/train.txt', 'a\nx\n')
    with pytest.raises(ValueError, match=r'1 of 2 images of .* have no mask .*: x\. '):
        found(tmp_path)


REFUSED = {
    'YOLO labels': (
        'images/train/a.jpg labels/train/a.txt',
        r'no images with masks\. Looked for .*there are images/train: 1 \.jpg; '
        r'labels/train: 1 \.txt\. name them by "own\.train=\[IMAGES,MASKS\]"',
    ),
    'jpeg masks': (
        'images/train/a.jpg masks/train/a.jpg',
        r'masks are \.jpg, .*as PNG',
    ),
    'webp masks': (
        'train/images/a.jpg train/masks/a.webp',
        r'masks are \.webp, .*as PNG',
    ),
    'arrays': ('images/a.jpg masks/a.npy', r'masks are \.npy, .*as PNG'),
    'Cityscapes without train ids': (
        'leftImg8bit/train/x/a_leftImg8bit.png gtFine/train/x/a_gtFine_labelIds.png '
        'gtFine/train/x/a_gtFine_color.png gtFine/train/x/a_gtFine_polygons.json',
        r'only files that end with _gtFine_color, _gtFine_labelIds\. .*_labelTrainIds\.png',
    ),
    'two folders of masks': (
        'images/train/a.jpg masks/train/a.png annotations/train/a.png',
        r'annotations/train and .*/masks/train have files of the same images, such as a\.jpg',
    ),
    'two masks': (
        'images/train/a.jpg masks/train/a_mask.png masks/train/a_seg.png',
        r'a_mask\.png and .*a_seg\.png: which images are labelled there\? Both may be of .*/a',
    ),
    'equal names in folders': (
        'images/train/x/a.jpg images/train/y/a.jpg masks/train/a.png',
        r'masks/train/a\.png: which images are labelled there, of x/a, y/a',
    ),
    'only one image': (
        'images/a.jpg masks/a.png',
        r'1 labelled image, so none for validation',
    ),
    'validation images without masks': (
        'images/train/a.jpg masks/train/a.png images/val/b.jpg',
        r'images/val has images, but no masks as .*masks/train has',
    ),
    'split first, without masks': (
        'train/images/a.jpg train/masks/a.png valid/images/b.jpg',
        r'valid has images, but no masks as ',
    ),
    'a list without another': (
        'images/a.jpg masks/a.png val.txt',
        r'has val\.txt, but no list of training images',
    ),
}


@pytest.mark.parametrize('case', REFUSED)
def test_what_is_not_recognised_is_said(tmp_path: Path, case: str) -> None:
    names, message = REFUSED[case]
    files(tmp_path, *names.split())
    with pytest.raises(ValueError, match=message) as error:
        found(tmp_path)
    assert '\n' not in str(error.value)


def test_folders_of_other_names_are_given(tmp_path: Path) -> None:
    files(
        tmp_path, 'photos/a.jpg', 'truth/a.png', 'images/val/b.jpg', 'masks/val/b.png'
    )
    folder = found(tmp_path, train=['photos', 'truth'], val=None)
    assert pairs_of(tmp_path, folder)['train'] == [('photos/a.jpg', 'truth/a.png')]
    with pytest.raises(
        ValueError, match=r'no folders of images and masks of train; looked for x'
    ):
        found(tmp_path, train=['x', 'truth'])
    image(tmp_path / 'lossy/a.jpg')
    with pytest.raises(ValueError, match=r'lossy: masks are \.jpg, which is not read'):
        found(tmp_path, train=['photos', 'lossy'], val=None)


def test_what_has_no_counterpart_is_counted_and_weighed(tmp_path: Path) -> None:
    """B26 for two images of one name; B10 for macOS's files."""
    names = [f'{number:02}' for number in range(19)]
    files(tmp_path, *(f'images/{name}.jpg' for name in [*names, 'x']))
    files(tmp_path, *(f'masks/{name}.png' for name in [*names, 'y']), 'images/00.bmp')
    write(tmp_path / 'images/._00.jpg', b'x')
    write(tmp_path / 'masks/._00.png', b'x')
    folder = found(tmp_path)
    images = [
        image for part in folder.splits.values() for image in part.files.pairs.values()
    ]
    assert len(images) == 19 and all(
        image.suffix in ('.jpg', '.bmp') for image in images
    )
    assert text_of(tmp_path).splitlines()[1:] == [
        '1 x two images of one name (the first is taken): 00.bmp and 00.jpg',
        '1 x image without a mask (left out): x.jpg',
        '1 x mask without an image (left out): y.png',
    ]
    for name in ('v', 'w'):
        image(tmp_path / f'images/{name}.jpg')
    with pytest.raises(
        ValueError, match=r'images of .* have no mask .*: v\.jpg, w\.jpg, x\.jpg\. L'
    ):
        found(tmp_path)


def test_roboflow_says_classes_and_their_numbers(tmp_path: Path) -> None:
    write(
        tmp_path / 'train/_classes.csv',
        '\ufeffPixel Value, Class\r\n0, background\r\n4, cat\r\n',
    )
    assert find_class_numbers(tmp_path) == (('background', 'cat'), [0, 4])
    write(
        tmp_path / 'valid/_classes.csv', 'Pixel Value, Class\n0, background\n1, cat\n'
    )
    with pytest.raises(
        ValueError, match=r'train/_classes\.csv and .*valid/_classes\.csv differ'
    ):
        find_class_numbers(tmp_path)
    write(tmp_path / 'train/_classes.csv', 'filename, cat\na.jpg, 1\n')
    with pytest.raises(ValueError, match='its first line is not "Pixel Value, Class"'):
        find_class_numbers(tmp_path)
    write(tmp_path / 'train/_classes.csv', '')
    with pytest.raises(ValueError, match='its first line is not "Pixel Value, Class"'):
        find_class_numbers(tmp_path)
    write(tmp_path / 'train/_classes.csv', 'Pixel Value, Class\nzero, background\n')
    with pytest.raises(ValueError, match=r'_classes\.csv, .*zero'):
        find_class_numbers(tmp_path)


def recipe(root: Path, *options: str) -> Config:
    given = [f'own.data_root={root}', 'own.weights=None', 'own.size=64', *options]
    return load_config(str(CONFIGS / 'own' / 'semantic.py'), given)


def test_an_export_of_roboflow_needs_no_setting(tmp_path: Path) -> None:
    """Images of 8 bits and masks of 16 in one folder; classes and numbers from its table."""
    for split in ('train', 'valid'):
        files(tmp_path, f'{split}/a.jpg')
        mask(
            tmp_path / split / 'a_mask.png', np.resize([0, 300], SIZE).astype(np.uint16)
        )
        write(
            tmp_path / split / '_classes.csv',
            'Pixel Value, Class\n0, background\n300, cat\n',
        )
    cfg = recipe(tmp_path)
    assert cfg.own_data.splitlines() == [
        'masks, 1 training and 1 validation images, by folder (train with train)'
    ]
    check_data(cfg, ('train_dataloader', 'val_dataloader'))
    dataset = built(cfg, 'train')
    assert dataset.metainfo['classes'] == ('background', 'cat')
    assert dataset[0]['data_samples'].gt_sem_seg.data.unique().tolist() == [0, 1]


def test_one_setting_reads_masks_of_0_and_255(tmp_path: Path) -> None:
    """F16, from the settings to the labels; and own.train for both splits is said (F8)."""
    for number in range(8):
        files(tmp_path, f'images/{number}.png')
        mask(
            tmp_path / f'masks/{number}.png', np.resize([0, 255], SIZE).astype(np.uint8)
        )
    write(tmp_path / 'classes.txt', '\ufeffbackground\r\nroad #804080\r\n')  # B7
    with pytest.raises(
        UsageError, match=r'own\.values=\[0,255\] reads them as background and ro'
    ):
        check_data(recipe(tmp_path), ('train_dataloader',))
    folders = '[images,masks]'
    options = ['own.values=[0,255]', f'own.train={folders}', f'own.val={folders}']
    cfg = recipe(tmp_path, *options)
    assert (
        '8 x validation image that is a training image, too: 0.png, 1.png'
        in cfg.own_data
    )
    check_data(cfg, ('train_dataloader', 'val_dataloader'))
    for split in ('train', 'val'):
        assert built(cfg, split)[0][
            'data_samples'
        ].gt_sem_seg.data.unique().tolist() == [0, 1]


def built(cfg: Config, split: str) -> BaseDataset:
    with DefaultScope.overwrite_default_scope('mmseg'):
        return DATASETS.build(cfg[f'{split}_dataloader'].dataset)


def test_masks_of_another_folder_are_named(tmp_path: Path) -> None:
    for name in 'abcdefgh':
        image(tmp_path / f'images/camB/{name}.jpg')
        mask(tmp_path / f'masks/camA/{name}.png', np.zeros(SIZE, np.uint8))
    line = '8 x mask in another folder than its image (taken by its name)'
    assert line in text_of(tmp_path)


@pytest.mark.parametrize(
    'name, text',
    [
        ('class_names.txt', '_background_\nroad\n'),  # labelme2voc
        (
            'labelmap.txt',
            '# label:color_rgb:parts:actions\n_background_:0,0,0::\nroad:128,64,128::\n',
        ),
    ],
)
def test_names_of_classes_as_tools_write_them(
    tmp_path: Path, name: str, text: str
) -> None:
    for number in range(8):
        files(tmp_path, f'images/{number}.png')
        mask(tmp_path / f'masks/{number}.png', np.resize([0, 1], SIZE).astype(np.uint8))
    write(tmp_path / name, text)
    dataset = built(recipe(tmp_path), 'train')
    assert dataset.metainfo['classes'] == ('_background_', 'road')
