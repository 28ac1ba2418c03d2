"""Small DEIMs with random weights, transformers' and ours, that the tests share."""

from __future__ import annotations

from typing import Any

import pytest
from mmengine.registry import MODELS
from torch import Tensor, nn

from rope_dense.backbones import RoPEViT
from rope_dense.checkpoints.detectors import (
    PUBLISHED_MODELS,
    split_backbone,
    without_neutral_weights,
)
from rope_dense.checkpoints.keys import rename_weights
from rope_dense.checkpoints.publishers import find_layout
from rope_dense.models.deim.detector import DEIM

CLASSES = 7
# Of the four published models, reduced in width and depth; what makes them differ is as published.
# hidden, feed-forward of the encoder and the decoder, layers, STA planes, depth, expansion.
WIDTHS = dict(
    s=(32, 48, 64, 2, 4, 0.67, 0.34),
    m=(48, 48, 48, 2, 4, 1.0, 0.67),
    l=(40, 64, 80, 2, 8, 1.0, 1.0),
    x=(32, 64, 64, 3, 8, 1.37, 1.25),
)
VIT = dict(embed_dims=32, depth=4, num_heads=2, mlp_ratio=2.0)
MAPS = (1, 2, 3)


def to_ours(model: nn.Module) -> dict[str, Tensor]:
    """transformers' weights, or what is in place of them, under our names."""
    layout = PUBLISHED_MODELS['transformers']
    backbone, others = split_backbone(rename_weights(model.state_dict(), layout.keys))
    backbone = without_neutral_weights(
        find_layout(backbone, layout.name).to_ours(backbone)
    )
    return {**{f'backbone.{key}': x for key, x in backbone.items()}, **others}


def randomise(model: nn.Module, scale: float = 1.0) -> None:
    """Weights, and statistics of norms, that make every part count."""
    for name, param in model.named_parameters():
        if param.requires_grad and 'reg_scale' not in name:
            fan = max(param[0].numel(), 1) if param.ndim > 1 else 1
            std = scale / fan**0.5 if param.ndim > 1 else 0.2
            nn.init.normal_(param, std=std)
            if param.ndim == 1 and name.endswith('weight'):
                param.data += 1
    for module in model.modules():
        if isinstance(module, nn.BatchNorm2d):
            nn.init.normal_(module.get_buffer('running_mean'), std=0.2)
            nn.init.uniform_(module.get_buffer('running_var'), 0.5, 2)


def repeat_first(layer: nn.Module, model: nn.Module) -> None:
    """Let a layer return the output of its first call in each call of the model."""
    outputs: list[Tensor] = []

    def first(module: nn.Module, inputs: object, output: Tensor) -> Tensor:
        outputs.append(output)
        return outputs[0]

    layer.register_forward_hook(first)
    model.register_forward_pre_hook(lambda *args: outputs.clear())


