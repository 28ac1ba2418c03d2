"""Configs of own data, from files of configs/own, which are data.

    task = 'detection'
    own = dict(data_root='data/own', epochs=50)
    train_cfg = dict(val_interval=500)  # replaces a part of the recipe

The complete config keeps the task and the settings in `own`, and in `own_files` the files of its
data sets, so that its data can be looked up anew.
"""

import dataclasses
import os
import sys
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from mmengine.config import Config
from mmengine.utils import import_modules_from_strings

from ...datasets.labels.kept import is_kept
from ...utils.config_parts import all_datasets, nodes
from ...utils.similar import did_you_mean
from .data import OwnData, check_root, find_objects
from .depth import depth, find_depth
from .detectors import detection, find_oriented, instance, oriented, realtime, realtime_masks
from .semantic import find_semantic, semantic
from .settings import Own, OwnDepth, OwnObjects, OwnOriented, OwnRealtime, OwnSemantic, settings_of


class Recipe(NamedTuple):
    """A task."""

    settings: type[Own]
    find: Callable[[Any], OwnData]  # the data of settings
    derive: Callable[[Any, OwnData], dict]  # the config of settings and data


with_outlines = partial(find_objects, outlines=True)
RECIPES = {
    'depth': Recipe(OwnDepth, find_depth, depth),
    'detection': Recipe(OwnObjects, find_objects, detection),
    'instance': Recipe(OwnObjects, with_outlines, instance),
    'oriented': Recipe(OwnOriented, find_oriented, oriented),
    'realtime': Recipe(OwnRealtime, find_objects, realtime),
    'realtime_masks': Recipe(OwnRealtime, with_outlines, realtime_masks),
    'semantic': Recipe(OwnSemantic, find_semantic, semantic),
}


def recipe_of(task: object) -> Recipe:
    """The recipe of a task by its name; ValueError if there is none."""
    if not isinstance(task, str) or task not in RECIPES:
        raise ValueError(
            f'task must be one of {tuple(RECIPES)}, got {task!r}{did_you_mean(str(task), RECIPES)}'
        )
    return RECIPES[task]


def is_own_file(cfg: Config) -> bool:
    """Return whether a config has settings of own data from which the rest has to follow."""
    found = {'task', 'own'} & cfg.keys()
    return len(found) == 2 or bool(found and 'model' not in cfg)


def setting_names(cfg: Config) -> set[str]:
    """The names of the settings of a file's task."""
    return {field.name for field in dataclasses.fields(recipe_of(cfg.get('task')).settings)}


def read_own(written: Config, given: Mapping[str, object]) -> Config:
    """The complete config of a file such as configs/own/detection.py.

    ``given`` are settings by name, in place of the file's. ValueError for a wrong task or setting,
    or data that cannot be used; ImportError if a package that the task needs is missing.
    """
    lines = written.to_dict()
    task, in_file = lines.pop('task', None), lines.pop('own', {})
    recipe = recipe_of(task)
    in_file.pop('_delete_', None)
    own = settings_of(recipe.settings, {**in_file, **given})
    cfg = recipe.derive(own, recipe.find(own))
    cfg['own'] = dict(task=task, **dataclasses.asdict(own))
    complete = Config(cfg, cfg_text=written.text, filename=written.filename)
    complete.merge_from_dict(lines, allow_list_keys=False)
    import_modules_from_strings(**complete.custom_imports)  # as Config.fromfile
    return complete


def has_own_data(cfg: Config) -> bool:
    """Return whether a complete config has what ``find_anew`` needs."""
    return 'own_files' in cfg


def find_anew(cfg: Config, data_root: str | None = None) -> None:
    """Look up the data of a complete config anew, in place; a line says if they have changed.

    So labels are read as they are now, also where their canonical files were deleted. ValueError if
    the data cannot be used, or have other classes.

    Args:
        data_root: another folder of the data; None for the config's own, if it is there.
    """
    settings = cfg.own.to_dict()
    listed = Path(cfg.own_files['train'].get('ann_file') or '')
    if data_root is None and is_kept(listed, Path(settings['data_root'])):
        return
    recipe = recipe_of(settings.pop('task'))
    settings.update(gpus=None, data_root=data_root or settings['data_root'])
    own = settings_of(recipe.settings, settings)
    if data_root is not None:
        check_root(own)
    if not own.root.is_dir():
        return
    data = recipe.find(own)
    trained = next((d.metainfo.classes for _, d in all_datasets(cfg)), data.classes)
    is_list = issubclass(recipe.settings, OwnObjects)  # numbers of masks have the order of names
    if is_list and [*trained] != [*data.classes] and {*trained} == {*data.classes}:
        data = recipe.find(settings_of(recipe.settings, {**settings, 'classes': trained}))
    replace_files(cfg, own, data, is_moved=data_root is not None)
    has_changed = cfg.get('own_state') not in (None, data.state)
    if has_changed and data_root is None and os.environ.get('LOCAL_RANK', '0') == '0':
        print(f'warning: the data in {own.root} have changed since the training', file=sys.stderr)
    if has_changed or data_root is not None:
        cfg.own.data_root, cfg.own_data = own.data_root, data.text
    cfg.own_files, cfg.own_state = dict(data.files), data.state


def replace_files(cfg: Config, own: Own, data: OwnData, is_moved: bool) -> None:
    """Let data sets and evaluators read the files of ``data``, in place.

    ValueError if the data have other classes, or another order of them; or if they are moved to
    another folder, and a data set has files that a line of the user names.
    """
    before = cfg.own_files.to_dict()
    for key, dataset in all_datasets(cfg):
        split = 'train' if key.startswith('train') else 'val'
        if all(dataset.get(part) == value for part, value in before[split].items()):
            trained = tuple(dataset.metainfo.classes)
            if trained != tuple(data.classes):
                raise ValueError(
                    f'own.data_root={own.data_root!r}: its classes are {", ".join(data.classes)}; '
                    f'the config was made for {", ".join(trained)}'
                )
            dataset.update(data.files[split])
        elif is_moved:
            raise ValueError(f'--data-root {own.data_root}: {key} has other files than the old one')
    if labels := before['val'].get('ann_file'):
        for _, metric in nodes([cfg.get('val_evaluator'), cfg.get('test_evaluator')]):
            if metric.get('ann_file') == labels:
                metric['ann_file'] = data.files['val']['ann_file']
