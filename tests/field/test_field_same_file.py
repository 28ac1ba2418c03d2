"""Random objects, written as seven tools write them, give the same canonical file."""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from xml.sax.saxutils import escape, quoteattr

import numpy as np
import pytest

from helpers.field import image, reading, write
from helpers.seeds import seed_of_the_week
from rope_dense.data.rotated import rectangle_corners

# In their order; YAML, XML and numbers at the end of a line have meanings of their own for some.
CLASSES = ('1.10', 'Größe <3> & "x"', 'class 2', 'traffic light', 'yes')
STEP = 0.2  # pixels: no format rounds it, and pycocotools rounds outlines to it


@dataclass(frozen=True)
class Thing:
    """An object: a box, a box and its clockwise degrees, or a polygon [N, 2]."""

    label: str
    box: tuple[float, ...]
    degrees: int = 0
    polygon: np.ndarray | None = None

    @property
    def corners(self) -> np.ndarray:
        """[N, 2], of the outline."""
        if self.polygon is not None:
            return self.polygon
        left, top, width, height = self.box
        centre = left + width / 2, top + height / 2
        place = np.array([*centre, width, height, np.deg2rad(self.degrees)])
        return rectangle_corners(place).reshape(-1, 2)

    @property
    def has_outline(self) -> bool:
        return self.degrees != 0 or self.polygon is not None


@dataclass(frozen=True)
class Scene:
    """Images of one size, by split; the last image of a split has no objects."""

    size: tuple[int, int]
    splits: dict[str, list[list[Thing]]]

    def draw(self, folder: Path, split: str) -> list[tuple[str, list[Thing]]]:
        """Write the images of a split; returns their names without suffix, and their objects."""
        for number in range(len(self.splits[split])):
            image(folder / f'frame_{number:06d}.png', self.size)
        return [
            (f'frame_{n:06d}', things) for n, things in enumerate(self.splits[split])
        ]


def random_scene(generator: np.random.Generator, kinds: Sequence[str]) -> Scene:
    height, width = generator.integers(100, 200, 2).tolist()

    def thing(label: str) -> Thing:
        kind = generator.choice(kinds)
        x, y = (generator.integers(40, side - 40) for side in (width, height))
        sides = generator.integers(20, 120, 2) * STEP
        box = (float(x), float(y), *sides.tolist())
        if kind == 'rotated':
            degrees = generator.integers(1, 90) + 90 * generator.integers(
                2
            )  # corners off a half
            return Thing(label, box, int(degrees))
        if kind == 'polygon':  # around (x, y)
            number = generator.integers(3, 12)
            angles = (
                (np.arange(number) + generator.uniform(0, 0.8, number))
                * 2
                * np.pi
                / number
            )
            radii = generator.uniform(5, 35, number)
            points = np.stack(
                [x + radii * np.cos(angles), y + radii * np.sin(angles)], -1
            )
            return Thing(label, box, polygon=np.round(points / STEP) * STEP)
        return Thing(label, box)

    def things() -> list[Thing]:
        return [
            thing(str(name))
            for name in generator.choice(CLASSES, generator.integers(1, 6))
        ]

    train = [[thing(name) for name in CLASSES], things(), things(), []]
    return Scene((height, width), dict(train=train, val=[things(), things(), []]))


def coco(root: Path, scene: Scene) -> None:
    for split in scene.splits:
        images, annotations = [], []
        for number, (name, things) in enumerate(scene.draw(root / split, split)):
            height, width = scene.size
            images.append(
                dict(id=number, file_name=f'{name}.png', height=height, width=width)
            )
            for thing in things:
                low, high = thing.corners.min(0), thing.corners.max(0)
                outline = [thing.corners.ravel().tolist()] if thing.has_outline else []
                annotations.append(
                    dict(
                        id=len(annotations),
                        image_id=number,
                        category_id=CLASSES.index(thing.label),
                        bbox=[*low.tolist(), *(high - low).tolist()],
                        segmentation=outline,
                    )
                )
        categories = [dict(id=number, name=name) for number, name in enumerate(CLASSES)]
        content = dict(images=images, annotations=annotations, categories=categories)
        write(root / split / '_annotations.coco.json', json.dumps(content))


