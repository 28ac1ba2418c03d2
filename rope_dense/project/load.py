"""Read a config with command line options."""

import argparse
import contextlib
import copy
import importlib
import inspect
import io
import os
from collections.abc import Iterable, Mapping
from importlib.util import find_spec
from pathlib import Path

from mmengine.config import Config, DictAction
from mmengine.runner import Runner

from ..data.labels.evaluated import ALL, ASKED
from ..utils.config_parts import nodes
from ..utils.disk import is_remote
from ..utils.errors import UsageError, usage_errors
from ..utils.validation import checked_integer
from .building import building
from .contents import SECTIONS, task_of, write_convention
from .find import Place, find_config, find_files, is_hub_model
from .hub import CONFIG, fetch_model_file, fetch_weights_file
from .hub_config import read_settings
from .options import apply_training_options
from .own import recipes
from .own.settings import Given
from .own.tasks import Found
from .own.text import Text

Options = Iterable[str] | Given  # KEY=VALUE, or values by their keys
PACKAGES = {  # what to install, and the modules that register its parts
    'mmdet': ('mmdetection', 'mmdet.models', 'mmdet.datasets'),
    'mmseg': ('mmsegmentation', 'mmseg.models', 'mmseg.datasets'),
    'mmrotate': ('onedl-mmrotate', 'rope_dense.models.mmrotate'),
    'mmengine': ('mmengine',),
}
# Files and folders of data sets and evaluators.
PLACES = 'ann_file', 'seg_prefix', 'proposal_file'
# Top-level keys that mmengine and the commands look up, beside the arguments of Runner.
LOOKED_UP = (
    'compile find_unused_parameters model_wrapper_cfg runner_type sync_bn tta_model tta_pipeline'
).split()


def load_config(
    path: str,
    options: Options = (),
    work_dir: str | None = None,
    data_root: str | None = None,
    own: Given | None = None,
    derives: bool = False,
    found: Found | None = None,
    split: str = '',
) -> Config:
    """Read the config at `path`, merge `options` into it and set its `work_dir`.

    Args:
        path: of a config; or the name of a file of configs/own, such as 'detection'; or the folder
            of a run; or hf-hub:owner/name, or a folder with the files of such a model.
        options: KEY=VALUE pairs of --cfg-options, or values by their dotted keys. queries=N is that
            of a real-time detector, see ``queries_options``.
        work_dir: by default the run's or config's, else work_dirs/<name of the config or model>.
        data_root: folder of the data: `own.data_root`, or see ``with_data_root``.
        own: settings of own data by name, as they are; see ``rope_dense.project.own.settings``.
        derives: of a run on own data, other settings derive its config anew; else they are refused.
        found: these settings with the data, where they have been looked up.
        split: see ``recipes.find_anew``.

    Raises:
        UsageError, CheckpointError: the file or an option cannot be used.
    """
    folder = path
    path = find_config(path)
    if Path(path).parent == Path(folder):  # of a run
        work_dir = work_dir or folder
    name = Path(path).stem
    if is_hub_model(path):
        name = Path(path).name
        path = str(fetch_model_file(path, CONFIG))
    pairs = read_options(options)
    given = {}
    for key in [key for key in pairs if key.startswith('own.')]:
        given[key[4:]] = pairs.pop(key)
    given |= own or {}
    with building(f'config {path!r}'):
        cfg = read_config(path)
        is_own = 'own' in cfg or recipes.is_own_file(cfg)
        if is_own and data_root is not None:
            given.setdefault('data_root', data_root)
            if str(given['data_root']) != str(data_root):
                raise UsageError(
                    f'--data-root {data_root}, own.data_root={given["data_root"]}: give one of them'
                )
        cfg = with_own(cfg, given, derives, found, split)
    if 'queries' in pairs:
        pairs |= queries_options(cfg, pairs.pop('queries'))
    merge_options(cfg, pairs)
    recipes.keep_given(cfg, 'options', pairs)
    for _, node in nodes(cfg._cfg_dict):
        # Where there is nothing to delete, mmengine leaves it.
        node.pop('_delete_', None)
    scope = cfg.get('default_scope')
    if scope not in PACKAGES:
        raise UsageError(
            f"config {path!r}: default_scope={scope!r}; set it to 'mmdet' or 'mmseg'"
        )
    package, *modules = PACKAGES[scope]
    quiet = contextlib.redirect_stdout(io.StringIO())  # optional parts are printed
    with building(f'config {path!r} needs {package}'), quiet:
        for module in modules:
            importlib.import_module(module)
    write_convention(cfg)
    cfg.work_dir = work_dir or cfg.get('work_dir') or os.path.join('work_dirs', name)
    for loop in SECTIONS:
        loader = cfg.get(f'{loop}_dataloader')
        if isinstance(loader, dict) and not loader.get('num_workers'):
            # PyTorch refuses True without workers.
            loader['persistent_workers'] = False
    return with_data_root(cfg, data_root) if data_root and not is_own else cfg


