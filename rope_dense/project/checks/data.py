"""Check the data of a config: folders, annotation files, classes, and at least one image.

Check image sizes against the patches of a backbone.
"""

import contextlib
import inspect
import io
import os
import sys
from collections.abc import Sequence
from importlib.util import find_spec
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

EXAMPLES = 3  # of missing files are named
SURVEYED, LOADED = (
    200,
    20,
)  # files of a data set whose numbers are looked at, or that are loaded
# Larger files (COCO's has 450 MB) would take long to parse twice: only the classes are checked.
PARSED_BYTES = 64 * 2**20


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
        use_faster_coco_eval()
    if has_own_data(cfg):
        with usage_errors():
            find_anew(cfg)
    check_paths(cfg, loaders)
    for loader in loaders:
        for key, dataset in datasets_of(cfg, loader):
            check_dataset(cfg, key, dataset)


def check_paths(cfg: Config, loaders: tuple[str, ...]) -> None:
    """Raise UsageError, which lists them, if files or folders of the data are missing."""
    paths: list[tuple[str, str]] = []  # with their keys
    for loader in loaders:
        for key, dataset in datasets_of(cfg, loader):
            root, prefixes = (
                dataset.get('data_root') or '',
                dataset.get('data_prefix') or {},
            )
            named = {
                f'{key}.data_prefix.{name}': prefix for name, prefix in prefixes.items()
            }
            if dataset.get('ann_file'):
                named[f'{key}.ann_file'] = dataset.ann_file
            paths += [
                (os.path.join(root, path or ''), name) for name, path in named.items()
            ]
        metrics = evaluators(cfg, loader.replace('dataloader', 'evaluator'))
        paths += [
            (m.ann_file, f'{key}.ann_file') for key, m in metrics if m.get('ann_file')
        ]
    missing = [
        f'  {path}  ({key})'
        for path, key in paths
        if not is_remote(path) and not os.path.exists(path)
    ]
    if missing:
        raise UsageError(
            'the data set is not there; its folder is DIR of --data-root DIR. Missing, seen from '
            f'{os.getcwd()}:\n' + '\n'.join(missing)
        )


def check_dataset(cfg: Config, key: str, dataset: ConfigDict) -> None:
    """Check classes, images, objects and labels of a data set."""
    bases = inspect.getmro(component_of(cfg, DATASETS, dataset) or BaseDataset)
    if BaseDataset not in bases:
        return  # a data set of its own kind: nothing is known about its files
    if has_own_data(cfg):
        files = cfg.own_files['train' if key.startswith('train') else 'val']
        least = (dataset.get('filter_cfg') or {}).get('min_size', 0)
        if least <= 1 and all(
            dataset.get(name) == value for name, value in files.items()
        ):
            # ``find_anew`` has just looked at all of its images.
            check_model_classes(cfg, key, dataset.metainfo.get('classes') or ())
            return
    file = os.path.join(dataset.get('data_root') or '', dataset.get('ann_file') or '')
    has_file = os.path.isfile(file)
    is_large = has_file and os.path.getsize(file) > PARSED_BYTES
    built = build_dataset(
        cfg, key, dataset, **(dict(lazy_init=True) if is_large else {})
    )
    classes = built.metainfo.get('classes') or ()
    check_model_classes(cfg, key, classes)
    if is_large:
        return
    if len(getattr(built, 'cat_ids', classes)) < len(
        classes
    ):  # mmdet leaves out the others
        categories = [
            category['name'] for category in mmengine.load(file)['categories']
        ]
        raise UsageError(
            f'{key}.metainfo.classes: not all of {list(classes)} are categories of {file}: '
            f'{", ".join(categories)}'
        )
    if len(built) == 0:
        raise UsageError(
            f'{key}: no image is left; check its files, filter_cfg and metainfo'
        )
    paths = [info[name] for info in built.data_list for name in FILES if info.get(name)]
    absent = [
        path for path in paths if not is_remote(path) and not os.path.isfile(path)
    ]
    if absent:
        raise UsageError(
            f'{key}: {len(absent)} of {len(paths)} files do not exist, such as '
            f'{", ".join(absent[:EXAMPLES])}; check {key}.data_prefix'
        )
    if has_file and hasattr(built, 'cat_ids'):
        check_objects(key, built, file)
    objects = [
        (x['img_path'], item)
        for x in built.data_list
        for item in x.get('instances', ())
    ]
    lacking = [path for path, item in objects if 'mask' not in item]
    if lacking and any(step.get('with_mask') for step in dataset.get('pipeline') or ()):
        raise UsageError(
            f'{key}: {len(lacking)} objects have no polygon or mask (`segmentation`), which '
            f'masks are trained on, such as in {", ".join(dict.fromkeys(lacking[:EXAMPLES]))}'
        )
    check_maps(cfg, key, dataset, built)


