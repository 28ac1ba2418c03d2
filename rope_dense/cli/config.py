"""Read a config, and find things in it."""

import argparse
import contextlib
import importlib
import inspect
import io
import os
from collections.abc import Iterable, Iterator
from pathlib import Path

from mmengine.config import Config, ConfigDict, DictAction
from mmengine.registry import Registry
from mmengine.runner import Runner

from ..checkpoints import CheckpointError
from ..integrations.hub import config_file, is_stored_model
from ..integrations.hub_config import read_settings
from .errors import UsageError, nearest
from .own_config import UNKNOWN, own_options

# mmengine needs all or none of these for each loop.
SECTIONS = {
    'train': ('train_dataloader', 'train_cfg', 'optim_wrapper'),
    'val': ('val_dataloader', 'val_cfg', 'val_evaluator'),
    'test': ('test_dataloader', 'test_cfg', 'test_evaluator'),
}
COUNTS = (
    *(('train_cfg', name) for name in ('max_iters', 'max_epochs', 'val_interval')),
    *((f'{loop}_dataloader', 'batch_size') for loop in SECTIONS),
    ('auto_scale_lr', 'base_batch_size'),
)
PACKAGES = {'mmdet': 'mmdetection', 'mmseg': 'mmsegmentation'}
# Top-level keys that mmengine and the tools look up in a config, beside the arguments of Runner.
LOOKED_UP = {'compile', 'find_unused_parameters', 'model_wrapper_cfg', 'runner_type', 'sync_bn'}
LOOKED_UP |= {'tta_model', 'tta_pipeline'}


def load_config(path: str, options: Iterable[str] = (), work_dir: str | None = None) -> Config:
    """Read the config at `path`, merge `options` into it and set its `work_dir`.

    UsageError if the file, an option or a value cannot be used.

    Args:
        path: of a config; or hf-hub:owner/name, or a folder with the files of such a model.
        options: KEY=VALUE pairs of --cfg-options.
        work_dir: by default the config's, else work_dirs/<name of the config>.
    """
    if is_stored_model(path):
        path = str(config_file(path))
    if not os.path.isfile(path):
        raise UsageError(f'config {path!r}: no such file (looked for {os.path.abspath(path)})')
    pairs = read_options(options)
    with own_options(pairs):
        try:
            cfg = read_config(path)
        except CheckpointError:
            raise
        except RecursionError as error:
            cycle = ' -> '.join(map(str, base_cycle(Path(path).resolve())))
            raise UsageError(f'config {path!r}: its _base_ files form a cycle: {cycle}') from error
        except (Exception, SystemExit) as error:  # a config is a program: it can fail in any way
            cause = error.__cause__ if isinstance(error, ImportError) and error.__cause__ else error
            problem = 'it calls sys.exit' if isinstance(error, SystemExit) else type(cause).__name__
            raise UsageError(f'config {path!r}: {problem}: {cause}') from error
    _merge_options(cfg, pairs)
    for _, node in nodes(cfg._cfg_dict):
        node.pop('_delete_', None)  # where there is nothing to delete, mmengine leaves it
    _check_kinds(cfg)
    _import_task(cfg, path)
    name = os.path.splitext(os.path.basename(path))[0]
    cfg.work_dir = work_dir or cfg.get('work_dir') or os.path.join('work_dirs', name)
    for loader in (f'{loop}_dataloader' for loop in SECTIONS):
        if cfg.get(loader) and not cfg[loader].get('num_workers'):
            cfg[loader].persistent_workers = False  # PyTorch refuses True without workers
    _check_numbers(cfg)
    return cfg


def read_config(path: str) -> Config:
    """A config that is run, or one of JSON, which has settings only."""
    return read_settings(Path(path)) if path.endswith('.json') else Config.fromfile(path)


def base_files(path: Path) -> list[Path]:
    """The files that a config names as its `_base_`, without files of other packages."""
    bases = Config._get_base_files(str(path))  # mmengine has no public function for it
    return [(path.parent / base).resolve() for base in bases if '::' not in base]


