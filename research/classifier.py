"""Image classifiers of the paper: a published backbone with its head.

Letters: B batch, C channels, K classes.
"""

from difflib import get_close_matches

import torch
from mmengine.model import BaseModel
from mmengine.registry import MODELS
from mmengine.structures import BaseDataElement
from torch import Tensor, nn

from rope_dense.backbones.base import Backbone
from rope_dense.checkpoints import CheckpointError
from rope_dense.checkpoints.adapting import can_load
from rope_dense.checkpoints.fetch import fetch
from rope_dense.checkpoints.incompatible import compare_weights, has_sizes
from rope_dense.checkpoints.keys import StateDict
from rope_dense.checkpoints.load import load_weights
from rope_dense.checkpoints.publishers import find_layout
from rope_dense.checkpoints.read import read_ahead
from rope_dense.checkpoints.weights import select_weights

from .features import check_features, features_of, map_norm, pooled
from .named_classifiers import ANY_CONFIG, CLASSIFIERS, backbone_config

PREFIX = 'backbone.'
HEAD = ('head.weight', 'head.bias')
IMAGENET = dict(
    type='ImgDataPreprocessor',
    mean=[123.675, 116.28, 103.53],
    std=[58.395, 57.12, 57.375],
    bgr_to_rgb=True,
)
# Sizes and crop ratio of classifiers without a name, by the type of the backbone.
PROTOCOLS = {
    'RoPEViT': dict(sizes=['table-a.4'], crop_ratio=1.0),
    'RoPESwin': dict(sizes=['table-a.8'], crop_ratio=0.875, rpb_resize='zeros'),
    'RoPENAT': dict(sizes=['224'], crop_ratio=0.875),
}