def find_model(
    source: Place,
    checkpoint: Place | None = None,
    options: Options = (),
    work_dir: str | None = None,
    data_root: str | None = None,
    needs_head: bool = True,
    split: str | None = None,
) -> tuple[Config, str | None]:
    """The config of a trained model, and its checkpoint; see ``find_files`` and ``load_config``.

    The work folder of a run is its own. The checkpoint is None for a model of several tasks, whose
    config names theirs.

    Args:
        needs_head: a backbone of configs/own/adapt.py is refused.
        split: 'train', 'val' or 'test' of a run on own data; by default the validation images of
            its own, and all that are labelled of another ``data_root``.

    Raises:
        UsageError, CheckpointError: a file is missing or cannot be used.
    """
    files = find_files(source, checkpoint)
    cfg = load_config(
        files.config,
        options,
        work_dir or files.work_dir,
        data_root,
        split=split or ('' if data_root is None else ALL),
    )
    if task_of(cfg) == 'several':
        if files.checkpoint and checkpoint:
            raise UsageError(
                f'{checkpoint}: the config names the checkpoint of each task, so give no other'
            )
        return cfg, None
    if task_of(cfg) == 'features' and needs_head:
        raise UsageError(
            f'{source}: a backbone without a head; train one with --weights {source}'
        )
    if files.checkpoint is None and not is_hub_model(files.config):
        raise UsageError(f'{source}: give its checkpoint, too, or the folder of a run')
    return cfg, files.checkpoint or fetch_weights_file(files.config)


def read_config(path: str) -> Config:
    """Read a config, which is a program, or settings as JSON; ImportError for lacking modules."""
    if path.endswith('.json'):
        return read_settings(Path(path))
    try:
        return Config.fromfile(path)
    except ImportError as error:
        if str(error).startswith(
            'mmrotate is not installed'
        ):  # of a base mmrotate::...
            # It says what to install.
            importlib.import_module('rope_dense.models.mmrotate')
        # mmengine's has the whole sys.path.
        while str(error).startswith('Failed to import'):
            earlier = error.__cause__ or error.__context__
            if not isinstance(earlier, ImportError):
                break
            error = earlier
        mmseg = find_spec('mmseg')
        if mmseg and str(error).startswith('mmsegmentation is not'):
            folder = Path(str(mmseg.origin)).parent / '.mim' / 'configs'
            error = ImportError(
                f"a base 'mmseg::FILE' does not work here: give '{folder}/FILE'"
            )
        raise error from None


def with_own(
    cfg: Config, given: Given, derives: bool, found: Found | None, split: str
) -> Config:
    """The complete config of own data by settings; another config as it is.

    The complete config of an earlier run takes `data_root` only, or others if it ``derives``.
    """
    with usage_errors():
        if split in ASKED and cfg.get('own', {}).get('task', 'adapt') == 'adapt':
            raise UsageError(
                f'--split {split}: of a run on own data with labels; this config names its '
                'images by test_dataloader (--cfg-options test_dataloader.dataset.ann_file=FILE)'
            )
        if recipes.is_own_file(cfg):
            return recipes.read_own(cfg, given, found)
        others = [name for name in given if name != 'data_root']
        has_data = recipes.has_own_data(cfg)
        if has_data and not others and (given or split):
            place = given.get('data_root')
            is_adapted = cfg.own.task == 'adapt'
            root = None if place is None else str(place)
            recipes.find_anew(cfg, root, '' if is_adapted else split)
        elif has_data and others and derives:
            run = cfg
            cfg = recipes.derive_anew(cfg, given, found)
            apply_training_options(cfg, **recipes.given_before(run, 'training'))
        elif given:
            name = others[0] if others else 'data_root'
            raise UsageError(
                f'own.{name}: this config computes nothing from it; a config of configs/own does, '
                'and so does a run on own data in train (with --resume, or another --work-dir)'
            )
    return cfg


