"""Build a trained model: weights, and classes of the training data."""

from collections.abc import Sequence

import numpy as np
from mmengine.config import Config
from mmengine.model import BaseModel
from mmengine.registry import DATASETS

from ..project.angles import check_convention
from ..project.load import component_of, datasets_of
from ..project.weights import load_tested_weights
from .model import build_model, check_classes

Colour = tuple[int, int, int]  # red, green, blue


def load_trained(cfg: Config, checkpoint: str) -> tuple[BaseModel, list[str], list[Colour]]:
    """The model of a config with its weights, names and colours of its classes; or UsageError."""
    model = build_model(cfg)
    return model, *classes_and_colours(cfg, load_tested_weights(checkpoint, model))


def classes_and_colours(cfg: Config, checkpoint: dict) -> tuple[list[str], list[Colour]]:
    """Classes and colours from the checkpoint, else the test data set; else random colours.

    UsageError for another number of classes than the heads of the model have.
    """
    check_convention(cfg, checkpoint)
    key, dataset = next(datasets_of(cfg, 'test_dataloader'))
    known = dict(getattr(component_of(cfg, DATASETS, dataset), 'METAINFO', {}))
    known |= dataset.get('metainfo') or {}
    stored = (checkpoint.get('meta') or {}).get('dataset_meta') or {}
    known |= {name.lower(): value for name, value in stored.items() if value}  # once CLASSES
    classes: Sequence[str] = known.get('classes') or ()
    palette = known.get('palette') or ()
    check_classes(cfg, key, classes)
    if len(palette) < len(classes):
        palette = np.random.default_rng(0).integers(256, size=(len(classes), 3)).tolist()
    return list(classes), [tuple(colour) for colour in palette[: len(classes)]]
