"""The shapes data set against plain geometry, pycocotools, and the readers of mmdet and mmseg."""

import itertools
import json
import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import cv2
import numpy as np
import pytest
from mmdet.datasets import CocoDataset, CocoPanopticDataset
from mmengine.registry import init_default_scope
from mmseg.datasets import BaseSegDataset
from pycocotools.coco import COCO
from pycocotools.cocoeval import COCOeval

from rope_dense.data.generated import (
    METAINFO,
    SEGMENTATION_METAINFO,
    ShapesSettings,
    make_scene,
    render,
    shape_files,
    write_shapes,
)
from rope_dense.data.generated.shapes import COLORS, MIN_VISIBLE, DrawnShape, coverage
from rope_dense.utils.results import ForeignFileError
from rope_dense_command import command

LAYOUTS = 'coco', 'ade', 'panoptic'
SETTINGS = ShapesSettings(train=3, val=4, size=(96, 128), seed=5, layouts=LAYOUTS)
WIDTH_TO_HEIGHT = 128 / 96
ARM = 0.33  # half the width of a cross's arm, relative to the arm's length
# At outer radius 1.
GEOMETRY = {
    'circle': math.pi,
    'square': 2,
    'triangle': 3 * math.sqrt(3) / 4,
    'star': 5 * 0.45 * math.sin(math.pi / 5),
    'cross': (8 * ARM - 4 * ARM**2) / (1 + ARM**2),
    'ring': math.pi * (1 - 0.55**2),
}


@pytest.fixture(scope='module')
def shapes_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp('shapes') / 'set'
    assert write_shapes(out, SETTINGS)
    return out


@pytest.fixture(scope='module')
def make_shapes() -> Callable[[Sequence[str]], int]:
    return command('make_shapes')


def extents(mask: np.ndarray) -> list[int]:
    """[x, y, width, height] of the true pixels."""
    rows, columns = np.nonzero(mask.any(axis=1))[0], np.nonzero(mask.any(axis=0))[0]
    return [columns[0], rows[0], np.ptp(columns) + 1, np.ptp(rows) + 1]


@pytest.mark.parametrize('name', METAINFO['classes'])
def test_area_of_a_shape_is_that_of_geometry_at_any_angle(name: str) -> None:
    label = METAINFO['classes'].index(name)
    for angle in (0, 0.3, 2):
        shape = DrawnShape(
            label, x=0.5, y=0.5, radius=0.4, angle=angle, color=(1, 0, 0)
        )
        assert shape.area == pytest.approx(GEOMETRY[name], rel=5e-3)
        covered = coverage(shape, 100, 160)
        assert covered.sum() == pytest.approx(GEOMETRY[name] * 40**2, rel=0.02)


def test_a_circle_lies_where_the_scene_says() -> None:
    circle = DrawnShape(0, x=0.25, y=0.5, radius=0.2, angle=0, color=(1, 0, 0))
    mask = coverage(circle, 100, 200) >= 0.5
    np.testing.assert_allclose(extents(mask), [30, 30, 40, 40], atol=1)


def test_scene_depends_only_on_seed_split_and_index(
    tmp_path: Path, shapes_dir: Path
) -> None:
    keys = list(itertools.product((0, 1), ('train', 'val'), (0, 1)))
    scenes = [make_scene(*key) for key in keys]
    assert scenes == [make_scene(*key) for key in keys]
    assert all(a != b for a, b in itertools.combinations(scenes, 2))

    write_shapes(tmp_path / 'smaller', replace(SETTINGS, train=1, val=1))
    for file in (
        'coco/train2017/00000000.jpg',
        'ade/annotations/validation/00000000.png',
    ):
        assert (tmp_path / 'smaller' / file).read_bytes() == (
            shapes_dir / file
        ).read_bytes()


