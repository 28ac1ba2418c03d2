"""Predictions as files: drawn pictures, COCO json, label images in colours of classes, depth."""

import json
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch
from mmengine.structures import BaseDataElement
from mmengine.visualization import Visualizer

from ..datasets.images.drawing import draw, draw_depth, draw_features
from ..datasets.mask_colours import write_labels
from ..datasets.rotated_results import rotated_annotation
from ..models.shared_backbone import FEATURES
from .formats import ABOUT, FORMATS, Output
from .thresholds import DEFAULT

if find_spec('pycocotools'):  # mmdet brings it, mmseg does not
    from pycocotools import mask as coco_mask

Image = np.ndarray  # uint8 [H, W, 3], blue, green, red
DRAWN, LABELS, SCORES, DEPTH = 'pictures', 'labels', 'scores', 'depth'
PANOPTIC_OFFSET = 1000  # mmdet's INSTANCE_OFFSET: class + 1000 x instance


class Writer(ABC):
    """The files of predictions.

    Args:
        visualizer: with the classes of the model; None if no image is added.
        output: their place and formats.
        meta: ``classes``, their colours as ``palette``, and ``convention`` of rotated boxes.
    """

    def __init__(
        self, visualizer: Visualizer | None, output: Output, meta: Mapping[str, Any]
    ) -> None:
        self.visualizer, self.output, self.meta = visualizer, output, meta
        self.out, self.journal = output.folder, output.journal()

    @abstractmethod
    def add(self, file_name: str, picture: str, image: Image, sample: BaseDataElement) -> Image:
        """Write the prediction for an image; returns the drawn picture."""

    @abstractmethod
    def finish(self) -> str:
        """Write what is left to be written; returns the number of images, in words."""

    def done(self) -> set[str]:
        """The names of the images that are done."""
        return {*self.journal.entries}

    def tiles_file(self, picture: str) -> Path:
        """The result of an image that is predicted in tiles, see ``TiledImage``."""
        raise NotImplementedError

    def add_tiles(self, file_name: str, picture: str) -> None:
        """Add the image of this result."""
        self.journal.add(dict(file_name=file_name))


class DetectionFiles(Writer):
    """Boxes and masks of all images in some formats, see ``formats``, beside pictures."""

    def __init__(
        self, visualizer: Visualizer | None, output: Output, meta: Mapping[str, Any]
    ) -> None:
        super().__init__(visualizer, output, meta)
        self.classes, self.convention = meta['classes'], meta.get('convention')
        self.min_scores = [output.min_scores.get(name, DEFAULT) for name in self.classes]

    def add(self, file_name: str, picture: str, image: Image, sample: BaseDataElement) -> Image:
        sample = sample.cpu()
        objects: list[dict] = []
        highest = 0.0  # score of any box, also of those left out
        if 'pred_instances' in sample:
            found = sample.pred_instances
            highest = max(found.scores.tolist(), default=0.0)
            found = found[found.scores >= torch.tensor(self.min_scores)[found.labels]]
            objects = coco_annotations(found, self.convention)
            sample.pred_instances = found
        path = self.out / DRAWN / picture
        drawn = draw(self.visualizer, path, image, sample, pred_score_thr=0.0)
        height, width = image.shape[:2]
        about = dict(file_name=file_name, height=height, width=width, highest=highest)
        self.add_image(about, picture, objects)
        return drawn

    def add_image(self, image: dict, picture: str, objects: Sequence[dict]) -> None:
        """Add an image and its objects, in COCO's form but for their numbers."""
        image = dict(image, picture=f'{DRAWN}/{picture}')
        about = {key: image[key] for key in ABOUT}
        self.journal.add(dict(about, objects=list(objects), highest=image.get('highest', 0.0)))

    def tiles_file(self, picture: str) -> Path:
        return self.out / 'tiles' / Path(picture).with_suffix('.json')

    def add_tiles(self, file_name: str, picture: str) -> None:
        content = json.loads(self.tiles_file(picture).read_text(encoding='utf-8'))
        image = dict(content['images'][0], file_name=file_name)
        self.add_image(image, picture, content['annotations'])

    def finish(self) -> str:
        """Write all formats; returns the numbers of objects and images, in words."""
        written = [str(FORMATS[name](self)) for name in dict.fromkeys(self.output.formats)]
        self.journal.remove()
        objects = sum(len(entry['objects']) for entry in self.journal.entries.values())
        highest = max((entry['highest'] for entry in self.journal.entries.values()), default=0.0)
        said = f'{objects} objects in {len(self.journal.entries)} images: {", ".join(written)}'
        if highest and not objects:
            said += f'\nthe highest score is {highest:.2g}, below --score {min(self.min_scores):g}'
        return said


