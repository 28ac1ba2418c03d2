"""Configs listed in the metafiles, with method, backbone, task and published result."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import astuple, dataclass
from pathlib import Path

import mmengine
from mmengine.config import Config

# By what the last part of a name begins with; the first that fits counts.
TASKS = {
    'coco-panoptic': 'Panoptic Segmentation',
    'coco-instance': 'Instance Segmentation',
    'coco': 'Object Detection',
    'ade20k': 'Semantic Segmentation',
    'nyu': 'Depth Estimation',
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
        result = ', '.join(published(entry)) or '-'
        return cls(method, ' '.join(backbone), words, result, entry['Config'])

    def has(self, words: Sequence[str]) -> bool:
        """True if each word occurs in a column, in capitals or not."""
        text = ' '.join(astuple(self)).lower()
        return all(word.lower() in text for word in words)


def published(entry: dict, *, with_source: bool = False) -> list[str]:
    """The metrics of each result of an entry, also with its data set and source."""
    texts = []
    for result in entry.get('Results', ()):
        variant = result['Task'].partition(',')[2]  # such as multi-scale
        text = ', '.join(f'{value} {name}{variant}' for name, value in result['Metrics'].items())
        source = f' on {result["Dataset"]} ({result["Source"]})'
        texts.append(f'{text}{source}' if with_source else text)
    return texts


def list_configs(root: Path, words: Sequence[str] = ()) -> list[ListedConfig]:
    """The configs that have all words.

    Args:
        root: the folder of model-index.yml, to which the paths of the configs are relative.
    """
    files = mmengine.load(root / 'model-index.yml')['Import']
    found = [ListedConfig.of(entry) for file in files for entry in entries(root / file)]
    return [config for config in found if config.has(words)]


def entries(metafile: Path) -> list[dict]:
    """The models of a metafile; none if there is no such file."""
    return mmengine.load(metafile)['Models'] if metafile.is_file() else []


def paper_result(path: Path, cfg: Config) -> str:
    """The paper's result for `cfg`, which was read from `path`, or why there is none.

    A config that only names its base, such as the flagship configs, has the result of the base; a
    config that changes a setting has none.
    """
    while (entry := entry_of(path)) is None:
        names = Config._get_base_files(str(path))  # mmengine has no public function for it
        bases = [(path.parent / name).resolve() for name in names if '::' not in name]
        if len(bases) != 1:
            return 'none known'
        path = bases[0]
    original = Config.fromfile(path)
    if any(cfg.get(key) != original[key] for key in original):
        return f'none: {path.name} has one, and settings of it are changed here'
    return '; '.join(published(entry, with_source=True)) or 'none: not in the paper'


def entry_of(path: Path) -> dict | None:
    """The entry for a config in the metafile of its folder, if there is one."""
    models = entries(path.parent / 'metafile.yml')
    return next((model for model in models if model['Name'] == path.stem), None)


def config_table(configs: Sequence[ListedConfig]) -> str:
    """A line for each config below a header, columns aligned."""
    rows = [('method', 'backbone', 'task', 'published', 'config'), *map(astuple, configs)]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = (zip(row, widths, strict=True) for row in rows)
    return '\n'.join('  '.join(f'{x:<{width}}' for x, width in line).rstrip() for line in lines)
