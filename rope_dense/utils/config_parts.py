"""Walks through the nested dicts and lists of a config."""

import copy
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

LOADERS = 'train_dataloader', 'val_dataloader', 'test_dataloader'


def nodes(part: object, key: str = '') -> Iterator[tuple[str, Any]]:
    """Yield (config key, dict) of each dict at or below a part of a config, outer ones first."""
    items: Iterable[tuple] = ()
    if isinstance(part, dict):
        yield key, part
        items = part.items()
    elif isinstance(part, (list, tuple)):
        items = enumerate(part)
    for name, item in items:
        yield from nodes(item, f'{key}.{name}' if key else str(name))


def kind(part: Mapping) -> str:
    """The type of a part of a config without its scope."""
    return str(part.get('type')).rpartition('.')[2]


def size_steps(
    part: object, key: str = '', names: Sequence[str] = ('scale',)
) -> Iterator[tuple[str, Any, str]]:
    """Yield (config key, step, name) of each size in a pipeline or another part of a config.

    In steps within others, too; ``names`` are of the settings that are sizes in pixels.
    """
    for place, step in nodes(part, key):
        for name in names:
            if step.get(name) is not None:
                yield place, step, name


def leaf_datasets(dataset: Any, key: str) -> Iterator[tuple[str, Any]]:
    """Yield (config key, data set) of each data set within wrappers such as RepeatDataset."""
    if 'dataset' in dataset:
        yield from leaf_datasets(dataset['dataset'], f'{key}.dataset')
    elif 'datasets' in dataset:
        for index, inner in enumerate(dataset['datasets']):
            yield from leaf_datasets(inner, f'{key}.datasets.{index}')
    else:
        yield key, dataset


def all_datasets(cfg: Any) -> Iterator[tuple[str, Any]]:
    """Yield (config key, data set) of each data set within the dataloaders of a config."""
    for name in LOADERS:
        dataset = (cfg.get(name) or {}).get('dataset')
        if dataset:
            yield from leaf_datasets(dataset, f'{name}.dataset')


LABEL_STEPS = (
    'Annotations', 'LoadClassMask', 'LoadDepth', 'IgnoreNoData',
    'ConvertBoxType', 'ConvertMask2BoxType',
)  # fmt: skip


def without_labels(pipeline: Iterable[Any]) -> list:
    """The steps of a pipeline for images that have no labels."""
    return [step for step in pipeline if not step['type'].endswith(LABEL_STEPS)]


def keeps_ratio(pipeline: Iterable[Mapping]) -> bool:
    """Return whether images keep their shape, so that in a batch they are padded to the largest.

    What is found in an image would depend on the others.
    """
    return any(step.get('keep_ratio') for step in pipeline)


def pipelines(dataset: Any) -> Iterator[list]:
    """Yield the pipelines of a data set and of the data sets within it."""
    if 'pipeline' in dataset:
        yield dataset['pipeline']
    if dataset.get('dataset'):
        yield from pipelines(dataset['dataset'])
    for inner in dataset.get('datasets', ()):
        yield from pipelines(inner)


def with_steps(loader: Any, /, **steps: Mapping[str, Any]) -> Any:
    """A dataloader of a base config with other settings of steps, by their type without its scope.

    A config cannot override one item of a list, such as a pipeline. ValueError if there is no step
    of a type.
    """
    changed = copy.deepcopy(loader)
    for name, settings in steps.items():
        found = False
        for _, step in nodes(changed):
            if kind(step) == name:
                step.update(settings)
                found = True
        if not found:
            raise ValueError(f'no step of type {name}, whose settings are to change')
    return changed
