"""Predictions of a detector or segmentor for tiles."""

from collections.abc import Callable, Iterator, Sequence

import numpy as np
import torch
from mmengine.config import Config
from mmengine.dataset import Compose
from mmengine.model import BaseModel
from mmengine.structures import BaseDataElement

from ..datasets.images.bands import drop_predictions_without_data, no_data
from ..utils.config_parts import pipelines, without_labels


class TilePredictor:
    """Predicts each tile as an image of its own, by the test pipeline of a config and the model.

    Built and called within the default scope of the config; the model is in evaluation mode, on its
    device. Of ``batch`` tiles at a time, ``report`` is called after each.
    """

    def __init__(
        self, model: BaseModel, config: Config, *, batch: int, report: Callable[[], None]
    ) -> None:
        self.model, self.batch, self.report = model, batch, report
        load, *steps = without_labels(next(pipelines(config.test_dataloader.dataset)))
        load = dict(load, type=load.type.replace('FromFile', 'FromNDArray'))
        self.pipeline = Compose([load, *steps])

    def __call__(self, tiles: Sequence[np.ndarray]) -> Iterator[BaseDataElement]:
        """Predictions in pixels of tiles, uint8 [H, W, 3] or float32 [H, W, n]."""
        for start in range(0, len(tiles), self.batch):
            batch = [*map(np.ascontiguousarray, tiles[start : start + self.batch])]
            data = [self.pipeline(dict(img=tile, img_id=0)) for tile in batch]
            inputs = {name: [item[name] for item in data] for name in ('inputs', 'data_samples')}
            with torch.no_grad():
                samples = self.model.test_step(inputs)
            for sample, tile in zip(samples, batch, strict=True):
                drop_predictions_without_data(sample, no_data(tile))
                yield sample
                self.report()