@pytest.mark.parametrize('height, width', [(160, 160), (80, 160), (160, 80)])
def test_every_shape_shows_and_no_pixel_has_two(height: int, width: int) -> None:
    labels = set()
    for index in range(40):
        scene = make_scene(3, 'train', index, aspect=width / height)
        _, masks = render(scene, height, width)
        full = [s.area * (s.radius * min(height, width)) ** 2 for s in scene.shapes]
        assert 1 <= len(scene.shapes) == len(masks)
        # The share was measured at another size, hence the margin.
        assert (masks.sum(axis=(1, 2)) > 0.9 * MIN_VISIBLE * np.array(full)).all()
        assert masks.sum(axis=0).max() == 1
        labels |= {shape.label for shape in scene.shapes}
    assert labels == set(range(6))


@pytest.mark.parametrize('index', range(6))
def test_same_picture_at_every_resolution(index: int) -> None:
    scene = make_scene(0, 'val', index, aspect=WIDTH_TO_HEIGHT)
    image, masks = render(scene, 96, 128)
    larger, larger_masks = render(scene, 192, 256)
    reduced = cv2.resize(larger, (128, 96), interpolation=cv2.INTER_AREA)
    assert np.abs(reduced.astype(int) - image).mean() < 2
    for mask, larger_mask in zip(masks, larger_masks, strict=True):
        np.testing.assert_allclose(
            2 * np.array(extents(mask)), extents(larger_mask), atol=3
        )


@pytest.mark.parametrize('colors', COLORS)
def test_colors_tell_the_class_or_not(colors: str) -> None:
    distances = []
    for index in range(30):
        for shape in make_scene(0, 'train', index, colors=colors).shapes:
            palette = np.array(METAINFO['palette']) / 255
            nearest = np.abs(palette - shape.color).sum(axis=1).argmin()
            distances.append(nearest == shape.label)
    assert (np.mean(distances) > 0.95) == (colors == 'class')
    assert np.mean(distances) > 0.05


@pytest.mark.parametrize('split, count', [('train', 3), ('val', 4)])
def test_coco_annotations_are_the_visible_parts(
    shapes_dir: Path, split: str, count: int
) -> None:
    coco = COCO(shapes_dir / 'coco' / 'annotations' / f'instances_{split}2017.json')
    assert len(coco.imgs) == count
    assert [coco.cats[i + 1]['name'] for i in range(6)] == list(METAINFO['classes'])
    for index in range(count):
        scene = make_scene(5, split, index, aspect=WIDTH_TO_HEIGHT)
        image, masks = render(scene, 96, 128)
        file = shapes_dir / 'coco' / f'{split}2017' / coco.imgs[index]['file_name']
        assert (
            np.abs(cv2.imread(str(file))[..., ::-1].astype(int) - image).mean() < 5
        )  # JPEG
        annotations = coco.loadAnns(coco.getAnnIds(index))
        for shape, mask, annotation in zip(
            scene.shapes, masks, annotations, strict=True
        ):
            np.testing.assert_array_equal(coco.annToMask(annotation), mask)
            assert annotation['bbox'] == extents(mask)
            assert annotation['area'] == mask.sum()
            assert annotation['category_id'] == shape.label + 1


@pytest.mark.parametrize('kind', ['bbox', 'segm'])
def test_annotations_as_predictions_score_one(shapes_dir: Path, kind: str) -> None:
    truth = COCO(shapes_dir / 'coco' / 'annotations' / 'instances_val2017.json')
    predictions = [dict(annotation, score=0.9) for annotation in truth.anns.values()]
    evaluation = COCOeval(truth, truth.loadRes(predictions), kind)
    evaluation.evaluate()
    evaluation.accumulate()
    evaluation.summarize()
    assert evaluation.stats[0] == pytest.approx(1)


