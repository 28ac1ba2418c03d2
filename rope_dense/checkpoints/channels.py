"""Weights of an input convolution for images of other channels than red, green and blue.

A convolution is linear, so its weights for n channels are sums of the weights for red, green and
blue. Letters: C output channels, n input channels.
"""

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from .errors import CheckpointError
from .keys import StateDict

RGB = ('red', 'green', 'blue')
MEAN = 'mean'
Channels = str | Sequence[str | int]
BACKBONE = ('patch_embed.',)  # starts of the keys of convolutions of the image
WHOLE = ('backbone.patch_embed.', 'neck.stem.')  # of a detector or segmentor


def adapt_channels(
    model: nn.Module,
    weights: StateDict,
    channels: Channels,
    starts: tuple[str, ...] = BACKBONE,
    may_be_adapted: bool = False,
) -> list[str]:
    """Replace the RGB weights of the input convolution by weights for a model's channels, in place.

    Weights that have the model's number of channels already stay as they are, so a model that was
    saved after it was adapted loads like any other. Of three channels only published ones change,
    which are for RGB.

    Args:
        weights: in our layout, of images in the order red, green, blue.
        channels: ``'mean'``: each channel has the mean weights of the three, times 3 / n, so n
            equal channels have the response of a grey image. Or the source of each channel, a list
            of 'red', 'green', 'blue', 'mean' (of the three, not scaled) and 0 (no response).
        starts: of the keys; ``WHOLE`` for the weights of a whole model.
        may_be_adapted: whether weights of three channels may be of a model that was adapted.

    Returns:
        The keys that changed.

    Raises:
        CheckpointError: no such channels, or another number of them than the model has.
    """
    sizes = rgb_keys(model, weights, starts)
    if may_be_adapted:
        sizes = {key: number for key, number in sizes.items() if number != len(RGB)}
    for key, number in sizes.items():
        shares = shares_of(channels, number).to(weights[key].device)
        weights[key] = torch.einsum('nr,crhw->cnhw', shares, weights[key].float())
    return list(sizes)


def rgb_keys(
    model: nn.Module, weights: StateDict, starts: tuple[str, ...] = BACKBONE
) -> dict[str, int]:
    """Keys of RGB convolutions [C, 3, height, width], with the channels that the model has."""
    found = {}
    for key, tensor in model.state_dict().items():
        if not key.startswith(starts) or tensor.ndim != 4 or key not in weights:
            continue
        outputs, inputs, *size = tensor.shape
        if weights[key].shape == (outputs, len(RGB), *size):
            found[key] = inputs
    return found


def shares_of(channels: object, number: int) -> Tensor:
    """The shares [n, 3] of red, green, blue, by 'mean' or a source each; else CheckpointError."""
    if channels == MEAN:
        return torch.full((number, len(RGB)), 1 / number)
    shares = dict(zip(RGB, torch.eye(3), strict=True))
    shares |= {MEAN: torch.full((3,), 1 / 3), '0': torch.zeros(3)}
    sources = [channels] if isinstance(channels, str) else channels
    if not isinstance(sources, Sequence) or not shares.keys() >= set(map(str, sources)):
        raise CheckpointError(
            f"channels={channels!r}: give 'mean', or the source of each channel: 'red', 'green', "
            "'blue', 'mean' or 0"
        )
    if len(sources) != number:
        raise CheckpointError(
            f'channels={list(sources)}: {len(sources)} sources, and the model has {number} '
            'channels (in_channels)'
        )
    return torch.stack([shares[str(source)] for source in sources])


def channels_text(channels: Channels) -> str:
    """Channels in a line of the log: 'channels mean', 'channels red, green, blue, 0'."""
    names = [channels] if isinstance(channels, str) else channels
    return f'channels {", ".join(map(str, names))}'


def channels_advice_text(number: int) -> str:
    """The settings that let RGB weights load into a backbone of ``number`` channels."""
    example = example_of_sources(number)
    return f"give init_cfg channels='mean', or the source of each channel, such as {example}"


def example_of_sources(number: int) -> list[object]:
    """An example of the sources of ``number`` channels."""
    return [*RGB, *[0] * number][:number]
