"""Checks of the settings of channels, see ``Own``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ..utils.validation import is_integer

if TYPE_CHECKING:
    from .settings import Own

Channels = int | Sequence[int | str] | None


def names_of(channels: Channels) -> list[str]:
    """A name for each channel: the given ones, or numbers; none for None."""
    return [] if channels is None else [*map(str, listed(channels))]


def listed(channels: int | Sequence[int | str]) -> Sequence[int | str]:
    """The names, or the numbers of the bands from 1."""
    return range(1, channels + 1) if isinstance(channels, int) else channels


def check_channels(own: Own) -> None:
    """Raise ValueError unless the settings of channels fit each other."""
    if own.channels is None:
        for name in ('separate_files', 'mean', 'std', 'show'):
            if getattr(own, name):
                raise ValueError(f'own.{name}: for images of own.channels, which is not given')
        return
    names, chosen = own.channel_names, listed(own.channels)
    numbers = [x for x in chosen if is_integer(x)]
    if not names or len({*names}) < len(names) or min(numbers, default=1) < 1:
        raise ValueError(
            f'own.channels={own.channels!r}: give a number, names, or numbers of bands from 1, '
            'each once'
        )
    if numbers and len(numbers) < len(chosen):
        raise ValueError(f'own.channels={own.channels!r}: give either names or numbers of bands')
    if own.separate_files and numbers:
        raise ValueError('own.separate_files=True: give the name of each channel in own.channels')
    for name in ('mean', 'std'):
        if (values := getattr(own, name)) is not None and len(values) != len(names):
            raise ValueError(f'own.{name}: {len(values)} values for {len(names)} own.channels')
    if own.std and min(own.std) <= 0:
        raise ValueError(f'own.std={[*own.std]}: give numbers above 0')
    check_shown(own.show, names)


def check_shown(show: Sequence[int | str] | None, names: Sequence[str]) -> None:
    """Raise ValueError unless one or three of the channels are shown."""
    if show is None:
        return
    unknown = [x for x in show if x not in (range(1, len(names) + 1) if is_integer(x) else names)]
    if unknown or len(show) not in (1, 3):
        raise ValueError(
            f'own.show={[*show]}: give one or three of {", ".join(names)}, or numbers from 1 '
            f'to {len(names)}'
        )
