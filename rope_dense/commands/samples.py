"""Pictures of the samples that a data pipeline gives a model."""

from __future__ import annotations

import random
import warnings
from pathlib import Path

import numpy as np
import torch
from mmengine.config import Config, ConfigDict
from mmengine.registry import DATASETS, MODELS, VISUALIZERS

from ..engine.runner import load_error


def draw_samples(config: Config, split: str, out: Path, *, count: int, seed: int) -> list[Path]:
    """Draw the first samples of a data set after its pipeline, with their labels.

    Pixels are those of the model's input before they are normalised: with the channel order and the
    padding of its data preprocessor.

    Args:
        split: 'train', 'val' or 'test', of the config's data loaders.
        out: folder for the pictures, NUMBER_NAME.png.
        seed: of the augmentation, for Python, NumPy and torch.

    Returns:
        The files written.

    Raises:
        LoadError: an image or its labels cannot be loaded.
    """
    dataset = DATASETS.build(config[f'{split}_dataloader'].dataset)
    preprocessor = MODELS.build(
        ConfigDict(config.model.data_preprocessor, mean=None, std=None, bgr_to_rgb=False)
    )
    detects = config.default_scope == 'mmdet'
    kind = 'DetLocalVisualizer' if detects else 'SegLocalVisualizer'
    settings = {} if detects else {'alpha': 0.5}
    visualizer = VISUALIZERS.build(dict(type=kind, name=f'samples_{out}', **settings))
    visualizer.dataset_meta = dataset.metainfo
    random.seed(seed)
    np.random.seed(seed)
    torch.manual_seed(seed)
    files = []
    for index in range(min(count, len(dataset))):
        try:
            packed = dataset[index]
        except Exception as error:  # a damaged file can fail in any way
            raise load_error(dataset.get_data_info(index), error) from error
        sample = packed['data_samples']
        batch = dict(inputs=[packed['inputs']], data_samples=[sample])
        data = preprocessor(batch, training=split == 'train')
        pixels = data['inputs'][0].permute(1, 2, 0).cpu().numpy()  # [H, W, 3], BGR
        image = np.ascontiguousarray(pixels[..., ::-1].clip(0, 255).astype(np.uint8))
        path = out / f'{index:04d}_{Path(sample.img_path).stem}.png'
        labels = data['data_samples'][0]
        if detects and 'gt_instances' in labels:
            labels.gt_instances = labels.gt_instances.cpu()
        with warnings.catch_warnings():
            warnings.filterwarnings('ignore', '.*out of bounds')  # labels that a crop has cut
            visualizer.add_datasample(path.stem, image, labels, draw_pred=False, out_file=str(path))
        files.append(path)
    return files