def base_cycle(path: Path, *before: Path) -> list[Path]:
    """The files from `path` to one that is a `_base_` of itself, which ends the list."""
    if path in before:
        return [*before[before.index(path) :], path]
    cycles = (base_cycle(base, *before, path) for base in base_files(path))
    return next(filter(None, cycles), [])


def _check_kinds(cfg: Config) -> None:
    """Raise UsageError unless parts that have to be dicts, or lists of dicts with a type, are."""
    loops = [f'{loop}_{part}' for loop in SECTIONS for part in ('dataloader', 'cfg')]
    for key in ('model', 'optim_wrapper', 'default_hooks', 'auto_scale_lr', 'randomness', *loops):
        if cfg.get(key) is not None and not isinstance(cfg[key], dict):
            raise UsageError(f'{key}={cfg[key]!r}: give a dict')
    if cfg.get('model') and not isinstance(cfg.model.get('backbone') or {}, dict):
        raise UsageError(f'model.backbone={cfg.model.backbone!r}: give a dict')
    for name, hook in (cfg.get('default_hooks') or {}).items():
        if hook is not None and not isinstance(hook, dict):
            raise UsageError(f'default_hooks.{name}={hook!r}: give a dict or None')
    for key, node in nodes(cfg._cfg_dict):
        for name in ('data_root', 'ann_file'):
            if not isinstance(node.get(name) or '', str):
                raise UsageError(f'{key}.{name}={node[name]!r}: give a path')
    lists = {key: cfg.get(key) for key in ('custom_hooks', 'param_scheduler', 'tta_pipeline')}
    for loader in (f'{loop}_dataloader' for loop in SECTIONS):
        if cfg.get(loader) is None:
            continue
        if not isinstance(dataset := cfg[loader].get('dataset'), dict):
            raise UsageError(f'{loader}.dataset={dataset!r}: give a dict')
        for key, leaf in leaf_datasets(cfg, loader):
            if not isinstance(leaf, dict):
                raise UsageError(f'{key}={leaf!r}: give a dict')
            lists[f'{key}.pipeline'] = leaf.get('pipeline')
    for key, given in lists.items():
        items = [given] if isinstance(given, dict) else [] if given is None else given
        if not isinstance(items, (list, tuple)):
            raise UsageError(f'{key}={given!r}: give a list of dicts, each with a type')
        for index, item in enumerate(items):
            if not isinstance(item, dict) or 'type' not in item:
                raise UsageError(f'{key}.{index}={item!r}: give a dict with a type')


def _check_numbers(cfg: Config) -> None:
    """Raise UsageError for numbers that mmengine would refuse after an iteration, or never."""
    for part, name in COUNTS:
        value = (cfg.get(part) or {}).get(name)
        if value is not None and (not isinstance(value, int) or value < 1):
            raise UsageError(f'{part}.{name}={value!r}: give an integer, 1 or more')
    seed = (cfg.get('randomness') or {}).get('seed')
    if seed is not None and not isinstance(seed, int):
        raise UsageError(f'randomness.seed={seed!r}: give an integer, or None for a random one')


def used_loaders(cfg: Config, *loops: str) -> tuple[str, ...]:
    """The dataloaders of `loops`; UsageError if the first loop is missing or one is incomplete."""
    for loop in loops:
        missing = [name for name in SECTIONS[loop] if cfg.get(name) is None]
        optional = loop != loops[0]
        if missing and not (optional and len(missing) == len(SECTIONS[loop])):
            raise UsageError(
                f'the config has no {", ".join(missing)}: a {loop} loop needs '
                f'{", ".join(SECTIONS[loop])}'
                f'{"; to go without it, set all of these to None" if optional else ""}'
            )
    loaders = (f'{loop}_dataloader' for loop in loops)
    return tuple(loader for loader in loaders if cfg.get(loader) is not None)


def read_options(pairs: Iterable[str]) -> dict:
    """The values of KEY=VALUE pairs by their dotted keys, as mmengine reads them."""
    parser = argparse.ArgumentParser()
    pairs = list(pairs)
    parser.add_argument('pairs', nargs='*', action=DictAction)
    try:
        return parser.parse_args(pairs).pairs or {}
    except RecursionError as error:  # mmengine looks for the end of a list
        raise UsageError(
            f'--cfg-options {" ".join(pairs)}: a value cannot be a dict. Give its keys one by one '
            '(model.neck.in_channels=384), or write it in a config'
        ) from error


