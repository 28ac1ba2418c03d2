"""Tables of the paper and of the recipes of its experiments, for the tests of the configs.

Results and columns are those of Heo et al. (ECCV 2024), Tables 1 to 4; the recipes are transcribed
from the published training code of detrex (DINO), BEiT v2 (UperNet) and Mask2Former. Keys are
(experiment, size), experiments called as their folders in configs/.
"""

from __future__ import annotations

NORMALIZATION = {
    'model.data_preprocessor.mean': [123.675, 116.28, 103.53],
    'model.data_preprocessor.std': [58.395, 57.12, 57.375],
    'model.data_preprocessor.bgr_to_rgb': True,
}
EVERYWHERE = NORMALIZATION | {
    'optim_wrapper.type': 'OptimWrapper',
    'optim_wrapper.optimizer.type': 'AdamW',
    'optim_wrapper.optimizer.betas': (0.9, 0.999),
    'optim_wrapper.constructor': 'NamedGroupsConstructor',
    'train_cfg.type': 'ResumableTrainLoop',
    'train_dataloader.batch_size': 2,
    'train_dataloader.sampler': dict(type='InfiniteSampler', shuffle=True),
    'val_dataloader.batch_size': 1,
    'auto_scale_lr': dict(enable=False, base_batch_size=16),
    'default_hooks.checkpoint.max_keep_ckpts': 3,
}
DINO = EVERYWHERE | {
    'model.type': 'PublishedDINO',
    'model.num_queries': 900,
    'model.as_two_stage': True,
    'model.with_box_refine': True,
    'model.data_preprocessor.pad_size_divisor': 1,
    'model.encoder.num_layers': 6,
    'model.encoder.layer_cfg.self_attn_cfg.embed_dims': 256,
    'model.encoder.layer_cfg.self_attn_cfg.num_heads': 8,
    'model.encoder.layer_cfg.self_attn_cfg.num_levels': 4,
    'model.encoder.layer_cfg.self_attn_cfg.num_points': 4,
    'model.encoder.layer_cfg.self_attn_cfg.dropout': 0.0,
    'model.encoder.layer_cfg.ffn_cfg.feedforward_channels': 2048,
    'model.encoder.layer_cfg.ffn_cfg.ffn_drop': 0.0,
    'model.decoder.num_layers': 6,
    'model.decoder.return_intermediate': True,
    'model.decoder.layer_cfg.self_attn_cfg.num_heads': 8,
    'model.decoder.layer_cfg.self_attn_cfg.attn_drop': 0.0,
    'model.decoder.layer_cfg.cross_attn_cfg.num_points': 4,
    'model.decoder.layer_cfg.ffn_cfg.feedforward_channels': 2048,
    'model.positional_encoding': dict(
        num_feats=128, normalize=True, offset=-0.5, temperature=10000
    ),
    'model.bbox_head.num_classes': 80,
    'model.bbox_head.loss_cls.loss_weight': 1.0,
    'model.bbox_head.loss_cls.alpha': 0.25,
    'model.bbox_head.loss_cls.gamma': 2.0,
    'model.bbox_head.loss_bbox.loss_weight': 5.0,
    'model.bbox_head.loss_iou.loss_weight': 2.0,
    'model.dn_cfg.label_noise_scale': 0.5,
    'model.dn_cfg.box_noise_scale': 1.0,
    'model.dn_cfg.group_cfg.dynamic': True,
    'model.dn_cfg.group_cfg.num_dn_queries': 100,
    'model.train_cfg.assigner.match_costs.0.weight': 2.0,
    'model.train_cfg.assigner.match_costs.1.weight': 5.0,
    'model.train_cfg.assigner.match_costs.2.weight': 2.0,
    'model.test_cfg.max_per_img': 300,
    'optim_wrapper.optimizer.lr': 1e-4,
    'optim_wrapper.optimizer.weight_decay': 1e-4,
    'optim_wrapper.clip_grad': dict(max_norm=0.1, norm_type=2),
    'train_cfg.max_iters': 90000,
    'train_cfg.val_interval': 5000,
    'default_hooks.checkpoint.interval': 5000,
    'train_dataloader.dataset.filter_cfg.filter_empty_gt': True,
    'train_dataloader.batch_sampler.type': 'AspectRatioBatchSampler',
    'train_dataloader.dataset.data_root': 'data/coco/',
    'train_dataloader.dataset.ann_file': 'annotations/instances_train2017.json',
    'val_dataloader.dataset.ann_file': 'annotations/instances_val2017.json',
    'val_evaluator.ann_file': 'data/coco/annotations/instances_val2017.json',
    'val_evaluator.type': 'CocoMetric',
}
CHANNEL_MAPPER = dict(
    type='ChannelMapper',
    kernel_size=1,
    out_channels=256,
    bias=True,
    act_cfg=None,
    norm_cfg=dict(type='GN', num_groups=32),
    num_outs=4,
)
ADE20K = EVERYWHERE | {
    'model.type': 'EncoderDecoder',
    'model.data_preprocessor.size': (512, 512),
    'model.data_preprocessor.pad_val': 0,
    'model.data_preprocessor.seg_pad_val': 255,
    'model.decode_head.num_classes': 150,
    'model.decode_head.align_corners': False,
    'optim_wrapper.optimizer.weight_decay': 0.05,
    'train_cfg.max_iters': 160000,
    'train_dataloader.dataset.data_root': 'data/ade/ADEChallengeData2016',
    'train_dataloader.dataset.data_prefix.img_path': 'images/training',
    'val_dataloader.dataset.data_prefix.seg_map_path': 'annotations/validation',
    'val_evaluator.iou_metrics': ['mIoU'],
}

