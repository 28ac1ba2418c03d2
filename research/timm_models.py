"""The classifiers of the papers as models of timm, for pre-training with its training script.

Importing this module registers them: ``timm.create_model('ropevit_small_mixed')``. See
docs/research/pretraining.md. ``research.named_classifiers`` has the names, and
``rope_classifier`` builds any config of a ``RoPEClassifier``. ``rope_dense.checkpoints`` loads
their checkpoints, with the backbone under ``backbone.``, without conversion.

Letters: B batch, N tokens, C channels, H x W token grid, K classes.
"""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from functools import partial
from typing import Any

from mmcv.cnn.bricks import DropPath
from mmengine.config import Config
from torch import Tensor, nn

from rope_dense.backbones import RoPENAT
from rope_dense.backbones.layers import init_transformer
from rope_dense.checkpoints.tables import find_grid, has_entries_like, resize_table
from rope_dense.engine.optimizer import role_of
from rope_dense.utils.sizes import Size
from rope_dense.utils.validation import check_choice, checked_size

from .classifier import RoPEClassifier
from .features import pooling_of
from .named_classifiers import ANY_CONFIG, CLASSIFIERS, NamedClassifier, with_image_size

try:
    from timm.models import build_model_with_cfg, generate_default_cfgs, register_model
except ImportError as error:
    raise ImportError(
        f'research.timm_models needs timm with torchvision, which cannot be imported '
        f'({error}): pip install timm'
    ) from error

PREFIX = 'backbone.'
TOKENS = (
    'cls_token',
    'reg_token',
)  # which, like positions and frequencies, have no weight decay


class TimmClassifier(RoPEClassifier):
    """A ``RoPEClassifier`` with the methods that timm's scripts call.

    Takes normalised images [B, in_chans, height, width] of any size, whatever ``img_size`` is, and
    returns scores [B, K]. Checked in test_timm_models.py against timm's own models with the same
    random weights.

    Args:
        backbone: config, see ``RoPEClassifier``.
        num_classes: K, or 0 for no head: pooled features [B, C].
        in_chans: image channels.
        img_size: pixels of the pre-training, an int or (height, width), see ``with_image_size``;
            None for 224, or what the config has.
        drop_rate: dropout of what the head sees.
        drop_path_rate: stochastic depth; None for the paper's, or the config's.
        constant_drop_path: the same rate in all blocks, as in DeiT-III; otherwise it grows linearly
            from 0 in the first block to ``drop_path_rate`` in the last.
        global_pool: a check only: 'token' for a head on the class token, 'avg' for a head on a
            mean, or None.

    Raises:
        ValueError: arguments that are not allowed or do not fit the model.
    """

    def __init__(
        self,
        backbone: dict,
        num_classes: int = 1000,
        in_chans: int = 3,
        img_size: int | Size | None = None,
        drop_rate: float = 0.0,
        drop_path_rate: float | None = None,
        constant_drop_path: bool = False,
        global_pool: str | None = None,
    ) -> None:
        backbone = dict(deepcopy(backbone), in_channels=in_chans)
        if img_size is not None:
            backbone = with_image_size(backbone, checked_size('img_size', img_size))
        if drop_path_rate is not None:
            backbone['drop_path_rate'] = drop_path_rate
        super().__init__(backbone, max(num_classes, 1))
        if constant_drop_path and backbone.get('drop_path_rate'):
            for block in self.backbone.ordered_blocks:
                block.drop_path = DropPath(backbone['drop_path_rate'])
        self.global_pool = pooling_of(self.backbone)
        self.num_features = self.head_hidden_size = self.backbone.out_channels[-1]
        self.head_drop = nn.Dropout(drop_rate)
        self.reset_classifier(num_classes, global_pool)

    def forward_features(self, images: Tensor) -> Tensor:
        """Normalised tokens [B, N, C] of a ViT, prefix tokens first; or a map [B, C, H, W]."""
        return self.features(images)

    def forward_head(self, features: Tensor, pre_logits: bool = False) -> Tensor:
        """Scores [B, K] of the result of ``forward_features``.

        With ``pre_logits`` the input of the last layer, [B, C].
        """
        pooled = self.pool(features)
        return pooled if pre_logits else self.head(pooled)

    def pool(self, features: Tensor) -> Tensor:
        return self.head_drop(super().pool(features))

    def get_classifier(self) -> nn.Module:
        return self.head

    def reset_classifier(
        self, num_classes: int, global_pool: str | None = None
    ) -> None:
        """Give the model a head for K classes, or none for 0; ValueError for another pooling."""
        check_choice('global_pool', global_pool, (None, self.global_pool))
        self.num_classes = num_classes
        self.head = (
            nn.Linear(self.num_features, num_classes) if num_classes else nn.Identity()
        )
        init_transformer(self.head)

    def set_grad_checkpointing(self, enable: bool = True) -> None:
        """Recompute each block in backward to save memory."""
        self.backbone.with_cp = enable

    def no_weight_decay(self) -> set[str]:
        """Parameters without weight decay in the published recipes.

        Frequencies, position tables, position convolutions and prefix tokens. (timm itself exempts
        vectors.)
        """
        return {
            name
            for name, param in self.named_parameters()
            if name.endswith(TOKENS)
            or role_of(self, name, param, ('frequency', 'position'))
        }

    def group_matcher(self, coarse: bool = False) -> Callable[[str], int]:
        """For layer-wise learning-rate decay: the layer of a parameter, the head in the last."""
        return self.layer_of

    def layer_of(self, name: str) -> int:
        if name.startswith(PREFIX):
            return self.backbone.layer_of(name.removeprefix(PREFIX))
        return len(self.backbone.ordered_blocks) + 1

    def _load_from_state_dict(
        self, state_dict: dict, prefix: str, *args: object
    ) -> None:
        """Load weights of another image size or window, with position tables resized (bicubic).

        For fine-tuning at another size (``--initial-checkpoint``).
        """
        expected = self.backbone.state_dict()
        for key, new in self.backbone.position_tables().items():
            table = state_dict.get(f'{prefix}{PREFIX}{key}')
            if table is None or not has_entries_like(table, expected[key]):
                continue
            old = find_grid(key, table, new)
            if old is not None:
                state_dict[f'{prefix}{PREFIX}{key}'] = resize_table(table, old, new)
        super()._load_from_state_dict(state_dict, prefix, *args)


