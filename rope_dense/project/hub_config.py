"""The config of a model on the hub: settings as JSON, of which nothing can run.

mmengine runs a config, and its registries import any dotted name that they do not know. So a
config of somebody else is never given to ``Config.fromfile``: it is JSON, each ``type`` in it is a
name of a closed set, and no other text in it can name a file, an address or a module.

``{"tuple": [...]}`` stands for a tuple, which some parts of mmcv and mmdet tell from a list.
"""

import json
import math
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NoReturn, get_args

from mmengine.config import Config
from mmengine.registry import MODELS, TASK_UTILS, Registry, registry

from ..checkpoints.errors import CheckpointError
from ..data.images.bands import LoadBands
from ..data.rotated import fixed_convention
from ..rope.grid import ScalingType, TemperatureType
from ..utils.config_parts import nodes

KEYS = ('default_scope', 'model', 'test_pipeline', 'metainfo')
TILES = ('tile', 'overlap', 'scales')  # of a run on tiles, see ``TilePlan``
DATASETS = {'mmdet': 'CocoDataset', 'mmseg': 'BaseSegDataset'}  # named, never built
SCOPES = ('mmengine', 'mmdet', 'mmseg')
# Whose classes a config may name.
PACKAGES = ('mmengine.', 'mmdet.', 'mmseg.', 'mmcv.', 'rope_dense.', 'torch.')
# Types that no registry has: functions and layers of mmcv.ops (mmcv evaluates the name of the
# non-maximum suppression), and scalings.
OTHER_TYPES = {
    'nms', 'soft_nms', 'nms_rotated', 'RoIAlign', 'RoIAlignRotated', 'RoIPool',
    *get_args(ScalingType),
    *get_args(TemperatureType),
}  # fmt: skip
TRANSFORMS = (  # what predictions need
    'LoadImageFromFile', 'LoadImageFromNDArray', 'Resize', 'ResizeShortestEdge',
    'ResizeToMultiple', 'FixScaleResize', 'FixShapeResize', 'CenterCrop', 'Pad',
    'PadBottomRight', 'Normalize', 'PackDetInputs', 'PackSegInputs', LoadBands.__name__,
)  # fmt: skip
PIPELINE_TYPES = {*TRANSFORMS}
for scope in SCOPES:
    PIPELINE_TYPES.update(f'{scope}.{name}' for name in TRANSFORMS)
# Classes that read, download or evaluate what a config gives them, by their modules.
REFUSED = (
    'mmdet.models.detectors.d2_wrapper.',
    'mmdet.models.detectors.glip.',
    'mmdet.models.detectors.grounding_dino.',
    'mmdet.models.detectors.kd_one_stage.',
    'mmdet.models.detectors.lad.',
    'mmdet.models.dense_heads.atss_vlfusion_head.',
    'mmdet.models.language_models.',
    'mmdet.models.mot.',
    'mmdet.models.task_modules.tracking.',
    'mmdet.models.trackers.',
    'mmseg.models.backbones.timm_backbone.',
    'mmseg.models.backbones.vpd.',
    'mmseg.models.text_encoder.',
    'rope_dense.models.shared_backbone.',
)
# Keys of initial weights, of where files are and of training: a stored model has none of them.
LEFT_OUT = (
    'init_cfg', 'pretrained', 'backend_args', 'file_client_args', 'batch_augments',
    'custom_imports', '_base_', '_delete_',
)  # fmt: skip
REGISTERED = (
    'be registered by mmengine, mmcv, mmdet, mmseg or rope_dense, and not be of those that read '
    'files or run programs'
)
WORDS = re.compile(r'[\w\- ]*')  # no path, address, module or expression
KEY = re.compile(r'[A-Za-z_]\w*')
DEEPEST = 50  # dicts and lists within each other; the shipped configs have 8
TOO_DEEP = f'more than {DEEPEST} dicts or lists within each other'


