"""Labels of folders of classes, and the crop that classifiers see."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from research.image_folder import ClassFolderDataset, ResizeCentreCrop, TopKAccuracy

INDEX = {'0': ['n03', 'fish'], '1': ['n01', 'dog'], '2': ['n02', 'cat']}


def make_folder(root: Path, **classes: list[str]) -> Path:
    for name, files in classes.items():
        (root / name).mkdir(parents=True)
        for file in files:
            (root / name / file).parent.mkdir(exist_ok=True)
            (root / name / file).touch()
    return root


def labels_of(dataset: ClassFolderDataset) -> dict[str, list[int]]:
    """From the names of the images, all different, to their labels."""
    items = (dataset.get_data_info(index) for index in range(len(dataset)))
    return {Path(item['img_path']).name: item['labels'] for item in items}


def test_sorted_folders_are_the_classes(tmp_path: Path) -> None:
    root = make_folder(
        tmp_path, n02=['b.JPEG', 'more/c.png'], n01=['a.jpg', 'notes.txt']
    )
    (root / 'README.txt').touch()
    dataset = ClassFolderDataset(str(root))
    assert labels_of(dataset) == {'a.jpg': [0], 'b.JPEG': [1], 'c.png': [1]}
    assert dataset.metainfo == dict(
        classes=('n01', 'n02'), class_indices=(0, 1), is_indexed=False
    )


def test_numbered_folders_are_these_classes(tmp_path: Path) -> None:
    """ImageNet-V2: sorted as text, 10 would come before 2."""
    root = make_folder(tmp_path, **{'2': ['a.png'], '10': ['b.png'], '0': ['c.png']})
    dataset = ClassFolderDataset(str(root))
    assert labels_of(dataset) == {'a.png': [2], 'b.png': [10], 'c.png': [0]}
    assert dataset.metainfo['class_indices'] == (0, 2, 10)


def test_an_index_says_which_classes_folders_are(tmp_path: Path) -> None:
    (tmp_path / 'index.json').write_text(json.dumps(INDEX))
    (tmp_path / 'index.txt').write_text('n03 fish\nn01 dog\nn02 cat\n\n')
    make_folder(tmp_path / 'val', n01=[], n02=[], n03=[])
    root = make_folder(tmp_path / 'r', n02=['a.png'], n03=['b.png'])
    for index, expected in (
        ('index.json', [2, 0]),
        ('index.txt', [2, 0]),
        ('val', [1, 2]),
    ):
        found = labels_of(
            ClassFolderDataset(str(root), class_index=str(tmp_path / index))
        )
        assert [found['a.png'], found['b.png']] == [[label] for label in expected]


def test_real_labels_go_by_the_number_of_the_image(tmp_path: Path) -> None:
    names = [f'ILSVRC2012_val_{number:08d}.JPEG' for number in (1, 2, 4)]
    root = make_folder(tmp_path / 'val', n01=names[:2], n02=names[2:])
    real = tmp_path / 'real.json'
    real.write_text('[[3, 5], [], [1], [0]]')
    dataset = ClassFolderDataset(str(root), real_labels=str(real))
    assert labels_of(dataset) == {names[0]: [3, 5], names[2]: [0]}
    real.write_text('[[3], [], [1]]')
    with pytest.raises(
        ValueError, match=r'00000004.JPEG: the name does not end in a number from 1'
    ):
        ClassFolderDataset(str(root), real_labels=str(real))


def test_folders_without_images(tmp_path: Path) -> None:
    for root, message in (
        (
            make_folder(tmp_path / 'empty', n01=['a.txt']),
            'no .labelled. image in folders',
        ),
        (tmp_path / 'empty' / 'n01', 'contains no folder of a class'),
    ):
        with pytest.raises(ValueError, match=message):
            ClassFolderDataset(str(root))


@pytest.mark.parametrize(
    'size, side, ratio, resized, corner',
    [
        ((100, 150), 64, 1.0, (64, 96), (0, 16)),
        ((150, 100), 64, 1.0, (96, 64), (16, 0)),
        ((100, 101), 64, 1.0, (64, 64), (0, 0)),  # 64.64 is cut, not rounded
        ((300, 500), 224, 0.875, (256, 426), (16, 101)),  # Swin's 256 for 224
        (
            (300, 500),
            96,
            0.875,
            (109, 181),
            (6, 42),
        ),  # 109.7; 6.5 and 42.5 round to even
    ],
)
def test_crops_are_those_of_torchvision(
    size: tuple[int, int],
    side: int,
    ratio: float,
    resized: tuple[int, int],
    corner: tuple[int, int],
) -> None:
    """Sizes (height, width) and corners (top, left) by the rules of its Resize and CenterCrop."""
    image = np.random.default_rng(0).integers(0, 256, (*size, 3), np.uint8)
    crop = ResizeCentreCrop((side, side), ratio)(dict(img=image))['img']
    whole = Image.fromarray(image).resize(resized[::-1], Image.Resampling.BICUBIC)
    top, left = corner
    assert np.array_equal(crop, np.asarray(whole)[top : top + side, left : left + side])


def test_crops_that_are_not_allowed() -> None:
    with pytest.raises(ValueError, match='tested on squares, got 96x128'):
        ResizeCentreCrop((128, 96), 1.0)
    for ratio in (0.0, 1.1):
        with pytest.raises(ValueError, match='crop_ratio must be over 0 and up to 1'):
            ResizeCentreCrop((96, 96), ratio)


@pytest.mark.parametrize('subset, expected', [(False, (25, 75)), (True, (50, 75))])
def test_accuracy_counts_a_right_class_among_the_best(
    subset: bool, expected: tuple[float, float]
) -> None:
    metric = TopKAccuracy(topk=(1, 2), subset=subset)
    metric.dataset_meta = dict(class_indices=(0, 2, 3), is_indexed=True)
    scores = torch.tensor(
        [0.1, 0.9, 0.2, 0.0]
    )  # best 1, 2, 0, 3; of the subset 2, 0, 3
    samples = [
        dict(scores=scores, labels=torch.tensor(of)) for of in ([1], [2], [0], [0, 2])
    ]
    metric.process({}, samples)
    found = metric.compute_metrics(metric.results)
    assert (found['top1'], found['top2']) == expected
