"""An exported file in place of its model, in tests and predictions.

Letters: C channels, H x W pixels, M detections.
"""

import json
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from mmengine.config import Config
from mmengine.structures import InstanceData
from torch import Tensor

from ..models.deim.masks import in_image
from ..project.contents import datasets_of
from ..utils.config_parts import size_steps
from ..utils.errors import UsageError
from .compare import as_input, largest_difference, runners
from .exporter import FORMATS, METADATA, graph_for
from .graphs import Graph

COMPARED = 10  # images, which the model predicts, too
TASKS = 'detection', 'segmentation', 'depth', 'masks', 'several'
PROGRAMS = dict(onnxruntime='ONNX Runtime', openvino='OpenVINO')


class FileModel:
    """A file that computes what a model would.

    Args:
        path: NAME.onnx or NAME.pt2; NAME.json beside it unless the file has the metadata.
        runtime: program that runs it, a key of ``PROGRAMS``; by default the first that is here.

    Raises:
        UsageError: the program is not here, or the kind of file cannot be tested.
    """

    def __init__(self, path: Path, runtime: str | None = None) -> None:
        self.path = path
        self.metadata = metadata_of(path)
        if self.metadata['task'] not in TASKS:
            raise UsageError(f'{path}: files of objects, labels or depth can be tested')
        self.outputs = self.metadata['outputs']
        self.prefix = ''  # of the outputs of a task, in a file of several
        programs = runners(path)
        if runtime is not None:
            wanted = PROGRAMS[runtime]
            programs = {k: run for k, run in programs.items() if k.startswith(wanted)}
        if not programs:
            needed = runtime or 'onnxruntime'
            raise UsageError(f'{path}: the program is not here: pip install {needed}')
        self.program, self.run = next(iter(programs.items()))
        self.graph: Graph | None = None
        self.number = 0
        self.seconds = 0.0
        self.difference = 0.0

    def keep_sizes(self, cfg: Config) -> None:
        """Leave images of tests as they are, if the file resizes them."""
        if not self.metadata['resized']:
            return
        for _, dataset in datasets_of(cfg, 'test_dataloader'):
            for _, step, _ in size_steps(dataset.get('pipeline')):
                if 'Resize' in step.type:
                    step.clear()
                    step.update(type='Resize', scale_factor=1.0, keep_ratio=True)

    def predict_for(self, model: Any, known: Sequence[str]) -> None:
        """Let a model of the ``known`` classes predict what the file does.

        Raises:
            UsageError: the classes of the file are others.
        """
        self.model = getattr(model, 'module', model)
        known = list(known)
        if self.metadata['task'] == 'several':
            self.choose_task(known)
        classes = self.metadata['classes']
        if classes and known and known != classes:
            raise UsageError(
                f'{self.path} has the classes {classes}, the model {known}'
            )
        model.test_step = self.step

    def choose_task(self, classes: list[str]) -> None:
        """Take the outputs of the task with these classes."""
        tasks = self.metadata['tasks']
        same = [name for name in tasks if (tasks[name]['classes'] or []) == classes]
        if len(same) != 1:
            names = ', '.join(tasks)
            raise UsageError(
                f'{self.path}: {len(same)} of its tasks ({names}) have the classes {classes} of '
                'the model: export the one of the model in a file of its own'
            )
        self.prefix = f'{same[0]}_'
        self.metadata |= tasks[same[0]]

    def step(self, data: dict) -> list:
        """Samples with the predictions of images, as the model's ``test_step``."""
        results = []
        pairs = zip(data['inputs'], data['data_samples'], strict=True)
        for picture, sample in pairs:
            results += self.sample(self.predict(picture), sample, picture.shape[1:])
        return results

    def predict(self, picture: Tensor) -> dict[str, Tensor]:
        """The outputs for an image [C, H, W], by name."""
        size = self.metadata['size']
        if size != 'dynamic' and (
            picture.shape[1] > size[0] or picture.shape[2] > size[1]
        ):
            given = ' x '.join(map(str, picture.shape[1:]))
            raise UsageError(
                f'{self.path} takes images of {size[0]} x {size[1]}, an image of the test has '
                f'{given}: export without --size, or a .onnx with --resize'
            )
        image = as_input(picture, self.metadata)
        started = time.perf_counter()
        outputs = self.run(image)
        if self.number:  # the program was loaded
            self.seconds += time.perf_counter() - started
        self.number += 1
        named = dict(zip(self.outputs, outputs, strict=True))
        found = {}
        for name in self.metadata['outputs']:
            found[name.removeprefix(self.prefix)] = named[name]
        if self.number <= COMPARED:
            if self.graph is None:  # the model has its weights
                graph = graph_for(self.model, self.metadata)
                if graph.outputs != tuple(found):
                    raise UsageError(
                        f'{self.path} computes {", ".join(found)}, the model '
                        f'{", ".join(graph.outputs)}: give the run of the file'
                    )
                self.graph = graph
            with torch.no_grad():
                expected = self.graph(image)
            worst = largest_difference(self.graph, list(found.values()), expected)
            self.difference = max(self.difference, worst)
        return {name: out[0] for name, out in found.items()}

    def sample(
        self, found: dict[str, Tensor], sample: Any, size: Sequence[int]
    ) -> list:
        """The sample of an image of H x W pixels with what was found."""
        if self.metadata['task'] == 'masks':
            logits = found['masks'].logit(1e-6)
            given = found['classes'].log()[None], logits[None], [sample]
            results = self.model.panoptic_fusion_head.predict(*given, rescale=True)
            return self.model.add_pred_to_datasample([sample], results)
        if self.metadata['task'] == 'detection':
            divisor = self.metadata.get('padded_to')
            instances = instances_of(found, sample, size, divisor)
            if 'corners' in found:
                instances.bboxes.regularize_boxes(self.metadata['angle_version'])
            return self.model.add_pred_to_datasample([sample], [instances])
        name = 'depth' if self.metadata['task'] == 'depth' else 'logits'
        maps = found[name][None, :, : size[0], : size[1]]
        return self.model.postprocess_result(maps, [sample])

    def said(self) -> str:
        """What was run, how fast, and how far it was from the model."""
        rate = (self.number - 1) / self.seconds if self.seconds else 0.0
        settings = getattr(self.model, 'test_cfg', None) or {}
        windows = ''
        if settings.get('mode') == 'slide':
            windows = '; it sees whole images, the model sliding windows'
        return (
            f'{self.path} in {self.program}: {self.number} images, {rate:.1f} a second; largest '
            f'difference from the model in fp32 in the first {min(self.number, COMPARED)}: '
            f'{self.difference:.1e}{windows}'
        )


