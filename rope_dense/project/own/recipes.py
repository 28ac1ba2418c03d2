"""Configs of own data, from files of configs/own, which are data.

    task = 'detection'
    own = dict(data_root='data/own', epochs=50)
    train_cfg = dict(val_interval=500)  # replaces a part of the recipe

The complete config keeps the task and the settings in `own`, and in `own_files` the files of its
data sets, so that its data can be looked up anew; `own_given` has what else it was given, as text.
"""

import ast
import sys
from collections.abc import Callable, Collection, Sequence
from contextlib import nullcontext, suppress
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from mmengine.config import Config
from mmengine.utils import import_modules_from_strings

from ...data.classes import lists_classes
from ...data.labels.evaluated import ALL
from ...data.labels.kept import is_up_to_date
from ...data.labels.splits import copies_in
from ...data.mask_labels import class_numbers
from ...engine.figure_source import EVALUATED
from ...utils.config_parts import all_datasets, nodes
from ...utils.progress import is_first_here
from .adapt import adapt_config
from .augment import all_pipelines
from .data import OwnData, check_root, files_in, own_inventory
from .detectors import (
    detection_config,
    instance_config,
    oriented_config,
    realtime_config,
    realtime_masks_config,
)
from .fit import set_box_limit
from .ground import listings, set_ground
from .maps import depth_config, semantic_config
from .settings import Given, Own, OwnObjects, OwnSemantic
from .tasks import TASKS, Found, find_data, read_settings, stored_settings
from .tiling import set_tiles, with_tiles

# The config of a task by its settings and data.
DERIVE: dict[str, Callable[[Any, OwnData], dict]] = dict(
    depth=depth_config,
    detection=detection_config,
    instance=instance_config,
    oriented=oriented_config,
    semantic=semantic_config,
)
DERIVE |= dict(
    realtime=realtime_config, realtime_masks=realtime_masks_config, adapt=adapt_config
)


def is_own_file(cfg: Config) -> bool:
    """Return whether a config has settings of own data from which the rest has to follow."""
    found = {'task', 'own'} & cfg.keys()
    return len(found) == 2 or bool(found and 'model' not in cfg)


def read_own(written: Config, given: Given, found: Found | None = None) -> Config:
    """The complete config of a file such as configs/own/detection.py.

    Args:
        given: settings by name, in place of the file's.
        found: settings and data, as a command has looked them up; taken while they are current.

    Raises:
        ValueError: a wrong task or setting, or data that cannot be used.
        ImportError: a package that the task needs is missing.
    """
    lines = written.to_dict()
    task = lines.pop('task', None)
    in_file = lines.pop('own', {})
    listed = '' if found is None else found.data.files['train']['ann_file']
    if found is None or not is_up_to_date(listed, found.own.data_root):
        in_file.pop('_delete_', None)
        found = find_data(task, read_settings(task, {**in_file, **given}))
    own = found.own
    data = found.data
    cfg = DERIVE[task](own, with_tiles(own, data, task))
    set_ground(cfg, own, data)
    set_tiles(cfg, own)
    set_box_limit(cfg, data.most_objects)
    cfg['own'] = dict(task=task, **asdict(own))
    complete = Config(cfg, cfg_text=written.text, filename=written.filename)
    complete.own_given = []
    keep_given(complete, 'lines', lines)
    complete.merge_from_dict(lines, allow_list_keys=False)
    import_modules_from_strings(**complete.custom_imports)  # as Config.fromfile
    return complete


def keep_given(cfg: Config, kind: str, given: Given) -> None:
    """Keep what a config of own data was given as 'lines', 'options' or 'training' options."""
    if given and 'own_given' in cfg:
        cfg.own_given = [*cfg.own_given, f'{kind} {given!r}']


def given_before(cfg: Config, kind: str) -> dict[str, Any]:
    """Options that ``keep_given`` kept; ValueError if they are not known."""
    try:
        found: dict = {}
        for text in cfg.own_given:
            if text.startswith(kind):
                found |= ast.literal_eval(text.removeprefix(f'{kind} '))
        return found
    except (AttributeError, ValueError, SyntaxError) as error:
        raise ValueError(
            f'{cfg.filename} does not say what it was made of: give the config and all options of '
            'the first training again, with --work-dir and --resume'
        ) from error


def derive_anew(run: Config, given: Given, found: Found | None = None) -> Config:
    """The config of a run with other settings, as if all that it was given were given again."""
    own = {**run.own.to_dict(), 'gpus': None}  # as many as are started now
    lines = dict(given_before(run, 'lines'), task=own.pop('task'), own=own)
    written = Config(lines, cfg_text=run.text, filename=run.filename)
    complete = read_own(written, given, found)
    options = given_before(run, 'options')
    keep_given(complete, 'options', options)
    complete.merge_from_dict(options)
    return complete