def test_ade_labels_are_the_coco_masks(shapes_dir: Path) -> None:
    coco = COCO(shapes_dir / 'coco' / 'annotations' / 'instances_train2017.json')
    for index in range(3):
        name = f'{index:08d}'
        expected = np.ones((96, 128), int)
        for annotation in coco.loadAnns(coco.getAnnIds(index)):
            expected += annotation['category_id'] * coco.annToMask(annotation)
        labels = shapes_dir / 'ade' / 'annotations' / 'training' / f'{name}.png'
        np.testing.assert_array_equal(
            cv2.imread(str(labels), cv2.IMREAD_UNCHANGED), expected
        )
        image = shapes_dir / 'ade' / 'images' / 'training' / f'{name}.jpg'
        coco_image = shapes_dir / 'coco' / 'train2017' / f'{name}.jpg'
        assert image.read_bytes() == coco_image.read_bytes()


def test_mmdet_reads_boxes_and_masks(shapes_dir: Path) -> None:
    init_default_scope('mmdet')
    dataset = CocoDataset(
        data_root=str(shapes_dir / 'coco'),
        ann_file='annotations/instances_val2017.json',
        data_prefix=dict(img='val2017/'),
        metainfo=METAINFO,
        pipeline=[
            dict(type='LoadImageFromFile'),
            dict(type='LoadAnnotations', with_bbox=True, with_mask=True),
        ],
    )
    assert len(dataset) == 4
    scene = make_scene(5, 'val', 2, aspect=WIDTH_TO_HEIGHT)
    sample = dataset[2]
    assert sample['img'].shape == (96, 128, 3)
    assert sample['gt_bboxes_labels'].tolist() == [
        shape.label for shape in scene.shapes
    ]
    np.testing.assert_array_equal(sample['gt_masks'].masks, render(scene, 96, 128)[1])


def test_mmdet_reads_segments_of_shapes_and_their_background(shapes_dir: Path) -> None:
    """Colours as github.com/cocodataset/panopticapi joins them to numbers."""
    things = METAINFO['classes']
    dataset = CocoPanopticDataset(
        data_root=str(shapes_dir / 'panoptic'),
        ann_file='annotations/panoptic_val2017.json',
        data_prefix=dict(img='val2017/', seg='annotations/panoptic_val2017/'),
        metainfo=dict(
            classes=(*things, 'background'),
            thing_classes=things,
            stuff_classes=('background',),
        ),
    )
    assert len(dataset) == 4
    for index in range(4):
        scene, sample = (
            make_scene(5, 'val', index, aspect=WIDTH_TO_HEIGHT),
            dataset[index],
        )
        assert Path(sample['img_path']).is_file()
        colours = cv2.imread(sample['seg_map_path'])[..., ::-1]  # RGB
        ids = colours @ np.array([1, 256, 256**2])
        masks = render(scene, 96, 128)[1]
        *shapes, background = sample['segments_info']
        for shape, mask, segment in zip(scene.shapes, masks, shapes, strict=True):
            np.testing.assert_array_equal(ids == segment['id'], mask)
            assert (segment['category'], segment['is_thing']) == (shape.label, 1)
        np.testing.assert_array_equal(ids == background['id'], ~masks.any(0))
        assert (background['category'], background['is_thing']) == (6, 0)
        boxes = [[x, y, x + w, y + h] for x, y, w, h in map(extents, masks)]
        assert [instance['bbox'] for instance in sample['instances']] == boxes


def test_mmseg_reads_labels_with_background_first(shapes_dir: Path) -> None:
    init_default_scope('mmseg')
    dataset = BaseSegDataset(
        data_root=str(shapes_dir / 'ade'),
        data_prefix=dict(
            img_path='images/validation', seg_map_path='annotations/validation'
        ),
        metainfo=SEGMENTATION_METAINFO,
        reduce_zero_label=True,
        pipeline=[dict(type='LoadImageFromFile'), dict(type='LoadAnnotations')],
    )
    scene = make_scene(5, 'val', 1, aspect=WIDTH_TO_HEIGHT)
    expected = np.zeros((96, 128), int)
    for shape, mask in zip(scene.shapes, render(scene, 96, 128)[1], strict=True):
        expected[mask] = SEGMENTATION_METAINFO['classes'].index(
            METAINFO['classes'][shape.label]
        )
    np.testing.assert_array_equal(dataset[1]['gt_seg_map'], expected)