def _merge_options(cfg: Config, options: dict) -> None:
    known = {*cfg.keys(), *inspect.signature(Runner).parameters, *LOOKED_UP}
    for key, value in options.items():
        if (first := key.split('.')[0]) not in known:
            raise UsageError(
                f'--cfg-options {key}={value}: the config has no {first!r}{nearest(first, known)}; '
                f'its keys: {", ".join(sorted(cfg.keys()))}'
            )
    try:
        cfg.merge_from_dict(options)
    except (KeyError, TypeError, AttributeError) as error:
        pairs = ' '.join(f'{key}={value}' for key, value in options.items())
        raise UsageError(
            f'--cfg-options {pairs}: does not fit the config ({error.args[0]}). A list item must '
            'exist, and a plain value has no keys below it'
        ) from error


def _import_task(cfg: Config, path: str) -> None:
    """Import mmdet or mmseg, which the config's `default_scope` names; 'mmengine' needs neither."""
    scope = cfg.get('default_scope')
    if scope == 'mmengine':
        return
    if scope not in PACKAGES:
        raise UsageError(f"config {path!r}: default_scope={scope!r}; set it to 'mmdet' or 'mmseg'")
    try:
        importlib.import_module(f'{scope}.models')
        with contextlib.redirect_stdout(io.StringIO()):  # what is optional there is printed
            importlib.import_module(f'{scope}.datasets')
    except (ImportError, AssertionError) as error:  # both assert the versions of what they need
        raise UsageError(
            f'config {path!r} needs {PACKAGES[scope]}, which does not import: {error}. Install the '
            'whole of one OpenMMLab family, onedl-* or upstream, or let `make setup` do it'
        ) from error


def leaf_datasets(cfg: Config, loader: str) -> Iterator[tuple[str, ConfigDict]]:
    """Yield (config key, data set) below a dataloader, through RepeatDataset, ConcatDataset etc."""
    left = [(f'{loader}.dataset', cfg[loader].dataset)]
    while left:
        key, dataset = left.pop(0)
        if 'dataset' in dataset:
            left.insert(0, (f'{key}.dataset', dataset.dataset))
        elif 'datasets' in dataset:
            left[:0] = [(f'{key}.datasets.{i}', inner) for i, inner in enumerate(dataset.datasets)]
        else:
            yield key, dataset


def lacks_classes(cfg: Config) -> bool:
    """Return True for a config of own data without classes: it was read where its data are not."""
    root = (cfg.get('own') or {}).get('data_root')
    if not root or Path(root).is_dir():
        return False
    _, dataset = next(leaf_datasets(cfg, 'train_dataloader'))
    return UNKNOWN in (dataset.get('metainfo') or {}).get('classes', ())


def nodes(node: object, key: str = '') -> Iterator[tuple[str, ConfigDict]]:
    """Yield (config key, dict) of each dict at or below a part of a config, outer ones first."""
    items: Iterable[tuple] = enumerate(node) if isinstance(node, (list, tuple)) else ()
    if isinstance(node, dict):
        yield key, node
        items = node.items()
    for name, item in items:
        yield from nodes(item, f'{key}.{name}' if key else str(name))


def component_of(cfg: Config, registry: Registry, node: ConfigDict) -> type | None:
    """The class that a config dict's `type` names, as the config's task finds it; None if none."""
    if not isinstance(node.type, str):
        return node.type
    with registry.switch_scope_and_registry(cfg.default_scope) as task_registry:
        return task_registry.get(node.type)


def evaluators(cfg: Config, name: str) -> list[tuple[str, ConfigDict]]:
    """(config key, metric) of each metric of `val_evaluator` or `test_evaluator`: one or a list."""
    metrics = cfg.get(name) or []
    if isinstance(metrics, dict):
        return [(name, metrics)]
    return [(f'{name}.{index}', metric) for index, metric in enumerate(metrics)]