VITDET = DINO | {
    'model.backbone.type': 'RoPEViT',
    'model.backbone.with_cls_token': False,
    'model.backbone.window_size': 14,
    'model.neck.0.type': 'PlainViTFPN',
    'model.neck.0.out_channels': 256,
    'model.neck.1': dict(CHANNEL_MAPPER, in_channels=[256, 256, 256, 256]),
}
DINO_SWIN = DINO | {
    'model.backbone.type': 'RoPESwin',
    'model.backbone.window_size': 7,
    'model.backbone.out_indices': (1, 2, 3),
}
UPERNET = ADE20K | {
    'model.backbone.type': 'RoPEViT',
    'model.backbone.with_cls_token': True,
    'model.neck.type': 'Feature2Pyramid',
    'model.neck.rescales': [4, 2, 1, 0.5],
    'model.neck.norm_cfg.type': 'SyncBN',
    'model.decode_head.type': 'UPerHead',
    'model.decode_head.pool_scales': (1, 2, 3, 6),
    'model.decode_head.dropout_ratio': 0.1,
    'model.decode_head.norm_cfg.type': 'SyncBN',
    'model.auxiliary_head.in_index': 2,
    'model.auxiliary_head.channels': 256,
    'model.auxiliary_head.num_convs': 1,
    'model.auxiliary_head.dropout_ratio': 0.1,
    'model.auxiliary_head.loss_decode.loss_weight': 0.4,
    'model.data_preprocessor.size': (512, 512),
    'model.test_cfg': dict(mode='slide', crop_size=(512, 512), stride=(341, 341)),
    'optim_wrapper.clip_grad': None,
    'train_cfg.val_interval': 16000,
    'default_hooks.checkpoint.interval': 16000,
    'train_dataloader.dataset.pipeline.2.scale': (2048, 512),
    'train_dataloader.dataset.pipeline.2.ratio_range': (0.5, 2.0),
    'train_dataloader.dataset.pipeline.3.crop_size': (512, 512),
    'train_dataloader.dataset.pipeline.3.cat_max_ratio': 0.75,
}
MASK2FORMER = ADE20K | {
    'model.backbone.type': 'RoPESwin',
    'model.backbone.window_size': 7,
    'model.backbone.drop_path_rate': 0.3,
    'model.backbone.out_indices': (0, 1, 2, 3),
    'model.data_preprocessor.test_cfg.size_divisor': 32,
    'model.decode_head.num_queries': 100,
    'model.decode_head.feat_channels': 256,
    'model.decode_head.out_channels': 256,
    'model.decode_head.pixel_decoder.encoder.num_layers': 6,
    'model.decode_head.pixel_decoder.encoder.layer_cfg.ffn_cfg.feedforward_channels': 1024,
    'model.decode_head.pixel_decoder.encoder.layer_cfg.self_attn_cfg.num_points': 4,
    'model.decode_head.transformer_decoder.num_layers': 9,
    'model.decode_head.transformer_decoder.layer_cfg.ffn_cfg.feedforward_channels': 2048,
    'model.decode_head.transformer_decoder.layer_cfg.cross_attn_cfg.num_heads': 8,
    'model.decode_head.loss_cls.loss_weight': 2.0,
    'model.decode_head.loss_cls.class_weight': [1.0] * 150 + [0.1],
    'model.decode_head.loss_mask.loss_weight': 5.0,
    'model.decode_head.loss_dice.loss_weight': 5.0,
    'model.decode_head.train_cfg.num_points': 12544,
    'model.decode_head.train_cfg.oversample_ratio': 3.0,
    'model.decode_head.train_cfg.importance_sample_ratio': 0.75,
    'model.test_cfg': dict(mode='whole'),
    'optim_wrapper.optimizer.lr': 1e-4,
    'optim_wrapper.clip_grad': dict(max_norm=0.01, norm_type=2),
    'train_cfg.val_interval': 5000,
    'default_hooks.checkpoint.interval': 5000,
}
# fmt: off
SHORT_SIDES_512 = [
    256, 307, 358, 409, 460, 512, 563, 614, 665, 716, 768, 819, 870, 921, 972, 1024,
]
SHORT_SIDES_640 = [
    320, 384, 448, 512, 576, 640, 704, 768, 832, 896, 960, 1024, 1088, 1152, 1216, 1280,
]
# fmt: on
RECIPES = {
    ('dino_vitdet', 'b'): VITDET
    | {
        'model.backbone.arch': 'base',
        'model.backbone.window_block_indexes': (0, 1, 3, 4, 6, 7, 9, 10),
        'model.backbone.drop_path_rate': 0.1,
        'model.neck.0.in_channels': 768,
    },
    ('dino_vitdet', 'l'): VITDET
    | {
        'model.backbone.arch': 'large',
        'model.backbone.window_block_indexes': tuple(
            b for b in range(24) if b % 6 != 5
        ),
        'model.backbone.drop_path_rate': 0.4,
        'model.neck.0.in_channels': 1024,
    },
    ('dino_swin', 't'): DINO_SWIN
    | {
        'model.backbone.arch': 'tiny',
        'model.backbone.drop_path_rate': 0.1,
        'model.neck': dict(CHANNEL_MAPPER, in_channels=[192, 384, 768]),
    },
    ('dino_swin', 's'): DINO_SWIN
    | {
        'model.backbone.arch': 'small',
        'model.backbone.drop_path_rate': 0.2,
        'model.neck': dict(CHANNEL_MAPPER, in_channels=[192, 384, 768]),
    },
    ('dino_swin', 'b'): DINO_SWIN
    | {
        'model.backbone.arch': 'base',
        'model.backbone.drop_path_rate': 0.2,
        'model.neck': dict(CHANNEL_MAPPER, in_channels=[256, 512, 1024]),
    },
    ('upernet_vit', 'b'): UPERNET
    | {
        'model.backbone.arch': 'base',
        'model.backbone.out_indices': (3, 5, 7, 11),
        'model.backbone.drop_path_rate': 0.15,
        'model.decode_head.channels': 768,
        'optim_wrapper.optimizer.lr': 5e-5,
        'optim_wrapper.paramwise_cfg.layer_decay': 0.75,
    },
    ('upernet_vit', 'l'): UPERNET
    | {
        'model.backbone.arch': 'large',
        'model.backbone.out_indices': (7, 11, 15, 23),
        'model.backbone.drop_path_rate': 0.2,
        'model.decode_head.channels': 1024,
        'optim_wrapper.optimizer.lr': 4e-5,
        'optim_wrapper.paramwise_cfg.layer_decay': 0.9,
    },
    ('mask2former_swin', 's'): MASK2FORMER
    | {
        'model.backbone.arch': 'small',
        'model.decode_head.in_channels': [96, 192, 384, 768],
        'model.data_preprocessor.size': (512, 512),
        'train_dataloader.dataset.pipeline.2.scales': SHORT_SIDES_512,
        'train_dataloader.dataset.pipeline.2.max_size': 2048,
        'train_dataloader.dataset.pipeline.3': dict(
            type='RandomCrop', crop_size=(512, 512)
        ),
        'train_dataloader.dataset.pipeline.6.pad_val': dict(img=128, seg=255),
        'test_dataloader.dataset.pipeline.1.scale': (2048, 512),
    },
    ('mask2former_swin', 'b'): MASK2FORMER
    | {
        'model.backbone.arch': 'base',
        'model.decode_head.in_channels': [128, 256, 512, 1024],
        'model.data_preprocessor.size': (640, 640),
        'train_dataloader.dataset.pipeline.2.scales': SHORT_SIDES_640,
        'train_dataloader.dataset.pipeline.2.max_size': 2560,
        'train_dataloader.dataset.pipeline.3': dict(
            type='RandomCrop', crop_size=(640, 640)
        ),
        'train_dataloader.dataset.pipeline.6.pad_val': dict(img=128, seg=255),
        'test_dataloader.dataset.pipeline.1.scale': (2560, 640),
    },
}

