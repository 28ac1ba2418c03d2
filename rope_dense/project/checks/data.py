"""Check the data of a config: files, classes, objects, masks, and sizes of images."""

import contextlib
import inspect
import io
import os
import sys
from collections.abc import Sequence
from pathlib import Path

import mmengine
import numpy as np
from mmengine.config import Config, ConfigDict
from mmengine.dataset import BaseDataset
from mmengine.registry import DATASETS, TRANSFORMS
from torch import nn

from ...backbones.base import Backbone
from ...data.depth_maps import survey_depths
from ...data.loading import FILES, NamingPipeline
from ...data.mask_labels import mask_lines, survey_masks
from ...utils.config_parts import size_steps
from ...utils.disk import is_remote
from ...utils.errors import UsageError, usage_errors
from ..building import build_part, building
from ..contents import component_of, datasets_of, detects, evaluators, model_heads
from ..hub_config import is_stored_config
from ..model import check_classes
from ..own.recipes import find_anew, has_own_data
from .schedule import warn

EXAMPLES = 3  # of missing files are named
SURVEYED = 200  # files of a data set whose numbers are looked at
LOADED = 20  # masks of a data set that are loaded
# Larger files (COCO's has 450 MB) would take long to parse twice: only the classes are checked.
PARSED_BYTES = 64 * 2**20
SIZES = ('size', 'crop_size', 'scale', 'scales')  # settings of transforms, in pixels


def check_data(cfg: Config, loaders: tuple[str, ...]) -> None:
    """Check the data of the dataloaders and of their evaluators.

    Own data are looked up anew first: a run of today does not see the labels of its training. What
    is written about them then is right, so only classes are compared.

    Raises:
        UsageError: files are missing, or do not fit the model; a stored model has no data.
        LoadError: an image or mask cannot be loaded.
    """
    if is_stored_config(cfg):
        raise UsageError(
            f'{cfg.filename}: a model of the hub is stored without data to test on; give a config '
            'and its checkpoint'
        )
    if detects(cfg):
        from .coco_eval import use_one_limit

        use_one_limit()
    if has_own_data(cfg):
        with usage_errors():
            find_anew(cfg)
    check_paths(cfg, loaders)
    for loader in loaders:
        for key, dataset in datasets_of(cfg, loader):
            check_dataset(cfg, key, dataset)


def check_paths(cfg: Config, loaders: tuple[str, ...]) -> None:
    """Raise UsageError, which lists them, if files or folders of the data are missing."""
    paths: dict[str, str] = {}  # by their keys
    for loader in loaders:
        for key, dataset in datasets_of(cfg, loader):
            root = dataset.get('data_root') or ''
            for name, prefix in (dataset.get('data_prefix') or {}).items():
                paths[f'{key}.data_prefix.{name}'] = os.path.join(root, prefix or '')
            if dataset.get('ann_file'):
                paths[f'{key}.ann_file'] = os.path.join(root, dataset.ann_file)
        for key, metric in evaluators(cfg, loader.replace('dataloader', 'evaluator')):
            if metric.get('ann_file'):
                paths[f'{key}.ann_file'] = metric.ann_file
    missing = ''
    for key, path in paths.items():
        if not is_remote(path) and not os.path.exists(path):
            missing += f'\n  {path}  ({key})'
    if missing:
        raise UsageError(
            'the data set is not there; its folder is DIR of --data-root DIR. Missing, seen from '
            f'{os.getcwd()}:{missing}'
        )


def check_dataset(cfg: Config, key: str, dataset: ConfigDict) -> None:
    """Check classes, images, objects and labels of a data set."""
    bases = inspect.getmro(component_of(cfg, DATASETS, dataset) or BaseDataset)
    if BaseDataset not in bases:
        return  # a data set of its own kind: nothing is known about its files
    if is_found_anew(cfg, key, dataset):
        check_model_classes(cfg, key, dataset.metainfo.get('classes') or ())
        return
    file = os.path.join(dataset.get('data_root') or '', dataset.get('ann_file') or '')
    has_file = os.path.isfile(file)
    is_large = has_file and os.path.getsize(file) > PARSED_BYTES
    settings = dict(lazy_init=True) if is_large else {}
    built = build_dataset(cfg, key, dataset, **settings)
    classes = built.metainfo.get('classes') or ()
    check_model_classes(cfg, key, classes)
    if is_large:
        return
    # mmdet leaves out classes that are no categories of the file.
    if len(getattr(built, 'cat_ids', classes)) < len(classes):
        names = [category['name'] for category in mmengine.load(file)['categories']]
        raise UsageError(
            f'{key}.metainfo.classes: not all of {list(classes)} are categories of {file}: '
            f'{", ".join(names)}'
        )
    if len(built) == 0:
        raise UsageError(
            f'{key}: no image is left; check its files, filter_cfg and metainfo'
        )
    check_files(key, built)
    if has_file and hasattr(built, 'cat_ids'):
        check_objects(key, built, file)
    if any(step.get('with_mask') for step in dataset.get('pipeline') or ()):
        check_outlines(key, built)
    check_maps(cfg, key, dataset, built)


