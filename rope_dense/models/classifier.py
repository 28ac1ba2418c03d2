"""Image classifiers of the paper: a published backbone with its head.

Letters: B batch, C channels, K classes.
"""

from __future__ import annotations

import math
import re

from mmengine.model import BaseModel
from mmengine.registry import MODELS
from mmengine.structures import BaseDataElement
from torch import Tensor, nn

from ..backbones.archs import VIT_ARCHS
from ..checkpoints import CheckpointError, load_pretrained
from ..checkpoints.hints import axial_theta, is_swin, swin_sizes
from ..checkpoints.keys import VIT_BLOCK, VIT_FREQS, StateDict, has
from ..checkpoints.layouts import find_layout
from ..checkpoints.layouts.naver import SWIN_PAIRS, VIT_PAIRS
from ..checkpoints.loading import read_weights
from ..checkpoints.reader import read_checkpoint
from ..checkpoints.sources import fetch
from ..checkpoints.weights import select_weights
from .named_classifiers import ANY_CONFIG, AXIAL, CLASSIFIERS, MIXED, trained_backbone

HEAD = ('head.weight', 'head.bias')
IMAGENET = dict(
    type='ImgDataPreprocessor',
    mean=[123.675, 116.28, 103.53],
    std=[58.395, 57.12, 57.375],
    bgr_to_rgb=True,
)
ROPES = {'axial': AXIAL, 'none': None}  # of ViTs without frequencies
# How published results were measured, by backbone or, where it differs, by layout: sizes (a table
# of a paper has them) and the share of the resized shorter side that the crop has. That is 1 in
# rope-vit's README, as in DeiT-III; 224 / 256 in the code of Swin, ResFormer and SHI-Labs.
PROTOCOLS = {
    'RoPEViT': dict(sizes=['table-a.4'], crop_ratio=1.0),
    'RoPESwin': dict(sizes=['table-a.8'], crop_ratio=0.875),
    'RoPENAT': dict(sizes=['224'], crop_ratio=0.875),
    'ResFormer': dict(sizes=['table-5'], crop_ratio=0.875),
    'SHI-Labs ViT': dict(sizes=['fused-table-4'], crop_ratio=0.875),
}


@MODELS.register_module()
class RoPEClassifier(BaseModel):
    """A RoPEViT, a RoPESwin or a RoPENAT and a linear head; for evaluation only.

    The head sees the normalised class token of a ViT, or if it has none, the mean of its normalised
    tokens; or the mean of the last normalised map of a Swin or NAT. Checked in
    tests/tools/test_eval_classification.py against the scores of timm's ports with the same random
    weights, and for means, there and in test_vit_options.py, against the published order of
    norm, mean and head.

    Args:
        backbone: config. Of a ViT with ``final_norm`` and the last block among its outputs; of a
            Swin or NAT with the last stage as its only output.
        num_classes: K.
        data_preprocessor: see mmengine's ``BaseModel``.

    Raises:
        ValueError: a backbone without what the head needs.
    """

    def __init__(
        self, backbone: dict, num_classes: int, data_preprocessor: dict | None = None
    ) -> None:
        super().__init__(data_preprocessor)
        self.backbone = MODELS.build(backbone)
        self.backbone.check_pooling()
        self.num_classes = num_classes
        self.head: nn.Module = nn.Linear(self.backbone.out_channels[-1], num_classes)

    def forward(
        self,
        inputs: Tensor,
        data_samples: list[BaseDataElement] | None = None,
        mode: str = 'tensor',
    ) -> Tensor | list[BaseDataElement]:
        """Scores [B, K] of images [B, 3, height, width]; with mode 'predict', those of each sample
        in a field ``scores``.

        Raises:
            ValueError: another mode, or no samples to predict for.
        """
        if mode not in ('tensor', 'predict'):
            raise ValueError(f"mode must be 'tensor' or 'predict', got {mode!r}")
        scores = self.head(self.pool(self.features(inputs)))
        if mode == 'tensor':
            return scores
        if data_samples is None:
            raise ValueError("data_samples: mode 'predict' adds scores to them, got None")
        for sample, scores_of_sample in zip(data_samples, scores, strict=True):
            sample.scores = scores_of_sample
        return data_samples

    def features(self, images: Tensor) -> Tensor:
        """The normalised tokens of a ViT, [B, N, C], prefix tokens first; or the last map of a Swin
        or NAT, [B, C, H, W]."""
        return self.backbone.forward_features(images)

    def pool(self, features: Tensor) -> Tensor:
        """What the head sees of the features, [B, C]."""
        return self.backbone.pool_features(features)