def has_own_data(cfg: Config) -> bool:
    """Return whether a complete config has what ``find_anew`` needs."""
    return 'own_files' in cfg


def find_anew(cfg: Config, data_root: str | None = None, asked: str = '') -> None:
    """Look up the data of a complete config anew, in place; a line says if they have changed.

    So labels are read as they are now, also where their canonical files were deleted. ValueError if
    the data cannot be used, or have other classes.

    Args:
        data_root: another folder of the data.
        asked: the split that is evaluated, or ``ALL`` labelled images, unless the folder has the
            data of the training, of which it is the validation images; '' as before.
    """
    listed = cfg.own_files['train'].get('ann_file') or ''
    is_listed = data_root is None and not asked
    if is_listed and is_up_to_date(listed, cfg.own.data_root):
        return
    asked = asked or cfg.get(EVALUATED, '')
    own = stored_settings(cfg)
    assert own is not None
    if data_root is not None:
        own = replace(own, data_root=data_root)
        check_root(own)
    if not own.root.is_dir():
        return
    data = None
    if asked in ('', ALL):
        with suppress(ValueError) if asked else nullcontext():  # of a test set alone
            data = find_trained(cfg, own)
    if asked and (data is None or data.state != cfg.get('own_state')):
        seen = files_in(cfg.own_files['train'])
        data = find_evaluated(cfg, own, asked)
        if data_root or asked == 'train':
            data = replace(data, text=f'{data.text}{seen_text(data, seen)}')
        cfg[EVALUATED] = asked
    assert data is not None
    set_data_files(cfg, own, data, is_moved=data_root is not None)
    has_changed = cfg.get('own_state') not in (None, data.state)
    is_first = is_first_here()
    is_trained = data_root is None and not cfg.get(EVALUATED)
    if has_changed and is_trained and is_first:
        print(
            f'warning: the data in {own.root} have changed since the training',
            file=sys.stderr,
        )
    if has_changed or data_root is not None:
        cfg.own.data_root = own.data_root
        cfg.own_data = data.text
    cfg.own_files = dict(data.files)
    cfg.own_state = data.state


def find_trained(cfg: Config, own: Own) -> OwnData:
    """The data of a training, in the order of its classes where objects have it otherwise."""
    inventory = own_inventory(own)
    find = TASKS[cfg.own.task].find
    data = find(own, inventory)
    trained = trained_classes(cfg, data.classes)
    is_other_order = [*trained] != [*data.classes] and {*trained} == {*data.classes}
    if is_other_order and isinstance(own, OwnObjects):  # masks keep the names' order
        data = find(replace(own, classes=[*trained]), inventory)
    return data


def find_evaluated(cfg: Config, own: Own, asked: str) -> OwnData:
    """The labelled images of one split of a folder, or all, with the classes of the run.

    Files that settings name, and a list of the classes of masks, need not be there.
    """
    inventory = own_inventory(own, asked)
    for names in (own.train or (), own.val or ()):
        paths = [names] if isinstance(names, str) else names
        if not all((own.root / path).exists() for path in paths):
            own = replace(own, train=None, val=None)
    classes = [*trained_classes(cfg, ())]
    if isinstance(own, OwnObjects):
        own = replace(own, classes=classes)
    if isinstance(own, OwnSemantic) and not lists_classes(own.root):
        files = cfg.own_files['val']
        values = class_numbers(classes, files['values'], files['void'] or ())
        own = replace(own, classes=classes, values=values, void=files['void'] or ())
    return TASKS[cfg.own.task].find(own, inventory)


def trained_classes(cfg: Config, default: Sequence[str]) -> Sequence[str]:
    """The classes of the first data set of a config."""
    return next((d.metainfo.classes for _, d in all_datasets(cfg)), default)


def seen_text(data: OwnData, seen: Collection[Path]) -> str:
    """A line of the evaluated images that the run was trained on; '' for none."""
    evaluated = files_in(data.files['val'])
    same = copies_in(seen, evaluated)
    if not same:
        return ''
    return (
        f'\n{len(same)} of {len(evaluated)} images are training images of the run, so '
        'figures of the evaluation are too good; without --data and --split those of its '
        'validation count'
    )


def set_data_files(cfg: Config, own: Own, data: OwnData, is_moved: bool) -> None:
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
            raise ValueError(
                f'--data-root {own.data_root}: {key} has other files than the old one'
            )
    labels = before['val'].get('ann_file')
    for _, metric in nodes([cfg.get('val_evaluator'), cfg.get('test_evaluator')]):
        if labels and metric.get('ann_file') == labels:
            metric['ann_file'] = data.files['val']['ann_file']
            set_box_limit(metric, data.most_objects)
    for _, step in nodes(all_pipelines(cfg)):
        if 'coco' in step:  # ``GroundDistance``
            step['coco'] = listings(data)
