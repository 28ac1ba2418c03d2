"""Settings of a run, and those in which two runs differ."""

from collections.abc import Iterable, Iterator
from typing import Any

from mmengine.config import Config

# Folders and files of data and output, and what says nothing of the model.
LEFT_OUT = {
    'work_dir', 'data_root', 'ann_file', 'data_prefix', 'img_path', 'seg_map_path',
    'depth_path', 'out_dir', 'outfile_prefix', 'visualizer', 'vis_backends', 'env_cfg',
    'default_hooks', 'log_processor', 'log_level', 'custom_imports', 'own_data',
    'launcher', 'resume', 'experiment_name',
}  # fmt: skip
FIRST = ('own', 'randomness', 'train_cfg', 'train_dataloader', 'optim_wrapper')


def used_settings(cfg: Config) -> dict[str, Any]:
    """The settings of a config by their dotted keys, without folders."""
    return dict(setting_leaves(cfg._cfg_dict.to_dict(), ''))


def setting_leaves(part: Any, key: str) -> Iterator[tuple[str, Any]]:
    """Yield (key, value) of the settings at or below a part of a config."""
    items: Iterable[tuple] = ()
    if isinstance(part, dict):
        items = part.items()
    elif isinstance(part, list | tuple) and any(
        isinstance(item, dict) for item in part
    ):
        items = enumerate(part)
    else:
        yield (
            key,
            part if isinstance(part, int | float | list | tuple | None) else str(part),
        )
    for name, item in items:
        if name not in LEFT_OUT or key == 'own':
            yield from setting_leaves(item, f'{key}.{name}' if key else str(name))


def differing_settings(
    first: dict[str, Any], second: dict[str, Any]
) -> list[tuple[str, Any, Any]]:
    """The keys whose values differ, with both values; settings of own data are first.

    A value is '-' where a run lacks the key.
    """
    keys = [
        key
        for key in {**first, **second}
        if first.get(key, '-') != second.get(key, '-')
    ]
    keys.sort(key=lambda key: [not key.startswith(f'{name}.') for name in FIRST])
    return [(key, first.get(key, '-'), second.get(key, '-')) for key in keys]
