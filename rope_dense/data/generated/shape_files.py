"""Shapes on disk: in COCO's, ADE20K's and DOTA's formats, in four channels; rooms with depth."""

import json
import os
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from itertools import product
from pathlib import Path
from typing import Any

import cv2
import numpy as np
from pycocotools import mask as coco_mask

from ...utils.progress import progress
from ...utils.results import HOME, Results
from ..images.band_files import write_bands
from .rooms import make_room, render_room
from .shapes import (
    METAINFO,
    ROTATED_METAINFO,
    SPLITS,
    WARM_METAINFO,
    DrawnShape,
    RotatedShape,
    Scene,
    ThermalCircle,
    make_scene,
    render,
    render_channels,
)

FORMATS = ('coco', 'ade')
KINDS = {'dota': RotatedShape, 'warm': ThermalCircle}  # of others DrawnShape
SETTINGS_FILE = 'rope_dense_shapes.json'
ADE_SPLITS = {'train': 'training', 'val': 'validation'}


@dataclass(frozen=True)
class ShapesSettings:
    """Settings of a shapes data set."""

    train: int = 400  # images
    val: int = 100
    size: tuple[int, int] = (160, 160)  # height and width in pixels
    seed: int = 0
    colors: str = 'class'  # as in ``make_scene``
    layouts: tuple[str, ...] = FORMATS
    version: int = 1  # changes with the pictures drawn

    def __post_init__(self) -> None:
        if min(self.train, self.val) < 0 or self.train + self.val == 0:
            raise ValueError(
                f'train={self.train}, val={self.val}: give image counts of 0 or more, not both 0'
            )
        if len(self.size) != 2 or not 64 <= min(self.size) <= max(self.size) <= 4096:
            raise ValueError(
                f'size={self.size}: give a height and a width of 64 to 4096 pixels'
            )


def write_shapes(out: str | Path, settings: ShapesSettings) -> bool:
    """Write the data set to the folder `out`; return False if it is there already.

    For the formats asked for, `out` then holds:

        rope_dense_shapes.json                             the settings
        coco/annotations/instances_{train,val}2017.json    boxes and masks of the visible parts
        coco/{train,val}2017/00000000.jpg
        panoptic/annotations/panoptic_{train,val}2017.json shapes, and the background as stuff
        panoptic/annotations/panoptic_{train,val}2017/00000000.png
        panoptic/{train,val}2017/00000000.jpg
        ade/images/{training,validation}/00000000.jpg
        ade/annotations/{training,validation}/00000000.png
        dota/{train,val}/images/00000000.png
        dota/{train,val}/labelTxt/00000000.txt             of other scenes: rotated shapes
        depth/images/{train,val}/00000000.jpg              rooms, see ``rooms``, and not shapes
        depth/depth/{train,val}/00000000.png               millimetres in 16 bits, 0 if unknown
        warm/images/{train,val}/00000000.tif               of other scenes, see ``warm_shapes``
        warm/annotations/{train,val}.json                  boxes and masks of the visible parts
        warm/masks/{train,val}/00000000.png                0 for background, then the classes

    A split without images is left out. A label image of ADE20K holds 1 for background, 2 for the
    first class and so on; 0 would be "no label", but every pixel has one. mmseg reads it with
    `reduce_zero_label=True` and the classes of SEGMENTATION_METAINFO.

    A shapes data set made from other settings is replaced when the new one is complete; what else
    is in its folders stays.

    Raises:
        FileExistsError: if `out` holds anything but a shapes data set.
        ForeignFileError: a file of the data set was changed since.
    """
    out = Path(out)
    file = out / SETTINGS_FILE
    wanted = json.loads(json.dumps(asdict(settings)))
    results = Results(out, 'shapes', is_flushed=False)
    if file.is_file():
        if json.loads(file.read_text()) == wanted:
            return False
    elif (
        out.exists()
        and not results.known
        and (not out.is_dir() or set(os.listdir(out)) - {HOME})
    ):
        raise FileExistsError(
            f'{out} is not empty and holds no shapes data set (no {SETTINGS_FILE}): '
            'choose another folder or empty it'
        )
    writers = dict(
        coco=_coco,
        panoptic=_panoptic,
        ade=_ade,
        dota=_dota,
        depth=_depth,
        warm=_warm,
    )
    with results:
        with results.fresh() as fresh:
            for layout, split in product(settings.layouts, SPLITS):
                count = getattr(settings, split)
                if count:
                    height, width = settings.size
                    print(f'{layout} {split}: {count} images of {height} x {width}')
                    writers[layout](fresh / layout, settings, split)
            files = [path for path in fresh.rglob('*') if path.is_file()]
            new = {out / path.relative_to(fresh) for path in files}
            results.check(new)
            # The file of settings, too: the data set is not complete.
            for path in results.paths():
                if path not in new:
                    results.remove(path)
        results.write_text(file, json.dumps(wanted, indent=2) + '\n')
    return True


