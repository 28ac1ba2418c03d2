"""Checks of the data of a config: folders, annotation files, classes, and that images remain."""

import contextlib
import copy
import inspect
import io
import json
import os
from dataclasses import dataclass

import numpy as np
from mmengine.config import Config, ConfigDict
from mmengine.dataset import BaseDataset
from mmengine.registry import DATASETS, TRANSFORMS

from ..evaluation.image_folder import ClassFolderDataset
from .building import building
from .checkpoints import is_remote
from .config import component_of, evaluators, leaf_datasets, nearest_in
from .errors import UsageError
from .model_checks import check_classes

SOURCES = {
    'CocoDataset': 'COCO 2017 (train2017, val2017, annotations): https://cocodataset.org/#download',
    'ADE20KDataset': 'ADE20K (ADEChallengeData2016.zip): http://sceneparsing.csail.mit.edu',
}
COCO_KEYS = {'images', 'categories'}  # test images come without annotations
MASKS = 20  # of a data set are looked at
# Larger files (COCO's has 450 MB) would take long to parse twice: only their ends are looked at.
PARSED_BYTES = 64 * 2**20


@dataclass(frozen=True)
class DataPath:
    """A file or folder that a config needs: its config key, and the option that moves it."""

    path: str
    key: str
    option: str


def check_data(cfg: Config, loaders: tuple[str, ...]) -> None:
    """Check the data of the dataloaders and of their evaluators.

    Raises:
        UsageError: missing folders and files (all in one message), a file that has no annotations,
            classes that it or the model does not have, no image left, or images that are elsewhere.
    """
    _check_paths(cfg, loaders)
    for loader in loaders:
        for key, dataset in leaf_datasets(cfg, loader):
            _check_dataset(cfg, key, dataset)


def _check_paths(cfg: Config, loaders: tuple[str, ...]) -> None:
    wanted = [item for loader in loaders for item in _wanted_paths(cfg, loader)]
    missing = [
        item for item in wanted if not is_remote(item.path) and not os.path.exists(item.path)
    ]
    if not missing:
        return
    datasets = [dataset for loader in loaders for _, dataset in leaf_datasets(cfg, loader)]
    published = {dataset.type for dataset in datasets if 'metainfo' not in dataset}
    lines = [
        f'the data set is not there. Missing, seen from {os.getcwd()}:',
        *(f'  {item.path}  ({item.key})' for item in missing),
        'Put or link it there, or say where it is (DIR is the folder of the data set):',
        '  --data-root DIR, or one by one:',
        '  --cfg-options ' + ' '.join(dict.fromkeys(item.option for item in missing)),
        *(f'  {source}' for name, source in SOURCES.items() if name in published),
    ]
    raise UsageError('\n'.join(lines))


def _wanted_paths(cfg: Config, loader: str) -> list[DataPath]:
    wanted = []
    for key, dataset in leaf_datasets(cfg, loader):
        root = dataset.get('data_root') or ''
        prefixes = dataset.get('data_prefix') or {}
        paths = {f'data_prefix.{name}': prefix or '' for name, prefix in prefixes.items()}
        if dataset.get('ann_file'):
            paths['ann_file'] = dataset.ann_file
        for name, path in paths.items():
            option = f'{key}.data_root=DIR' if root else f'{key}.{name}=PATH'
            wanted.append(DataPath(os.path.join(root, path), f'{key}.{name}', option))
    for key, metric in evaluators(cfg, loader.replace('dataloader', 'evaluator')):
        if path := metric.get('ann_file'):
            option = f'{key}.ann_file=DIR/annotations/{os.path.basename(path)}'
            wanted.append(DataPath(path, f'{key}.ann_file', option))
    return wanted


def _check_dataset(cfg: Config, key: str, dataset: ConfigDict) -> None:
    bases = inspect.getmro(_component(cfg, key, dataset))
    if BaseDataset not in bases:
        return  # a data set of its own kind: nothing is known about its files
    path = os.path.join(dataset.get('data_root') or '', dataset.get('ann_file') or '')
    categories = None
    if 'CocoDataset' in [base.__name__ for base in bases] and os.path.isfile(path):
        if os.path.getsize(path) > PARSED_BYTES:
            _check_ends(key, path)
            return
        categories = _read_categories(key, path)
    built = _build(cfg, dataset)
    if classes := built.metainfo.get('classes'):
        _check_categories(key, path, classes, categories)
        check_classes(cfg, key, classes)
    if len(built) == 0:
        raise UsageError(
            f'{key}: no image is left. Check data_prefix={dataset.get("data_prefix")}, '
            f'filter_cfg={dataset.get("filter_cfg")}, and the suffixes of the files'
        )
    _check_first_image(key, built)
    _check_masks(cfg, key, dataset, built)
    if isinstance(built, ClassFolderDataset):
        _check_class_indices(key, built, cfg.model.num_classes)