def is_found_anew(cfg: Config, key: str, dataset: ConfigDict) -> bool:
    """Return whether ``find_anew`` has just looked at all images of a data set."""
    if not has_own_data(cfg):
        return False
    files = cfg.own_files['train' if key.startswith('train') else 'val']
    least = (dataset.get('filter_cfg') or {}).get('min_size', 0)
    if least > 1:
        return False
    return all(dataset.get(name) == value for name, value in files.items())


def check_files(key: str, built: BaseDataset) -> None:
    """Raise UsageError if files that a data set names are missing."""
    paths: list[str] = []
    for info in built.data_list:
        paths += [info[name] for name in FILES if info.get(name)]
    absent = [
        path for path in paths if not is_remote(path) and not os.path.isfile(path)
    ]
    if absent:
        raise UsageError(
            f'{key}: {len(absent)} of {len(paths)} files do not exist, such as '
            f'{", ".join(absent[:EXAMPLES])}; check {key}.data_prefix'
        )


def check_outlines(key: str, built: BaseDataset) -> None:
    """Raise UsageError for objects without the masks that a model is trained on."""
    lacking = []
    for info in built.data_list:
        for item in info.get('instances', ()):
            if 'mask' not in item:
                lacking.append(info['img_path'])
    if lacking:
        raise UsageError(
            f'{key}: {len(lacking)} objects have no polygon or mask (`segmentation`), which '
            f'masks are trained on, such as in {", ".join(dict.fromkeys(lacking[:EXAMPLES]))}'
        )


def check_model_classes(cfg: Config, key: str, classes: Sequence[str]) -> None:
    """Raise UsageError unless the heads predict the classes, and more than one by a softmax."""
    if not classes:
        return
    check_classes(cfg, key, classes)
    for name, head in model_heads(cfg):
        if head.get('num_classes') != 1:
            continue
        losses = head.get('loss_decode') or []
        losses = losses if isinstance(losses, list) else [losses]
        softmax = [x for x in losses if str(x.get('type')).endswith('CrossEntropyLoss')]
        if softmax and not softmax[0].get('use_sigmoid'):
            raise UsageError(
                f'{key}: {", ".join(classes)} is the only class, which {name} would predict for '
                'every pixel: name the background as a class, too (classes.txt or own.classes, in '
                'the order of the numbers in the masks)'
            )


def check_objects(key: str, built: BaseDataset, file: str) -> None:
    """Compare the objects that a data set hands out with the objects of its COCO file.

    mmdet leaves out objects without a word: of area 0, of less than a pixel, outside of their
    image, of an unknown image, with ``ignore``. UsageError if none is left. Objects of a panoptic
    file are its segments of things, but crowds.
    """
    content = mmengine.load(file)
    numbers = {*built.cat_ids}
    for category in content['categories']:
        if category.get('isthing') == 0:
            numbers.discard(category['id'])
    given = 0
    for item in content['annotations']:
        for part in item.get('segments_info', [item]):
            is_object = part is item or not part.get('iscrowd')
            given += part.get('category_id') in numbers and is_object
    left = sum(len(info['instances']) for info in built.data_list)
    if left == given:
        return
    text = f'{key}: mmdet hands out {left} of the {given} objects of {file}'
    if not left:
        raise UsageError(
            f'{text}; it leaves out objects of area 0 or outside of their image'
        )
    if len(built.data_list) == len(content['images']):  # filter_cfg leaves out no image
        warn(f'{text}: others have area 0 or are outside of their image')


