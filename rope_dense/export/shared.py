"""Several heads on one backbone, in one file.

Letters: B images, H x W token grid, C channels.
"""

from typing import Any

import torch
from torch import Tensor, nn

from ..models.shared_backbone import FEATURES, SharedBackbone, TaskBackbone, share_parts
from .client import Frame
from .graphs import Graph, Preprocess, graph_of


class SharedGraph(Graph):
    """``SharedBackbone``: uint8 images to the outputs of all tasks, TASK_OUTPUT by name.

    ``features`` are [B, C, H, W], float32. The backbone is in the file once.
    """

    task = 'several'
    graphs: Any  # nn.ModuleDict, whose items have no types

    def __init__(self, model: SharedBackbone, dtype: torch.dtype) -> None:
        super().__init__(model, dtype)
        shared = self.model
        self.preprocess = Preprocess(shared.data_preprocessor)
        self.graphs = nn.ModuleDict(
            {name: graph_of(task, dtype) for name, task in model.tasks.items()}
        )
        shared.backbone.to(dtype)
        for graph in self.graphs.values():
            graph.preprocess = self.preprocess  # done once, for all
            for part in graph.modules():
                if isinstance(part, TaskBackbone):
                    share_parts(shared.backbone, part)
        shared.tasks = nn.ModuleDict()
        heights, widths = zip(
            *(graph.generic for graph in self.graphs.values()), strict=True
        )
        self.generic = max(heights), max(widths)
        self.formats = tuple(
            name
            for name in self.formats
            if all(name in g.formats for g in self.graphs.values())
        )
        parts = [part for graph in self.graphs.values() for part in graph.float32_parts]
        self.float32_parts = tuple(dict.fromkeys(parts))
        self.metas = shared.dataset_metas
        self.outputs = (
            *(output for outputs in self.names().values() for output in outputs),
            *([FEATURES] if shared.features else []),
        )

    def names(self) -> dict[str, list[str]]:
        """The names of the outputs of each task."""
        return {
            task: [f'{task}_{name}' for name in graph.outputs]
            for task, graph in self.graphs.items()
        }

    @property
    def detections(self) -> list[list[str]]:
        names = self.names()
        return [names[task] for task, g in self.graphs.items() if g.task == 'detection']

    def details(self) -> dict:
        tasks = {
            name: dict(
                task=graph.task,
                outputs=self.names()[name],
                num_classes=graph.num_classes,
                classes=self.metas[name].get('classes'),
            )
            for name, graph in self.graphs.items()
        }
        return dict(tasks=tasks)

    def results(self, x: Tensor, frame: Frame) -> tuple[Tensor, ...]:
        outputs: list[Tensor] = []
        with self.model.encoded(x.to(self.dtype)):
            for graph in self.graphs.values():
                outputs += graph.results(x, frame)
            if self.model.features:
                outputs.append(self.model.feature_map().float())
        return tuple(outputs)


GRAPHS = {SharedBackbone: SharedGraph}
