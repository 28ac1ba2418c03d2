"""Shapes on disk: in the formats of COCO, ADE20K and DOTA, in four channels; rooms with depth."""

import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

import cv2
import numpy as np
from pycocotools import mask as coco_mask

from ...utils.atomic_write import atomic_folder
from ...utils.progress import progress
from ..images.band_files import write_bands
from .rooms import make_room, render_room
from .rotated_shapes import ROTATED_METAINFO, RotatedShape, make_rotated_scene
from .shapes import METAINFO, SPLITS, Scene, make_scene, render
from .warm_shapes import WARM_METAINFO, make_warm_scene, render_channels

FORMATS = ('coco', 'ade')
DEPTH = 'depth'  # the format of rooms
ROTATED = 'dota'  # the format of rotated shapes
WARM = 'warm'  # the format of shapes in four channels
SETTINGS_FILE = 'rope_dense_shapes.json'
COCO_SPLITS = {'train': 'train2017', 'val': 'val2017'}
ADE_SPLITS = {'train': 'training', 'val': 'validation'}


@dataclass(frozen=True)
class ShapesSettings:
    """Settings of a shapes data set.

    `train` and `val` count images, `size` is (height, width) in pixels; `colors` as in
    ``make_scene``. `version` changes with the pictures drawn.

    Raises:
        ValueError: on a count or size that cannot be used.
    """

    train: int = 400
    val: int = 100
    size: tuple[int, int] = (160, 160)
    seed: int = 0
    colors: str = 'class'
    layouts: tuple[str, ...] = FORMATS
    version: int = 1

    def __post_init__(self) -> None:
        if min(self.train, self.val) < 0 or self.train + self.val == 0:
            raise ValueError(
                f'train={self.train}, val={self.val}: give image counts of 0 or more, not both 0'
            )
        if len(self.size) != 2 or not all(64 <= side <= 4096 for side in self.size):
            raise ValueError(f'size={self.size}: give a height and a width of 64 to 4096 pixels')


def write_shapes(out: str | Path, settings: ShapesSettings) -> bool:
    """Write the data set to the folder `out`; return False if it is there already.

    For the formats asked for, `out` then holds:

        rope_dense_shapes.json                             the settings
        coco/annotations/instances_{train,val}2017.json    boxes and masks of the visible parts
        coco/{train,val}2017/00000000.jpg
        ade/images/{training,validation}/00000000.jpg
        ade/annotations/{training,validation}/00000000.png
        dota/{train,val}/images/00000000.png
        dota/{train,val}/labelTxt/00000000.txt             of other scenes: rotated shapes
        depth/images/{train,val}/00000000.jpg              rooms, see ``rooms``, and not shapes
        depth/depth/{train,val}/00000000.png               millimetres in 16 bits, 0 if unknown
        warm/images/{train,val}/00000000.tif               of other scenes, see ``warm_shapes``
        warm/annotations/{train,val}.json                  boxes and masks of the visible parts
        warm/masks/{train,val}/00000000.png                0 for background, then the classes

    A split without images is left out. A label image holds 1 for background, 2 for the first class
    and so on; 0 would be "no label", as in ADE20K, but every pixel has one. mmseg reads it with
    `reduce_zero_label=True` and the classes of SEGMENTATION_METAINFO.

    A shapes data set made from other settings is replaced when the new one is complete.

    Raises:
        FileExistsError: if `out` holds anything but a shapes data set.
    """
    out = Path(out)
    wanted, found = json.loads(json.dumps(asdict(settings))), None
    if (out / SETTINGS_FILE).is_file():
        found = json.loads((out / SETTINGS_FILE).read_text())
    elif out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise FileExistsError(
            f'{out} is not empty and holds no shapes data set (no {SETTINGS_FILE}): '
            'choose another folder or empty it'
        )
    if found == wanted:
        return False
    with atomic_folder(out) as fresh:
        for layout in settings.layouts:
            for split in (split for split in SPLITS if getattr(settings, split)):
                _WRITERS[layout](fresh / layout, settings, split)
        (fresh / SETTINGS_FILE).write_text(json.dumps(wanted, indent=2) + '\n')
    return True


def _write_coco(root: Path, settings: ShapesSettings, split: str) -> None:
    folder, objects = root / COCO_SPLITS[split], list[tuple[Scene, np.ndarray]]()
    for index, image, scene, masks in _rendered(settings, split, f'coco {split}'):
        objects.append((scene, masks))
        _write_image(folder / f'{index:08d}.jpg', image)
    path = root / 'annotations' / f'instances_{folder.name}.json'
    _write_json(path, settings, objects, METAINFO['classes'], '.jpg')


