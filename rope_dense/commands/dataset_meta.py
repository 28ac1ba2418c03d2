"""Names and colours of the classes that a model was trained on."""

import numpy as np
from mmengine.config import Config
from mmengine.registry import DATASETS

from .config import component_of, datasets_of
from .model_checks import check_classes

Colour = tuple[int, int, int]  # red, green, blue


def classes_and_colours(cfg: Config, checkpoint: dict) -> tuple[list[str], dict[int, Colour]]:
    """Classes and colours from the checkpoint, else from the config's test data set.

    Colours are random where both have none. UsageError for another number of classes than the heads
    of the model have.
    """
    key, dataset = next(datasets_of(cfg, 'test_dataloader'))
    known = dict(getattr(component_of(cfg, DATASETS, dataset), 'METAINFO', {}))
    known |= dataset.get('metainfo') or {}
    stored = (checkpoint.get('meta') or {}).get('dataset_meta') or {}
    known |= {name.lower(): value for name, value in stored.items() if value}  # once CLASSES
    classes, palette = known.get('classes') or (), known.get('palette') or ()
    check_classes(cfg, key, classes)
    if len(palette) < len(classes):
        palette = np.random.default_rng(0).integers(256, size=(len(classes), 3)).tolist()
    return list(classes), {index: tuple(colour) for index, colour in enumerate(palette)}
