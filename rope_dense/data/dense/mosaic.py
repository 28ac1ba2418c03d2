"""Mosaics of four images."""

import math
import random
from collections.abc import Sequence
from typing import Any

import cv2
import mmcv
import numpy as np
import torch
from mmcv.transforms import BaseTransform
from mmdet.datasets import CocoDataset
from mmdet.structures.bbox import HorizontalBoxes
from mmdet.structures.mask import BitmapMasks
from mmengine.registry import DATASETS, TRANSFORMS

from ...utils.sizes import Size
from ..images.bands import LoadDeepImage, shrink
from ..loading import NamingPipeline

# Keys of each image in a mosaic; all else is taken from the first image.
PARTS = ('img', 'gt_bboxes', 'gt_bboxes_labels', 'gt_ignore_flags', 'gt_masks')


@DATASETS.register_module()
class MosaicCocoDataset(CocoDataset):
    """mmdet's ``CocoDataset``, whose transforms may load other images: ``results['dataset']``."""

    def prepare_data(self, idx: int) -> Any:
        return self.pipeline({**self.get_data_info(idx), 'dataset': self})


@TRANSFORMS.register_module()
class AffineMosaic(BaseTransform):
    """Four images in a grid of two by two, then rotated, moved and scaled together.

    The shorter side of each image becomes ``part_size``. Each cell has the size of the largest
    image, and images lie at its top left. The affine transform is about the centre, takes the
    nearest pixel and leaves the size of the mosaic. mmdet's ``Mosaic`` crops the four about a
    random point instead, and its ``RandomAffine`` rotates about a corner.

    Other images are recent ones of the same process (the published setting, fast), or are loaded
    from the data set: slower, but a resumed run then equals an uninterrupted one.

    Args:
        rotation: largest angle in degrees.
        translation: largest shift, as shares of width and height.
        scaling: range of the factor.
        max_cached_images: number of recent images, of which a random one is replaced; 0 to load
            images from the data set, which has to be a ``MosaicCocoDataset``.
        max_value: of 16-bit images that are loaded here, see ``LoadDeepImage``; None for 8 bits.
        imdecode_backend: of ``LoadImageFromFile`` for the images that are loaded here.
        load: the step that loads these images instead, such as a ``LoadBands``; pixels other than
            uint8 [H, W, 3] are resized by the mean of areas, not as Pillow does.
    """

    def __init__(
        self,
        part_size: int = 320,
        rotation: float = 10.0,
        translation: Sequence[float] = (0.1, 0.1),
        scaling: Sequence[float] = (0.5, 1.5),
        max_cached_images: int = 50,
        max_value: int | None = None,
        imdecode_backend: str = 'cv2',
        load: dict | None = None,
    ) -> None:
        self.part_size = part_size
        self.rotation = rotation
        self.translation = tuple(translation)
        self.scaling = tuple(scaling)
        self.max_cached_images = max_cached_images
        self.max_value = max_value
        self.load = load or dict(
            type='LoadImageFromFile',
            imdecode_backend=imdecode_backend,
        )
        # With masks if the first image has them.
        self.loading: NamingPipeline | None = None
        self.cache: list[dict] = []

    def transform(self, results: dict) -> dict:
        first = self.resized(results)
        if self.max_cached_images:
            self.cache.append(first)
            if len(self.cache) > self.max_cached_images:
                self.cache.pop(random.randint(0, max(len(self.cache) - 2, 0)))
            others = random.choices(self.cache, k=3)
        else:
            others = self.from_dataset(results)
        mosaic = merge_four([first, *others])
        size = mosaic['img'].shape[:2]
        angle = random.uniform(-self.rotation, self.rotation)
        most_x = self.translation[0] * size[1]
        most_y = self.translation[1] * size[0]
        shift = (
            round(random.uniform(-most_x, most_x)),
            round(random.uniform(-most_y, most_y)),
        )
        matrix = affine_matrix(
            size,
            angle,
            shift,
            random.uniform(
                *self.scaling,
            ),
        )
        return {**results, **warp_affine(mosaic, matrix), 'img_shape': size}

    def resized(self, results: dict) -> dict:
        """Image and objects, with ``part_size`` as the shorter side."""
        height, width = results['img'].shape[:2]
        factor = self.part_size / min(height, width)
        new_height = self.part_size if height <= width else int(height * factor)
        new_width = self.part_size if width <= height else int(width * factor)
        size = (new_width, new_height)
        part = {key: results[key] for key in PARTS if key in results}
        image = part['img']
        if image.dtype == np.uint8 and image.shape[2] == 3:
            part['img'] = mmcv.imresize(image, size, backend='pillow')
        else:
            part['img'] = shrink(image, *size)
        part['gt_bboxes'] = part['gt_bboxes'].clone()
        part['gt_bboxes'].rescale_((new_width / width, new_height / height))
        if 'gt_masks' in part:
            part['gt_masks'] = part['gt_masks'].resize((new_height, new_width))
        return part

    def from_dataset(self, results: dict) -> list[dict]:
        """Load three images of the data set; a LoadError names the file."""
        dataset = results.get('dataset')
        if dataset is None:
            raise ValueError(
                'AffineMosaic with max_cached_images=0 loads images of its data set: set '
                "train_dataloader.dataset.type='MosaicCocoDataset'"
            )
        if self.loading is None:
            steps: list[Any] = [self.load]
            if self.max_value is not None:
                steps.append(LoadDeepImage(self.max_value))
            annotations = dict(
                type='mmdet.LoadAnnotations',
                with_bbox=True,
                with_mask='gt_masks' in results,
            )
            self.loading = NamingPipeline([*steps, annotations])
        indexes = [random.randrange(len(dataset)) for _ in range(3)]
        parts = []
        for index in indexes:
            loaded: Any = self.loading(dataset.get_data_info(index))
            parts.append(self.resized(loaded))
        return parts