def check_model_classes(cfg: Config, key: str, classes: Sequence[str]) -> None:
    """Raise UsageError unless the heads predict the classes, and more than one by a softmax."""
    if not classes:
        return
    check_classes(cfg, key, classes)
    for name, head in model_heads(cfg):
        losses = head.get('loss_decode') or []
        losses = losses if isinstance(losses, list) else [losses]
        softmax = [x for x in losses if str(x.get('type')).endswith('CrossEntropyLoss')]
        if (
            head.get('num_classes') == 1
            and softmax
            and not softmax[0].get('use_sigmoid')
        ):
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
    content, numbers = mmengine.load(file), {*built.cat_ids}
    numbers -= {
        item['id'] for item in content['categories'] if item.get('isthing') == 0
    }
    given = sum(
        part.get('category_id') in numbers and (part is item or not part.get('iscrowd'))
        for item in content['annotations']
        for part in item.get('segments_info', [item])
    )
    left = sum(len(info['instances']) for info in built.data_list)
    if left == given:
        return
    text = f'{key}: mmdet hands out {left} of the {given} objects of {file}'
    if not left:
        raise UsageError(
            f'{text}; it leaves out objects of area 0 or outside of their image'
        )
    if len(built.data_list) == len(content['images']):  # filter_cfg leaves out no image
        print(
            f'warning: {text}: others have area 0 or are outside of their image',
            file=sys.stderr,
        )


