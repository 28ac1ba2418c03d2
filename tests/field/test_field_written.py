"""Random predictions in each format that `predict --write` has are read to the same objects."""

from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pytest
from pycocotools import mask as coco_mask

from helpers.field import image, reading
from helpers.seeds import seed_of_the_week
from rope_dense.data.rotated_results import rotated_annotation
from rope_dense.predict.files import DetectionFiles
from rope_dense.predict.formats import FORMATS
from rope_dense.predict.place import Output, Wanted
from rope_dense.utils.results import Results

CLASSES = ('1.10', 'Größe <3> & "x"', 'class 2', 'traffic light', 'yes')
SIZE = (150, 200)
NAMES = ('train/0.jpg', 'train/b c.png', 'train/empty.jpg', 'val/1.jpg', 'val/d.PNG')
IN_IMAGES = dict(coco='images', yolo='yolo/images', voc='voc/JPEGImages')


def box(random: np.random.Generator) -> dict[str, Any]:
    sides = random.uniform(4, 60, 2)
    return dict(bbox=[*random.uniform(0, np.array(SIZE[::-1]) - sides), *sides])


def rotated(random: np.random.Generator) -> dict[str, Any]:
    place = [
        *random.uniform(60, 90, 2),
        *random.uniform(10, 60, 2),
        random.uniform(0.2, 1.3),
    ]
    return rotated_annotation(place, 'le90')


def mask(random: np.random.Generator) -> dict[str, Any]:
    """Two polygons of pixels, which may touch each other or a border of the image."""
    pixels = np.zeros(SIZE, np.uint8)
    for _ in range(2):
        points = random.integers(-20, 70, (random.integers(3, 8), 2)) + random.integers(
            0, 150, 2
        )
        cv2.fillPoly(pixels, [cv2.convexHull(points.astype(np.int32))], 1)
    pixels[40:44, 50:57] = 1  # never empty
    run_lengths = coco_mask.encode(np.asfortranarray(pixels))
    outline = dict(size=[*SIZE], counts=run_lengths['counts'].decode())
    return dict(bbox=coco_mask.toBbox(run_lengths).tolist(), segmentation=outline)


KINDS = dict(box=box, rotated=rotated, mask=mask)


def written(
    folder: Path, name: str, kind: str, scores: bool
) -> tuple[Path, dict[str, list[tuple[str, dict]]]]:
    """The folder of a format with its images, and (class, annotation) by the names of images."""
    random = np.random.default_rng(seed_of_the_week())
    entries, expected = [], {}
    for file_name in NAMES:
        objects = (
            [] if 'empty' in file_name else [KINDS[kind](random) for _ in range(5)]
        )
        for item in objects:
            item |= dict(category_id=int(random.integers(len(CLASSES))) + 1, iscrowd=0)
            item |= dict(score=float(random.uniform()), area=1.0)
        picture = f'pictures/{Path(file_name).with_suffix(".jpg").as_posix()}'
        about = dict(
            file_name=file_name, height=SIZE[0], width=SIZE[1], picture=picture
        )
        entries.append(dict(about, objects=objects, source=f'/in/{file_name}'))
        expected[file_name] = [
            (CLASSES[item['category_id'] - 1], item) for item in objects
        ]
        image(folder / IN_IMAGES[name] / file_name, SIZE)
    results, wanted = Results(folder, 'predict/0'), Wanted((name,), scores)
    output = Output(results, folder, wanted, {}, {}, lambda name: np.zeros((*SIZE, 3)))
    convention = 'le90' if kind == 'rotated' else None
    files = DetectionFiles(None, output, dict(classes=CLASSES, convention=convention))
    for entry in entries:
        files.journal.add(entry)
    out = FORMATS[name].write(files.detections())
    files.journal.remove()
    return out if out.is_dir() else folder, expected


CASES = [(kind, name, False) for kind in KINDS for name in IN_IMAGES]
CASES.remove(('rotated', 'voc', False))  # which is refused
CASES += [(kind, 'yolo', True) for kind in KINDS]


@pytest.mark.parametrize('kind, name, scores', CASES)
def test_objects_are_read_back(
    kind: str, name: str, scores: bool, tmp_path: Path
) -> None:
    root, expected = written(tmp_path / 'out', name, kind, scores)
    found = reading(
        root, oriented=kind == 'rotated', outlines=kind == 'mask' and name != 'voc'
    )
    assert {*found.classes} <= {*CLASSES}
    seen = {}
    for content in found.content.values():
        names = {item['id']: item['file_name'] for item in content['images']}
        for file in names.values():
            seen[next(name for name in NAMES if name.endswith(file))] = []
        for item in content['annotations']:
            file = next(
                name for name in NAMES if name.endswith(names[item['image_id']])
            )
            seen[file].append((found.classes[item['category_id'] - 1], item))
    assert {file for file, objects in seen.items() if objects} == {*NAMES} - {
        'train/empty.jpg'
    }
    for file, objects in expected.items():
        for (label, item), (other, given) in zip(
            seen.get(file, objects), objects, strict=True
        ):
            assert label == other
            check(item, given, kind, name)


def check(item: dict, given: dict, kind: str, name: str) -> None:
    """Check an annotation that was read: its box, corners in any order, or pixels."""
    if kind == 'rotated':
        apart = np.reshape(item['segmentation'][0], (-1, 1, 2)) - np.reshape(
            given['segmentation'][0], (1, -1, 2)
        )
        distance = np.linalg.norm(apart, axis=-1)
        assert distance.min(0).max() < 0.02 and distance.min(1).max() < 0.02
        return
    simplified = kind == 'mask' and name == 'yolo'
    assert item['bbox'] == pytest.approx(given['bbox'], abs=1 if simplified else 0.02)
    if kind == 'mask' and name != 'voc':
        outline = item['segmentation']
        if isinstance(outline, list):
            outline = coco_mask.merge(coco_mask.frPyObjects(outline, *SIZE))
        truth = given['segmentation']
        assert coco_mask.iou([outline], [truth], [0]).item() > (
            0.9 if simplified else 0.999
        )