# The columns of the paper's tables, as settings of the backbone, and the learned axial ablation.
MIXED = dict(type='MixedRoPE', theta=10.0)
VIT_AXIAL, SWIN_AXIAL = (dict(type='AxialRoPE', theta=theta) for theta in (100.0, 50.0))
VIT_VARIANTS: dict[str, dict] = {
    'ape': dict(rope=None, use_ape=True),
    'rope-axial': dict(rope=VIT_AXIAL),
    'rope-mixed': dict(rope=MIXED),
    'rope-axial-ape': dict(rope=VIT_AXIAL, use_ape=True),
    'rope-mixed-ape': dict(rope=MIXED, use_ape=True),
    'rope-axial-learned': dict(rope=VIT_AXIAL | dict(learned=True)),
}
SWIN_VARIANTS: dict[str, dict] = {
    'rpb': dict(rope=None, attention=dict(type='TableBias')),
    'rope-axial': dict(rope=SWIN_AXIAL),
    'rope-mixed': dict(rope=MIXED),
    'rope-axial-rpb': dict(rope=SWIN_AXIAL, attention=dict(type='TableBias')),
    'rope-mixed-rpb': dict(rope=MIXED, attention=dict(type='TableBias')),
}
SIZE_NAMES = dict(t='tiny', s='small', b='base', l='large')
NAVER = 'hf-hub:naver-ai'
MICROSOFT = 'https://github.com/SwinTransformer/storage/releases/download/v1.0.0'
VIT_WEIGHTS = {
    'ape': f'{NAVER}/deit_{{}}_patch16_LS',
    'rope-axial': f'{NAVER}/rope_axial_deit_{{}}_patch16_LS',
    'rope-mixed': f'{NAVER}/rope_mixed_deit_{{}}_patch16_LS',
    'rope-axial-ape': f'{NAVER}/rope_axial_ape_deit_{{}}_patch16_LS',
    'rope-mixed-ape': f'{NAVER}/rope_mixed_ape_deit_{{}}_patch16_LS',
    'rope-axial-learned': f'{NAVER}/rope_axial_deit_{{}}_patch16_LS',
}
SWIN_WEIGHTS = {
    'rpb': f'{MICROSOFT}/swin_{{}}_patch4_window7_224.pth',
    'rope-axial': f'{NAVER}/swin_rope_axial_{{}}_patch4_window7_224',
    'rope-mixed': f'{NAVER}/swin_rope_mixed_{{}}_patch4_window7_224',
    'rope-axial-rpb': None,
    'rope-mixed-rpb': None,
}