def theirs(size: str = 's', **settings: object) -> nn.Module:
    """transformers' model, computing what DEIMv2's source computes.

    MLPs of the decoder have SiLU there, tokens have no further layer before queries are selected,
    and the positions of queries are those of the first layer.
    """
    transformers = pytest.importorskip('transformers')
    hidden, encoder, decoder, layers, planes, depth, expansion = WIDTHS[size]
    tiny = size in 'sm'
    vit = transformers.DINOv3ViTConfig(
        hidden_size=VIT['embed_dims'],
        num_hidden_layers=VIT['depth'],
        num_attention_heads=VIT['num_heads'],
        intermediate_size=int(VIT['embed_dims'] * VIT['mlp_ratio']),
        num_register_tokens=0 if tiny else 4,
        query_bias=tiny,
        key_bias=tiny,
        value_bias=tiny,
        use_gated_mlp=size == 'x',
        hidden_act='silu' if size == 'x' else 'gelu',
        layerscale_value=1.0,
        pos_embed_rescale=None,
        out_features=[f'stage{index + 1}' for index in MAPS],
        reshape_hidden_states=True,
        apply_layernorm=not tiny,
    )
    config = transformers.Deimv2Config(
        **dict(
            backbone_config=vit,
            encoder_has_trailing_conv=False,
            encoder_hidden_dim=hidden,
            encoder_in_channels=[hidden] * 3,
            encoder_ffn_dim=encoder,
            encoder_attention_heads=4,
            hidden_expansion=expansion,
            depth_mult=depth,
            spatial_tuning_adapter_inplanes=planes,
            d_model=hidden,
            decoder_in_channels=[hidden] * 3,
            decoder_attention_heads=4,
            decoder_ffn_dim=decoder,
            decoder_layers=layers,
            decoder_n_points=[3, 6, 3],
            decoder_activation_function='silu',
            num_queries=20,
            num_labels=CLASSES,
            focal_loss_gamma=1.5,
        )
        | settings
    )
    model = transformers.Deimv2ForObjectDetection(config).eval()
    randomise(model)
    if tiny:
        model.model.conv_encoder.backbone.norm = nn.Identity()
        for name, param in model.named_parameters():
            if name.endswith('lambda1'):
                nn.init.ones_(param)
    model.model.enc_output = nn.Identity()
    for name, module in model.model.named_modules():
        if type(module).__name__ == 'Deimv2MLP' and 'encoder.aifi' not in name:
            module.act = nn.SiLU()
    repeat_first(model.model.decoder.query_pos_head, model)
    return model


def ours(size: str = 's', **settings: Any) -> DEIM:
    """Our model of that size."""
    return MODELS.build(config(size, **settings)).eval()


def config(size: str = 's', **settings: Any) -> dict:
    hidden, encoder, decoder, layers, planes, depth, expansion = WIDTHS[size]
    kind = 'dinov3_small_plus' if size == 'x' else 'dinov3_small'
    arch = RoPEViT.ARCHS[kind] | VIT
    if size in 'sm':
        arch |= dict(
            num_registers=0,
            qkv_bias=True,
            layer_scale_init_value=None,
            final_norm=False,
        )
    arch['rope'] = arch['rope'] | dict(coordinates=dict(type='centres'))
    head = dict(
        type='DEIMHead',
        num_classes=CLASSES,
        embed_dims=hidden,
        num_queries=20,
        decoder=dict(num_layers=layers, feedforward_channels=decoder, num_heads=4),
    )
    return (
        dict(
            type='DEIM',
            data_preprocessor=dict(
                type='mmdet.DetDataPreprocessor', pad_size_divisor=32
            ),
            backbone=dict(type='RoPEViT', arch=arch, out_indices=MAPS),
            neck=dict(
                type='SpatialTuningAdapter',
                in_channels=VIT['embed_dims'],
                stem_channels=planes,
                out_channels=hidden,
            ),
            encoder=dict(
                type='DEIMEncoder',
                in_channels=(hidden,) * 3,
                embed_dims=hidden,
                feedforward_channels=encoder,
                num_blocks=round(3 * depth),
                expansion=expansion,
                num_heads=4,
            ),
            bbox_head=head | settings.pop('head', {}),
            test_cfg=dict(max_per_img=30),
        )
        | settings
    )


def pair(size: str = 's', **settings: object) -> tuple[nn.Module, DEIM]:
    """transformers' model and ours with the same weights."""
    reference, model = theirs(size, **settings), ours(size)
    weights = to_ours(reference)
    missing, unexpected = model.load_state_dict(weights, strict=False)
    assert not unexpected, unexpected
    assert not missing, missing
    return reference, model


def close(value: Tensor, expected: Tensor, tolerance: float = 1e-5) -> bool:
    """Within a share of the largest of the expected values."""
    assert value.shape == expected.shape
    return bool(
        (value - expected).abs().max() <= tolerance * expected.abs().max().clamp(min=1)
    )
