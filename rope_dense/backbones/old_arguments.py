"""Arguments of the first release that choose a kind of attention; they go with 0.2."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from typing import Any

from ..utils.validation import check_choice

SWITCHES = dict(use_rpb='TableBias', use_lpe='LocalPosition', use_rel_pos='DecomposedBias')
KERNEL = 'linear_attention'
OPTIONS = dict(rpb_resize=('TableBias', 'resize'), rel_pos_img_size=('DecomposedBias', 'img_size'))
NAMES = (*SWITCHES, KERNEL, *OPTIONS)


def rename_attention(settings: Mapping[str, Any], before: dict | None = None) -> dict[str, Any]:
    """Replace the old arguments among settings by ``attention``.

    Args:
        settings: of a backbone or an architecture; not modified.
        before: the attention that they change, e.g. of a named architecture.

    Returns:
        The settings without old names. They have ``attention`` if old names were among them.

    Raises:
        ValueError: two kinds at once, or a switch that is neither True nor False.
    """
    old = {name: settings[name] for name in NAMES if settings.get(name, 'default') != 'default'}
    renamed = {name: value for name, value in settings.items() if name not in NAMES}
    if not old:
        return renamed
    for name in old.keys() & SWITCHES.keys():
        check_choice(name, old[name], (True, False))
    chosen = [name for name in (*SWITCHES, KERNEL) if old.get(name)]
    if len(given := [*chosen, *renamed.keys() & {'attention'}]) > 1:
        raise ValueError(f'{" and ".join(given)} exclude each other: give attention alone')
    attention = renamed.get('attention', before)
    if chosen == [KERNEL]:
        attention = dict(type='LinearAttention', kernel=old[KERNEL])
    elif chosen:
        attention = dict(type=SWITCHES[chosen[0]])
    elif attention and any(SWITCHES.get(name) == attention['type'] for name in old):
        attention = None
    for name, (kind, option) in OPTIONS.items():
        if name in old and attention and attention['type'] == kind:
            attention = {**attention, option: old[name]}
    message = f'{", ".join(old)}: removed in 0.2, give attention={attention!r} instead'
    # At the caller of a backbone, whose constructor calls this through another function.
    warnings.warn(message, DeprecationWarning, stacklevel=4)
    return dict(renamed, attention=attention)


def attention_of(attention: dict | None, old: Mapping[str, Any]) -> dict | None:
    """Return ``attention``, or the one that the old arguments of a backbone describe.

    Raises:
        TypeError: other arguments.
        ValueError: see ``rename_attention``.
    """
    if wrong := sorted(old.keys() - {*NAMES}):
        raise TypeError(f'unexpected keyword arguments {wrong}')
    given = {} if attention is None else dict(attention=attention)
    return rename_attention({**old, **given}).get('attention')