# Results in the order of the variants; of UperNet at one scale, and at several.
PAPER = {
    ('dino_vitdet', 'b'): (49.4, 50.8, 51.2, 50.7, 51.1),
    ('dino_vitdet', 'l'): (51.1, 52.2, 52.9, 52.5, 52.8),
    ('dino_swin', 't'): (51.3, 51.6, 51.8, 51.7, 51.6),
    ('dino_swin', 's'): (53.0, 53.1, 53.3, 53.5, 53.6),
    ('dino_swin', 'b'): (54.2, 54.4, 54.5, 54.7, 54.5),
    ('upernet_vit', 'b'): (47.7, 49.0, 49.6, 49.5, 50.0),
    ('upernet_vit', 'l'): (50.8, 51.8, 51.5, 51.6, 52.0),
    ('mask2former_swin', 's'): (50.2, 50.4, 51.1, 51.2, 50.9),
    ('mask2former_swin', 'b'): (51.5, 52.0, 52.0, 50.0, 51.4),
}
PAPER_MULTI_SCALE = {
    ('upernet_vit', 'b'): (48.4, 49.9, 50.7, 50.5, 50.9),
    ('upernet_vit', 'l'): (51.6, 52.6, 52.3, 52.4, 52.6),
}


def constant(iterations: tuple[int, ...], drop: int) -> dict[int, float]:
    return {it: 1.0 if it < drop else 0.1 for it in iterations}


