"""Predictions as files: drawn pictures, COCO json, label images in colours of classes, depth."""

import io
import json
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch
from mmengine.structures import BaseDataElement
from mmengine.visualization import Visualizer

from ..data.classes import IGNORED
from ..data.images.drawing import draw, draw_depth, draw_features, encoded
from ..data.images.sources import Source
from ..data.mask_colours import write_labels
from ..data.panoptic import (
    OFFSET,
    PANOPTIC,
    panoptic_content,
    panoptic_segments,
    write_ids,
)
from ..data.rotated_results import rotated_annotation
from ..models.shared_backbone import FEATURES
from ..utils.results import Results, Write
from .formats import FORMATS, Detections, json_text, output_stem
from .place import Output, Wanted, file_state
from .thresholds import DEFAULT

if find_spec('pycocotools'):  # mmdet brings it, mmseg does not
    from pycocotools import mask as coco_mask

Image = np.ndarray  # uint8 [H, W, 3], blue, green, red
Written = tuple[Image, dict[str, Any]]  # the drawn picture, and what is to be noted
DRAWN, LABELS, SCORES, DEPTH = 'pictures', 'labels', 'scores', 'depth'


class Writer(ABC):
    """The files of predictions.

    Args:
        visualizer: with the classes of the model; None if no image is added.
        output: their place and formats.
        meta: ``classes``, their colours as ``palette``, ``convention`` of rotated boxes, and
            ``numbers`` of the labels in masks, see ``mask_numbers``; of panoptic models
            ``num_things``.
    """

    def __init__(
        self, visualizer: Visualizer | None, output: Output, meta: Mapping[str, Any]
    ) -> None:
        self.visualizer, self.output, self.meta = visualizer, output, meta
        self.out = output.folder
        self.journal = output.journal()

    @classmethod
    def check(
        cls, results: Results, folder: Path, wanted: Wanted, sources: Sequence[Source]
    ) -> None:
        """Raise ForeignFileError if a file to be written would replace one of the user's."""
        results.check(folder / name for name in cls.files(wanted))
        for source in sources:
            paths = (folder / name for name in cls.image_files(source, wanted))
            results.check(paths, source.id, keeps=True)

    @classmethod
    def files(cls, wanted: Wanted) -> list[str]:
        """The paths of the files of all images, below the folder."""
        return []

    @classmethod
    @abstractmethod
    def image_files(cls, source: Source, wanted: Wanted) -> list[str]:
        """The paths of the files of an image, below the folder."""

    def add(self, source: Source, image: Image, sample: BaseDataElement) -> Image:
        """Write the prediction for an image; returns the drawn picture."""
        drawn, about = self.write_sample(source, image, sample.cpu())
        self.write(source, f'{DRAWN}/{source.picture}', encoded(drawn))
        self.note(source, **about)
        return drawn

    def write_sample(
        self, source: Source, image: Image, sample: BaseDataElement
    ) -> Written:
        """Write a prediction but for its picture."""
        raise NotImplementedError

    @abstractmethod
    def finish(self) -> str:
        """Write what is left to be written; returns the number of images, in words."""

    def done(self) -> set[str]:
        """The names of the images that are done."""
        return {*self.journal.entries}

    def note(self, source: Source, **about: Any) -> None:
        """Note that an image is done."""
        state = file_state(source.path)
        known = dict(file_name=source.file_name, source=source.id, state=state)
        self.journal.add(known | about)

    def writing(self, source: Source) -> Write:
        """The function that writes a file of an image, which stays if the user has edited it."""
        return partial(self.output.results.write, source=source.id, keeps=True)

    def write(self, source: Source, name: str, content: bytes) -> None:
        """Write a file of an image, see ``writing``."""
        with self.writing(source)(self.out / name) as partial_file:
            partial_file.write_bytes(content)

    def tiles_file(self, source: Source) -> Path:
        """The result of an image that is predicted in tiles, see ``TiledImage``."""
        raise NotImplementedError

    def add_tiles(self, source: Source) -> None:
        """Add the image of this result."""
        self.note(source)


