"""Checks of the data of a config: folders, annotation files, classes, and that images remain."""

import contextlib
import copy
import functools
import inspect
import io
import os
from collections.abc import Iterator

import mmengine
import numpy as np
from mmengine.config import Config, ConfigDict
from mmengine.dataset import BaseDataset
from mmengine.registry import DATASETS, TRANSFORMS

from ..datasets.image_folder import ClassFolderDataset
from .building import building
from .checkpoints import is_remote
from .config import component_of, evaluators, leaf_datasets
from .errors import UsageError
from .model_checks import check_classes

SOURCES = {
    'CocoDataset': 'COCO 2017 (train2017, val2017, annotations): https://cocodataset.org/#download',
    'ADE20KDataset': 'ADE20K (ADEChallengeData2016.zip): http://sceneparsing.csail.mit.edu',
}
MASKS = 20  # of a data set are looked at
# Larger files (COCO's has 450 MB) would take long to parse twice: only the classes are checked.
PARSED_BYTES = 64 * 2**20
FILES = ('img_path', 'seg_map_path')  # keys of what a data set knows of an image


class DataError(UsageError):
    """An image or its labels cannot be loaded. Around the message of one that was raised in a
    loading worker PyTorch puts a traceback, which ends with it.
    """

    def __str__(self) -> str:
        return super().__str__().rpartition(f'{type(self).__name__}: ')[2].strip()


@contextlib.contextmanager
def loading(info: dict) -> Iterator[None]:
    """Within it an error names the files of the image that is being loaded."""
    try:
        yield
    except Exception as error:  # a damaged file can fail in any way
        files = ' or '.join(info[name] for name in FILES if info.get(name))
        files = files or f'image {info["sample_idx"]}'
        raise DataError(f'{files} cannot be loaded: {type(error).__name__}: {error}') from error


def name_files() -> None:
    """Let all data sets name the files that they cannot load."""
    prepare = BaseDataset.prepare_data
    if hasattr(prepare, '__wrapped__'):  # done before
        return

    @functools.wraps(prepare)
    def prepare_data(self: BaseDataset, idx: int) -> object:
        with loading(self.get_data_info(idx)):
            return prepare(self, idx)

    BaseDataset.prepare_data = prepare_data


def check_data(cfg: Config, loaders: tuple[str, ...]) -> None:
    """Check the data of the dataloaders and of their evaluators."""
    check_paths(cfg, loaders)
    for loader in loaders:
        for key, dataset in leaf_datasets(cfg, loader):
            check_dataset(cfg, key, dataset)


def check_paths(cfg: Config, loaders: tuple[str, ...]) -> None:
    missing = [
        (path, key, option)
        for loader in loaders
        for path, key, option in wanted_paths(cfg, loader)
        if not is_remote(path) and not os.path.exists(path)
    ]
    if not missing:
        return
    datasets = [dataset for loader in loaders for _, dataset in leaf_datasets(cfg, loader)]
    published = {dataset.type for dataset in datasets if 'metainfo' not in dataset}
    lines = [
        f'the data set is not there. Missing, seen from {os.getcwd()}:',
        *(f'  {path}  ({key})' for path, key, _ in missing),
        'Put or link it there, or say where it is (DIR is the folder of the data set):',
        '  --data-root DIR, or one by one:',
        '  --cfg-options ' + ' '.join(dict.fromkeys(option for *_, option in missing)),
        *(f'  {source}' for name, source in SOURCES.items() if name in published),
    ]
    raise UsageError('\n'.join(lines))


def wanted_paths(cfg: Config, loader: str) -> Iterator[tuple[str, str, str]]:
    """Yield each file and folder that a dataloader and its evaluator need, its config key, and the
    option that moves it.
    """
    for key, dataset in leaf_datasets(cfg, loader):
        root, prefixes = dataset.get('data_root') or '', dataset.get('data_prefix') or {}
        paths = {f'data_prefix.{name}': prefix or '' for name, prefix in prefixes.items()}
        if dataset.get('ann_file'):
            paths['ann_file'] = dataset.ann_file
        for name, path in paths.items():
            option = f'{key}.data_root=DIR' if root else f'{key}.{name}=PATH'
            yield os.path.join(root, path), f'{key}.{name}', option
    for key, metric in evaluators(cfg, loader.replace('dataloader', 'evaluator')):
        if path := metric.get('ann_file'):
            option = f'{key}.ann_file=DIR/annotations/{os.path.basename(path)}'
            yield path, f'{key}.ann_file', option