def _coco(root: Path, settings: ShapesSettings, split: str) -> None:
    objects = []
    for name, image, scene, masks in _pictures('coco', settings, split):
        path = root / f'{split}2017/{name}.jpg'
        _write_image(path, image)
        objects.append((path, scene, masks))
    file = root / f'annotations/instances_{split}2017.json'
    _write_json(file, objects, METAINFO['classes'])


def _panoptic(root: Path, settings: ShapesSettings, split: str) -> None:
    images = []
    labelled = []
    classes = METAINFO['classes']
    folder = root / f'annotations/panoptic_{split}2017'
    height, width = settings.size
    for name, image, scene, masks in _pictures('panoptic', settings, split):
        file = root / f'{split}2017/{name}.jpg'
        _write_image(file, image)
        images.append(
            dict(
                id=int(name),
                file_name=file.name,
                height=height,
                width=width,
            )
        )
        masks = np.concatenate([masks, ~masks.any(axis=0, keepdims=True)])
        # id = red + 256 green + 65536 blue
        ids = np.zeros((height, width, 3), np.uint8)
        ids[..., 0] = 1 + masks.argmax(axis=0)
        _write_image(folder / f'{name}.png', ids)
        labels = [shape.label for shape in scene.shapes] + [len(classes)]
        segments: list[dict] = []
        for label, mask in zip(labels, masks, strict=True):
            about = dict(id=len(segments) + 1, category_id=label + 1)
            segments.append(about | _extent(_run_lengths(mask)))
        labelled.append(
            dict(
                image_id=int(name),
                file_name=f'{name}.png',
                segments_info=segments,
            )
        )
    categories = [dict(category, isthing=1) for category in _categories(classes)]
    categories.append(dict(id=len(categories) + 1, name='background', isthing=0))
    content = dict(
        images=images,
        annotations=labelled,
        categories=categories,
    )
    folder.with_suffix('.json').write_text(json.dumps(content))


def _warm(root: Path, settings: ShapesSettings, split: str) -> None:
    objects = []
    for name, pixels, scene, masks in _pictures('warm', settings, split):
        path = root / f'images/{split}/{name}.tif'
        labels = _label_image(scene, masks, 0)
        _write_image(path, pixels)
        _write_image(root / f'masks/{split}/{name}.png', labels)
        objects.append((path, scene, masks))
    file = root / f'annotations/{split}.json'
    _write_json(file, objects, WARM_METAINFO['classes'])


def _ade(root: Path, settings: ShapesSettings, split: str) -> None:
    images = root / 'images' / ADE_SPLITS[split]
    labels = root / 'annotations' / ADE_SPLITS[split]
    for name, image, scene, masks in _pictures('ade', settings, split):
        _write_image(images / f'{name}.jpg', image)
        _write_image(labels / f'{name}.png', _label_image(scene, masks, 1))


