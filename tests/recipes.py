"""What the recipes of the four flagship experiments say, as tables for test_configs.py.

Transcribed from the published training code of detrex (DINO), BEiT v2 (UperNet) and Mask2Former.
"""

NORMALIZATION = {
    'model.data_preprocessor.mean': [123.675, 116.28, 103.53],
    'model.data_preprocessor.std': [58.395, 57.12, 57.375],
    'model.data_preprocessor.bgr_to_rgb': True,
}
EVERYWHERE = NORMALIZATION | {
    'model.backbone.rope': dict(type='MixedRoPE', theta=10.0),
    'optim_wrapper.type': 'OptimWrapper',
    'optim_wrapper.optimizer.type': 'AdamW',
    'optim_wrapper.optimizer.betas': (0.9, 0.999),
    'optim_wrapper.constructor': 'NamedGroupsConstructor',
    'train_cfg.type': 'IterBasedTrainLoop',
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
RECIPES = {
    'dino_vitdet_rope_mixed': DINO
    | {
        'model.backbone.type': 'RoPEViT',
        'model.backbone.arch': 'base',
        'model.backbone.with_cls_token': False,
        'model.backbone.window_size': 14,
        'model.backbone.window_block_indexes': (0, 1, 3, 4, 6, 7, 9, 10),
        'model.backbone.drop_path_rate': 0.1,
        'model.neck.0': dict(type='SimpleFPN', in_channels=768, out_channels=256),
        'model.neck.1': dict(CHANNEL_MAPPER, in_channels=[256, 256, 256, 256]),
    },
    'dino_swin_rope_mixed': DINO
    | {
        'model.backbone.type': 'RoPESwin',
        'model.backbone.arch': 'tiny',
        'model.backbone.window_size': 7,
        'model.backbone.drop_path_rate': 0.1,
        'model.backbone.out_indices': (1, 2, 3),
        'model.neck': dict(CHANNEL_MAPPER, in_channels=[192, 384, 768]),
    },
    'upernet_vit_rope_mixed': ADE20K
    | {
        'model.backbone.type': 'RoPEViT',
        'model.backbone.arch': 'base',
        'model.backbone.with_cls_token': True,
        'model.backbone.out_indices': (3, 5, 7, 11),
        'model.backbone.drop_path_rate': 0.15,
        'model.neck.type': 'Feature2Pyramid',
        'model.neck.rescales': [4, 2, 1, 0.5],
        'model.neck.norm_cfg.type': 'SyncBN',
        'model.decode_head.type': 'UPerHead',
        'model.decode_head.channels': 768,
        'model.decode_head.pool_scales': (1, 2, 3, 6),
        'model.decode_head.dropout_ratio': 0.1,
        'model.decode_head.norm_cfg.type': 'SyncBN',
        'model.auxiliary_head.in_index': 2,
        'model.auxiliary_head.channels': 256,
        'model.auxiliary_head.num_convs': 1,
        'model.auxiliary_head.dropout_ratio': 0.1,
        'model.auxiliary_head.loss_decode.loss_weight': 0.4,
        'model.test_cfg': dict(mode='slide', crop_size=(512, 512), stride=(341, 341)),
        'optim_wrapper.optimizer.lr': 5e-5,
        'optim_wrapper.paramwise_cfg.layer_decay': 0.75,
        'optim_wrapper.clip_grad': None,
        'train_cfg.val_interval': 16000,
        'default_hooks.checkpoint.interval': 16000,
        'train_dataloader.dataset.pipeline.2.scale': (2048, 512),
        'train_dataloader.dataset.pipeline.2.ratio_range': (0.5, 2.0),
        'train_dataloader.dataset.pipeline.3.crop_size': (512, 512),
        'train_dataloader.dataset.pipeline.3.cat_max_ratio': 0.75,
    },
    'mask2former_swin_rope_mixed': ADE20K
    | {
        'model.backbone.type': 'RoPESwin',
        'model.backbone.arch': 'small',
        'model.backbone.window_size': 7,
        'model.backbone.drop_path_rate': 0.3,
        'model.backbone.out_indices': (0, 1, 2, 3),
        'model.data_preprocessor.test_cfg.size_divisor': 32,
        'model.decode_head.num_queries': 100,
        'model.decode_head.feat_channels': 256,
        'model.decode_head.out_channels': 256,
        'model.decode_head.in_channels': [96, 192, 384, 768],
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
        # fmt: off
        'train_dataloader.dataset.pipeline.2.scales': [
            256,
            307,
            358,
            409,
            460,
            512,
            563,
            614,
            665,
            716,
            768,
            819,
            870,
            921,
            972,
            1024,
        ],
        # fmt: on
        'train_dataloader.dataset.pipeline.2.max_size': 2048,
        'train_dataloader.dataset.pipeline.3': dict(type='RandomCrop', crop_size=(512, 512)),
        'train_dataloader.dataset.pipeline.6.pad_val': dict(img=128, seg=255),
    },
}
WEIGHTS = {
    'dino_vitdet_rope_mixed': 'rope_mixed_deit_base_patch16_LS',
    'dino_swin_rope_mixed': 'swin_rope_mixed_tiny_patch4_window7_224',
    'upernet_vit_rope_mixed': 'rope_mixed_deit_base_patch16_LS',
    'mask2former_swin_rope_mixed': 'swin_rope_mixed_small_patch4_window7_224',
}

# Per flagship, parameter-name patterns with factors of learning rate and weight decay. A parameter
# takes the first pattern that matches the start of its name; every pattern must be used.
DINO_TRANSFORMER = {
    r'(encoder|decoder)\.layers\.\d+\.norms\.': (1, 0),
    r'decoder\.norm\.|memory_trans_norm\.': (1, 0),
    r'encoder\.|decoder\.|bbox_head\.|query_embedding\.|level_embed|memory_trans_fc\.': (1, 1),
    r'dn_query_generator\.label_embedding\.': (1, 1),
}
SWIN = {
    r'backbone\.layers\.\d\.rope\.freqs$': (0.1, 0),
    r'backbone\.layers\.\d\.blocks\.\d+\.norm[12]\.': (0.1, 0),
    r'backbone\.(layers\.\d\.downsample\.|patch_embed\.)norm\.': (0.1, 0),
    r'backbone\.norm\d\.': (0.1, 0),
    r'backbone\.layers\.\d\.(blocks\.\d+\.(attn|mlp)|downsample\.reduction)\.': (0.1, 1),
    r'backbone\.patch_embed\.proj\.': (0.1, 1),
}
UPERNET_LAYERS = {
    r'backbone\.rope\.freqs$': (0.75**13, 0),
    r'backbone\.patch_embed\.proj\.weight$': (0.75**13, 1),
    r'backbone\.patch_embed\.proj\.bias$': (0.75**13, 0),
    r'backbone\.cls_token$': (0.75**13, 1),
} | {
    rf'backbone\.blocks\.{block}\.{rest}': (0.75 ** (12 - block), decay)
    for block in range(12)
    for rest, decay in (
        (r'(norm[12]\.|gamma_|(attn|mlp)\.\w+\.bias$)', 0),
        (r'(attn|mlp)\.\w+\.weight$', 1),
    )
}
GROUPS = {
    'dino_vitdet_rope_mixed': {
        r'backbone\.rope\.freqs$': (0.1, 0),
        r'backbone\.blocks\.\d+\.norm[12]\.': (0.1, 0),
        r'backbone\.(blocks\.\d+\.(attn|mlp|gamma_[12])|patch_embed)': (0.1, 1),
        r'neck\.0\.': (0.1, 1),  # with its channel-wise norms, as in detrex
        r'neck\.1\.convs\.\d\.gn\.': (1, 0),
        r'neck\.1\.convs\.\d\.conv\.(weight|bias)$': (1, 1),
    }
    | DINO_TRANSFORMER,
    'dino_swin_rope_mixed': SWIN
    | {
        r'neck\.(convs|extra_convs)\.\d\.gn\.': (1, 0),
        r'neck\.(convs|extra_convs)\.\d\.conv\.(weight|bias)$': (1, 1),
    }
    | DINO_TRANSFORMER,
    'upernet_vit_rope_mixed': UPERNET_LAYERS
    | {
        r'(neck|decode_head|auxiliary_head)\..*\.bias$': (1, 0),
        r'neck\.upsample_4x\.1\.weight|(decode|auxiliary)_head\..*\.bn\.': (1, 0),
        r'(neck|decode_head|auxiliary_head)\..*\.weight$': (1, 1),
    },
    'mask2former_swin_rope_mixed': SWIN
    | {
        r'decode_head\.(query_embed|query_feat|level_embed|pixel_decoder\.level_encoding)\.': (
            1,
            0,
        ),
        r'decode_head\.(pixel_decoder\.encoder|transformer_decoder)\.layers\.\d+\.norms\.': (1, 0),
        r'decode_head\.transformer_decoder\.post_norm\.': (1, 0),
        r'decode_head\.pixel_decoder\.\w+_convs\.\d\.gn\.': (1, 0),
        r'decode_head\.': (1, 1),
    },
}


def polynomial(iteration: int, power: float) -> float:
    return (1 - iteration / 160000) ** power


# Iteration -> factor of the learning rate, from the recipe's own formula.
SCHEDULES = {
    'dino_vitdet_rope_mixed': {
        **{0: 0.001, 50: 0.2008, 125: 0.5005, 249: 0.996, 250: 1.0},
        **{10000: 1.0, 82499: 1.0, 82500: 0.1, 89999: 0.1},
    },
    'dino_swin_rope_mixed': {0: 1.0, 125: 1.0, 82499: 1.0, 82500: 0.1, 89999: 0.1},
    'upernet_vit_rope_mixed': {
        **{it: it / 1500 * polynomial(it, 1.0) for it in (1, 100, 750, 1499)},
        **{it: polynomial(it, 1.0) for it in (1500, 20000, 80000, 120000, 159999)},
        0: 1e-6,
    },
    'mask2former_swin_rope_mixed': {
        it: polynomial(it, 0.9) for it in (0, 1, 1500, 20000, 40000, 80000, 120000, 159999)
    },
}

TTA_SHORT_SIDES = {
    'dino_vitdet_rope_mixed': [800, 600, 1000],
    'dino_swin_rope_mixed': [800, 600, 1000],
    'upernet_vit_rope_mixed': [512, 512, 512, 640, 768, 896],
    'mask2former_swin_rope_mixed': [256, 384, 512, 640, 768, 896],
}