def _component(cfg: Config, key: str, dataset: ConfigDict) -> type:
    component = component_of(cfg, DATASETS, dataset)
    if component is None:
        raise UsageError(f'{key}: no data set {dataset.type!r}{nearest_in(DATASETS, dataset.type)}')
    return component


def _check_ends(key: str, path: str) -> None:
    with open(path, 'rb') as file:
        first = file.read(1)
        file.seek(-16, os.SEEK_END)
        last = file.read().rstrip()[-1:]
    if first != b'{' or last != b'}':
        raise UsageError(f'{key}.ann_file: {path} is no JSON object, or is cut off; get it again')


def _read_categories(key: str, path: str) -> set[str]:
    """Names of the categories in a COCO annotation file."""
    try:
        with open(path, encoding='utf-8') as file:
            content = json.load(file)
    except ValueError as error:
        raise UsageError(
            f'{key}.ann_file: {path} is not JSON ({error}); if it is cut off, get it again'
        ) from error
    if not isinstance(content, dict) or not content.keys() >= COCO_KEYS:
        keys = ', '.join(sorted(COCO_KEYS))
        raise UsageError(f'{key}.ann_file: {path} is not in COCO format, a dict with {keys}')
    return {category['name'] for category in content['categories']}


def _check_categories(
    key: str, path: str, classes: tuple[str, ...], categories: set[str] | None
) -> None:
    unknown = sorted(set(classes) - categories) if categories is not None else []
    if unknown:
        raise UsageError(
            f'{key}: {len(unknown)} classes, such as {unknown[:3]}, are no categories of {path}. '
            f'Name those to be used in {key}.metainfo.classes; the file has: '
            f'{", ".join(sorted(categories)[:20])}'
        )


def _check_first_image(key: str, dataset: BaseDataset) -> None:
    info = dataset.get_data_info(0)
    for name in ('img_path', 'seg_map_path'):
        path = info.get(name)
        if path and not is_remote(path) and not os.path.isfile(path):
            raise UsageError(f'{key}: {path} does not exist; check {key}.data_prefix')


def _check_masks(cfg: Config, key: str, dataset: ConfigDict, built: BaseDataset) -> None:
    """The labels in some masks of a segmentation must be classes of the head."""
    step = next((s for s in dataset.get('pipeline') or () if s.type == 'LoadAnnotations'), None)
    head = cfg.model.get('decode_head')
    if cfg.default_scope != 'mmseg' or step is None or not isinstance(head, dict):
        return
    with building(cfg), TRANSFORMS.switch_scope_and_registry('mmseg') as transforms:
        load = transforms.build(step)
    ignored = head.get('ignore_index', 255)
    for index in range(0, len(built), max(1, len(built) // MASKS)):
        info = built.get_data_info(index)
        labels = np.unique(load(info)['gt_seg_map'])
        if wrong := [int(x) for x in labels if x >= head.num_classes and x != ignored]:
            raise UsageError(
                f'{key}: {info["seg_map_path"]} has label {wrong[0]}, but '
                f'model.decode_head.num_classes={head.num_classes} and ignore_index={ignored}; '
                'check the mask, num_classes, and reduce_zero_label of the data set'
            )


def _check_class_indices(key: str, dataset: ClassFolderDataset, num_classes: int) -> None:
    """The classes of folders and images must be those of a classifier's head."""
    indices = dataset.metainfo['class_indices']
    highest = max(*indices, *(label for item in dataset.data_list for label in item['labels']))
    if highest >= num_classes:
        raise UsageError(
            f'{key}: {dataset.data_root} has class {highest} (from 0), but the head has '
            f'{num_classes} classes'
        )
    numbered = all(name.isdecimal() for name in dataset.metainfo['classes'])
    if not (dataset.class_index or numbered) and len(indices) != num_classes:
        raise UsageError(
            f'{key}: {dataset.data_root} has {len(indices)} folders of classes, but the head has '
            f'{num_classes} classes: say which they are with --class-index or class_index (and '
            '--subset or subset=True of the evaluator, if only they compete)'
        )


def _build(cfg: Config, dataset: ConfigDict) -> BaseDataset:
    """Build a data set, without what pycocotools prints; mmengine cannot serialise an empty one."""
    with (
        building(cfg),
        DATASETS.switch_scope_and_registry(cfg.default_scope) as datasets,
        contextlib.redirect_stdout(io.StringIO()),
    ):
        return datasets.build(ConfigDict(copy.deepcopy(dataset), serialize_data=False))
