"""Pictures of detections."""

import copy
from pathlib import Path

import mmcv
import numpy as np
import torch
from mmdet.apis import init_detector
from mmdet.registry import DATASETS
from mmdet.structures.bbox import get_box_tensor
from mmdet.structures.mask import BitmapMasks
from mmdet.visualization import DetLocalVisualizer
from mmengine.config import Config
from mmengine.dataset import pseudo_collate
from mmengine.device import get_device
from torch import Tensor

SIDE = 640  # pixels of a picture's shorter side: labels on smaller images could not be read


@torch.no_grad()
def draw_detections(
    config: Config,
    checkpoint: str | Path,
    out_dir: str | Path,
    *,
    count: int,
    min_score: float = 0.3,
) -> list[Path]:
    """Draw the first `count` test images of a config: true boxes left, predicted boxes right.

    Predictions that score less than `min_score` are left out.

    Returns:
        The files written, `out_dir`/<name of the image>.png.
    """
    config = copy.deepcopy(config)  # building a DINO edits its head's settings
    model = init_detector(config, str(checkpoint), device=get_device())
    dataset = DATASETS.build(config.test_dataloader.dataset)
    visualizer = DetLocalVisualizer(line_width=2)
    visualizer.dataset_meta = dataset.metainfo
    files = []
    for index in range(min(count, len(dataset))):
        sample = model.test_step(pseudo_collate([dataset[index]]))[0]
        file = Path(out_dir) / f'{Path(sample.img_path).stem}.png'
        image = mmcv.imread(sample.img_path, channel_order='rgb')
        zoom = SIDE / min(image.shape[:2])
        image = mmcv.imrescale(image, zoom, interpolation='bicubic')
        height, width = image.shape[:2]
        last_pixel = torch.tensor([width - 1, height - 1] * 2)  # the visualizer warns beyond it
        for instances in (sample.gt_instances, sample.pred_instances):
            boxes = get_box_tensor(instances.bboxes).cpu() * zoom
            instances.bboxes = boxes.minimum(last_pixel)
            if 'masks' in instances:
                instances.masks = resized(instances.masks, height, width)
        visualizer.add_datasample(
            file.stem, image, sample, pred_score_thr=min_score, out_file=str(file)
        )
        files.append(file)
    return files


def resized(masks: Tensor | BitmapMasks, height: int, width: int) -> BitmapMasks:
    """Masks of an image, resized with it; of a prediction bool [N, h, w]."""
    if isinstance(masks, Tensor):
        masks = BitmapMasks(masks.cpu().numpy().astype(np.uint8), *masks.shape[1:])
    return masks.resize((height, width))
