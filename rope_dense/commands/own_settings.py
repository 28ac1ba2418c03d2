"""The settings of own data as options, and a look at the data before PyTorch is imported."""

import argparse
import contextlib
import os
import textwrap
from dataclasses import fields
from typing import Any

from ..project.find import check_path, find_config, read_written_settings
from ..utils.configs import DOCS
from ..utils.disk import is_remote
from ..utils.errors import UsageError, usage_errors
from .arguments import ToolParser

OTHERS = ('data_root', 'ema')  # have options of their own


def setting_types() -> dict[str, str]:
    """The type of each setting of any task, as text, by its name."""
    from ..project.own.settings import Own

    kinds = [Own]
    for kind in kinds:
        kinds += kind.__subclasses__()
    return {field.name: str(field.type) for kind in kinds for field in fields(kind)}


def add_own_settings(parser: ToolParser) -> None:
    """Add an option for each setting of own data; ``take_own_settings`` reads them."""
    kinds = {name: kind for name, kind in setting_types().items() if name not in OTHERS}
    options = {name: f'--{name.replace("_", "-")}' for name in kinds}
    text = f'{" ".join(options.values())}: as --cfg-options own.NAME=VALUE, see {DOCS}/own_data.md'
    text = textwrap.fill(text, 76, break_on_hyphens=False)
    group = parser.add_argument_group('settings of own data', text)
    hidden: dict[str, Any] = dict(default=argparse.SUPPRESS, help=argparse.SUPPRESS)
    for name, option in options.items():
        form: dict[str, Any] = dict(nargs='+') if 'Sequence' in kinds[name] else {}
        form |= dict(nargs='?', const='True') if 'bool' in kinds[name] else {}
        group.add_argument(option, dest=f'own.{name}', **hidden, **form)
    parser.checks.append(take_own_settings)


def take_own_settings(args: argparse.Namespace) -> None:
    """Move the settings of own data among the arguments to --cfg-options, and look at the data.

    Raises:
        UsageError: a setting, or the data, cannot be used.
    """
    if isinstance(vars(args).get('ema'), str):  # not a momentum
        vars(args)['own.ema'], args.ema = args.ema, None
    given = dict(pair.split('=', 1) for pair in args.cfg_options if '=' in pair)
    for key in [key for key in vars(args) if key.startswith('own.')]:
        words = vars(args).pop(key)
        text = words if isinstance(words, str) else ', '.join(words)
        text = f'[{text}]' if words[1:] and text != words else text
        if given.setdefault(key, text) != text:
            raise UsageError(
                f'--{key[4:]} {text}, {key}={given[key]}: give one of them'
            )
        args.cfg_options.append(f'{key}={text}')
    written, is_run = read_written_settings(find_config(args.config)) or ({}, True)
    meant = [f'{name}={given[name]}' for name in setting_types() if name in given]
    if written and meant:
        raise UsageError(f'--cfg-options {meant[0]}: did you mean own.{meant[0]}?')
    own = {key[4:]: text for key, text in given.items() if key.startswith('own.')}
    if written and (own or not is_run):
        look_at_data(written, own, args.data_root)


def look_at_data(
    written: dict[str, Any], given: dict[str, str], data_root: str | None
) -> None:
    """Raise UsageError if settings or data cannot be used; ``load_config`` finds the same again."""
    from ..project.own.settings import task_settings
    from ..project.own.tasks import task_named
    from ..project.own.text import Text

    texts: dict[str, object] = {name: Text(text) for name, text in given.items()}
    texts |= {} if data_root is None else {'data_root': data_root}
    with usage_errors():
        task = task_named(written.pop('task'))
        own = task_settings(task.settings, {**written, **texts})
        if own.weights not in ('default', None) and not is_remote(own.weights):
            check_path(os.path.expanduser(own.weights))
        if own.channels is None:  # such images need PyTorch
            with contextlib.suppress(OSError):  # said by the command itself
                task.find(own)
