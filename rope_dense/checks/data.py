"""Check the data of a config: folders, annotation files, classes, and at least one image."""

import contextlib
import inspect
import io
import os
from collections.abc import Iterator
from importlib.util import find_spec

import mmengine
import numpy as np
from mmengine.config import Config, ConfigDict
from mmengine.dataset import BaseDataset
from mmengine.registry import DATASETS, TRANSFORMS

from ..datasets.coco_completion import complete_annotations
from ..engine.runner import FILES, NamingPipeline
from ..project.building import build_part
from ..project.config import component_of, datasets_of, detects, evaluators, lacks_classes
from ..project.errors import UsageError
from ..project.weights import is_remote
from .depth import check_depths
from .model import check_classes, heads

MASKS = 20  # of a data set are looked at
# Larger files (COCO's has 450 MB) would take long to parse twice: only the classes are checked.
PARSED_BYTES = 64 * 2**20


def check_data(cfg: Config, loaders: tuple[str, ...]) -> None:
    """Check the data of the dataloaders and of their evaluators.

    Raises:
        UsageError: files are missing, or do not fit the model.
        LoadError: an image or mask cannot be loaded.
    """
    if detects(cfg):
        complete_annotations()
        use_faster_coco_eval()
    check_paths(cfg, loaders)
    for loader in loaders:
        for key, dataset in datasets_of(cfg, loader):
            check_dataset(cfg, key, dataset)


def check_paths(cfg: Config, loaders: tuple[str, ...]) -> None:
    """Raise UsageError, which lists them, if files or folders of the data are missing."""
    missing = [
        f'  {path}  ({key})'
        for loader in loaders
        for key, path in data_paths(cfg, loader)
        if not is_remote(path) and not os.path.exists(path)
    ]
    if missing:
        option = 'cfg-options own.data_root=DIR' if lacks_classes(cfg) else 'data-root DIR'
        raise UsageError(
            f'the data set is not there; its folder is DIR of --{option}. Missing, seen from '
            f'{os.getcwd()}:\n' + '\n'.join(missing)
        )


def data_paths(cfg: Config, loader: str) -> Iterator[tuple[str, str]]:
    """Yield (config key, path) of the files and folders of a dataloader and its evaluator."""
    for key, dataset in datasets_of(cfg, loader):
        root, prefixes = dataset.get('data_root') or '', dataset.get('data_prefix') or {}
        for name, prefix in prefixes.items():
            yield f'{key}.data_prefix.{name}', os.path.join(root, prefix or '')
        if dataset.get('ann_file'):
            yield f'{key}.ann_file', os.path.join(root, dataset.ann_file)
    for key, metric in evaluators(cfg, loader.replace('dataloader', 'evaluator')):
        if metric.get('ann_file'):
            yield f'{key}.ann_file', metric.ann_file


def check_dataset(cfg: Config, key: str, dataset: ConfigDict) -> None:
    """Check the classes, the first image and the labels of a data set."""
    bases = inspect.getmro(component_of(cfg, DATASETS, dataset) or BaseDataset)
    if BaseDataset not in bases:
        return  # a data set of its own kind: nothing is known about its files
    file = os.path.join(dataset.get('data_root') or '', dataset.get('ann_file') or '')
    is_large = os.path.isfile(file) and os.path.getsize(file) > PARSED_BYTES
    built = build_dataset(cfg, key, dataset, **(dict(lazy_init=True) if is_large else {}))
    classes = built.metainfo.get('classes') or ()
    if classes:
        check_classes(cfg, key, classes)
    if is_large:
        return
    if len(getattr(built, 'cat_ids', classes)) < len(classes):  # mmdet leaves out the others
        categories = [category['name'] for category in mmengine.load(file)['categories']]
        raise UsageError(
            f'{key}.metainfo.classes: not all of {list(classes)} are categories of {file}: '
            f'{", ".join(categories)}'
        )
    if len(built) == 0:
        raise UsageError(f'{key}: no image is left; check its files, filter_cfg and metainfo')
    first = built.get_data_info(0)
    for path in (first[name] for name in FILES if first.get(name)):
        if not is_remote(path) and not os.path.isfile(path):
            raise UsageError(f'{key}: {path} does not exist; check {key}.data_prefix')
    check_masks(cfg, key, dataset, built)
    check_depths(cfg, key, dataset, built)


def build_dataset(cfg: Config, key: str, dataset: ConfigDict, **settings: bool) -> BaseDataset:
    """Build a data set quietly, and not serialised: mmengine cannot serialise an empty one."""
    with contextlib.redirect_stdout(io.StringIO()):
        return build_part(cfg, key, DATASETS, dataset, serialize_data=False, **settings)


def check_masks(cfg: Config, key: str, dataset: ConfigDict, built: BaseDataset) -> None:
    """Check ``MASKS`` masks of a segmentation.

    UsageError for a mask of another size than its image, or a label that is neither a class nor
    ignored by every head and metric.
    """
    steps = [s for s in dataset.get('pipeline') or () if str(s.type).startswith('Load')]
    if cfg.default_scope != 'mmseg' or 'LoadAnnotations' not in [step.type for step in steps]:
        return
    transforms = [build_part(cfg, f'{key}.pipeline', TRANSFORMS, step) for step in steps]
    load, readers = NamingPipeline(transforms), label_readers(cfg, key, built)
    for index in range(0, len(built), max(1, len(built) // MASKS)):
        loaded = load(built.get_data_info(index)) or {}
        path, mask = loaded['seg_map_path'], loaded['gt_seg_map']
        if loaded['ori_shape'] != mask.shape:
            raise UsageError(
                f'{key}: {path} and its image {loaded["img_path"]} differ in size, {mask.shape} '
                f'and {loaded["ori_shape"]} (height, width)'
            )
        for label in np.unique(mask).tolist():
            refused = [
                f'{name} ({classes} classes, ignore_index={ignored})'
                for name, classes, ignored in readers
                if label >= classes and label != ignored
            ]
            if refused:
                raise UsageError(
                    f'{key}: {path} has label {label}, which is neither a class nor ignored: '
                    f'{", ".join(refused)}; check the mask, num_classes, ignore_index, and '
                    f'{key}.reduce_zero_label'
                )


def label_readers(cfg: Config, key: str, built: BaseDataset) -> list[tuple[str, int, int]]:
    """Name, number of classes and ignored label of the heads and metrics that read masks."""
    nodes = [(name, head, head.get('num_classes')) for name, head in heads(cfg)]
    loader = key.split('.')[0]
    if loader != 'train_dataloader':
        metrics = evaluators(cfg, loader.replace('dataloader', 'evaluator'))
        classes = len(built.metainfo.get('classes') or ())
        nodes += [(name, m, classes) for name, m in metrics if m.get('type') == 'IoUMetric']
    return [
        (name, classes, node.get('ignore_index', 255)) for name, node, classes in nodes if classes
    ]


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
