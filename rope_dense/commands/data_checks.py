"""Checks of the data of a config: folders, annotation files, classes, and that images remain."""

import contextlib
import inspect
import io
import os
from collections.abc import Iterator
from importlib.util import find_spec

import mmcv
import mmengine
import numpy as np
from mmengine.config import Config, ConfigDict
from mmengine.dataset import BaseDataset
from mmengine.registry import DATASETS, TRANSFORMS

from ..datasets.coco_completion import complete_annotations
from ..engine.runner import FILES, load_error
from .config import component_of, evaluators, lacks_classes, leaf_datasets
from .door import build_part
from .errors import UsageError
from .model_checks import check_classes, heads
from .weights import is_remote

SOURCES = {
    'CocoDataset': 'COCO 2017 (train2017, val2017, annotations): https://cocodataset.org/#download',
    'ADE20KDataset': 'ADE20K (ADEChallengeData2016.zip): http://sceneparsing.csail.mit.edu',
}
MASKS = 20  # of a data set are looked at
# Larger files (COCO's has 450 MB) would take long to parse twice: only the classes are checked.
PARSED_BYTES = 64 * 2**20


def check_data(cfg: Config, loaders: tuple[str, ...]) -> None:
    """Check the data of the dataloaders and of their evaluators.

    Raises:
        UsageError: files are missing, or do not fit the model.
        LoadError: an image or mask cannot be loaded.
    """
    if cfg.default_scope == 'mmdet':
        complete_annotations()
        use_faster_coco_eval()
    check_paths(cfg, loaders)
    for loader in loaders:
        for key, dataset in leaf_datasets(cfg, loader):
            check_dataset(cfg, key, dataset)


def check_paths(cfg: Config, loaders: tuple[str, ...]) -> None:
    """Raise UsageError, which lists them, if files or folders of the data are missing."""
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
    folder = 'cfg-options own.data_root=DIR' if lacks_classes(cfg) else 'data-root DIR'
    lines = [
        f'the data set is not there. Missing, seen from {os.getcwd()}:',
        *(f'  {path}  ({key})' for path, key, _ in missing),
        'Put or link it there, or say where it is (DIR is the folder of the data set):',
        f'  --{folder}, or one by one:',
        '  --cfg-options ' + ' '.join(dict.fromkeys(option for *_, option in missing)),
        *(f'  {source}' for name, source in SOURCES.items() if name in published),
    ]
    raise UsageError('\n'.join(lines))


def wanted_paths(cfg: Config, loader: str) -> Iterator[tuple[str, str, str]]:
    """Yield (path, config key, option that moves it) of the files of a dataloader and evaluator."""
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
    """Check the classes, the first image and the labels of a data set."""
    bases = inspect.getmro(component_of(cfg, DATASETS, dataset) or BaseDataset)
    if BaseDataset not in bases:
        return  # a data set of its own kind: nothing is known about its files
    file = os.path.join(dataset.get('data_root') or '', dataset.get('ann_file') or '')
    in_coco_format = 'CocoDataset' in [base.__name__ for base in bases] and os.path.isfile(file)
    is_large = in_coco_format and os.path.getsize(file) > PARSED_BYTES
    categories = read_categories(key, file) if in_coco_format and not is_large else None
    built = build_dataset(cfg, key, dataset, **(dict(lazy_init=True) if is_large else {}))
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
        raise UsageError(f'{key}: no image is left; check its files, filter_cfg and metainfo')
    first = built.get_data_info(0)
    for path in (first[name] for name in FILES if first.get(name)):
        if not is_remote(path) and not os.path.isfile(path):
            raise UsageError(f'{key}: {path} does not exist; check {key}.data_prefix')
    check_masks(cfg, key, dataset, built)


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


def build_dataset(cfg: Config, key: str, dataset: ConfigDict, **settings: bool) -> BaseDataset:
    """Build a data set quietly, and not serialised: mmengine cannot serialise an empty one."""
    with contextlib.redirect_stdout(io.StringIO()):
        return build_part(cfg, key, DATASETS, dataset, serialize_data=False, **settings)


def check_masks(cfg: Config, key: str, dataset: ConfigDict, built: BaseDataset) -> None:
    """Check ``MASKS`` masks of a segmentation.

    UsageError for a mask of another size than its image, or a label that is neither a class nor
    ignored by every head and metric.
    """
    step = next((s for s in dataset.get('pipeline') or () if s.type == 'LoadAnnotations'), None)
    if cfg.default_scope != 'mmseg' or step is None:
        return
    readers = [(name, head, head.get('num_classes')) for name, head in heads(cfg)]
    loader = key.split('.')[0]
    if loader != 'train_dataloader':
        metrics = evaluators(cfg, loader.replace('dataloader', 'evaluator'))
        classes = len(built.metainfo.get('classes') or ()) or None
        readers += [(name, m, classes) for name, m in metrics if m.get('type') == 'IoUMetric']
    load = build_part(cfg, f'{key}.pipeline', TRANSFORMS, step)
    for index in range(0, len(built), max(1, len(built) // MASKS)):
        info = built.get_data_info(index)
        path = info['seg_map_path']
        try:
            mask = load(info)['gt_seg_map']
        except Exception as error:  # a damaged file can fail in any way
            raise load_error(dict(seg_map_path=path), error) from error
        try:
            image = mmcv.imread(info['img_path'])
        except Exception as error:
            raise load_error(dict(img_path=info['img_path']), error) from error
        if image is not None and image.shape[:2] != mask.shape[:2]:
            sizes = ' and '.join(f'{h} x {w}' for h, w in (mask.shape[:2], image.shape[:2]))
            raise UsageError(
                f'{key}: {path} and its image {info["img_path"]} differ in size, {sizes} (height x '
                'width)'
            )
        for label in np.unique(mask).tolist():
            refused = [
                f'{name} ({classes} classes, ignore_index={reader.get("ignore_index", 255)})'
                for name, reader, classes in readers
                if classes is not None
                if label >= classes and label != reader.get('ignore_index', 255)
            ]
            if refused:
                raise UsageError(
                    f'{key}: {path} has label {label}, which is neither a class nor ignored: '
                    f'{", ".join(refused)}; check the mask, num_classes, ignore_index, and '
                    f'{key}.reduce_zero_label'
                )


def use_faster_coco_eval() -> bool:
    """Let mmdet's ``CocoMetric`` evaluate with faster-coco-eval where it is installed.

    It computes the figures of pycocotools in less time (tests/commands/test_coco_eval.py).
    mmdet's ``use_mp_eval`` still evaluates with pycocotools.

    Returns:
        Whether it is installed.
    """
    if find_spec('faster_coco_eval') is None:
        return False
    from faster_coco_eval import COCOeval_faster
    from mmdet.evaluation.metrics import coco_metric

    coco_metric.COCOeval = COCOeval_faster
    return True
