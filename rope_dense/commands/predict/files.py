"""Predictions as files: drawn pictures, COCO json, label images with the palette of the classes."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
from mmengine.structures import BaseDataElement
from mmengine.visualization import Visualizer

from ...datasets.drawing import draw
from ...datasets.mask_colours import write_labels
from ...utils.atomic_write import atomic_write_text

if find_spec('pycocotools'):  # mmdet brings it, mmseg does not
    from pycocotools import mask as coco_mask

Colour = tuple[int, int, int]  # red, green, blue
DRAWN, LABELS, SCORES = 'pictures', 'labels', 'scores'
PANOPTIC_OFFSET = 1000  # mmdet's INSTANCE_OFFSET: class + 1000 x instance


class DetectionFiles:
    """Boxes and masks of all images in one COCO file, `out`/predictions.json, beside pictures.

    Args:
        visualizer: of mmdet, with the classes of the model.
        out: folder.
        classes: names.
        min_score: of a box that is written and drawn.
    """

    def __init__(
        self, visualizer: Visualizer, out: Path, classes: Sequence[str], min_score: float
    ) -> None:
        self.visualizer, self.out, self.classes = visualizer, out, classes
        self.min_score = min_score
        self.highest = 0.0  # score of any box, also of those left out
        self.images: list[dict] = []
        self.annotations: list[dict] = []

    def add(self, name: str, image: np.ndarray, sample: BaseDataElement) -> np.ndarray:
        """Write the prediction for an image [H, W, 3], BGR; returns the drawn picture, BGR."""
        sample = sample.cpu()
        image_id = self.add_image(name, *image.shape[:2])
        if 'pred_instances' in sample:
            scores = sample.pred_instances.get('scores', ())
            self.highest = max([self.highest, *map(float, scores)])
            for annotation in coco_annotations(sample.pred_instances, self.min_score):
                self.add_annotation(image_id, annotation)
        path = self.out / DRAWN / name
        return draw(self.visualizer, path, image, sample, pred_score_thr=self.min_score)

    def add_image(self, name: str, height: int, width: int) -> int:
        """Add an image to the file; returns its number."""
        number = len(self.images) + 1
        self.images.append(dict(id=number, file_name=name, height=height, width=width))
        return number

    def add_annotation(self, image_id: int, annotation: Mapping[str, Any]) -> None:
        """Add an object of an image to the file."""
        number = len(self.annotations) + 1
        self.annotations.append({**annotation, 'id': number, 'image_id': image_id})

    def close(self) -> str:
        """Write the COCO file; returns the numbers of objects and images, in words."""
        categories = [dict(id=index, name=name) for index, name in enumerate(self.classes, start=1)]
        content = dict(images=self.images, annotations=self.annotations, categories=categories)
        file = self.out / 'predictions.json'
        atomic_write_text(file, json.dumps(content) + '\n')
        said = f'{len(self.annotations)} objects in {len(self.images)} images: {file}'
        if self.highest and not self.annotations:
            said += f'\nthe highest score is {self.highest:.2g}, below --score {self.min_score:g}'
        return said


def coco_annotations(instances: BaseDataElement, min_score: float) -> list[dict]:
    """Objects with a score of at least `min_score`, as annotations of COCO; classes from 1."""
    results = []
    boxes = instances.bboxes.numpy() if 'bboxes' in instances else None
    for index, (score, label) in enumerate(
        zip(instances.scores.tolist(), instances.labels.tolist(), strict=True)
    ):
        if score < min_score:
            continue
        annotation: dict[str, Any] = dict(category_id=label + 1, score=score, iscrowd=0)
        if 'masks' in instances:
            mask = np.asfortranarray(instances.masks[index].numpy(), np.uint8)
            run_lengths = coco_mask.encode(mask)
            annotation['area'] = int(mask.sum())
            annotation['bbox'] = coco_mask.toBbox(run_lengths).tolist()
            counts = run_lengths['counts'].decode()
            annotation['segmentation'] = dict(size=list(mask.shape), counts=counts)
        if boxes is not None and boxes[index].any():
            left, top, right, bottom = boxes[index].tolist()
            annotation['bbox'] = [left, top, right - left, bottom - top]
            annotation.setdefault('area', (right - left) * (bottom - top))
        results.append(annotation)
    return results


class SegmentationFiles:
    """A label image for each image, `out`/labels/NAME.png, beside pictures.

    Args:
        visualizer: of mmseg, or of mmdet for panoptic models, with the classes of the model.
        out: folder.
        colours: of the classes, by their numbers.
        scores: also write the probability of each class, `out`/scores/NAME.npy, float16 [K, H, W].
    """

    def __init__(
        self, visualizer: Visualizer, out: Path, colours: Sequence[Colour], scores: bool
    ) -> None:
        self.settings = (
            {'with_labels': False} if type(visualizer).__name__.startswith('Seg') else {}
        )
        self.visualizer, self.out, self.colours = visualizer, out, colours
        self.scores, self.count = scores, 0

    def add(self, name: str, image: np.ndarray, sample: BaseDataElement) -> np.ndarray:
        """Write the prediction for an image [H, W, 3], BGR; returns the drawn picture, BGR."""
        sample = sample.cpu()
        self.count += 1
        stem = Path(name).with_suffix('')
        if 'pred_depth_map' in sample:
            self.save(SCORES, stem, sample.pred_depth_map.data[0].numpy())
        else:
            panoptic = 'pred_panoptic_seg' in sample
            data = sample.pred_panoptic_seg.sem_seg if panoptic else sample.pred_sem_seg.data
            labels = data[0].numpy() % PANOPTIC_OFFSET if panoptic else data[0].numpy()
            write_labels(labels.astype(np.uint8), self.out / LABELS / f'{stem}.png', self.colours)
        if self.scores and 'seg_logits' in sample:
            logits = sample.seg_logits.data.float()
            likely = logits.softmax(0) if len(logits) > 1 else logits.sigmoid()
            self.save(SCORES, stem, likely.half().numpy())
        return draw(self.visualizer, self.out / DRAWN / name, image, sample, **self.settings)

    def save(self, folder: str, stem: Path, values: np.ndarray) -> None:
        """Write an array as `out`/`folder`/`stem`.npy."""
        path = self.out / folder / f'{stem}.npy'
        path.parent.mkdir(parents=True, exist_ok=True)
        np.save(path, values)

    def close(self) -> str:
        """The number of images, in words."""
        return f'{self.count} images: {self.out}'