def merge_four(parts: list[dict]) -> dict:
    """Four images in one, in the order of reading."""
    height = max(part['img'].shape[0] for part in parts)
    width = max(part['img'].shape[1] for part in parts)
    size = (2 * height, 2 * width)
    first = parts[0]['img']
    canvas = np.zeros((*size, first.shape[2]), first.dtype)
    boxes = []
    masks = []
    for index, part in enumerate(parts):
        top = index // 2 * height
        left = index % 2 * width
        rows, columns = part['img'].shape[:2]
        canvas[top : top + rows, left : left + columns] = part['img']
        boxes.append(part['gt_bboxes'].tensor + torch.tensor([left, top, left, top]))
        if 'gt_masks' in part:
            bitmaps = part['gt_masks'].expand(*size, top, left)
            masks.append(bitmaps.to_ndarray().astype(np.uint8))
    mosaic = dict(
        img=canvas,
        gt_bboxes=HorizontalBoxes(torch.cat(boxes), in_mode='xyxy'),
    )
    for key in ('gt_bboxes_labels', 'gt_ignore_flags'):
        mosaic[key] = np.concatenate([part[key] for part in parts])
    if masks:
        mosaic['gt_masks'] = BitmapMasks(np.concatenate(masks), *size)
    return mosaic


def affine_matrix(
    size: Size,
    angle: float,
    shift: Sequence[float],
    scale: float,
) -> np.ndarray:
    """[2, 3]: rotates by degrees and scales about the centre of (height, width), then shifts."""
    cos = scale * math.cos(math.radians(angle))
    sin = scale * math.sin(math.radians(angle))
    linear = np.array([[cos, -sin], [sin, cos]])
    centre = np.array([size[1] / 2, size[0] / 2])
    return np.column_stack([linear, centre + shift - linear @ centre])


def warp_affine(results: dict, matrix: np.ndarray) -> dict:
    """Apply an affine transform, in coordinates of pixel corners, to image, boxes and masks."""
    height, width = results['img'].shape[:2]
    # OpenCV's coordinates are 0 at the centre of the first pixel.
    to_centres = matrix.copy()
    to_centres[:, 2] += matrix[:, :2] @ (0.5, 0.5) - 0.5

    def warp(image: np.ndarray) -> np.ndarray:
        return cv2.warpAffine(
            image,
            to_centres,
            (width, height),
            flags=cv2.INTER_NEAREST,
        )

    x1, y1, x2, y2 = results['gt_bboxes'].tensor.double().unbind(1)
    corners = torch.stack([x1, y1, x2, y1, x2, y2, x1, y2], 1).reshape(-1, 4, 2)
    linear = torch.from_numpy(matrix[:, :2].T.copy())
    corners = corners @ linear + torch.from_numpy(matrix[:, 2])
    boxes = HorizontalBoxes(torch.cat([corners.amin(1), corners.amax(1)], 1).float())
    boxes.clip_((height, width))
    out = {**results, 'img': warp(results['img']), 'gt_bboxes': boxes}
    if 'gt_masks' in results:
        masks = [warp(mask) for mask in results['gt_masks'].masks]
        out['gt_masks'] = BitmapMasks(masks, height, width)
    return out