class DetectionFiles(Writer):
    """Boxes and masks of all images in some formats, see ``formats``, beside pictures."""

    def __init__(
        self, visualizer: Visualizer | None, output: Output, meta: Mapping[str, Any]
    ) -> None:
        super().__init__(visualizer, output, meta)
        self.classes = meta['classes']
        self.convention = meta.get('convention')
        least = output.min_scores
        self.min_scores = [least.get(name, DEFAULT) for name in self.classes]

    @classmethod
    def files(cls, wanted: Wanted) -> list[str]:
        names: list[str] = []
        for key in wanted.formats:
            names += FORMATS[key].files
        return names

    @classmethod
    def image_files(cls, source: Source, wanted: Wanted) -> list[str]:
        picture = f'{DRAWN}/{source.picture}'
        names = [picture]
        stem = output_stem(dict(picture=picture))
        for key in wanted.formats:
            labels = FORMATS[key].labels
            if labels:
                names.append(labels.format(stem))
        return names

    def write_sample(
        self, source: Source, image: Image, sample: BaseDataElement
    ) -> Written:
        objects: list[dict] = []
        highest = 0.0  # score of any box, also of those left out
        if 'pred_instances' in sample:
            found = sample.pred_instances
            highest = max(found.scores.tolist(), default=0.0)
            found = found[found.scores >= torch.tensor(self.min_scores)[found.labels]]
            objects = coco_annotations(found, self.convention)
            sample.pred_instances = found
        drawn = draw(self.visualizer, source.picture, image, sample, pred_score_thr=0.0)
        height, width = image.shape[:2]
        about = dict(objects=objects, height=height, width=width, highest=highest)
        return drawn, about

    def note(self, source: Source, **about: Any) -> None:
        """Note an image and its objects, in COCO's form but for their numbers."""
        super().note(source, picture=f'{DRAWN}/{source.picture}', **about)

    def tiles_file(self, source: Source) -> Path:
        return self.out / path_in('tiles', source, '.json')

    def add_tiles(self, source: Source) -> None:
        text = self.tiles_file(source).read_text(encoding='utf-8')
        content = json.loads(text)
        image = content['images'][0]
        self.note(
            source,
            objects=content['annotations'],
            height=image['height'],
            width=image['width'],
            highest=0.0,
        )

    def detections(self) -> Detections:
        """All that was predicted."""
        entries = [*self.journal.entries.values()]
        return Detections(self.output, entries, self.classes, self.convention)

    def finish(self) -> str:
        """Write all formats; returns the numbers of objects and images, in words."""
        found = self.detections()
        formats = dict.fromkeys(self.output.wanted.formats)
        written = [str(FORMATS[name].write(found)) for name in formats]
        objects = 0
        highest = 0.0
        for entry in found.entries:
            objects += len(entry['objects'])
            highest = max(highest, entry['highest'])
        said = f'{objects} objects in {len(found.entries)} images: {", ".join(written)}'
        if highest and not objects:
            least = f'--score {min(self.min_scores):g}'
            said += f'\nthe highest score is {highest:.2g}, below {least}'
        return said


def coco_annotations(
    instances: BaseDataElement, convention: str | None = None
) -> list[dict]:
    """Objects as annotations of COCO, classes from 1, rotated boxes by a convention."""
    results = []
    boxes = instances.bboxes.numpy() if 'bboxes' in instances else None
    scores = instances.scores.tolist()
    labels = instances.labels.tolist()
    for index, (score, label) in enumerate(zip(scores, labels, strict=True)):
        annotation: dict[str, Any] = dict(category_id=label + 1, score=score, iscrowd=0)
        if 'masks' in instances:
            run_lengths = instances.masks[index]  # of a ``TileJoiner``, or pixels
            if not isinstance(run_lengths, dict):
                pixels = np.asfortranarray(run_lengths.numpy(), np.uint8)
                run_lengths = coco_mask.encode(pixels)
            size = list(run_lengths['size'])
            counts = run_lengths['counts'].decode()
            annotation['area'] = int(coco_mask.area(run_lengths))
            annotation['bbox'] = coco_mask.toBbox(run_lengths).tolist()
            annotation['segmentation'] = dict(size=size, counts=counts)
        if boxes is not None and convention:
            annotation |= rotated_annotation(boxes[index], convention)
        elif boxes is not None and boxes[index].any():
            left, top, right, bottom = boxes[index].tolist()
            annotation['bbox'] = [left, top, right - left, bottom - top]
            annotation.setdefault('area', (right - left) * (bottom - top))
        results.append(annotation)
    return results


def class_scores(sample: BaseDataElement) -> np.ndarray:
    """The probability of each class of a segmentor, float16 [K, H, W]."""
    logits = sample.seg_logits.data.float()
    likely = logits.softmax(0) if len(logits) > 1 else logits.sigmoid()
    return likely.half().numpy()


class SegmentationFiles(Writer):
    """A label image for each image, `out`/labels/NAME.png, beside pictures.

    Numbered as the masks of the data set. With ``wanted.scores`` also the probability of each
    class, `out`/scores/NAME.npy, float16 [K, H, W].
    """

    @classmethod
    def image_files(cls, source: Source, wanted: Wanted) -> list[str]:
        names = [f'{DRAWN}/{source.picture}', path_in(LABELS, source, '.png')]
        if wanted.scores:
            names.append(path_in(SCORES, source, '.npy'))
        return names

    def write_sample(
        self, source: Source, image: Image, sample: BaseDataElement
    ) -> Written:
        self.write_labels(source, sample.pred_sem_seg.data[0].numpy())
        if self.output.wanted.scores and 'seg_logits' in sample:
            path = path_in(SCORES, source, '.npy')
            self.write(source, path, array_content(class_scores(sample)))
        drawn = draw(self.visualizer, source.picture, image, sample)
        return drawn, {}

    def write_labels(self, source: Source, labels: np.ndarray) -> None:
        """Write class numbers [H, W] as the data set numbers them."""
        path = self.out / path_in(LABELS, source, '.png')
        with self.writing(source)(path) as file:
            write_labels(labels, file, self.meta['palette'], self.meta.get('numbers'))

    def tiles_file(self, source: Source) -> Path:
        return self.out / path_in(LABELS, source, '.png')

    def finish(self) -> str:
        return f'{len(self.journal.entries)} images: {self.out}'