def read_settings(path: Path) -> Config:
    """The config of a stored model, for tests and predictions.

    It has ``default_scope``, ``model``, ``test_pipeline`` and the classes; its test data set is
    without data. Build it within ``registered_only``.

    Raises:
        CheckpointError: the file cannot be read, or has anything but such settings.
        ImportError: boxes are rotated, and mmrotate is not installed.
    """
    if path.suffix != '.json':
        raise CheckpointError(
            f'{path}: a model on the hub has config.json, settings only; a Python config would '
            'be executed. To use a config of your own, give its path in a folder of your own'
        )
    try:
        text = path.read_text(encoding='utf-8')
        stored = json.loads(text, object_pairs_hook=without_repeats)
        check_stored(stored)
        settings = decode(stored)
    except (OSError, ValueError) as error:
        raise CheckpointError(f'{path}: {error}') from error
    except RecursionError as error:  # of the JSON reader, before the depth is checked
        raise CheckpointError(f'{path}: {TOO_DEEP}') from error
    if any(fixed_convention(node.get('type')) for _, node in nodes(settings['model'])):
        import_module('rope_dense.models.mmrotate')
    kind = DATASETS[settings['default_scope']]
    pipeline = settings['test_pipeline']
    metainfo = settings['metainfo']
    dataset = dict(type=kind, pipeline=pipeline, metainfo=metainfo)
    masks = settings.pop('masks', None)
    tiles = settings.pop('tiles', None)
    if masks:
        dataset.update(values=masks[:-1], void=masks[-1:])
    if tiles:
        dataset.update(tiles, type='TiledDataset', kind=kind)
    loader = dict(batch_size=1, num_workers=0, persistent_workers=False)
    settings['test_dataloader'] = dict(loader, dataset=dataset)
    settings['test_cfg'] = dict(type='TestLoop')
    settings['test_evaluator'] = []
    return Config(settings, cfg_text=text, filename=str(path))


def is_stored_config(cfg: Config) -> bool:
    """Return whether ``read_settings`` made a config."""
    return str(cfg.filename or '').endswith('.json')


def storable_settings(settings: dict) -> dict:
    """Settings as they are written, without initial weights and what is of one machine.

    Raises:
        ValueError: they cannot be stored, or reading would refuse them; it names the key.
    """
    kept = without_left_out(settings)
    stored = encode(kept, '')
    back = decode(json.loads(json.dumps(stored)))
    changed = [key for key in kept if back.get(key) != kept[key]]
    if changed:
        raise ValueError(f'{", ".join(changed)}: has values that JSON changes')
    check_stored(stored)
    return stored


def without_left_out(part: Any) -> Any:
    """A part of a config without the keys of ``LEFT_OUT``, at any depth."""
    if isinstance(part, Mapping):
        kept = {}
        for name, value in part.items():
            if name not in LEFT_OUT:
                kept[name] = without_left_out(value)
        return kept
    if isinstance(part, (list, tuple)):
        return type(part)(map(without_left_out, part))
    return part


def encode(part: Any, key: str) -> Any:
    """A part of a config as JSON has it; ``key`` is its name in messages."""
    if isinstance(part, dict):
        for name in part:
            if not isinstance(name, str) or name == 'tuple':
                raise ValueError(f'{key}: the key {name!r} cannot be stored')
        stored = {}
        for name, value in part.items():
            stored[name] = encode(value, f'{key}.{name}'.lstrip('.'))
        return stored
    if isinstance(part, tuple):
        return {'tuple': encode(list(part), key)}
    if isinstance(part, list):
        return [encode(item, f'{key}.{index}') for index, item in enumerate(part)]
    if part is None or isinstance(part, (str, bool, int)):
        return part
    if isinstance(part, float) and not math.isnan(part):
        return part
    kind = 'NaN' if isinstance(part, float) else f'a {type(part).__name__}'
    raise ValueError(f'{key}: {kind} cannot be stored')


def decode(part: Any) -> Any:
    """``encode``, backwards."""
    if isinstance(part, dict):
        if part.keys() == {'tuple'} and isinstance(part['tuple'], list):
            return tuple(decode(part['tuple']))
        return {name: decode(value) for name, value in part.items()}
    return [decode(item) for item in part] if isinstance(part, list) else part


def without_repeats(pairs: list[tuple[str, Any]]) -> dict:
    """A dict of JSON; a key that stands twice is an error."""
    settings = dict(pairs)
    if len(settings) < len(pairs):
        names = sorted(name for name, _ in pairs)
        raise ValueError(f'a key appears twice in {names}')
    return settings


def check_stored(stored: Any) -> None:
    """Raise ValueError unless each name is known and nothing else can be more than a setting."""
    if not isinstance(stored, dict) or {*stored} - {'tiles', 'masks'} != {*KEYS}:
        given = list(stored) if isinstance(stored, dict) else stored
        refuse_stored('the keys', given, f'be {KEYS}')
    scope = stored['default_scope']
    metainfo = decode(stored['metainfo'])
    if not isinstance(scope, str) or scope not in DATASETS:
        refuse_stored('default_scope', scope, f'be one of {tuple(DATASETS)}')
    model = stored['model']
    pipeline = stored['test_pipeline']
    if not isinstance(model, dict) or not isinstance(pipeline, list):
        raise ValueError('model must be a dict and test_pipeline a list')
    if not is_metainfo(metainfo):
        raise ValueError(
            'metainfo must be classes (names on one line, without {{) and palette (three of 0 to '
            '255 each)'
        )
    if 'tiles' in stored and not is_tiles(stored['tiles']):
        allowed = f'be {TILES}: pixels, fewer pixels, and 0.001 to 1000'
        refuse_stored('tiles', stored['tiles'], allowed)
    masks = stored.get('masks', [])
    if not isinstance(masks, list) or not are_integers(masks, 2**16):
        refuse_stored('masks', masks, 'be numbers from 0 to 65535')
    check_part(model, 'model', model_types(scope))
    check_part(pipeline, 'test_pipeline', PIPELINE_TYPES)