def yolo(root: Path, scene: Scene) -> None:
    sides = np.array(scene.size[::-1])
    for split in scene.splits:
        for name, things in scene.draw(root / 'images' / split, split):
            lines = []
            for thing in things:
                values = thing.corners / sides
                if not thing.has_outline:
                    left, top, width, height = thing.box
                    centre = [left + width / 2, top + height / 2] / sides
                    values = np.stack([centre, [width, height] / sides])
                numbers = map(repr, values.ravel().tolist())
                lines.append(f'{CLASSES.index(thing.label)} {" ".join(numbers)}\n')
            write(root / 'labels' / split / f'{name}.txt', ''.join(lines))
    names = json.dumps(CLASSES, ensure_ascii=False)
    write(root / 'data.yaml', f'train: images/train\nval: images/val\nnames: {names}\n')


def voc(root: Path, scene: Scene) -> None:
    """Roboflow's folders and polygons, roLabelImg's rotated boxes."""

    def place(thing: Thing) -> str:
        left, top, width, height = thing.box
        if thing.degrees:
            values = (
                left + width / 2,
                top + height / 2,
                width,
                height,
                np.deg2rad(thing.degrees),
            )
            names = ('cx', 'cy', 'w', 'h', 'angle')
            return f'<robndbox>{tags(dict(zip(names, values, strict=True)))}</robndbox>'
        (left, top), (right, bottom) = thing.corners.min(0), thing.corners.max(0)
        box = tags(dict(xmin=left + 1, xmax=right, ymin=top + 1, ymax=bottom))
        if thing.polygon is None:
            return f'<bndbox>{box}</bndbox>'
        corners = {
            f'{axis}{number}': value + 1
            for number, point in enumerate(thing.corners, start=1)
            for axis, value in zip('xy', point, strict=True)
        }
        return f'<bndbox>{box}</bndbox><polygon>{tags(corners)}</polygon>'

    for split, folder in (('train', 'train'), ('val', 'valid')):
        for name, things in scene.draw(root / folder, split):
            objects = ''.join(
                f'<object><name>{escape(thing.label)}</name>{place(thing)}</object>'
                for thing in things
            )
            size = (
                f'<size>{tags(dict(width=scene.size[1], height=scene.size[0]))}</size>'
            )
            text = f'<annotation><filename>{name}.png</filename>{size}{objects}</annotation>'
            write(root / folder / f'{name}.xml', text)


def tags(values: dict[str, float]) -> str:
    return ''.join(
        f'<{name}>{float(value)!r}</{name}>' for name, value in values.items()
    )


def labelme(root: Path, scene: Scene) -> None:
    for split in scene.splits:
        for name, things in scene.draw(root / split, split):
            shapes = [
                dict(
                    label=thing.label,
                    shape_type='polygon' if thing.has_outline else 'rectangle',
                    points=thing.corners[
                        slice(None, None, 1 if thing.has_outline else 2)
                    ].tolist(),
                    group_id=None,
                    flags={},
                )
                for thing in things
            ]
            height, width = scene.size
            content = dict(shapes=shapes, imagePath=f'{name}.png', imageData=None)
            content |= dict(imageHeight=height, imageWidth=width)
            write(root / split / f'{name}.json', json.dumps(content))


def cvat_shape(thing: Thing, more: str) -> str:
    """As CVAT writes it: numbers with two decimals."""
    if thing.polygon is not None:
        points = ';'.join(f'{x:.2f},{y:.2f}' for x, y in thing.corners)
        return f'<polygon {more} points="{points}"/>'
    left, top, width, height = thing.box
    place = f'xtl="{left:.2f}" ytl="{top:.2f}" xbr="{left + width:.2f}" ybr="{top + height:.2f}"'
    rotation = f'rotation="{thing.degrees:.2f}"' if thing.degrees else ''
    return f'<box {more} {place} {rotation}/>'


def cvat_file(root: Path, scene: Scene, elements: list[str]) -> None:
    names = ''.join(f'<label><name>{escape(name)}</name></label>' for name in CLASSES)
    height, width = scene.size
    size = f'<original_size><width>{width}</width><height>{height}</height></original_size>'
    meta = f'<meta><task><id>1</id>{size}<labels>{names}</labels></task></meta>'
    write(
        root / 'annotations.xml',
        f'<annotations>{meta}{"".join(elements)}</annotations>',
    )