def classifier_config(checkpoint: str, rope: str | None = None) -> dict:
    """The model that a published checkpoint holds, and how its results were measured.

    Args:
        checkpoint: of RoPE-ViT or RoPE-Swin, their baselines, timm's ports of the former, SHI-Labs'
            ViT with relative position bias, or ResFormer; of one of ``CLASSIFIERS``, trained with
            timm's script; or of a ``RoPEClassifier`` with a ViT whose frequencies, mixed or axial,
            are learned; see ``fetch``.
        rope: 'axial' or 'none'. Only weights of a ViT with a position embedding and without
            frequencies need it: those of the axial models with position embedding look the same as
            those of the baseline.

    Returns:
        Dict of model, a config, and evaluation, one of ``PROTOCOLS``.

    Raises:
        CheckpointError: the checkpoint cannot be had or read, or is no such classifier.
    """
    contents = read_checkpoint(fetch(checkpoint), checkpoint)
    name = contents.get('arch')  # which timm's script writes
    weights = select_weights(contents, '', checkpoint)
    if isinstance(name, str) and name in (*CLASSIFIERS, ANY_CONFIG):
        return trained_config(name, weights, checkpoint)
    is_own = any(key.startswith('backbone.') for key in weights)
    weights = {key.removeprefix('backbone.'): weight for key, weight in weights.items()}
    layout = find_layout(weights, checkpoint)
    if is_own and not has(weights, VIT_FREQS):
        raise CheckpointError(
            f'{checkpoint}: without learned frequencies of a ViT, the weights of a RoPEClassifier '
            'do not tell what it is; give its config (--config)'
        )
    if missing := [key for key in (*HEAD, 'norm.weight') if key not in weights]:
        raise CheckpointError(
            f'{checkpoint}: has no {", ".join(missing)}, so it is no classifier with a norm and a '
            'linear head; give the published file of a classifier'
        )
    if layout.name in ('SHI-Labs NAT', 'SHI-Labs DiNAT-s'):
        raise CheckpointError(
            f'{checkpoint} ({layout.name}): the dilations of its blocks are not among the weights; '
            'give the config of the classifier (--config)'
        )
    ours = layout.to_ours(weights)
    backbone = swin_config(ours) if is_swin(ours) else vit_config(ours, rope, checkpoint)
    model = classifier(backbone, weights)
    return dict(model=model, evaluation=PROTOCOLS.get(layout.name, PROTOCOLS[backbone['type']]))


def trained_config(name: str, weights: StateDict, checkpoint: str) -> dict:
    """As ``classifier_config``, for what timm's script trained under this name."""
    if name == ANY_CONFIG:
        raise CheckpointError(
            f'{checkpoint}: a {name} is what its config says; give that config (--config)'
        )
    if HEAD[0] not in weights:
        raise CheckpointError(f'{checkpoint}: has no {HEAD[0]}, so it is no classifier')
    backbone = trained_backbone(name, weights)
    protocol = PROTOCOLS[backbone['type']]
    return dict(
        model=classifier(backbone, weights),
        evaluation=dict(protocol, crop_ratio=CLASSIFIERS[name].crop_ratio),
    )


def classifier(backbone: dict, weights: StateDict) -> dict:
    """The config of a classifier with a backbone and as many classes as the weights have."""
    return dict(
        type='RoPEClassifier',
        backbone=backbone,
        num_classes=len(weights[HEAD[0]]),
        data_preprocessor=IMAGENET,
    )


