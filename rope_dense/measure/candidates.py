"""Scalings and windows that are worth a try at an image size, of what a backbone allows."""

from collections.abc import Sequence
from dataclasses import replace

from mmengine.utils import to_2tuple

from ..backbones.base import Backbone
from ..project.contents import at_size, configured_size
from ..rope.grid import build_scaling
from ..utils.sizes import ImageSize
from ..utils.validation import parse_size
from .evaluator import Evaluator
from .settings import FROM_CONFIG, Setting, combine

# A temperature is all that coordinates which cover the same range on every grid allow.
SCALINGS = ('linear', 'by_parts', 'ntk', 'none+log', 'none+yarn', 'by_parts+log')


def settings_at(
    evaluator: Evaluator,
    size: str,
    trained: ImageSize,
    scalings: Sequence[str] = (),
    windows: Sequence[str] = (),
    tiles: Sequence[int] = (),
) -> list[Setting]:
    """The config's own setting, then the others to compare it with at an image size.

    Crops of a segmentor that slides grow with the images.

    Args:
        size: see ``parse_size``.
        trained: height and width of the training's images.
        scalings, windows: to try, see ``parse_scaling`` and ``parse_window``; by default what
            ``scalings_at`` and ``windows_at`` give and the backbone allows.
        tiles: to try, too, each with all of these.

    Raises:
        ValueError: the size, or a given scaling, window or tile, is not allowed.
    """
    factors = growth(evaluator, size, trained)
    # Those to try by default leave the windows as they are, or there would be too many settings.
    leaves_windows = (
        not scalings and evaluator.is_ours and evaluator.backbone.is_isotropic
    )
    own = Setting(size, slide='scale' if evaluator.slides else 'keep')
    evaluator.apply(own)
    if scalings:
        given = [replace(own, scaling=text) for text in scalings]
        scalings = [with_factor(evaluator, x, trained).scaling for x in given]
    else:
        scalings = []
        for text in scalings_at(evaluator, factors, trained):
            if is_possible(evaluator, replace(own, scaling=text)):
                scalings.append(text)
    if not windows:
        windows = []
        for text in windows_at(evaluator, factors):
            if is_possible(evaluator, replace(own, window=text)):
                windows.append(text)
    settings = [own]
    for setting in combine(
        [size],
        [FROM_CONFIG, *scalings],
        [FROM_CONFIG, *windows],
        own.slide,
    ):
        is_tempered = leaves_windows and '+' in setting.scaling
        if is_tempered and setting.window != FROM_CONFIG:
            continue
        if setting != own and is_different(evaluator, setting):
            settings.append(setting)
    for tile in tiles:
        evaluator.apply(replace(own, tile=tile))
    if not tiles:
        return settings
    with_tiles = []
    for tile in dict.fromkeys([evaluator.config.test_dataloader.dataset.tile, *tiles]):
        with_tiles += [replace(setting, tile=tile) for setting in settings]
    return with_tiles


def is_possible(evaluator: Evaluator, setting: Setting) -> bool:
    """False for a setting that the backbone or the size refuses."""
    try:
        evaluator.apply(setting)
    except ValueError:
        return False
    return True


def is_different(evaluator: Evaluator, setting: Setting) -> bool:
    """False if the scaling of a setting changes nothing, as its windows are as in pre-training.

    Only in a backbone of several stages the factor follows from the window, see ``scalings_at``.
    ValueError as of ``Evaluator.apply``.
    """
    evaluator.apply(setting)
    backbone = evaluator.backbone
    scaling = build_scaling(backbone.rope_scaling, backbone.pretrain_grid)
    window = backbone.window_size
    if backbone.is_isotropic or scaling is None or window in (None, 'auto'):
        return True
    return scaling.factors(*to_2tuple(window)) != (1.0, 1.0)


