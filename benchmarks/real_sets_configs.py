"""Configs of mmdet and mmseg for real_sets.py: their defaults on one of the sets, at its budget.

Each changes what a user has to change: files, classes, image size, number of epochs, and what is of
several GPUs (synchronised batch norm, the learning rate of larger batches) or of trained weights.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from real_sets import Split

SWIN_T = 'swin/swin-tiny-patch4-window7-in1k-pre_upernet_8xb2-160k_ade20k-512x512.py'
RTMDET = 'rtmdet/rtmdet_tiny_8xb32-300e_coco.py'
BATCH = 8  # of RTMDet


def upernet_swin(args: argparse.Namespace, training: Split, validation: Split) -> str:
    """mmseg's UperNet on Swin-T at half its width, with the widths that `semantic` has at `tiny`.

    mmseg's augmentation, its schedule shortened; the learning rate is that of `semantic` for random
    weights, because mmseg's (6e-5) is for a trained backbone.
    """
    import mmseg

    iterations = args.epochs * len(training.images) // 2
    scale, crop = (4 * args.size, args.size), (args.size, args.size)
    load, labels = dict(type='LoadImageFromFile'), dict(type='LoadAnnotations')
    resize = dict(
        type='RandomResize', scale=scale, ratio_range=(0.5, 2.0), keep_ratio=True
    )
    crops = dict(type='RandomCrop', crop_size=crop, cat_max_ratio=0.75)
    varied = [
        resize,
        crops,
        dict(type='RandomFlip', prob=0.5),
        dict(type='PhotoMetricDistortion'),
    ]
    pipelines = dict(
        training=[load, labels, *varied, dict(type='PackSegInputs')],
        validation=[
            load,
            dict(type='Resize', scale=scale, keep_ratio=True),
            labels,
            dict(type='PackSegInputs'),
        ],
    )
    data = {
        name: dict(
            _delete_=True,
            type='BaseSegDataset',
            data_root=str(training.root),
            data_prefix=dict(
                img_path=f'images/{name}', seg_map_path=f'annotations/{name}'
            ),
            metainfo=dict(classes=training.classes),
            reduce_zero_label=False,
            pipeline=pipeline,
        )
        for name, pipeline in pipelines.items()
    }
    val = dict(batch_size=1, num_workers=2, dataset=data['validation'])
    head = dict(
        channels=192, num_classes=len(training.classes), norm_cfg=dict(type='BN')
    )
    rise = dict(
        type='LinearLR', start_factor=1e-6, by_epoch=False, end=max(2, iterations // 10)
    )
    poly = dict(type='PolyLR', power=1.0, eta_min=0.0, by_epoch=False, end=iterations)
    return as_text(
        _base_=str(Path(mmseg.__file__).parent / '.mim' / 'configs' / SWIN_T),
        model=dict(
            data_preprocessor=dict(size=crop),
            backbone=dict(embed_dims=48, init_cfg=None),
            decode_head=dict(head, in_channels=[48, 96, 192, 384]),
            auxiliary_head=dict(head, in_channels=192, channels=96),
        ),
        train_dataloader=dict(batch_size=2, num_workers=2, dataset=data['training']),
        val_dataloader=val,
        test_dataloader=val,
        optim_wrapper=dict(optimizer=dict(lr=5e-4)),
        param_scheduler=[rise, poly],
        train_cfg=dict(max_iters=iterations, val_interval=iterations),
        default_hooks=dict(checkpoint=dict(interval=iterations)),
        randomness=dict(seed=args.seed),
    )


def rtmdet_tiny(args: argparse.Namespace, training: Split, validation: Split) -> str:
    """mmdet's RTMDet-tiny with batches of 8: the learning rate is divided as the batch is (256).

    Its shares of the training stay: a cosine from the half on, mosaics but for the last fifteenth;
    the warm-up of 1000 iterations is at most a tenth.
    """
    import mmdet
    from mmengine.config import Config

    from rope_dense.project.own import fit

    base = Path(mmdet.__file__).parent / '.mim' / 'configs' / RTMDET
    cfg: Any = Config.fromfile(base).to_dict()
    fit.resize_config(cfg, args.size / 640)
    fit.set_everywhere(cfg, 'img_scale', (args.size, args.size))
    fit.set_everywhere(cfg['model'], 'num_classes', len(training.classes))
    fit.set_everywhere(cfg['model'], 'norm_cfg', dict(type='BN'))
    cfg['model']['backbone']['init_cfg'] = None
    for name, split in (('train', training), ('val', validation), ('test', validation)):
        folder = str(split.images[0].parent)
        files = dict(
            data_root='', ann_file=str(split.file), data_prefix=dict(img=folder)
        )
        cfg[f'{name}_dataloader']['dataset'].update(
            files, metainfo=dict(classes=split.classes)
        )
        cfg[f'{name}_dataloader'].update(num_workers=2)
    cfg['train_dataloader']['batch_size'] = BATCH
    cfg['val_evaluator']['ann_file'] = cfg['test_evaluator']['ann_file'] = str(
        validation.file
    )
    rise, cosine = cfg['param_scheduler']
    rise['end'] = min(1000, args.epochs * len(training.images) // BATCH // 10)
    cosine.update(
        begin=args.epochs // 2, end=args.epochs, T_max=args.epochs - args.epochs // 2
    )
    cosine['eta_min'] *= BATCH / 256
    cfg['optim_wrapper']['optimizer']['lr'] *= BATCH / 256
    cfg['custom_hooks'][1]['switch_epoch'] = args.epochs - max(1, args.epochs // 15)
    interval = max(1, args.epochs // 30)
    cfg['train_cfg'].update(
        max_epochs=args.epochs, val_interval=interval, dynamic_intervals=None
    )
    cfg['default_hooks']['checkpoint'].update(
        interval=interval, save_best='coco/bbox_mAP'
    )
    cfg['randomness'] = dict(seed=args.seed)
    return as_text(**cfg)


def as_text(**parts: object) -> str:
    """A config file of these keys."""
    return ''.join(f'{name} = {value!r}\n' for name, value in parts.items())


CONFIGS = {'upernet-swin': upernet_swin, 'rtmdet-tiny': rtmdet_tiny}
