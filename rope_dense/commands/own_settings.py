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
    types: dict[str, str] = {}
    for kind in kinds:
        kinds += kind.__subclasses__()
        types |= {field.name: str(field.type) for field in fields(kind)}
    return types


def add_own_settings(parser: ToolParser) -> None:
    """Add an option for each setting of own data; ``take_own_settings`` reads them."""
    group = parser.add_argument_group('settings of own data')
    options = []
    for name, kind in setting_types().items():
        if name in OTHERS:
            continue
        form = dict[str, Any](default=argparse.SUPPRESS, help=argparse.SUPPRESS)
        if 'Sequence' in kind:
            form['nargs'] = '+'
        if 'bool' in kind:
            form['nargs'] = '?'
            form['const'] = 'True'
        options.append(f'--{name.replace("_", "-")}')
        group.add_argument(options[-1], dest=f'own.{name}', **form)
    words = ' '.join(options)
    text = f'{words}: as --cfg-options own.NAME=VALUE, see {DOCS}/own_data.md'
    group.description = textwrap.fill(text, 76, break_on_hyphens=False)
    parser.checks.append(take_own_settings)


def take_own_settings(args: argparse.Namespace) -> None:
    """Move the settings of own data among the arguments to --cfg-options.

    Raises:
        UsageError: a setting is given twice, and not as the same.
    """
    if isinstance(vars(args).get('ema'), str):  # not a momentum
        vars(args)['own.ema'] = args.ema
        args.ema = None
    given = dict(pair.split('=', 1) for pair in args.cfg_options if '=' in pair)
    for key in [key for key in vars(args) if key.startswith('own.')]:
        words = vars(args).pop(key)
        text = words if isinstance(words, str) else ', '.join(words)
        if words[1:] and text != words:
            text = f'[{text}]'
        if given.setdefault(key, text) != text:
            raise UsageError(
                f'--{key[4:]} {text}, {key}={given[key]}: give one of them'
            )
        args.cfg_options.append(f'{key}={text}')


def prepare(args: argparse.Namespace) -> None:
    """Set ``found`` to what a training on own data starts from, before PyTorch is imported.

    It is None of other configs, and of data that cannot be read without PyTorch.

    Raises:
        UsageError: settings, or data, cannot be used.
    """
    args.found = None
    written = read_written_settings(find_config(args.config))
    if written is None:
        return
    own = {}
    names = setting_types()
    for pair in args.cfg_options:
        key, equals, text = pair.partition('=')
        if equals and key in names:
            raise UsageError(f'--cfg-options {pair}: did you mean own.{pair}?')
        if equals and key.startswith('own.'):
            own[key.removeprefix('own.')] = text
    if written.is_run and not own.keys() - {'data_root'}:
        return  # the run as it was, perhaps with other data
    # They import numpy, which other mistakes are answered without.
    from ..project.own.tasks import find_data, read_settings
    from ..project.own.text import Text

    settings = written.settings | {name: Text(text) for name, text in own.items()}
    if args.data_root is not None:
        settings['data_root'] = args.data_root
    with usage_errors():
        task = settings.pop('task')
        found = read_settings(task, settings)
        if found.weights not in ('default', None) and not is_remote(found.weights):
            check_path(os.path.expanduser(found.weights))
        if found.channels is None:  # such images need PyTorch
            with contextlib.suppress(OSError):  # said by the command itself
                args.found = find_data(task, found)