def is_tiles(tiles: Any) -> bool:
    """Return whether it has the numbers of a ``TilePlan`` only."""
    match tiles:
        case {
            'tile': int(tile),
            'overlap': int(overlap),
            'scales': [_, *_] as scales,
            **more,
        }:
            are_numbers = all(
                type(x) in (int, float) and 1e-3 <= x <= 1e3 for x in scales
            )
            return are_numbers and not more and 0 <= overlap < tile
    return False


def is_metainfo(metainfo: Any) -> bool:
    """Return whether it has classes and their colours only."""
    if not isinstance(metainfo, dict) or {*metainfo} != {'classes', 'palette'}:
        return False
    classes = metainfo['classes']
    palette = metainfo['palette']
    if not isinstance(classes, (list, tuple)) or not isinstance(palette, (list, tuple)):
        return False
    for name in classes:
        if not isinstance(name, str) or not name.isprintable():
            return False
        if '{{' in name:  # a template, if the config is dumped
            return False
    for colour in palette:
        if not isinstance(colour, (list, tuple)) or len(colour) != 3:
            return False
        if not are_integers(colour, 256):
            return False
    return True


def are_integers(values: Sequence[Any], end: int) -> bool:
    """Return whether all values are integers from 0 to below an end."""
    return all(type(value) is int and 0 <= value < end for value in values)


def check_part(part: Any, key: str, types: Collection[str]) -> None:
    """``check_stored`` of one part, whose ``type``s are among ``types``."""
    if key.count('.') > DEEPEST:  # names of keys have none
        raise ValueError(TOO_DEEP)
    if isinstance(part, dict):
        for name, value in part.items():
            where = f'{key}.{name}'
            if not KEY.fullmatch(name):
                refuse_stored(key, name, 'have names as keys')
            if name in LEFT_OUT and value is not None:
                refuse_stored(where, value, 'be left out of a stored model')
            if name == 'class_weight' and isinstance(value, str):  # a file, to mmseg
                refuse_stored(where, value, 'be numbers')
            if name == '_scope_' and value not in SCOPES:
                refuse_stored(where, value, f'be one of {SCOPES}')
            if name == 'type':
                if not isinstance(value, str) or value not in types:
                    refuse_stored(where, value, REGISTERED)
            else:
                check_part(value, where, types)
    elif isinstance(part, list):
        for index, item in enumerate(part):
            check_part(item, f'{key}.{index}', types)
    elif isinstance(part, str) and not WORDS.fullmatch(part):
        refuse_stored(key, part, 'be words, without dots, slashes, colons and brackets')


def model_types(scope: str) -> set[str]:
    """The types that the model of a config may have, by the names that mmengine resolves.

    Only packages of fixed names are imported, and no name is resolved by an import.
    """
    import_module('rope_dense.parts')
    for package in filter(find_spec, ('mmdet', 'mmseg')):
        import_module(f'{package}.models')
    if find_spec('mmdet'):
        import_module('rope_dense.data.transforms')
    names = set(OTHER_TYPES)
    for root in (MODELS, TASK_UTILS):
        for own_scope, known in (dict(mmengine=root) | root.children).items():
            if own_scope not in SCOPES:
                continue
            allowed = {
                name for name in known.module_dict if is_allowed_class(known, name)
            }
            names.update(f'{own_scope}.{name}' for name in allowed)
            if own_scope in ('mmengine', scope):
                names |= allowed
            if own_scope == scope:
                # A bare name means the task's own class, where there is one.
                names -= known.module_dict.keys() - allowed
    return names


def is_allowed_class(known: Registry, name: str) -> bool:
    """Return whether a registered class is of a known package and none of ``REFUSED``."""
    module = f'{known.module_dict[name].__module__}.'
    return module.startswith(PACKAGES) and not module.startswith(REFUSED)


@contextmanager
def registered_only() -> Iterator[None]:
    """Within this context, mmengine's registries import nothing for a name that they lack."""
    usual = registry.get_object_from_string
    registry.get_object_from_string = no_import
    try:
        yield
    finally:
        registry.get_object_from_string = usual


def no_import(name: str) -> NoReturn:
    """Stand in for mmengine's import of a dotted name."""
    raise CheckpointError(f'{name}: not registered, and a stored model imports nothing')


def refuse_stored(key: str, value: object, allowed: str) -> NoReturn:
    """Raise the ValueError: what was given, and what is allowed."""
    raise ValueError(f'{key} must {allowed}, got {str(value)[:80]!r}')
