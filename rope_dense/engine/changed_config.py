"""Settings of a config that differ from those in the text of an earlier one."""

import json
import textwrap
from collections.abc import Iterator
from typing import Any

from mmengine.config import Config

from ..utils.config_text import values_in

# What a resumed run compares otherwise: schedule, labels, number of images, weights at the start.
OTHERS = (
    'data_root', 'data_prefix', 'ann_file', 'metainfo', 'epochs', 'lr', 'batch_size', 'gpus',
    'init_cfg',
)  # fmt: skip


def changed_config(cfg: Config, earlier: str) -> list[str]:
    """Settings of own data that differ, in words; if none does, of the model and training data.

    ``earlier`` is a config's text as mmengine writes it. It is read, and not run.
    """
    old = values_in(earlier)
    new, found = json.loads(json.dumps(cfg.to_dict(), default=str)), list[str]()
    for names in (('own',), ('model', 'train_dataloader')):
        for name in names if not found else ():
            found += differences(old.get(name, ...), new.get(name, ...), name)
    return found


def differences(old: Any, new: Any, key: str) -> Iterator[str]:
    """Yield each setting that differs, in words; ``...`` is what is not known."""
    if old is ... or new is ... or old == new or key.rpartition('.')[2] in OTHERS:
        return
    if isinstance(old, dict) and isinstance(new, dict):
        for name in dict.fromkeys([*new, *old]):
            yield from differences(old.get(name), new.get(name), f'{key}.{name}')
    elif isinstance(old, list) and isinstance(new, list) and len(old) == len(new):
        for index, (before, now) in enumerate(zip(old, new, strict=True)):
            yield from differences(before, now, f'{key}.{index}')
    else:
        now, before = (textwrap.shorten(json.dumps(value, default=str), 60) for value in (new, old))
        yield f'{key} {now} in place of {before}'