def timm_settings(backbone: dict, crop_ratio: float = 0.875) -> dict[str, Any]:
    """timm's settings of a model: what it was trained with, and how it is evaluated."""
    overlapping = False
    if backbone.get('type') == 'RoPENAT':
        overlapping = bool(RoPENAT.ARCHS[backbone['arch']].get('overlapping', True))
    return dict(
        input_size=(3, 224, 224),
        num_classes=1000,
        crop_pct=crop_ratio,
        interpolation='bicubic',
        first_conv=f'{PREFIX}patch_embed.proj{".0" if overlapping else ""}',
        classifier='head',
    )


def build(
    name: str,
    named: NamedClassifier,
    pretrained: bool,
    features_only: bool = False,
    **kwargs: Any,
) -> TimmClassifier:
    """The model that ``timm.create_model`` returns for a name.

    Raises:
        ValueError: ``features_only``; arguments that do not fit the model.
    """
    if features_only:
        raise ValueError(
            f'features_only: {name} has no feature wrapper; take a backbone of '
            'rope_dense.backbones, which returns maps'
        )
    classifier = partial(TimmClassifier, named.backbone)
    kwargs.setdefault('constant_drop_path', named.constant_drop_path)
    return build_model_with_cfg(classifier, name, pretrained, **kwargs)


def register(name: str, named: NamedClassifier) -> None:
    """Add a classifier to timm's registry."""

    def create(pretrained: bool = False, **kwargs: Any) -> TimmClassifier:
        return build(name, named, pretrained, **kwargs)

    create.__name__ = create.__qualname__ = name
    register_model(create)


SETTINGS: dict[str, Any] = {
    name: timm_settings(named.backbone, named.crop_ratio)
    for name, named in CLASSIFIERS.items()
}
default_cfgs = generate_default_cfgs({**SETTINGS, ANY_CONFIG: timm_settings({})})
for name, named in CLASSIFIERS.items():
    register(name, named)


@register_model
def rope_classifier(
    pretrained: bool = False, config: str | None = None, **kwargs: Any
) -> TimmClassifier:
    """The classifier of a config file, such as in configs/research/ablation.

    Args:
        config: path; its ``model`` is a ``RoPEClassifier``. With timm's script:
            ``--model rope_classifier --model-kwargs config=PATH``.

    Raises:
        ValueError: no config of a classifier.
    """
    model: Any = Config.fromfile(config).get('model', {}) if config else {}
    if model.get('type') != 'RoPEClassifier':
        raise ValueError(
            f'{ANY_CONFIG}: give the config of a RoPEClassifier, '
            f'config=configs/research/ablation/NAME.py; got {config!r}'
        )
    kwargs.setdefault('num_classes', model.num_classes)
    named = NamedClassifier(model.backbone.to_dict())
    return build(ANY_CONFIG, named, pretrained, **kwargs)