def test_second_call_leaves_the_data_and_other_settings_replace_it(
    tmp_path: Path,
) -> None:
    out = tmp_path / 'set'
    settings = ShapesSettings(train=0, val=1, size=(64, 64), layouts=('ade',))
    assert write_shapes(out, settings)
    assert not write_shapes(out, settings)
    assert sorted(path.name for path in out.glob('[!.]*')) == [
        'ade',
        'rope_dense_shapes.json',
    ]
    assert [path.name for path in (out / 'ade' / 'images').iterdir()] == ['validation']

    assert write_shapes(out, replace(settings, layouts=('coco',), val=2))
    assert json.loads((out / 'rope_dense_shapes.json').read_text())['val'] == 2
    assert sorted(path.name for path in out.glob('[!.]*')) == [
        'coco',
        'rope_dense_shapes.json',
    ]
    assert [path.name for path in tmp_path.iterdir()] == ['set']

    added = out / 'coco' / 'train2017' / 'mine.jpg'
    added.parent.mkdir()
    added.write_text('mine')
    assert write_shapes(out, settings) and added.read_text() == 'mine'
    label = out / 'ade' / 'annotations' / 'validation' / '00000000.png'
    label.write_text('mine')
    with pytest.raises(ForeignFileError, match=r'00000000\.png was changed after'):
        write_shapes(out, replace(settings, seed=1))
    assert label.read_text() == 'mine' and not write_shapes(out, settings)


def test_folder_with_other_files_is_refused_and_kept(tmp_path: Path) -> None:
    precious = tmp_path / 'set' / 'precious.txt'
    precious.parent.mkdir()
    precious.write_text('mine')
    with pytest.raises(FileExistsError, match='holds no shapes data set'):
        write_shapes(precious.parent, SETTINGS)
    assert precious.read_text() == 'mine'


def test_interrupted_writing_leaves_nothing_new(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail_on_third(path: Path, image: np.ndarray) -> None:
        if path.stem == '00000002':
            raise KeyboardInterrupt

    write_shapes(tmp_path / 'set', ShapesSettings(train=1, val=0, size=(64, 64)))
    before = sorted(tmp_path.rglob('*'))
    monkeypatch.setattr(shape_files, '_write_image', fail_on_third)
    for folder in ('new', 'set'):
        with pytest.raises(KeyboardInterrupt):
            write_shapes(tmp_path / folder, SETTINGS)
    assert sorted(tmp_path.rglob('*')) == before


@pytest.mark.parametrize(
    'wrong',
    [
        dict(train=-1),
        dict(train=0, val=0),
        dict(size=(160,)),
        dict(size=(160, 32)),
    ],
    ids=str,
)
def test_settings_that_cannot_be_used_are_named(wrong: dict[str, object]) -> None:
    with pytest.raises(ValueError, match=rf'{next(iter(wrong))}=.*: give'):
        ShapesSettings(**wrong)


def test_tool_writes_what_was_asked_for(
    tmp_path: Path, make_shapes: Callable[[Sequence[str]], int]
) -> None:
    out = tmp_path / 'set'
    options = (
        '--train 2 --val 1 --size 64 96 --seed 7 --colors any --layout coco'.split()
    )
    assert make_shapes([str(out), *options]) == 0
    written = json.loads((out / 'rope_dense_shapes.json').read_text())
    expected = dict(
        train=2, val=1, size=[64, 96], seed=7, colors='any', layouts=['coco']
    )
    assert {key: written[key] for key in expected} == expected
    assert cv2.imread(str(out / 'coco' / 'train2017' / '00000001.jpg')).shape == (
        64,
        96,
        3,
    )


def test_tool_explains_a_wrong_size(
    tmp_path: Path,
    make_shapes: Callable[[Sequence[str]], int],
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert make_shapes([str(tmp_path / 'set'), '--size', '16']) == 2
    assert 'size=(16, 16): give a height and a width of 64' in capsys.readouterr().err
    assert not list(tmp_path.iterdir())