def coco_annotations(instances: BaseDataElement, convention: str | None = None) -> list[dict]:
    """Objects as annotations of COCO, classes from 1, rotated boxes by a convention."""
    results = []
    boxes = instances.bboxes.numpy() if 'bboxes' in instances else None
    for index, (score, label) in enumerate(
        zip(instances.scores.tolist(), instances.labels.tolist(), strict=True)
    ):
        annotation: dict[str, Any] = dict(category_id=label + 1, score=score, iscrowd=0)
        if 'masks' in instances:
            run_lengths = instances.masks[index]  # of a ``TileJoiner``, or pixels
            if not isinstance(run_lengths, dict):
                run_lengths = coco_mask.encode(np.asfortranarray(run_lengths.numpy(), np.uint8))
            annotation['area'] = int(coco_mask.area(run_lengths))
            annotation['bbox'] = coco_mask.toBbox(run_lengths).tolist()
            counts = run_lengths['counts'].decode()
            annotation['segmentation'] = dict(size=list(run_lengths['size']), counts=counts)
        if boxes is not None and convention:
            annotation |= rotated_annotation(boxes[index], convention)
        elif boxes is not None and boxes[index].any():
            left, top, right, bottom = boxes[index].tolist()
            annotation['bbox'] = [left, top, right - left, bottom - top]
            annotation.setdefault('area', (right - left) * (bottom - top))
        results.append(annotation)
    return results


class SegmentationFiles(Writer):
    """A label image for each image, `out`/labels/NAME.png, beside pictures.

    With ``output.scores`` also the probability of each class, `out`/scores/NAME.npy, float16
    [K, H, W].
    """

    def add(self, file_name: str, picture: str, image: Image, sample: BaseDataElement) -> Image:
        sample = sample.cpu()
        stem = Path(picture).with_suffix('')
        panoptic = 'pred_panoptic_seg' in sample
        data = sample.pred_panoptic_seg.sem_seg if panoptic else sample.pred_sem_seg.data
        labels = data[0].numpy() % PANOPTIC_OFFSET if panoptic else data[0].numpy()
        write_labels(labels, self.out / LABELS / f'{stem}.png', self.meta['palette'])
        if self.output.scores and 'seg_logits' in sample:
            logits = sample.seg_logits.data.float()
            likely = logits.softmax(0) if len(logits) > 1 else logits.sigmoid()
            save_array(self.out / SCORES / f'{stem}.npy', likely.half().numpy())
        settings = {} if panoptic else dict(with_labels=False)  # which mmseg's visualizer has
        drawn = draw(self.visualizer, self.out / DRAWN / picture, image, sample, **settings)
        self.journal.add(dict(file_name=file_name))
        return drawn

    def tiles_file(self, picture: str) -> Path:
        return self.out / LABELS / Path(picture).with_suffix('.png')

    def finish(self) -> str:
        self.journal.remove()
        return f'{len(self.journal.entries)} images: {self.out}'


class ArrayFiles(Writer):
    """An array of each image, `out`/KIND/NAME.npy, beside pictures."""

    kind: ClassVar[str]

    def add(self, file_name: str, picture: str, image: Image, sample: BaseDataElement) -> Image:
        values = self.array_of(sample.cpu())
        save_array(self.out / self.kind / Path(picture).with_suffix('.npy'), values)
        drawn = self.draw(self.out / DRAWN / picture, image, values)
        self.journal.add(dict(file_name=file_name))
        return drawn

    @abstractmethod
    def array_of(self, sample: BaseDataElement) -> np.ndarray:
        """The array of a prediction."""

    @abstractmethod
    def draw(self, path: Path, image: np.ndarray, values: np.ndarray) -> np.ndarray:
        """Write a picture of the array of an image, and return it."""

    def finish(self) -> str:
        self.journal.remove()
        return f'{self.kind} of {len(self.journal.entries)} images: {self.out}'


class DepthFiles(ArrayFiles):
    """Depth, float32 [H, W], and pictures with a legend."""

    kind = DEPTH

    def array_of(self, sample: BaseDataElement) -> np.ndarray:
        return sample.pred_depth_map.data[0].numpy()

    def draw(self, path: Path, image: np.ndarray, values: np.ndarray) -> np.ndarray:
        return draw_depth(path, image, values)

    def tiles_file(self, picture: str) -> Path:
        return self.out / DEPTH / Path(picture).with_suffix('.tif')


class FeatureFiles(ArrayFiles):
    """Features, float16 [C, H, W], and their principal components in colours."""

    kind = FEATURES

    def array_of(self, sample: BaseDataElement) -> np.ndarray:
        return sample.data.half().numpy()

    def draw(self, path: Path, image: np.ndarray, values: np.ndarray) -> np.ndarray:
        return draw_features(path, image, values)


class TaskFiles(Writer):
    """The files of several tasks, each in a folder of its own in ``out``."""

    def __init__(self, out: Path, writers: Mapping[str, Writer]) -> None:
        self.out, self.writers = out, writers

    def add(self, file_name: str, picture: str, image: Image, sample: BaseDataElement) -> Image:
        """Write the predictions for an image; returns the pictures of all tasks side by side."""
        pictures = [
            writer.add(file_name, picture, image, sample.get(name))
            for name, writer in self.writers.items()
        ]
        return np.hstack(pictures)

    def done(self) -> set[str]:
        return set.intersection(*(writer.done() for writer in self.writers.values()))

    def finish(self) -> str:
        return '\n'.join(writer.finish() for writer in self.writers.values())


def save_array(path: Path, values: np.ndarray) -> None:
    """Write an array, with its folder."""
    path.parent.mkdir(parents=True, exist_ok=True)
    np.save(path, values)