def polynomial(iteration: int, power: float) -> float:
    return (1 - iteration / 160000) ** power


# Iteration -> factor of the learning rate at ten iterations, from the recipe's own formula: the
# start, in the warm-up, on both sides of every change, the end.
WARM_UP = {0: 0.001, 50: 0.2008, 125: 0.5005, 249: 0.996}
SCHEDULES = {
    ('dino_vitdet', 'b'): WARM_UP
    | constant((250, 10000, 72000, 82499, 82500, 89999), 82500),
    ('dino_vitdet', 'l'): WARM_UP
    | constant((250, 10000, 71999, 72000, 82500, 89999), 72000),
    **{
        ('dino_swin', size): constant(
            (0, 1, 125, 250, 10000, 72000, 82498, 82499, 82500, 89999), 82500
        )
        for size in 'tsb'
    },
    **{
        ('upernet_vit', size): {
            **{0: 1e-6},
            **{it: it / 1500 * polynomial(it, 1.0) for it in (1, 100, 750, 1499)},
            **{it: polynomial(it, 1.0) for it in (1500, 20000, 80000, 120000, 159999)},
        }
        for size in 'bl'
    },
    **{
        ('mask2former_swin', size): {
            it: polynomial(it, 0.9)
            for it in (0, 1, 1500, 5000, 20000, 40000, 80000, 120000, 150000, 159999)
        }
        for size in 'sb'
    },
}
TTA_SHORT_SIDES = {
    'dino_vitdet': [800, 600, 1000],
    'dino_swin': [800, 600, 1000],
    'upernet_vit': [512, 512, 512, 640, 768, 896],
    'mask2former_swin': [256, 384, 512, 640, 768, 896],
    ('mask2former_swin', 'b'): [320, 480, 640, 800, 960, 1120],
}