class PanopticFiles(SegmentationFiles):
    """Segments as COCO has them, panoptic.json and `out`/panoptic/NAME.png, beside label images."""

    @classmethod
    def files(cls, wanted: Wanted) -> list[str]:
        return [f'{PANOPTIC}.json']

    @classmethod
    def image_files(cls, source: Source, wanted: Wanted) -> list[str]:
        return [
            f'{DRAWN}/{source.picture}',
            path_in(LABELS, source, '.png'),
            path_in(PANOPTIC, source, '.png'),
        ]

    def write_sample(
        self, source: Source, image: Image, sample: BaseDataElement
    ) -> Written:
        labels = sample.pred_panoptic_seg.sem_seg[0].numpy()
        numbers = range(1, len(self.meta['classes']) + 1)
        ids, segments = panoptic_segments(labels, numbers)
        path = path_in(PANOPTIC, source, '.png')
        with self.writing(source)(self.out / path) as file:
            write_ids(ids, file)
        classes = labels % OFFSET
        is_class = classes < len(numbers)
        self.write_labels(source, np.where(is_class, classes, IGNORED))
        drawn = draw(self.visualizer, source.picture, image, sample)
        height, width = labels.shape
        png = path.removeprefix(f'{PANOPTIC}/')
        return drawn, dict(height=height, width=width, png=png, segments=segments)

    def finish(self) -> str:
        entries = self.journal.entries.values()
        meta = self.meta
        content = panoptic_content(
            entries,
            meta['classes'],
            meta['palette'],
            meta['num_things'],
            range(1, len(meta['classes']) + 1),
        )
        path = self.out / f'{PANOPTIC}.json'
        self.output.results.write_text(path, json_text(content))
        segments = sum(len(entry['segments']) for entry in entries)
        return f'{segments} segments in {len(entries)} images: {path}'


class ArrayFiles(Writer):
    """An array of each image, `out`/KIND/NAME.npy, beside pictures."""

    kind: ClassVar[str]
    draw: 'ClassVar[staticmethod[[Image, np.ndarray], Image]]'  # of an image's array

    @classmethod
    def image_files(cls, source: Source, wanted: Wanted) -> list[str]:
        return [f'{DRAWN}/{source.picture}', path_in(cls.kind, source, '.npy')]

    def write_sample(
        self, source: Source, image: Image, sample: BaseDataElement
    ) -> Written:
        values = self.array_of(sample)
        self.write(source, path_in(self.kind, source, '.npy'), array_content(values))
        return self.draw(image, values), {}

    @abstractmethod
    def array_of(self, sample: BaseDataElement) -> np.ndarray:
        """The array of a prediction."""

    def finish(self) -> str:
        return f'{self.kind} of {len(self.journal.entries)} images: {self.out}'


class DepthFiles(ArrayFiles):
    """Depth, float32 [H, W], and pictures with a legend."""

    kind = DEPTH
    draw = staticmethod(draw_depth)

    def array_of(self, sample: BaseDataElement) -> np.ndarray:
        return sample.pred_depth_map.data[0].numpy()

    def tiles_file(self, source: Source) -> Path:
        return self.out / path_in(DEPTH, source, '.tif')


class FeatureFiles(ArrayFiles):
    """Features, float16 [C, H, W], and their principal components in colours."""

    kind = FEATURES
    draw = staticmethod(draw_features)

    def array_of(self, sample: BaseDataElement) -> np.ndarray:
        return sample.data.half().numpy()


class TaskFiles(Writer):
    """The files of several tasks, each in a folder of its own in ``out``."""

    def __init__(self, out: Path, writers: Mapping[str, Writer]) -> None:
        self.out = out
        self.writers = writers

    @classmethod
    def image_files(cls, source: Source, wanted: Wanted) -> list[str]:
        return []  # known when the model of each task is

    def add(self, source: Source, image: Image, sample: BaseDataElement) -> Image:
        """Write the predictions for an image; returns the pictures of all tasks side by side."""
        pictures = []
        for name, writer in self.writers.items():
            pictures.append(writer.add(source, image, sample.get(name)))
        return np.hstack(pictures)

    def done(self) -> set[str]:
        return set.intersection(*(writer.done() for writer in self.writers.values()))

    def finish(self) -> str:
        return '\n'.join(writer.finish() for writer in self.writers.values())


def path_in(folder: str, source: Source, suffix: str) -> str:
    """The path of a result of an image in a folder of results of one kind."""
    return f'{folder}/{Path(source.picture).with_suffix(suffix).as_posix()}'


def array_content(values: np.ndarray) -> bytes:
    """The content of a .npy file."""
    buffer = io.BytesIO()
    np.save(buffer, values)
    return buffer.getvalue()
