"""Check masks of class numbers before a run: sizes, numbers, and classes that no mask has."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np
from mmengine.config import Config, ConfigDict
from mmengine.dataset import BaseDataset
from mmengine.registry import TRANSFORMS
from PIL import Image

from ..datasets.classes import IGNORED
from ..datasets.mask_labels import COLOURS, read_mask
from ..engine.runner import LoadError, NamingPipeline
from ..project.building import build_part
from ..project.errors import UsageError
from ..project.load import evaluators
from .model import heads

MASKS, MORE = 20, 200  # of a data set are looked at; MORE where the first have one class at most
NAMES = 8  # of classes that no mask has
OWN = 'LoadClassMask'
LOADERS = {'LoadAnnotations', OWN}  # of mmseg's masks, and of own ones
BINARY = {0, IGNORED}


def check_masks(cfg: Config, key: str, dataset: ConfigDict, built: BaseDataset) -> None:
    """Check ``MASKS`` masks of a segmentation, and say which classes they lack.

    Raises:
        UsageError: a mask has another size than its image, colours, or a label that is neither a
            class nor ignored by every head and metric; or there is nothing to be trained.
    """
    steps = [s for s in dataset.get('pipeline') or () if str(s.type).startswith('Load')]
    if cfg.default_scope != 'mmseg' or LOADERS.isdisjoint(step.type for step in steps):
        return
    classes = built.metainfo.get('classes') or ()
    check_number_of_classes(cfg, key, classes)
    load = NamingPipeline([build_part(cfg, f'{key}.pipeline', TRANSFORMS, s) for s in steps])
    readers, found, numbers = label_readers(cfg, key, built), set[int](), list[set[float]]()
    is_own = OWN in [step.type for step in steps]
    for most in (MASKS, MORE):
        infos = [built.get_data_info(index) for index in sample(len(built), most)]
        for info in infos:
            path, labels = read_labels(key, load, info, is_own)
            check_labels(key, path, labels, readers)
            found |= labels
        numbers = [numbers_in(info['seg_map_path']) for info in infos] if is_own else []
        if is_own:
            check_palettes(key, infos)
        if IGNORED not in found or len(found) > 2:
            break
    check_found(key, found, numbers, classes)
    if is_own:
        if key.startswith('train') and len(infos) == len(built) and len(classes) > 1:
            check_several(key, found - {IGNORED}, len(infos), classes)
        say_what_is_odd(key, found, numbers, classes)


def sample(count: int, most: int) -> range:
    """About ``most`` indexes below ``count``, evenly."""
    return range(0, count, max(1, count // most))


def check_number_of_classes(cfg: Config, key: str, classes: Iterable[str]) -> None:
    """Raise UsageError for one class with a softmax, which predicts it everywhere."""
    for name, head in heads(cfg):
        losses = head.get('loss_decode') or {}
        losses = losses if isinstance(losses, list) else [losses]
        softmax = [x for x in losses if str(x.get('type')).endswith('CrossEntropyLoss')]
        if head.get('num_classes') == 1 and softmax and not softmax[0].get('use_sigmoid'):
            raise UsageError(
                f'{key}: {", ".join(classes)} is the only class, which {name} would predict for '
                'every pixel: name the background as a class, too (classes.txt or own.classes, in '
                'the order of the numbers in the masks)'
            )


def read_labels(key: str, load: NamingPipeline, info: dict, is_own: bool) -> tuple[str, set[int]]:
    """The path of a mask and its labels.

    Raises:
        UsageError: it has another size than its image; or it is an own one, with colours or other
            numbers.
    """
    try:
        loaded = load(info) or {}
    except LoadError as error:
        if is_own and isinstance(error.__cause__, ValueError):  # its message names the file
            raise UsageError(f'{key}: {error.__cause__}') from error
        raise
    path, mask = loaded['seg_map_path'], loaded['gt_seg_map']
    if loaded['ori_shape'] != mask.shape:
        raise UsageError(
            f'{key}: {path} and its image {loaded["img_path"]} differ in size, {mask.shape} '
            f'and {loaded["ori_shape"]} (height, width)'
        )
    return path, {*np.unique(mask).tolist()}


def numbers_in(path: str) -> set[float]:
    """The numbers in the file of an own mask."""
    return {*np.unique(read_mask(Path(path))[0]).tolist()}


def check_palettes(key: str, infos: Iterable[dict]) -> None:
    """Raise UsageError if palettes say that the indices of own masks are not the classes.

    Of files that are read by their indices: two have different colours for one, or the greys that
    a file shows are numbers of classes, too.
    """
    first: dict[int, tuple[str, tuple[int, ...]]] = {}
    for info in infos:
        path, labels = info['seg_map_path'], info['label_map']
        colours = palette_in(path)
        if not colours.keys() <= labels.keys():
            continue
        greys = {colour[0] for colour in colours.values() if len({*colour}) == 1}
        known = {number for number, label in labels.items() if label != IGNORED}
        if (
            len(greys) == len(colours)
            and greys <= known
            and any(colour[0] != index for index, colour in colours.items())
        ):
            shown = ', '.join(f'{index} as {colour[0]}' for index, colour in colours.items())
            raise UsageError(
                f'{key}: {path} has a palette that shows {shown}, which are numbers of classes, '
                f'too: {COLOURS}'
            )
        for index, colour in colours.items():
            other, there = first.setdefault(index, (path, colour))
            if there != colour:
                raise UsageError(
                    f'{key}: index {index} is {as_code(there)} in {other} and {as_code(colour)} in '
                    f'{path}: {COLOURS}'
                )


def palette_in(path: str) -> dict[int, tuple[int, ...]]:
    """The colours (red, green, blue) of the indices that a mask with a palette uses."""
    with Image.open(path) as image:
        if image.mode != 'P':
            return {}
        colours = np.reshape(image.getpalette('RGB') or [], (-1, 3)).tolist()
        used = np.unique(np.asarray(image)).tolist()
    return {index: tuple(colours[index]) for index in used if index < len(colours)}


def as_code(colour: Sequence[int]) -> str:
    """A colour as in '#804080'."""
    return f'#{bytes(colour).hex()}'


def check_several(key: str, found: set[int], count: int, classes: Sequence[str]) -> None:
    """Raise UsageError if all masks are of one class, which teaches nothing."""
    if len(found) == 1:
        raise UsageError(
            f'{key}: all pixels of its {count} masks are {classes[found.pop()]}: check the masks'
        )


def check_found(
    key: str, found: set[int], numbers: Sequence[set[float]], classes: Sequence[str]
) -> None:
    """Raise UsageError if all labels are ignored, or all but one in masks of 0 and 255."""
    given = set[float]().union(*numbers)
    if found == {IGNORED}:
        said = f'; they have the numbers {", ".join(map(str, sorted(given)[:NAMES]))}'
        raise UsageError(f'{key}: all pixels of the masks are ignored{said if given else ""}')
    if given == BINARY and IGNORED in found and len(classes) > 1:
        advice = 'own.values gives the number of each class'
        if len(classes) == 2:
            advice = f'own.values=[0,{IGNORED}] reads them as {classes[0]} and {classes[1]}'
        raise UsageError(
            f'{key}: the masks have 0 and 255 only, and 255 means ignored, so that '
            f'{classes[0]} would be all that is trained: {advice}'
        )


def say_what_is_odd(
    key: str, found: set[int], numbers: Sequence[set[float]], classes: Sequence[str]
) -> None:
    """Print which classes no mask has, and how many masks are of 0 and 255 beside others."""
    lacking = [name for label, name in enumerate(classes) if label not in found]
    if lacking:
        names = ', '.join(lacking[:NAMES]) + (' ...' if len(lacking) > NAMES else '')
        print(
            f'{key}: {len(lacking)} of {len(classes)} classes have no pixel in {len(numbers)} '
            f'masks: {names}',
            file=sys.stderr,
        )
    binary = sum(given == BINARY for given in numbers)
    if binary and IGNORED in found:
        print(
            f'{key}: {binary} of {len(numbers)} masks have 0 and 255 only, and 255 is ignored',
            file=sys.stderr,
        )


def check_labels(
    key: str, path: str, labels: Iterable[int], readers: list[tuple[str, int, int]]
) -> None:
    """Raise UsageError for a label that is neither a class nor ignored."""
    for label in labels:
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