def cvat_images(root: Path, scene: Scene) -> None:
    for split in scene.splits:
        elements = []
        for name, things in scene.draw(root / split / 'images', split):
            shapes = ''.join(
                cvat_shape(t, f'label={quoteattr(t.label)}') for t in things
            )
            sides = f'width="{scene.size[1]}" height="{scene.size[0]}"'
            elements.append(f'<image id="0" name="{name}.png" {sides}>{shapes}</image>')
        cvat_file(root / split, scene, elements)


def cvat_video(root: Path, scene: Scene) -> None:
    """A track for each object, which ends in the next frame."""
    for split in scene.splits:
        elements = []
        for number, (_, things) in enumerate(
            scene.draw(root / split / 'images', split)
        ):
            for thing in things:
                shapes = [
                    cvat_shape(
                        thing, f'frame="{number + n}" outside="{n}" keyframe="1"'
                    )
                    for n in (0, 1)
                ]
                elements.append(
                    f'<track label={quoteattr(thing.label)}>{"".join(shapes)}</track>'
                )
        cvat_file(root / split, scene, elements)


def dota(root: Path, scene: Scene) -> None:
    for split in scene.splits:
        for name, things in scene.draw(root / split / 'images', split):
            lines = [
                f'{" ".join(map(repr, thing.corners.ravel().tolist()))} {thing.label} 0\n'
                for thing in things
            ]
            head = 'imagesource:camera\ngsd:1\n'
            write(root / split / 'labelTxt' / f'{name}.txt', head + ''.join(lines))


Write = Callable[[Path, Scene], None]
WRITERS: tuple[Write, ...] = (coco, yolo, voc, labelme, cvat_images, cvat_video)


def content_of(
    build: Write, root: Path, scene: Scene, oriented: bool
) -> tuple[tuple[str, ...], dict[str, dict[str, tuple[tuple, list[dict]]]]]:
    """The classes; and by split and image, its size and its annotations."""
    build(root / build.__name__, scene)
    found = reading(root / build.__name__, oriented=oriented)
    images: dict[str, dict[str, tuple[tuple, list[dict]]]] = {}
    for split, content in found.content.items():
        annotations: dict[int, list[dict]] = {}
        for item in content['annotations']:
            annotations.setdefault(item['image_id'], []).append(item)
        images[split] = {
            item['file_name']: (
                (item['height'], item['width']),
                annotations.get(item['id'], []),
            )
            for item in content['images']
        }
    return found.classes, images


def compare(build: Write, root: Path, scene: Scene, oriented: bool) -> None:
    """Compare what a tool's files give with what the scene has, and with COCO's file."""
    classes, found = content_of(build, root, scene, oriented)
    _, expected = content_of(coco, root / 'expected', scene, oriented)
    assert classes == CLASSES
    for split, images in expected.items():
        assert found[split].keys() == images.keys()
        for (name, (size, annotations)), things in zip(
            images.items(), scene.splits[split], strict=True
        ):
            assert found[split][name][0] == size == scene.size
            pairs = zip(found[split][name][1], annotations, things, strict=True)
            for item, other, thing in pairs:
                assert classes[item['category_id'] - 1] == thing.label
                assert item['iscrowd'] == other['iscrowd'] == 0
                corners = np.array([thing.corners.min(0), thing.corners.max(0)])
                box = [*corners[0], *(corners[1] - corners[0])]
                assert item['bbox'] == pytest.approx(box, abs=0.01)
                assert item['area'] == pytest.approx(other['area'], rel=1e-3)
                assert ('segmentation' in item) == (oriented or thing.has_outline)
                outline = item.get('segmentation', [thing.corners.ravel()])
                points = np.reshape(outline, (-1, 2))
                apart = np.linalg.norm(points[:, None] - thing.corners, axis=-1)
                assert len(points) == len(thing.corners)
                assert apart.min(0).max() < 0.01 and apart.min(1).max() < 0.01


@pytest.fixture
def generator() -> np.random.Generator:
    return np.random.default_rng(seed_of_the_week())


@pytest.mark.parametrize('build', WRITERS, ids=lambda build: build.__name__)
def test_boxes_and_outlines(
    build: Write, generator: np.random.Generator, tmp_path: Path
) -> None:
    compare(
        build, tmp_path, random_scene(generator, ['box', 'rotated', 'polygon']), False
    )


@pytest.mark.parametrize('build', [*WRITERS, dota], ids=lambda build: build.__name__)
def test_rotated_boxes(
    build: Write, generator: np.random.Generator, tmp_path: Path
) -> None:
    compare(build, tmp_path, random_scene(generator, ['box', 'rotated']), True)
