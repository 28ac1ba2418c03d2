"""Samples of a data set after its pipeline, as a model gets them, drawn with their labels."""

import random
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from mmengine.config import Config, ConfigDict
from mmengine.dataset import BaseDataset
from mmengine.model import BaseDataPreprocessor
from mmengine.registry import DATASETS, MODELS, VISUALIZERS, DefaultScope
from mmengine.structures import BaseDataElement, PixelData
from mmengine.visualization import Visualizer
from torch.nn.functional import interpolate

from ..data.images.bands import LoadBands, find_load_bands, picture
from ..data.images.drawing import draw, draw_depth, encoded
from ..data.loading import NamingPipeline
from ..engine.train_loop import set_epoch
from ..project.building import building
from ..project.checks.data import check_data
from ..project.contents import detects, visualizer_of
from ..project.load import Options, load_config
from ..project.own.tasks import Found, stored_settings
from ..utils.config_parts import pipelines
from ..utils.errors import UsageError
from ..utils.progress import progress
from ..utils.results import Results

Split = Literal['train', 'val', 'test']
LABEL_STEPS = {'LoadAnnotations', 'LoadClassMask', 'LoadDepth'}


def browse(
    config: str,
    *,
    split: Split = 'train',
    count: int = 20,
    seed: int = 0,
    epoch: int = 0,
    out: str | Path | None = None,
    work_dir: str | None = None,
    data_root: str | None = None,
    cfg_options: Options = (),
    found: Found | None = None,
) -> list[Path]:
    """Draw the first samples of a data set of a config, with their labels.

    Args:
        config, work_dir, data_root, cfg_options, found: see ``load_config``.
        split: of the config's data loaders.
        seed: of the augmentation.
        epoch: of pipelines with stages.
        out: folder of the pictures; by default browse/SPLIT, in the work folder.

    Returns:
        The files written, NUMBER_NAME.png.

    Raises:
        UsageError, LoadError: settings or data that cannot be used.
    """
    cfg = load_config(config, cfg_options, work_dir, data_root, None, True, found)
    own = stored_settings(cfg)
    loop = cfg.get('train_cfg') or {}
    epochs = own.epochs if own else loop.get('max_epochs')
    if epochs and epoch >= epochs:
        raise UsageError(f'--epoch {epoch}: the training has epochs 0 to {epochs - 1}')
    loader = f'{split}_dataloader'
    if cfg.get(loader) is None:
        raise UsageError(f'--split {split}: the config has no {loader}')
    check_data(cfg, (loader,))
    out = Path(out or Path(cfg.work_dir, 'browse', split))
    set_epoch(epoch)
    scope = DefaultScope.overwrite_default_scope(cfg.default_scope)
    with scope, building(f'{loader}.dataset'):
        return draw_samples(cfg, split, out, count, seed)


def draw_samples(
    cfg: Config,
    split: Split,
    out: Path,
    count: int,
    seed: int,
) -> list[Path]:
    """Draw samples within the scope of a config; see ``browse``.

    Pixels are the model's input before normalisation: with the channel order and the padding of its
    data preprocessor.
    """
    settings = cfg[f'{split}_dataloader'].dataset
    dataset = DATASETS.build(settings)
    dataset.pipeline = NamingPipeline(dataset.pipeline.transforms)
    preprocessor = MODELS.build(
        ConfigDict(cfg.model.data_preprocessor, mean=None, std=None, bgr_to_rgb=False)
    )
    visualizer = VISUALIZERS.build(visualizer_of(cfg, f'samples_{out}', alpha=0.5))
    visualizer.dataset_meta = dataset.metainfo
    random.seed(seed)
    np.random.seed(seed)
    torch.manual_seed(seed)
    bands = find_load_bands(next(pipelines(settings)))
    late = loads_labels_late(dataset)
    files = []
    for index in range(min(count, len(dataset))):
        image = Path(dataset.get_data_info(index)['img_path'])
        files.append(out / f'{index:04d}_{image.stem}.png')
    with Results(out, 'browse-data', is_flushed=False) as results:
        results.check(files)
        for index, path in enumerate(progress(files, 'browse-data: samples')):
            pixels, labels = shown_to_model(
                dataset[index],
                preprocessor,
                split == 'train',
                bands,
            )
            if late:
                resize_labels(labels)
            if detects(cfg) and 'gt_instances' in labels:
                labels.gt_instances = labels.gt_instances.cpu()
            drawn = drawn_sample(path.stem, pixels, labels, visualizer)
            results.write_bytes(path, encoded(drawn, path.suffix))
    return files


def loads_labels_late(dataset: BaseDataset) -> bool:
    """Return whether labels are loaded after the image was resized, as for evaluators."""
    steps = [type(step).__name__ for step in dataset.pipeline.transforms]
    if 'Resize' not in steps:
        return False
    return not LABEL_STEPS.isdisjoint(steps[steps.index('Resize') :])


def shown_to_model(
    packed: dict[str, Any],
    preprocessor: BaseDataPreprocessor,
    training: bool,
    bands: LoadBands | None,
) -> tuple[np.ndarray, BaseDataElement]:
    """Pixels [H, W, 3] (BGR, uint8) and labels of a sample, as a model gets them.

    Of any number of channels, those that ``bands`` shows.
    """
    batch = dict(inputs=[packed['inputs']], data_samples=[packed['data_samples']])
    data = preprocessor(batch, training=training)
    pixels = data['inputs'][0].permute(1, 2, 0).cpu().numpy()
    labels = data['data_samples'][0]
    if bands is not None:
        return picture(pixels, bands.show), labels
    return pixels.clip(0, 255).astype(np.uint8), labels


def drawn_sample(
    name: str,
    pixels: np.ndarray,
    labels: BaseDataElement,
    visualizer: Visualizer,
) -> np.ndarray:
    """Pixels with their labels drawn on them, or depth beside them."""
    if 'gt_depth_map' in labels:
        return draw_depth(pixels, labels.gt_depth_map.data[0].numpy())
    return draw(visualizer, name, pixels, labels, draw_gt=True, draw_pred=False)


def resize_labels(sample: BaseDataElement) -> None:
    """Fit labels of the original image, as evaluators want them, to the resized one, in place."""
    height, width = sample.img_shape[:2]
    if 'gt_instances' in sample:
        objects = sample.gt_instances
        factor = sample.scale_factor
        if hasattr(objects.bboxes, 'rescale_'):  # rotated
            objects.bboxes.rescale_(factor)
        else:
            factors = objects.bboxes.new_tensor(np.tile(factor, 2))
            objects.bboxes = objects.bboxes * factors
        if 'masks' in objects:
            objects.masks = objects.masks.resize((height, width))
    if 'gt_sem_seg' in sample:
        labels = sample.gt_sem_seg.data[None].float()
        resized = interpolate(labels, (height, width))[0]
        sample.gt_sem_seg = PixelData(data=resized.long())
    if 'gt_depth_map' in sample:
        depths = sample.gt_depth_map.data[None]
        resized = interpolate(depths, (height, width))[0]
        sample.gt_depth_map = PixelData(data=resized)
