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
    is_list = isinstance(part, list | tuple)
    if isinstance(part, dict):
        items: Iterable[tuple] = part.items()
    elif is_list and any(isinstance(item, dict) for item in part):
        items = enumerate(part)
    else:
        is_plain = is_list or isinstance(part, int | float | None)
        yield key, part if is_plain else str(part)
        return
    for name, item in items:
        if name not in LEFT_OUT or key == 'own':
            yield from setting_leaves(item, f'{key}.{name}' if key else str(name))


def differing_settings(
    first: dict[str, Any],
    second: dict[str, Any],
) -> list[tuple[str, Any, Any]]:
    """The keys whose values differ, with both values; settings of own data are first.

    A value is '-' where a run lacks the key.
    """
    rows = []
    for key in {**first, **second}:
        value = first.get(key, '-')
        other = second.get(key, '-')
        if value != other:
            rows.append((key, value, other))
    rows.sort(key=lambda row: [not row[0].startswith(f'{name}.') for name in FIRST])
    return rows