def check_maps(cfg: Config, key: str, dataset: ConfigDict, built: BaseDataset) -> None:
    """Check a sample of the masks or depth maps of a data set: sizes, labels, and the unit."""
    steps = {}
    for step in dataset.get('pipeline') or ():
        if str(step.type).startswith('Load'):
            steps[step.type] = step
    if 'LoadDepth' in steps:
        name = 'depth_map_path'
    elif 'LoadClassMask' in steps:
        name = 'seg_map_path'
    else:
        if 'LoadAnnotations' in steps and cfg.default_scope == 'mmseg':
            check_loaded(cfg, key, [*steps.values()], built)
        return
    split = 'train' if key.startswith('train') else 'val'
    few = range(0, len(built), max(1, len(built) // SURVEYED))
    infos = [built.get_data_info(index) for index in few]
    pairs = [(Path(info['img_path']), Path(info[name])) for info in infos]
    if 'LoadDepth' in steps:
        depths = [head.get('max_depth') for _, head in model_heads(cfg)]
        most = min(filter(None, depths), default=None)
        with building(key):
            survey_depths(pairs, split, steps['LoadDepth'].get('unit', 1.0), most)
        return
    classes = built.metainfo['classes']
    with building(key):
        survey = survey_masks(pairs, split, infos[0]['label_map'], classes)
    for line in mask_lines(survey, classes):
        print(f'{key}: {line}', file=sys.stderr)


def check_loaded(
    cfg: Config, key: str, steps: list[ConfigDict], built: BaseDataset
) -> None:
    """Load ``LOADED`` masks by the steps of a pipeline, and compare them with images and heads."""
    transforms = [build_part(cfg, f'{key}.pipeline', TRANSFORMS, s) for s in steps]
    load = NamingPipeline(transforms)
    known = []  # names, numbers of classes, and ignored labels
    for name, head in model_heads(cfg):
        known.append((name, head.get('num_classes'), head.get('ignore_index', 255)))
    if not key.startswith('train'):
        number = len(built.metainfo.get('classes') or ())
        evaluator = key.split('.')[0].replace('dataloader', 'evaluator')
        for name, metric in evaluators(cfg, evaluator):
            if metric.get('type') == 'IoUMetric':
                known.append((name, number, metric.get('ignore_index', 255)))
    for index in range(0, len(built), max(1, len(built) // LOADED)):
        loaded = load(built.get_data_info(index)) or {}
        path = loaded['seg_map_path']
        mask = loaded['gt_seg_map']
        if loaded['ori_shape'] != mask.shape:
            raise UsageError(
                f'{key}: {path} and its image {loaded["img_path"]} differ in size, {mask.shape} '
                f'and {loaded["ori_shape"]} (height, width)'
            )
        for label in np.unique(mask).tolist():
            refused = []
            for name, number, ignored in known:
                if number and label >= number and label != ignored:
                    refused.append(f'{name} ({number} classes, ignore_index={ignored})')
            if refused:
                raise UsageError(
                    f'{key}: {path} has label {label}, which is neither a class nor ignored: '
                    f'{", ".join(refused)}; check the mask, num_classes, ignore_index, and '
                    f'{key}.reduce_zero_label'
                )


def build_dataset(
    cfg: Config, key: str, dataset: ConfigDict, **settings: bool
) -> BaseDataset:
    """Build a data set quietly, and not serialised: mmengine cannot serialise an empty one."""
    with contextlib.redirect_stdout(io.StringIO()):
        return build_part(cfg, key, DATASETS, dataset, serialize_data=False, **settings)


def check_image_sizes(cfg: Config, model: nn.Module, loaders: tuple[str, ...]) -> None:
    """Raise UsageError for an image size below a patch, or a stride that leaves gaps."""
    patch = patch_size(model)
    given = cfg.model
    parts = {
        f'model.{name}': given.get(name) for name in ('data_preprocessor', 'test_cfg')
    }
    for loader in loaders:
        for key, dataset in datasets_of(cfg, loader):
            parts[f'{key}.pipeline'] = dataset.get('pipeline')
    for part_key, part in parts.items():
        for key, node, name in size_steps(part, part_key, SIZES):
            side = shortest_side(node, name)
            if side < patch:
                raise UsageError(
                    f'{key}.{name}={node[name]}: leaves an image side of {side:g} pixels, and the '
                    f'backbone cuts images into patches of {patch} pixels; give {patch} or more'
                )
    test_cfg = cfg.model.get('test_cfg') or ConfigDict()
    if test_cfg.get('mode') == 'slide' and test_cfg.get('stride'):
        stride = test_cfg.stride
        crop = test_cfg.crop_size
        if any(step > side for step, side in zip(stride, crop, strict=True)):
            raise UsageError(
                f'model.test_cfg.stride={stride} is more than model.test_cfg.crop_size={crop}: '
                'pixels between the windows would get no label'
            )


def patch_size(model: nn.Module) -> int:
    """Side of the backbone's patches in pixels; 1 for a backbone without any."""
    backbone = getattr(model, 'backbone', nn.Identity())
    if isinstance(backbone, Backbone):
        return backbone.patch_embed.patch_size
    for part in backbone.modules():
        if isinstance(part, nn.Conv2d):  # the first
            return max(part.stride) if part.stride == part.kernel_size else 1
    return 1


def shortest_side(node: ConfigDict, name: str) -> float:
    """The shortest side that a number, a pair, or a list of these leaves; else infinity."""
    if str(node.get('crop_type', '')).startswith('relative'):
        return np.inf
    try:
        sizes = np.array(node[name], float)
    except (TypeError, ValueError):  # no size in pixels
        return np.inf
    if not sizes.size:
        return np.inf
    if name == 'scales' and sizes.ndim == 1:
        sizes = sizes.reshape(-1, 1)
    sizes = np.atleast_2d(sizes)
    # A resize that keeps the ratio bounds both sides; either may end up shorter.
    bounds = name.startswith('scale') and node.get('keep_ratio') and (sizes > 0).all()
    return (sizes.max(1) if bounds else sizes.min(1)).min()
