"""The export of a classifier: uint8 images to scores."""

import torch
from torch import Tensor

from rope_dense.export.client import Frame
from rope_dense.export.graphs import GRAPHS, Graph, Preprocess

from .classifier import RoPEClassifier


class ClassifierGraph(Graph):
    """``RoPEClassifier``: uint8 images to scores [B, K] before the softmax."""

    task, outputs = 'classification', ('scores',)
    float32_parts = Graph.float32_parts[:2]

    def __init__(self, model: RoPEClassifier, dtype: torch.dtype) -> None:
        super().__init__(model, dtype)
        self.num_classes = model.num_classes
        self.preprocess = Preprocess(model.data_preprocessor)
        self.model.to(dtype)

    def results(self, x: Tensor, frame: Frame) -> tuple[Tensor, ...]:
        return (self.model(x.to(self.dtype)).float(),)


GRAPHS[RoPEClassifier] = ClassifierGraph
