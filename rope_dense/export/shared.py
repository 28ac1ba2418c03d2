"""Several heads on one backbone, in one file.

Letters: B images, H x W token grid, C channels.
"""

from typing import Any

import torch
from torch import Tensor, nn

from ..models.shared_backbone import FEATURES, SharedBackbone, TaskBackbone, share_parts
from .client import Frame
from .graphs import Graph, Outputs, graph_of


class SharedGraph(Graph):
    """``SharedBackbone``: uint8 images to the outputs of all tasks, TASK_OUTPUT by name.

    ``features`` are [B, C, H, W], float32. The backbone is in the file once.
    """

    task = 'several'
    graphs: Any  # nn.ModuleDict, whose items have no types

    def __init__(self, model: SharedBackbone, dtype: torch.dtype) -> None:
        super().__init__(model, dtype)
        shared = self.model
        shared.backbone.to(dtype)
        self.graphs = nn.ModuleDict()
        parts: list[str] = []
        outputs: list[str] = []
        heights = []
        widths = []
        for name, task in model.tasks.items():
            graph = graph_of(task, dtype)
            self.graphs[name] = graph
            graph.preprocess = self.preprocess  # done once, for all
            for part in graph.modules():
                if isinstance(part, TaskBackbone):
                    share_parts(shared.backbone, part)
            heights.append(graph.generic[0])
            widths.append(graph.generic[1])
            self.formats = tuple(x for x in self.formats if x in graph.formats)
            parts += graph.float32_parts
            outputs += self.names_of(name)
        shared.tasks = nn.ModuleDict()
        self.generic = max(heights), max(widths)
        self.float32_parts = tuple(dict.fromkeys(parts))
        self.metas = shared.dataset_metas
        if shared.features:
            outputs.append(FEATURES)
        self.outputs = tuple(outputs)

    def names_of(self, task: str) -> list[str]:
        """The names of the outputs of a task."""
        return [f'{task}_{name}' for name in self.graphs[task].outputs]

    @property
    def detections(self) -> list[list[str]]:
        found = []
        for task, graph in self.graphs.items():
            if graph.task == 'detection':
                found.append(self.names_of(task))
        return found

    def details(self) -> dict:
        tasks = {}
        for name, graph in self.graphs.items():
            tasks[name] = dict(
                task=graph.task,
                outputs=self.names_of(name),
                num_classes=graph.num_classes,
                classes=self.metas[name].get('classes'),
                **graph.details(),
            )
        return dict(tasks=tasks)

    def results(self, x: Tensor, frame: Frame) -> Outputs:
        outputs: list[Tensor] = []
        with self.model.encoded(x.to(self.dtype)):
            for graph in self.graphs.values():
                outputs += graph.results(x, frame)
            if self.model.features:
                outputs.append(self.model.feature_map().float())
        return tuple(outputs)


GRAPHS = {SharedBackbone: SharedGraph}