def vit_config(weights: StateDict, rope: str | None, checkpoint: str) -> dict:
    """The backbone of a ViT's weights, in our layout."""
    channels, patch_size = weights['patch_embed.proj.weight'].shape[0::3]
    depth = sum(bool(re.fullmatch(VIT_BLOCK, key)) for key in weights)
    sizes = dict(embed_dims=channels, depth=depth, patch_size=patch_size)
    sizes['num_heads'] = channels // (2 * VIT_PAIRS)
    table = weights.get('blocks.0.attn.relative_position_bias_table')  # [offsets, heads]
    if table is not None:
        sizes |= dict(num_heads=table.shape[1], img_size=table_side(table) * patch_size)
        return dict(type='RoPEViT', arch=VIT_ARCHS['isotropic_small'] | sizes, final_norm=True)
    if 'cls_token' not in weights:
        raise CheckpointError(
            f'{checkpoint}: has no class token (its head sees a mean of tokens) and no relative '
            'position bias; classifiers of RoPE-ViT have the one, those of SHI-Labs the other'
        )
    if 'sine_embed.conv.weight' in weights:
        return dict(type='RoPEViT', arch=VIT_ARCHS['resformer_small'] | sizes, final_norm=True)
    positions, freqs = weights.get('pos_embed'), weights.get('blocks.0.attn.rope.freqs')
    if positions is not None and freqs is None and rope is None:
        raise CheckpointError(
            f'{checkpoint}: has a position embedding and no frequencies, as the axial models with '
            'position embedding and their baseline do: say which, --rope axial or --rope none'
        )
    return dict(
        type='RoPEViT',
        arch=sizes,
        img_size=224 if positions is None else math.isqrt(positions.shape[1]) * patch_size,
        rope=ROPES[rope or 'axial'] if freqs is None else rope_config(freqs, VIT_PAIRS),
        use_ape=positions is not None,
        layer_scale_init_value=1e-4 if 'blocks.0.gamma_1' in weights else None,
        final_norm=True,
    )


def swin_config(weights: StateDict) -> dict:
    """The backbone of a Swin's weights, in our layout; not shifted where one window has the map, as
    in pre-training."""
    channels, depths = swin_sizes(weights)
    freqs = weights.get('layers.0.blocks.0.attn.rope.freqs')
    table = weights.get('layers.0.blocks.0.attn.relative_position_bias_table')
    window = 7 if table is None else table_side(table)
    heads = tuple(channels * 2**stage // (2 * SWIN_PAIRS) for stage in range(len(depths)))
    return dict(
        type='RoPESwin',
        arch=dict(embed_dims=channels, depths=depths, num_heads=heads),
        rope=None if freqs is None else rope_config(freqs, SWIN_PAIRS),
        use_rpb=table is not None,
        window_size=window,
        pretrain_window_size=window,
        shift_single_window=False,
        patch_norm='patch_embed.norm.weight' in weights,
        drop_path_rate=0.0,
        out_indices=(len(depths) - 1,),
    )


def rope_config(freqs: Tensor, pairs: int) -> dict:
    """The embedding of the frequencies of a block, [2, h, P] for all pairs of a head, or with half
    of them: learned axial ones."""
    if freqs.shape[-1] == pairs // 2:
        return dict(type='AxialRoPE', learned=True)
    theta = axial_theta(freqs)
    if theta is None:
        return MIXED
    return dict(type='AxialRoPE', theta=round(theta, 3))


def table_side(table: Tensor) -> int:
    """Tokens of a side of what a table of relative position bias [(2 side - 1)^2, h] covers."""
    return (math.isqrt(len(table)) + 1) // 2


def load_classifier(model: RoPEClassifier, checkpoint: str) -> None:
    """Load a published checkpoint of a classifier, or one of this package.

    Raises:
        CheckpointError: it does not fit.
    """
    load_pretrained(model.backbone, checkpoint)
    weights = read_weights(checkpoint, prefix='')
    ours = any(key.startswith('backbone.') for key in weights)  # with the norm among them
    try:
        if not (model.backbone.is_isotropic or ours):
            norm = model.backbone.last_norm
            norm.load_state_dict({name: weights[f'norm.{name}'] for name in ('weight', 'bias')})
        model.head.load_state_dict({name: weights[f'head.{name}'] for name in ('weight', 'bias')})
    except (RuntimeError, KeyError) as error:
        raise CheckpointError(f'{checkpoint}: norm or head does not fit ({error})') from error