@MODELS.register_module()
class RoPEClassifier(BaseModel):
    """A RoPEViT, a RoPESwin or a RoPENAT and a linear head; for evaluation only.

    The head sees the normalised class token of a ViT, or if it has none, the mean of its normalised
    tokens; or the mean of the last normalised map of a Swin or NAT. Checked in
    test_eval_classification.py against the scores of timm's ports with the same random weights, and
    for means, there and in test_vit_options.py, against the published order of norm, mean and head.

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
        check_features(self.backbone)
        self.num_classes = num_classes
        self.head: nn.Module = nn.Linear(self.backbone.out_channels[-1], num_classes)

    def forward(
        self,
        inputs: Tensor,
        data_samples: list[BaseDataElement] | None = None,
        mode: str = 'tensor',
    ) -> Tensor | list[BaseDataElement]:
        """Scores [B, K] of images [B, 3, height, width].

        With mode 'predict', the samples with their scores in a field ``scores``. ValueError for
        another mode, or no samples to predict for.
        """
        if mode not in ('tensor', 'predict'):
            raise ValueError(f"mode must be 'tensor' or 'predict', got {mode!r}")
        scores = self.head(self.pool(self.features(inputs)))
        if mode == 'tensor':
            return scores
        if data_samples is None:
            raise ValueError(
                "data_samples: mode 'predict' adds scores to them, got None"
            )
        for sample, scores_of_sample in zip(data_samples, scores, strict=True):
            sample.scores = scores_of_sample
        return data_samples

    def load_checkpoint(self, checkpoint: str) -> None:
        """Load a published checkpoint of a classifier, or one of this package; see ``fetch``.

        Its contents are kept for the next reading of the file. CheckpointError, and nothing is
        changed, if it cannot be fetched or read, or does not fit.
        """
        contents = read_ahead(fetch(checkpoint), checkpoint)
        weights = select_weights(contents, '', checkpoint)
        backbone_weights = of_backbone(weights)
        parts: dict[str, nn.Module] = dict(head=self.head)
        is_published = backbone_weights is weights
        if is_published and (norm := map_norm(self.backbone)) is not None:
            parts['norm'] = norm  # ours is one of the backbone's outputs
        expected = nn.ModuleDict(parts).state_dict()
        given = {key: weights[key] for key in expected if key in weights}
        if incompatible := compare_weights(expected, given):
            raise CheckpointError(
                f'{checkpoint}: norm or head does not fit:\n{incompatible}'
            )
        load_weights(self.backbone, backbone_weights, checkpoint)
        nn.ModuleDict(parts).load_state_dict(given)

    def features(self, images: Tensor) -> Tensor:
        """Normalised tokens [B, N, C] of a ViT, or the last map [B, C, H, W] of a Swin or NAT.

        Prefix tokens come first.
        """
        return features_of(self.backbone, images)

    def pool(self, features: Tensor) -> Tensor:
        """The input of the head from the features, [B, C]."""
        return pooled(self.backbone, features)


def classifier_config(
    checkpoint: str, rope: str | None = None, name: str | None = None
) -> dict:
    """The classifier in a checkpoint, and how its results were measured.

    The contents of the file are kept for its next reading.

    Args:
        checkpoint: of RoPE-ViT or RoPE-Swin, their baselines, timm's ports of the former, SHI-Labs'
            models, or ResFormer; or of one of ``CLASSIFIERS``, trained here or with timm's script;
            see ``fetch``.
        rope: 'axial' or 'none', where several names fit: axial ViTs with a position embedding have
            the same keys and shapes as their baseline.
        name: in ``CLASSIFIERS``. Without it, the name in the file, or the only one whose backbone
            these weights fit.

    Returns:
        Dict of model, a config, and evaluation, its sizes and crop ratio.

    Raises:
        CheckpointError: the checkpoint cannot be fetched or read, or fits no classifier or several.
    """
    if name is not None and name not in CLASSIFIERS:
        close = get_close_matches(name, CLASSIFIERS, 3)
        advice = f'; close are {", ".join(close)}' if close else ''
        raise CheckpointError(f'{checkpoint}: no classifier is called {name!r}{advice}')
    contents = read_ahead(fetch(checkpoint), checkpoint)
    weights = select_weights(contents, '', checkpoint)
    given = contents.get('arch')  # which timm's script writes
    if name is None and given == ANY_CONFIG:
        raise CheckpointError(
            f'{checkpoint}: a {given}, which only its config describes; give it (--config)'
        )
    if missing := [key for key in HEAD if key not in weights]:
        raise CheckpointError(
            f'{checkpoint}: has no {", ".join(missing)}, so it is no classifier with a linear '
            'head; give the published file of a classifier'
        )
    if name is None and isinstance(given, str) and given in CLASSIFIERS:
        name = given
    backbone_weights = of_backbone(weights)
    layout = find_layout(backbone_weights, checkpoint)
    ours = layout.to_ours(backbone_weights)
    name = name or find_name(ours, rope, f'{checkpoint} ({layout.name})')
    model = dict(
        type='RoPEClassifier',
        backbone=backbone_config(name, ours),
        num_classes=len(weights[HEAD[0]]),
        data_preprocessor=IMAGENET,
    )
    named = CLASSIFIERS[name]
    return dict(
        model=model, evaluation=dict(sizes=[named.sizes], crop_ratio=named.crop_ratio)
    )


def find_name(weights: StateDict, rope: str | None, checkpoint: str) -> str:
    """The name in ``CLASSIFIERS`` of the only backbone that fits; else CheckpointError."""
    names = []
    for name, named in CLASSIFIERS.items():
        backbone: type[Backbone] = MODELS.get(named.backbone['type'])
        arch = named.backbone['arch']
        arch = arch if isinstance(arch, dict) else backbone.ARCHS[arch]
        is_axial = (named.backbone.get('rope') or {}).get('type') == 'AxialRoPE'
        if not has_sizes(arch, weights) or rope == ('none' if is_axial else 'axial'):
            continue
        with torch.device('meta'):
            model = MODELS.build(backbone_config(name, weights))
        if can_load(model, weights):
            names.append(name)
    if len(names) == 1:
        return names[0]
    if names:
        raise CheckpointError(
            f'{checkpoint}: the weights fit {", ".join(names)}: say which (--model NAME, or --rope '
            'axial or --rope none)'
        )
    raise CheckpointError(
        f'{checkpoint}: the weights fit none of the {len(CLASSIFIERS)} classifiers with a name; '
        'give its config (--config)'
    )


def of_backbone(weights: StateDict) -> StateDict:
    """The weights of the backbone of a classifier of this package; other weights as they are."""
    ours = {
        key.removeprefix(PREFIX): x
        for key, x in weights.items()
        if key.startswith(PREFIX)
    }
    return ours or weights
