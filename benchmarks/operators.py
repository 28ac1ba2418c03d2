"""Compare operators in PyTorch with the compiled ones of mmcv, and Mask R-CNN with either.

    python benchmarks/operators.py   # on two threads; needs compiled operators

The model has heads in full size on a ViT-Ti; an image of 256 x 320.
`launches` (see launches.py) and `waits`, whose result the host reads, would cost time on a GPU.
"""

import logging
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

import mmcv.ops
import numpy as np
import torch
from mmdet.structures import DetDataSample
from mmdet.structures.mask import BitmapMasks
from mmengine.config import Config
from mmengine.structures import InstanceData
from torch import Tensor

from launches import LaunchCounter
from measure import Case, Row, compare, environment, table, write_csv
from rope_dense.operators.extension import Extension
from rope_dense.project.model import build_model

Job = Callable[[], object]
RESULTS = Path(__file__).parent / 'results'
RECIPE = (
    RESULTS.parents[1]
    / 'configs/stock_heads/mask-rcnn_vit-b_rope-mixed_8xb8-184k_coco.py'
)
CPU, SIZE = torch.device('cpu'), (256, 320)
COLUMNS = ('job', 'implementation', 'median_ms', 'median_ratio', 'launches', 'waits')
WAITS = (
    '_local_scalar_dense',
    'equal',
    'masked_select',
    'repeat_interleave.Tensor',
    'bincount',
)


def main() -> None:
    logging.disable(logging.WARNING)
    torch.set_num_threads(2)
    here, rows = environment(CPU), list[Row]()
    for name, run in jobs().items():
        rows += [dict(job=name) | here | row for row in measure(run)]
        print(table(rows[-2:], COLUMNS), flush=True)
    write_csv(RESULTS / 'operators.csv', rows)


def jobs() -> dict[str, Job]:
    """Functions that use operators of mmcv, by name."""
    made = {
        f'nms {n}': partial(mmcv.ops.nms, *boxes(n), 0.5) for n in (1000, 5000, 20000)
    }
    made['soft_nms 1000'] = partial(mmcv.ops.soft_nms, *boxes(1000))
    maps = torch.randn(1, 256, *(side // 4 for side in SIZE), requires_grad=True)
    rois = torch.cat([torch.zeros(512, 1), boxes(512)[0]], 1)
    made['roi_align 512'] = lambda: (
        mmcv.ops.roi_align(maps, rois, 7, 0.25).sum().backward()
    )
    made |= rotated_jobs(maps)
    cfg = Config.fromfile(RECIPE)
    cfg.model.backbone.update(
        arch=dict(embed_dims=192, depth=12, num_heads=3), init_cfg=None
    )
    cfg.model.neck.in_channels, cfg.model.data_preprocessor.pad_size_divisor = 192, 32
    model = build_model(cfg)
    model.init_weights()
    sample = DetDataSample(
        metainfo=dict(img_shape=SIZE, ori_shape=SIZE, scale_factor=(1.0, 1.0))
    )
    masks = BitmapMasks(np.ones((4, *SIZE), np.uint8), *SIZE)
    sample.gt_instances = InstanceData(
        bboxes=boxes(4)[0], labels=torch.arange(4), masks=masks
    )
    batch = dict(inputs=[torch.rand(3, *SIZE) * 255], data_samples=[sample])

    def run(training: bool) -> None:
        data = model.train(training).data_preprocessor(batch, training)
        with torch.set_grad_enabled(training):
            result = model(**data, mode='loss' if training else 'predict')
        if training:
            model.parse_losses(result)[0].backward()

    return made | {
        'Mask R-CNN, step': partial(run, True),
        'prediction': partial(run, False),
    }


def rotated_jobs(maps: Tensor) -> dict[str, Job]:
    """Operators of detectors of rotated boxes; ``maps`` [1, C, height / 4, width / 4]."""
    made: dict[str, Job] = {}
    for number in (1000, 5000):
        found, scores = rotated_boxes(number)
        made[f'nms_rotated {number}'] = partial(
            mmcv.ops.nms_rotated, found, scores, 0.1
        )
    found, truth = rotated_boxes(1000)[0], rotated_boxes(50)[0]
    made['box_iou_rotated 1000 x 50'] = partial(mmcv.ops.box_iou_rotated, found, truth)
    rois = torch.cat([torch.zeros(512, 1), rotated_boxes(512)[0]], 1)
    align = mmcv.ops.RoIAlignRotated(7, 0.25, sampling_ratio=2, clockwise=True)
    made['roi_align_rotated 512'] = lambda: align(maps, rois).sum().backward()
    return made


def rotated_boxes(number: int) -> tuple[Tensor, Tensor]:
    """Boxes [N, 5] (centre, width, height, radians), and scores [N]."""
    upright, scores = boxes(number)
    centre = (upright[:, :2] + upright[:, 2:]) / 2
    return torch.cat(
        [centre, torch.rand(number, 3) * torch.tensor([60, 60, 3.14])], 1
    ), scores


def boxes(number: int) -> tuple[Tensor, Tensor]:
    """Boxes [N, 4] of 20 to 80 pixels in an image, and scores [N]."""
    centre, half = (
        torch.rand(number, 2) * torch.tensor(SIZE[::-1]),
        torch.rand(number, 2) * 30 + 10,
    )
    return torch.cat([centre - half, centre + half], 1), torch.rand(number)


def measure(run: Job) -> list[Row]:
    """A row for the compiled operators, and one for those in PyTorch."""
    extensions = dict(compiled=sys.modules['mmcv._ext'], pytorch=Extension())
    modules = [
        module for name, module in sys.modules.items() if name.startswith('mmcv.ops.')
    ]

    def prepare(key: str) -> Job:
        for module in modules:
            vars(module)['ext_module'] = extensions[key]
        return run

    cases = [Case(key, partial(prepare, key)) for key in extensions]
    _, in_pytorch = rows = compare(cases, CPU, rounds=5)
    with LaunchCounter() as counter:
        prepare('pytorch')()
    waits = (
        n for key, n in counter.operations.items() if any(wait in key for wait in WAITS)
    )
    in_pytorch.update(launches=counter.total, waits=sum(waits))
    return rows


if __name__ == '__main__':
    main()