def _write_warm(root: Path, settings: ShapesSettings, split: str) -> None:
    images, labels = (root / kind / split for kind in ('images', 'masks'))
    images.mkdir(parents=True)
    (height, width), count = settings.size, getattr(settings, split)
    objects = list[tuple[Scene, np.ndarray]]()
    for index in progress(range(count), f'warm {split}'):
        scene = make_warm_scene(settings.seed, split, index, aspect=width / height)
        pixels, masks = render_channels(scene, height, width)
        label_image = np.zeros(settings.size, np.uint8)
        for shape, mask in zip(scene.shapes, masks, strict=True):
            label_image[mask] = shape.label + 1
        objects.append((scene, masks))
        write_bands(images / f'{index:08d}.tif', pixels)
        _write_image(labels / f'{index:08d}.png', label_image)
    path = root / 'annotations' / f'{split}.json'
    _write_json(path, settings, objects, WARM_METAINFO['classes'], '.tif')


def _write_json(
    path: Path,
    settings: ShapesSettings,
    objects: list[tuple[Scene, np.ndarray]],
    classes: tuple[str, ...],
    suffix: str,
) -> None:
    """Write the COCO file of images, each with its scene and masks [N, H, W]."""
    height, width = settings.size
    images, annotations = list[dict](), list[dict]()
    for index, (scene, masks) in enumerate(objects):
        name = f'{index:08d}{suffix}'
        images.append(dict(id=index, file_name=name, height=height, width=width))
        for shape, mask in zip(scene.shapes, masks, strict=True):
            run_lengths = coco_mask.encode(np.asfortranarray(mask, dtype=np.uint8))
            annotation = dict(
                id=len(annotations) + 1,
                image_id=index,
                category_id=shape.label + 1,
                bbox=coco_mask.toBbox(run_lengths).tolist(),
                area=int(mask.sum()),
                iscrowd=0,
                segmentation=dict(size=[*mask.shape], counts=run_lengths['counts'].decode()),
            )
            annotations.append(annotation)
    categories = [dict(id=i, name=name) for i, name in enumerate(classes, 1)]
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps(dict(images=images, annotations=annotations, categories=categories)))


def _write_ade(root: Path, settings: ShapesSettings, split: str) -> None:
    images, labels = (root / kind / ADE_SPLITS[split] for kind in ('images', 'annotations'))
    for index, image, scene, masks in _rendered(settings, split, f'ade {split}'):
        label_image = np.ones(settings.size, np.uint8)  # background
        for shape, mask in zip(scene.shapes, masks, strict=True):
            label_image[mask] = shape.label + 2
        _write_image(images / f'{index:08d}.jpg', image)
        _write_image(labels / f'{index:08d}.png', label_image)


def _write_depth(root: Path, settings: ShapesSettings, split: str) -> None:
    images, depths = (root / kind / split for kind in ('images', 'depth'))
    count = getattr(settings, split)
    print(f'depth {split}: {count} images of {settings.size[0]} x {settings.size[1]}')
    for index in progress(range(count), f'depth {split}'):
        image, depth = render_room(make_room(settings.seed, split, index), *settings.size)
        _write_image(images / f'{index:08d}.jpg', image)
        _write_image(depths / f'{index:08d}.png', (1000 * depth + 0.5).astype(np.uint16))


def _write_dota(root: Path, settings: ShapesSettings, split: str) -> None:
    """Rotated shapes: eight numbers around each box, class name and difficulty 0."""
    images, labels = (root / split / kind for kind in ('images', 'labelTxt'))
    labels.mkdir(parents=True)
    names = ROTATED_METAINFO['classes']
    for index, image, scene, _ in _rendered(settings, split, f'dota {split}', rotated=True):
        lines = []
        for shape in scene.shapes:
            assert isinstance(shape, RotatedShape)
            numbers = ' '.join(f'{x:.3f}' for x in shape.corners(*settings.size).flatten())
            lines.append(f'{numbers} {names[shape.label]} 0\n')
        _write_image(images / f'{index:08d}.png', image)
        (labels / f'{index:08d}.txt').write_text(''.join(lines))


def _rendered(
    settings: ShapesSettings, split: str, title: str, *, rotated: bool = False
) -> Iterator[tuple[int, np.ndarray, Scene, np.ndarray]]:
    """Yield index, image, scene and masks of each scene of a split, with a progress bar."""
    height, width = settings.size
    count = getattr(settings, split)
    print(f'{title}: {count} images of {height} x {width}')
    for index in progress(range(count), title):
        scene = (make_rotated_scene if rotated else make_scene)(
            settings.seed, split, index, aspect=width / height, colors=settings.colors
        )
        image, masks = render(scene, height, width)
        yield index, image, scene, masks


def _write_image(path: Path, image: np.ndarray) -> None:
    """Write an RGB or a grey image; the suffix chooses the format."""
    path.parent.mkdir(parents=True, exist_ok=True)
    channels_swapped = image[..., ::-1] if image.ndim == 3 else image
    if not cv2.imwrite(str(path), channels_swapped):
        raise OSError(f'{path}: cannot be written')


_WRITERS = {
    'coco': _write_coco,
    'ade': _write_ade,
    DEPTH: _write_depth,
    ROTATED: _write_dota,
    WARM: _write_warm,
}