def _dota(root: Path, settings: ShapesSettings, split: str) -> None:
    """Rotated shapes: eight numbers around each box, class name and difficulty 0."""
    labels = root / split / 'labelTxt'
    labels.mkdir(parents=True)
    for name, image, scene, _ in _pictures('dota', settings, split):
        lines = []
        for shape in scene.shapes:
            assert isinstance(shape, RotatedShape)
            corners = shape.corners(*settings.size).flatten()
            numbers = ' '.join(f'{number:.3f}' for number in corners)
            lines.append(f'{numbers} {ROTATED_METAINFO["classes"][shape.label]} 0\n')
        _write_image(root / f'{split}/images/{name}.png', image)
        (labels / f'{name}.txt').write_text(''.join(lines))


def _depth(root: Path, settings: ShapesSettings, split: str) -> None:
    for index in progress(range(getattr(settings, split)), f'depth {split}'):
        room = make_room(settings.seed, split, index)
        image, depth = render_room(room, *settings.size)
        millimetres = (1000 * depth + 0.5).astype(np.uint16)
        _write_image(root / f'images/{split}/{index:08d}.jpg', image)
        _write_image(root / f'depth/{split}/{index:08d}.png', millimetres)


def _pictures(
    layout: str,
    settings: ShapesSettings,
    split: str,
) -> Iterator[tuple[str, np.ndarray, Scene, np.ndarray]]:
    """Yield name, pixels, scene and masks of each scene of a split, with a progress bar."""
    height, width = settings.size
    draw = render_channels if layout == 'warm' else render
    for index in progress(range(getattr(settings, split)), f'{layout} {split}'):
        scene = make_scene(
            settings.seed,
            split,
            index,
            aspect=width / height,
            colors=settings.colors,
            kind=KINDS.get(layout, DrawnShape),
        )
        pixels, masks = draw(scene, height, width)
        yield f'{index:08d}', pixels, scene, masks


def _label_image(scene: Scene, masks: np.ndarray, background: int) -> np.ndarray:
    """Label image [H, W] uint8 from masks [N, H, W]: the background, then the classes."""
    labels = np.full(masks.shape[1:], background, np.uint8)
    for shape, mask in zip(scene.shapes, masks, strict=True):
        labels[mask] = background + 1 + shape.label
    return labels


def _write_json(
    path: Path,
    objects: Sequence[tuple[Path, Scene, np.ndarray]],
    classes: Sequence[str],
) -> None:
    """Write the COCO file of images, each with its scene and masks [N, H, W]."""
    images = []
    annotations: list[dict] = []
    for index, (image, scene, masks) in enumerate(objects):
        height, width = masks.shape[1:]
        images.append(
            dict(
                id=index,
                file_name=image.name,
                height=height,
                width=width,
            )
        )
        for shape, mask in zip(scene.shapes, masks, strict=True):
            run_lengths = _run_lengths(mask)
            counts = run_lengths['counts'].decode()
            annotation = dict(
                id=len(annotations) + 1,
                image_id=index,
                category_id=shape.label + 1,
                **_extent(run_lengths),
                segmentation=dict(size=list(mask.shape), counts=counts),
            )
            annotations.append(annotation)
    content = dict(
        images=images,
        annotations=annotations,
        categories=_categories(classes),
    )
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps(content))


def _run_lengths(mask: np.ndarray) -> dict:
    """COCO's run lengths of a mask [H, W]."""
    return coco_mask.encode(np.asfortranarray(mask, dtype=np.uint8))


def _extent(run_lengths: dict) -> dict[str, Any]:
    """Box and area of a mask, of one object."""
    return dict(
        bbox=coco_mask.toBbox(run_lengths).tolist(),
        area=int(coco_mask.area(run_lengths)),
        iscrowd=0,
    )


def _categories(classes: Sequence[str]) -> list[dict]:
    return [dict(id=i, name=name) for i, name in enumerate(classes, 1)]


def _write_image(path: Path, image: np.ndarray) -> None:
    """Write an RGB or a grey image, or other channels as .tif; the suffix chooses the format."""
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.suffix == '.tif':
        write_bands(path, image)
        return
    if image.ndim == 3:
        image = image[..., ::-1]
    if not cv2.imwrite(str(path), image):
        raise OSError(f'{path}: cannot be written')