def read_options(options: Options) -> dict:
    """The values of KEY=VALUE pairs by their dotted keys, as mmengine reads them.

    Those of own.NAME stay text, which the type of the setting reads (``own.text``).
    """
    if isinstance(options, Mapping):
        return dict(options)
    own = {}
    others = []
    for pair in options:
        key, equals, text = pair.partition('=')
        if not equals:
            raise UsageError(
                f'--cfg-options {pair}: no KEY=VALUE; one with spaces has to be in quotes, as '
                '"own.data_root=My Data"'
            )
        if key.startswith('own.'):
            own[key] = Text(text)
        else:
            others.append(pair)
    parser = argparse.ArgumentParser()
    parser.add_argument('pairs', nargs='*', action=DictAction)
    # A dict is a RecursionError there.
    with building(f'--cfg-options {" ".join(others)}'):
        read = parser.parse_args(others).pairs or {}
    return read | own


def queries_options(cfg: Config, number: object) -> dict[str, int]:
    """Options that let a real-time detector return ``number`` objects of an image.

    Its queries are tokens and no parameters, so a trained model can return more or fewer.
    """
    head = str(cfg.get('model', {}).get('bbox_head', {}).get('type'))
    if not head.endswith('DEIMHead'):
        raise UsageError(
            '--queries: only real-time detectors (realtime, realtime_masks, oriented) return more '
            'objects without training; leave it out'
        )
    with usage_errors():
        queries = checked_integer('queries', number, 1)
    keys = ['model.bbox_head.num_queries', 'model.test_cfg.max_per_img']
    if 'tta_model' in cfg:
        keys.append('tta_model.tta_cfg.max_per_img')
    return dict.fromkeys(keys, queries)


def merge_options(cfg: Config, options: dict) -> None:
    """Merge --cfg-options into a config; mmengine would take any new key at the top."""
    known = {*cfg.keys(), *inspect.signature(Runner).parameters, *LOOKED_UP}
    for key, value in options.items():
        if key == 'own':
            raise UsageError(
                f'--cfg-options own={value}: give each setting, own.NAME=VALUE'
            )
        first = key.split('.')[0]
        if first not in known:
            raise UsageError(
                f'--cfg-options {key}={value}: the config has no {first!r}; '
                f'its keys: {", ".join(sorted(cfg.keys()))}'
            )
    with building(f'--cfg-options {" ".join(options)}'):
        cfg.merge_from_dict(options)


def with_data_root(cfg: Config, data_root: Place) -> Config:
    """--data-root: a copy of a config whose data sets and evaluators read from another folder.

    Every `data_root` is replaced, and the start of every file and folder in one of them. UsageError
    if no data set has a `data_root`, or a data set or evaluator would keep a file.
    """
    cfg = copy.deepcopy(cfg)
    parts = [*nodes(cfg._cfg_dict)]
    roots = sorted({node.data_root for _, node in parts if node.get('data_root')})
    if not roots:
        raise UsageError(
            f'--data-root {data_root}: no data set of the config has a data_root'
        )
    for key, node in parts:
        has_root = bool(node.get('data_root'))
        if has_root:
            node.data_root = str(data_root)
        prefix = node.get('data_prefix') or {}
        places = [(node, name, f'{key}.{name}') for name in PLACES]
        places += [(prefix, name, f'{key}.data_prefix.{name}') for name in prefix]
        for part, name, place in places:
            path = part.get(name)
            if not isinstance(path, str) or not path or is_remote(path):
                continue
            if has_root and not os.path.isabs(path):  # relative to the data_root
                continue
            is_used = place.split('.')[0].endswith(('_dataloader', '_evaluator'))
            inside = path_inside(path, roots)
            if inside is not None:
                part[name] = os.path.join(data_root, inside)
            elif is_used and path_inside(path, [data_root]) is None:
                raise UsageError(
                    f'--data-root {data_root}: {place}={path} is not in {" or ".join(roots)} and '
                    f'would stay: give its place in {data_root} by --cfg-options {place}=PATH'
                )
    return cfg


def path_inside(path: str, folders: Iterable[Place]) -> Path | None:
    """A path as seen from the first of the folders that contains it, perhaps by a link; or None."""
    for normal in (os.path.abspath, os.path.realpath):
        file = Path(normal(path))
        for folder in folders:
            top = normal(folder)
            if file.is_relative_to(top):
                return file.relative_to(top)
    return None