def instances_of(
    found: dict[str, Tensor], sample: Any, size: Sequence[int], divisor: int | None
) -> InstanceData:
    """The detections of an image of H x W pixels, in pixels of its file.

    ``divisor`` of the padded sides whose quarter small masks are, None of masks in pixels.
    """
    kept = found['scores'] > 0
    across, down = sample.metainfo.get('scale_factor', (1.0, 1.0))[:2]
    boxes = found['boxes'][kept]
    if 'corners' in found:
        from mmrotate.structures.bbox import RotatedBoxes

        boxes = RotatedBoxes(boxes)
        boxes.rescale_((1 / across, 1 / down))
    else:
        boxes = boxes / torch.tensor([across, down] * 2)
    scores = found['scores'][kept]
    instances = InstanceData(bboxes=boxes, scores=scores, labels=found['labels'][kept])
    if 'masks' in found:
        masks = found['masks'][kept]
        if masks.dtype == torch.bool:
            masks = masks.float() - 0.5
        step = divisor or 1
        padded = [-(-side // step) * step for side in size]
        instances.masks = in_image(masks, padded, size, sample.ori_shape[:2])
    return instances


def metadata_of(path: Path) -> dict:
    """What ``export`` has written into a file, or beside it; UsageError if it is lost."""
    if path.suffix not in FORMATS:
        raise UsageError(f'{path}: give {" or ".join(map("NAME{}".format, FORMATS))}')
    if path.suffix == '.onnx':
        import onnx
        from google.protobuf.message import (  # type: ignore[import-untyped]
            DecodeError,
        )

        try:
            model = onnx.load(path, load_external_data=False)
        except DecodeError as error:
            raise UsageError(f'{path} is no ONNX file') from error
        for entry in model.metadata_props:
            if entry.key == METADATA:
                return json.loads(entry.value)
    beside = path.with_suffix('.json')
    if not beside.is_file():
        raise UsageError(f'{path}: put {beside.name}, which export wrote, beside it')
    return json.loads(beside.read_text())