def check_dataset(cfg: Config, key: str, dataset: ConfigDict) -> None:
    bases = inspect.getmro(component_of(cfg, DATASETS, dataset) or BaseDataset)
    if BaseDataset not in bases:
        return  # a data set of its own kind: nothing is known about its files
    file = os.path.join(dataset.get('data_root') or '', dataset.get('ann_file') or '')
    in_coco_format = 'CocoDataset' in [base.__name__ for base in bases] and os.path.isfile(file)
    is_large = in_coco_format and os.path.getsize(file) > PARSED_BYTES
    categories = read_categories(key, file) if in_coco_format and not is_large else None
    built = build_dataset(cfg, dataset, **(dict(lazy_init=True) if is_large else {}))
    if classes := built.metainfo.get('classes'):
        if categories is not None and (unknown := sorted(set(classes) - categories)):
            raise UsageError(
                f'{key}: {len(unknown)} classes, such as {unknown[:3]}, are no categories of '
                f'{file}. Name those to be used in {key}.metainfo.classes; the file has: '
                f'{", ".join(sorted(categories)[:20])}'
            )
        check_classes(cfg, key, classes)
    if is_large:
        return
    if len(built) == 0:
        raise UsageError(
            f'{key}: no image is left. Check data_prefix={dataset.get("data_prefix")}, '
            f'filter_cfg={dataset.get("filter_cfg")}, and the suffixes of the files'
        )
    first = built.get_data_info(0)
    for path in (first[name] for name in FILES if first.get(name)):
        if not is_remote(path) and not os.path.isfile(path):
            raise UsageError(f'{key}: {path} does not exist; check {key}.data_prefix')
    check_masks(cfg, key, dataset, built)
    if isinstance(built, ClassFolderDataset):
        check_class_indices(key, built, cfg.model.num_classes)


def read_categories(key: str, file: str) -> set[str]:
    """Names of the categories in a COCO annotation file."""
    try:
        content = mmengine.load(file, file_format='json')
        return {category['name'] for category in content['categories']}
    except (ValueError, KeyError, TypeError) as error:
        raise UsageError(
            f'{key}.ann_file: {file} is not in COCO format, or cut off ({type(error).__name__}: '
            f'{error}); get it again'
        ) from error


def build_dataset(cfg: Config, dataset: ConfigDict, **settings: bool) -> BaseDataset:
    """Build a data set, without what pycocotools prints; mmengine cannot serialise an empty one."""
    with (
        building(cfg),
        DATASETS.switch_scope_and_registry(cfg.default_scope) as datasets,
        contextlib.redirect_stdout(io.StringIO()),
    ):
        settings = ConfigDict(copy.deepcopy(dataset), serialize_data=False, **settings)
        return datasets.build(settings)


def check_masks(cfg: Config, key: str, dataset: ConfigDict, built: BaseDataset) -> None:
    """The labels in some masks of a segmentation must be classes of the head."""
    step = next((s for s in dataset.get('pipeline') or () if s.type == 'LoadAnnotations'), None)
    head = cfg.model.get('decode_head')
    if cfg.default_scope != 'mmseg' or step is None or not isinstance(head, ConfigDict):
        return
    with building(cfg), TRANSFORMS.switch_scope_and_registry('mmseg') as transforms:
        load = transforms.build(step)
    ignored = head.get('ignore_index', 255)
    for index in range(0, len(built), max(1, len(built) // MASKS)):
        info = built.get_data_info(index)
        with loading(dict(seg_map_path=info['seg_map_path'])):
            labels = np.unique(load(info)['gt_seg_map'])
        if wrong := [int(x) for x in labels if x >= head.num_classes and x != ignored]:
            raise UsageError(
                f'{key}: {info["seg_map_path"]} has label {wrong[0]}, but '
                f'model.decode_head.num_classes={head.num_classes} and ignore_index={ignored}; '
                'check the mask, num_classes, and reduce_zero_label of the data set'
            )


def check_class_indices(key: str, dataset: ClassFolderDataset, num_classes: int) -> None:
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
