"""The flagship configs shrunk by overrides, on the shapes data set: seconds instead of days."""

from pathlib import Path

from mmengine.config import Config

from rope_dense.data.generated import (
    METAINFO,
    SEGMENTATION_METAINFO,
    ShapesSettings,
    write_shapes,
)

CONFIGS = Path(__file__).parents[2] / 'configs'
DETECTION = ('dino_vitdet_rope_mixed', 'dino_swin_rope_mixed')
SEGMENTATION = ('upernet_vit_rope_mixed', 'mask2former_swin_rope_mixed')
FLAGSHIPS = DETECTION + SEGMENTATION
HEIGHT, WIDTH = 64, 96


def make_data(folder: Path) -> Path:
    """Four training and two validation images in both layouts."""
    write_shapes(folder, ShapesSettings(train=4, val=2, size=(HEIGHT, WIDTH)))
    return folder


def small_config(
    name: str, data: Path, folder: Path, variant: Path | None = None
) -> Path:
    """Write the flagship config `name`, or a variant of it, shrunk, to `folder`; two iterations on
    `data`."""
    cfg = Config.fromfile(variant or CONFIGS / f'{name}.py')
    cfg.merge_from_dict(_RUN | _task(name, data) | _MODELS[name])
    path = folder / f'{name}.py'
    cfg.dump(path)
    return path


def _task(name: str, data: Path) -> dict:
    loaders = ('train_dataloader', 'val_dataloader', 'test_dataloader')
    if name in SEGMENTATION:
        root, metainfo, more = data / 'ade', SEGMENTATION_METAINFO, _SEGMENTATION
    else:
        root, metainfo, more = data / 'coco', METAINFO, _DETECTION
        annotations = str(root / 'annotations' / 'instances_val2017.json')
        more = more | {
            f'{split}_evaluator.ann_file': annotations for split in ('val', 'test')
        }
    datasets: dict[str, object] = {
        f'{loader}.dataset.data_root': str(root) for loader in loaders
    }
    # The flagships' data set classes know no others than COCO's or ADE20K's.
    datasets |= {f'{loader}.dataset.metainfo': dict(metainfo) for loader in loaders}
    if name in SEGMENTATION:
        datasets |= {f'{loader}.dataset.type': 'BaseSegDataset' for loader in loaders}
        datasets |= {f'{loader}.dataset.reduce_zero_label': True for loader in loaders}
    return datasets | more


_RUN = {
    'train_cfg.max_iters': 2,
    'train_cfg.val_interval': 2,
    'param_scheduler': [
        dict(type='LinearLR', start_factor=0.5, by_epoch=False, begin=0, end=2)
    ],
    'default_hooks.checkpoint.interval': 1,
    'default_hooks.logger.interval': 1,
    'train_dataloader.batch_size': 2,
    'train_dataloader.num_workers': 0,
    'val_dataloader.num_workers': 0,
    'test_dataloader.num_workers': 0,
    'model.backbone.init_cfg': None,
}

_BRANCHES = 'train_dataloader.dataset.pipeline.3.transforms'
_DETECTION = {
    f'{_BRANCHES}.0.0.scales': [(HEIGHT, WIDTH), (80, 120)],
    f'{_BRANCHES}.1.0.scales': [(HEIGHT, WIDTH)],
    f'{_BRANCHES}.1.1.crop_size': (48, 60),
    f'{_BRANCHES}.1.2.scales': [(HEIGHT, WIDTH)],
    'train_dataloader.dataset.filter_cfg.min_size': 8,
    'val_dataloader.dataset.pipeline.1.scale': (WIDTH, HEIGHT),
    'test_dataloader.dataset.pipeline.1.scale': (WIDTH, HEIGHT),
    **{f'tta_pipeline.1.transforms.0.{i}.scale': (WIDTH, HEIGHT) for i in range(3)},
    'model.num_queries': 10,
    'model.encoder.num_layers': 1,
    'model.encoder.layer_cfg.ffn_cfg.feedforward_channels': 64,
    'model.decoder.num_layers': 1,
    'model.decoder.layer_cfg.ffn_cfg.feedforward_channels': 64,
    'model.dn_cfg.group_cfg.num_dn_queries': 4,
    'model.bbox_head.num_classes': 6,
    'model.test_cfg.max_per_img': 10,
}

_SEGMENTATION = {
    'train_dataloader.dataset.pipeline.3.crop_size': (HEIGHT, HEIGHT),
    'val_dataloader.dataset.pipeline.1.scale': (WIDTH, HEIGHT),
    'test_dataloader.dataset.pipeline.1.scale': (WIDTH, HEIGHT),
    **{f'tta_pipeline.1.transforms.0.{i}.scale': 48 + 16 * (i % 2) for i in range(6)},
    'model.data_preprocessor.size': (HEIGHT, HEIGHT),
    'model.decode_head.num_classes': 7,
}

_SMALL_VIT = {
    'model.backbone.arch': dict(_delete_=True, embed_dims=32, depth=4, num_heads=2),
    'model.backbone.drop_path_rate': 0.0,
}
_SMALL_SWIN = {
    'model.backbone.arch': dict(
        _delete_=True, embed_dims=16, depths=(1, 1, 2, 1), num_heads=(1, 2, 4, 8)
    ),
    'model.backbone.window_size': 4,
}

_MODELS = {
    'dino_vitdet_rope_mixed': _SMALL_VIT
    | {
        'model.backbone.window_size': 2,
        'model.backbone.window_block_indexes': (0,),
        'model.neck.0.in_channels': 32,
    },
    'dino_swin_rope_mixed': _SMALL_SWIN | {'model.neck.in_channels': [32, 64, 128]},
    'upernet_vit_rope_mixed': _SMALL_VIT
    | {
        'train_dataloader.dataset.pipeline.2.scale': (WIDTH, HEIGHT),
        'model.backbone.out_indices': (0, 1, 2, 3),
        'model.neck.embed_dim': 32,
        'model.decode_head.in_channels': [32] * 4,
        'model.decode_head.channels': 16,
        'model.auxiliary_head.in_channels': 32,
        'model.auxiliary_head.channels': 16,
        'model.auxiliary_head.num_classes': 7,
        'model.test_cfg.crop_size': (HEIGHT, HEIGHT),
        'model.test_cfg.stride': (48, 48),
    },
    'mask2former_swin_rope_mixed': _SMALL_SWIN
    | {
        'train_dataloader.dataset.pipeline.2.scales': [HEIGHT, 80],
        'train_dataloader.dataset.pipeline.3.crop_size': (HEIGHT, HEIGHT),
        'train_dataloader.dataset.pipeline.6.size': (HEIGHT, HEIGHT),
        'model.decode_head.in_channels': [16, 32, 64, 128],
        'model.decode_head.num_queries': 10,
        'model.decode_head.pixel_decoder.encoder.num_layers': 1,
        'model.decode_head.transformer_decoder.num_layers': 1,
        'model.decode_head.loss_cls.class_weight': [1.0] * 7 + [0.1],
        'model.decode_head.train_cfg.num_points': 64,
    },
}
