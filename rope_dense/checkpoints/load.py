"""Strict loading of a checkpoint into a backbone."""

import logging

from mmengine.logging import print_log
from mmengine.registry import WEIGHT_INITIALIZERS

from ..backbones.base import Backbone
from ..rope import RopeScaling
from ..utils.sizes import Size
from .adapting import adapt, check_reference, find_incompatible
from .channels import Channels, channels_advice_text, rgb_keys
from .errors import CheckpointError, keys_text
from .fetch import Location, fetch
from .incompatible import likeness_text, shapes
from .keys import StateDict, new_keys
from .publishers import OURS, find_layout
from .read import read_checkpoint
from .weights import select_weights


@WEIGHT_INITIALIZERS.register_module()
class StrictPretrained:
    """``load_pretrained``, with its arguments, as mmengine's initialisation 'Pretrained'."""

    def __init__(
        self,
        checkpoint: Location,
        prefix: str | None = None,
        grid: Size | None = None,
        channels: Channels | None = None,
        network: str | None = None,
    ) -> None:
        self.settings = (checkpoint, prefix, grid, channels, network)

    def __call__(self, model: Backbone) -> None:
        load_pretrained(model, *self.settings)


def load_pretrained(
    model: Backbone,
    checkpoint: Location,
    prefix: str | None = None,
    grid: Size | None = None,
    channels: Channels | None = None,
    network: str | None = None,
) -> None:
    """Load a checkpoint, published or of this package, into a backbone, and log the changes.

    The layout is recognised from the keys and converted. Then each weight of the model must be in
    the checkpoint in its shape, and no weight may be left over, with these exceptions:

    - dropped: a class token and norms that the configuration omits, registers if it has no prefix
      tokens at all, and biases of q, k and v that are zero;
    - with their initial values, if the checkpoint has none: output norms of Swin (a pre-training
      has the last one or none), ViTDet's relative positions, and adapters;
    - resized (bicubic) to the image size and the window of the model: position embeddings and
      relative position bias tables; their own grid is ``grid``, or see ``tables.find_grid``;
    - adapted, if ``channels`` are given: the input convolution of RGB images (weights of this
      package for three channels are taken to be of the model's);
    - frequencies: computed ones must equal the checkpoint's, if it has any; learned axial
      ones start at the axial values, if it has none.

    Checked with random weights in all published layouts in
    tests/checkpoints/test_checkpoint_layouts.py and test_checkpoint_families.py.

    Args:
        model: a backbone; unchanged if anything fails.
        checkpoint: see ``fetch``.
        prefix: see ``select_weights``.
        grid: (H, W) tokens of the images, or of the windows, of the pre-training.
        channels: of the model's images, in terms of the pre-training's: see ``adapt_channels``.
        network: 'teacher' or 'student', of a file with both, see ``choose_network``.

    Raises:
        CheckpointError: the checkpoint cannot be fetched or read, or it does not fit the model.
    """
    weights = read_weights(checkpoint, prefix, network)
    load_weights(model, weights, str(checkpoint), grid, channels)


def load_weights(
    model: Backbone,
    weights: StateDict,
    checkpoint: str,
    grid: Size | None = None,
    channels: Channels | None = None,
) -> None:
    """``load_pretrained`` of weights that have been read from ``checkpoint``.

    One line of the log says what was loaded, dropped, resized, and has its initial value.
    """
    if are_ours(weights, model):
        layout = OURS
    else:
        layout = find_layout(weights, checkpoint, model.state_dict())
    try:
        ours = layout.to_ours(weights)
        if layout.has_reference and 'pos_embed' in ours:
            check_reference(model, ours, grid)
        adapted, report = adapt(
            model, ours, grid, channels, is_published=layout is not OURS
        )
    except CheckpointError as error:
        raise CheckpointError(f'{checkpoint} ({layout.name}): {error}') from error
    incompatible = find_incompatible(model, adapted)
    if incompatible:
        sizes = rgb_keys(model, adapted)
        if incompatible.only_mismatched(sizes):
            number = next(iter(sizes.values()))
            raise CheckpointError(
                f'{checkpoint} ({layout.name}) is for RGB images, and the model has in_channels='
                f'{number}: {channels_advice_text(number)}'
            )
        raise CheckpointError(
            f'{checkpoint} ({layout.name}) does not fit {type(model).__name__}:\n'
            f'{incompatible}{likeness_text(model, ours)}'
        )
    model.load_state_dict(adapted)
    report.dropped[:0] = [key for key in weights if not new_keys(key, layout.keys)]
    number = len(adapted) - len(report.new)
    parts = [
        f'{type(model).__name__}: {number} tensors from {checkpoint} ({layout.name})'
    ]
    for action, keys in vars(report).items():
        if keys and action != 'grid':
            parts.append(f'{action} {keys_text(keys)}')
    print_log('; '.join(parts), logger='current')
    warn_of_reference(model, report.grid or model.published_grid)


def warn_of_reference(model: Backbone, trained: Size | None) -> None:
    """Warn of a scaling that is relative to another grid than the one of the pre-training."""
    settings = model.rope_scaling
    if not isinstance(settings, dict) or 'grid' in settings or trained is None:
        return
    own = model.pretrain_grid
    if own == trained or not RopeScaling(own, **settings).changes:
        return
    height, width = own
    print_log(
        f'rope_scaling is relative to {height} x {width} tokens (img_size) and changes nothing up '
        f'to them, the weights were trained at {trained[0]} x {trained[1]}: leave img_size out, '
        f'or set model.backbone.rope_scaling.grid={trained}',
        logger='current',
        level=logging.WARNING,
    )


def read_weights(
    checkpoint: Location, prefix: str | None, network: str | None = None
) -> StateDict:
    """The weights that ``select_weights`` takes from a checkpoint."""
    contents = read_checkpoint(fetch(checkpoint), str(checkpoint))
    return select_weights(contents, prefix, str(checkpoint), network)


def are_ours(weights: StateDict, model: Backbone) -> bool:
    """True if the model, or an earlier version of it, has exactly these keys and shapes.

    Weights of RGB images count as weights of the model's channels. Our keys can also match a
    published layout.
    """
    try:
        ours = OURS.to_ours(weights)
    except CheckpointError:
        return False
    given, expected = shapes(ours), shapes(model.state_dict())
    for key in rgb_keys(model, ours):
        given[key] = expected[key]
    return given == expected