def growth(evaluator: Evaluator, size: str, trained: ImageSize) -> tuple[float, float]:
    """Sides (y, x) of images of a size, divided by those in training."""
    sides = configured_size(at_size(evaluator.config, parse_size(size)))
    if evaluator.keeps_ratio:  # sides are bounds only
        factor = min(sides) / min(trained)
        return factor, factor
    return sides[0] / trained[0], sides[1] / trained[1]


def with_factor(evaluator: Evaluator, setting: Setting, trained: ImageSize) -> Setting:
    """The setting; where a ViT's scaling leaves the factor open, with ``scalings_at``'s.

    Images, or crops, that are no larger get the size of the training.
    """
    is_given = ':' in setting.scaling or setting.scaling in ('none', FROM_CONFIG)
    if is_given or not (evaluator.is_ours and evaluator.backbone.is_isotropic):
        return setting
    y, x = in_training(evaluator, trained)
    if not evaluator.slides or setting.slide != 'keep':  # else crops stay as large
        height, width = growth(evaluator, setting.size, trained)
        y *= max(1.0, height)
        x *= max(1.0, width)
    kind, plus, temperature = setting.scaling.partition('+')
    scaling = f'{kind}:{factor_text((y, x))}{plus}{temperature}'
    return replace(setting, scaling=scaling, given=setting.scaling)


def in_training(evaluator: Evaluator, trained: ImageSize) -> tuple[float, float]:
    """Factors (y, x) of the config's scaling for images of the training."""
    own = build_scaling(evaluator.rope_scaling, evaluator.backbone.pretrain_grid)
    if own is None or own.type == 'none':
        return 1.0, 1.0
    return own.factors(*evaluator.backbone.patch_embed.grid(*trained))


def scalings_at(
    evaluator: Evaluator,
    factors: tuple[float, float],
    trained: ImageSize,
) -> list[str]:
    """Scalings for images that are larger by some factors than in training.

    Of a ViT they have the factor by which images grow, times the one in training: what the
    pre-training saw does not matter to fine-tuned weights. In other backbones positions end with
    the window, so the factor follows from the window.
    """
    backbone: Backbone = evaluator.backbone
    own = build_scaling(evaluator.rope_scaling, backbone.pretrain_grid)
    scalings = []
    growing = None
    if own is not None and own.type != 'none':
        scalings.append('none')
        if own.factor is None:  # it grows with the image
            growing = own.type
    if not backbone.is_isotropic:
        return [*scalings, *SCALINGS]
    y, x = in_training(evaluator, trained)
    factors = factors[0] * y, factors[1] * x
    if factors == (1.0, 1.0):
        return scalings
    for kind in SCALINGS if min(factors) >= 1 else SCALINGS[:1]:
        name, plus, temperature = kind.partition('+')
        if kind != growing:
            scalings.append(f'{name}:{factor_text(factors)}{plus}{temperature}')
    return scalings


def factor_text(factors: tuple[float, float]) -> str:
    """Factors (y, x) as in ``parse_scaling``."""
    y, x = (f'{factor:.4f}'.rstrip('0').rstrip('.') for factor in factors)
    return y if y == x else f'{y}x{x}'


def windows_at(evaluator: Evaluator, factors: tuple[float, float]) -> list[str]:
    """Windows for images that are larger by some factors than in training.

    The config's, grown with the images, 'auto', and the whole map for a ViT. An odd window
    stays odd, as neighbourhoods have to be.
    """
    backbone = evaluator.backbone
    own = evaluator.window_size
    if not backbone.has_windows:
        return []
    windows = ['auto']
    if backbone.is_isotropic:
        windows.append('none')
    if own not in (None, 'auto'):
        grown = []
        for side, by in zip(to_2tuple(own), factors, strict=True):
            grown.append(max(1, round(side * by)) | side % 2)
        if tuple(grown) != tuple(to_2tuple(own)):
            windows.append('x'.join(map(str, grown)))
    return [window for window in windows if window != str(own).lower()]