def check_maps(cfg: Config, key: str, dataset: ConfigDict, built: BaseDataset) -> None:
    """Check a sample of the masks or depth maps of a data set: sizes, labels, and the unit."""
    steps = {
        s.type: s
        for s in dataset.get('pipeline') or ()
        if str(s.type).startswith('Load')
    }
    split = 'train' if key.startswith('train') else 'val'
    few = range(0, len(built), max(1, len(built) // SURVEYED))
    infos = [built.get_data_info(index) for index in few]
    if 'LoadDepth' in steps:
        pairs = [
            (Path(info['img_path']), Path(info['depth_map_path'])) for info in infos
        ]
        largest = [
            head.max_depth for _, head in model_heads(cfg) if head.get('max_depth')
        ]
        with building(key):
            unit = steps['LoadDepth'].get('unit', 1.0)
            survey_depths(pairs, split, unit, min(largest, default=None))
    elif 'LoadClassMask' in steps:
        pairs = [(Path(info['img_path']), Path(info['seg_map_path'])) for info in infos]
        classes = built.metainfo['classes']
        with building(key):
            survey = survey_masks(pairs, split, infos[0]['label_map'], classes)
        for line in mask_lines(survey, classes):
            print(f'{key}: {line}', file=sys.stderr)
    elif 'LoadAnnotations' in steps and cfg.default_scope == 'mmseg':
        check_loaded(cfg, key, [*steps.values()], built)


def check_loaded(
    cfg: Config, key: str, steps: list[ConfigDict], built: BaseDataset
) -> None:
    """Load ``LOADED`` masks by the steps of a pipeline, and compare them with images and heads."""
    load = NamingPipeline(
        [build_part(cfg, f'{key}.pipeline', TRANSFORMS, s) for s in steps]
    )
    readers = [(name, head, head.get('num_classes')) for name, head in model_heads(cfg)]
    if not key.startswith('train'):
        metrics = evaluators(cfg, key.split('.')[0].replace('dataloader', 'evaluator'))
        number = len(built.metainfo.get('classes') or ())
        readers += [
            (name, m, number) for name, m in metrics if m.get('type') == 'IoUMetric'
        ]
    known = [
        (name, number, x.get('ignore_index', 255))
        for name, x, number in readers
        if number
    ]
    for index in range(0, len(built), max(1, len(built) // LOADED)):
        loaded = load(built.get_data_info(index)) or {}
        path, mask = loaded['seg_map_path'], loaded['gt_seg_map']
        if loaded['ori_shape'] != mask.shape:
            raise UsageError(
                f'{key}: {path} and its image {loaded["img_path"]} differ in size, {mask.shape} '
                f'and {loaded["ori_shape"]} (height, width)'
            )
        for label in np.unique(mask).tolist():
            refused = [
                f'{name} ({number} classes, ignore_index={ignored})'
                for name, number, ignored in known
                if label >= number and label != ignored
            ]
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


def use_faster_coco_eval() -> bool:
    """Let mmdet's ``CocoMetric`` use faster-coco-eval; False where it is not installed.

    It computes the figures of pycocotools in less time (tests/project/test_coco_eval.py).
    mmdet's ``use_mp_eval`` still evaluates with pycocotools.
    """
    if find_spec('faster_coco_eval') is None:
        return False
    from faster_coco_eval import COCOeval_faster
    from mmdet.evaluation.metrics import coco_metric

    coco_metric.COCOeval = COCOeval_faster
    return True


SIZES = ('size', 'crop_size', 'scale', 'scales')  # settings of transforms, in pixels


def check_image_sizes(cfg: Config, model: nn.Module, loaders: tuple[str, ...]) -> None:
    """Raise UsageError for an image size below a patch, or a stride that leaves gaps."""
    patch = patch_size(model)
    parts = {
        f'model.{name}': cfg.model.get(name)
        for name in ('data_preprocessor', 'test_cfg')
    }
    for loader in loaders:
        parts |= {
            f'{key}.pipeline': d.get('pipeline') for key, d in datasets_of(cfg, loader)
        }
    sizes = (
        size for key, part in parts.items() for size in size_steps(part, key, SIZES)
    )
    for key, node, name in sizes:
        if (side := shortest_side(node, name)) < patch:
            raise UsageError(
                f'{key}.{name}={node[name]}: leaves an image side of {side:g} pixels, and the '
                f'backbone cuts images into patches of {patch} pixels; give {patch} or more'
            )
    test_cfg = cfg.model.get('test_cfg') or ConfigDict()
    if test_cfg.get('mode') == 'slide' and test_cfg.get('stride'):
        stride, crop = test_cfg.stride, test_cfg.crop_size
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
    first = next(
        (part for part in backbone.modules() if isinstance(part, nn.Conv2d)), None
    )
    return (
        max(first.stride)
        if first is not None and first.stride == first.kernel_size
        else 1
    )


def shortest_side(node: ConfigDict, name: str) -> float:
    """The shortest side that a number, a pair, or a list of these leaves; else infinity."""
    is_relative = str(node.get('crop_type', '')).startswith('relative')
    try:
        sizes = np.array([] if is_relative else node[name], float)
    except (TypeError, ValueError):  # no size in pixels
        return np.inf
    if not sizes.size:
        return np.inf
    sizes = (
        sizes.reshape(-1, 1)
        if name == 'scales' and sizes.ndim == 1
        else np.atleast_2d(sizes)
    )
    # A resize that keeps the ratio bounds both sides; either may end up shorter.
    bounds = name.startswith('scale') and node.get('keep_ratio') and (sizes > 0).all()
    return (sizes.max(1) if bounds else sizes.min(1)).min()
