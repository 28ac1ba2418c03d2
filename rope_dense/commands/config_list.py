"""The configs of the metafiles: method, backbone, task and published result of each."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import astuple, dataclass
from pathlib import Path

import mmengine

# By what the last part of a name begins with; the first that fits counts.
TASKS = {
    'coco-panoptic': 'Panoptic Segmentation',
    'coco-instance': 'Instance Segmentation',
    'coco': 'Object Detection',
    'ade20k': 'Semantic Segmentation',
}
WITH_MASKS = ('mask-rcnn', 'cascade-mask-rcnn', 'ecseg')  # methods that give boxes and masks


@dataclass(frozen=True)
class ListedConfig:
    """An entry of a metafile. The name of a config is METHOD_BACKBONE[_VARIANT]_LENGTH_DATA."""

    method: str
    backbone: str
    task: str
    result: str
    path: str

    @classmethod
    def of(cls, entry: dict) -> ListedConfig:
        """Of a metafile's entry; its tasks come from its results, if it has any."""
        method, *backbone, _, data = entry['Name'].split('_')
        tasks = [result['Task'].partition(',')[0] for result in entry.get('Results', ())]
        if not tasks:
            tasks = [next(task for start, task in TASKS.items() if data.startswith(start))]
            tasks += ['Instance Segmentation'] * method.startswith(WITH_MASKS)
        words = ', '.join(dict.fromkeys(tasks))
        return cls(method, ' '.join(backbone), words, metrics_of(entry), entry['Config'])

    def has(self, words: Sequence[str]) -> bool:
        """True if each word occurs in a column, in capitals or not."""
        text = ' '.join(astuple(self)).lower()
        return all(word.lower() in text for word in words)


def metrics_of(entry: dict) -> str:
    """The metrics of an entry's results, '-' without any."""
    metrics = [
        f'{value} {name}{result["Task"].partition(",")[2]}'  # such as multi-scale
        for result in entry.get('Results', ())
        for name, value in result['Metrics'].items()
    ]
    return ', '.join(metrics) or '-'


def list_configs(root: Path, words: Sequence[str] = ()) -> list[ListedConfig]:
    """The configs that have all words.

    Args:
        root: the folder of model-index.yml, to which the paths of the configs are relative.
    """
    found = map(ListedConfig.of, entries(root))
    return [config for config in found if config.has(words)]


def entries(root: Path) -> Iterator[dict]:
    """The models of all metafiles, in the order of model-index.yml."""
    for path in mmengine.load(root / 'model-index.yml')['Import']:
        yield from mmengine.load(root / path)['Models']


def config_table(configs: Sequence[ListedConfig]) -> str:
    """A line for each config below a header, columns aligned."""
    rows = [('method', 'backbone', 'task', 'published', 'config'), *map(astuple, configs)]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = (zip(row, widths, strict=True) for row in rows)
    return '\n'.join('  '.join(f'{x:<{width}}' for x, width in line).rstrip() for line in lines)
