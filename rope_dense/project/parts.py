"""Parts of a config: its data sets, evaluators, heads and schedulers."""

from collections.abc import Iterator

from mmengine.config import Config, ConfigDict
from mmengine.registry import DATASETS, Registry

from ..utils.config_parts import leaf_datasets, nodes
from .errors import UsageError

# mmengine needs all or none of these for each loop.
SECTIONS = {
    'train': ('train_dataloader', 'train_cfg', 'optim_wrapper'),
    'val': ('val_dataloader', 'val_cfg', 'val_evaluator'),
    'test': ('test_dataloader', 'test_cfg', 'test_evaluator'),
}


def used_loaders(cfg: Config, *loops: str) -> tuple[str, ...]:
    """The dataloaders of `loops`; UsageError if the first loop, or a part of one, is missing."""
    loaders = []
    for loop in loops:
        missing = [name for name in SECTIONS[loop] if cfg.get(name) is None]
        if missing and (loop == loops[0] or len(missing) < len(SECTIONS[loop])):
            raise UsageError(f'the config has no {", ".join(missing)}, for a {loop} loop')
        loaders += [] if missing else [f'{loop}_dataloader']
    return tuple(loaders)


def datasets_of(cfg: Config, loader: str) -> Iterator[tuple[str, ConfigDict]]:
    """Yield (config key, data set) below a dataloader, through RepeatDataset, ConcatDataset etc."""
    return leaf_datasets(cfg[loader].dataset, f'{loader}.dataset')


def class_info(cfg: Config, dataset: ConfigDict) -> dict:
    """The names and colours of the classes of a data set: `metainfo`, else its class's own."""
    info = dict(getattr(component_of(cfg, DATASETS, dataset), 'METAINFO', {}))
    return info | (dataset.get('metainfo') or {})


def stored_classes(checkpoint: dict) -> dict:
    """The names and colours of the classes in a checkpoint."""
    stored = (checkpoint.get('meta') or {}).get('dataset_meta') or {}
    return {name.lower(): value for name, value in stored.items() if value}  # once CLASSES


def evaluators(cfg: Config, name: str) -> list[tuple[str, ConfigDict]]:
    """(config key, metric) of each metric of `val_evaluator` or `test_evaluator`: one or a list."""
    metrics = cfg.get(name) or []
    if isinstance(metrics, dict):
        if 'metrics' not in metrics:
            return [(name, metrics)]
        name, metrics = f'{name}.metrics', metrics['metrics']  # of a ``TiledEvaluator``
    return [(f'{name}.{index}', metric) for index, metric in enumerate(metrics)]


def component_of(cfg: Config, registry: Registry, node: ConfigDict) -> type | None:
    """The class that a config dict's `type` names, as the config's task finds it; None if none."""
    if not isinstance(node.type, str):
        return node.type
    with registry.switch_scope_and_registry(cfg.default_scope) as task_registry:
        return task_registry.get(node.type)


def model_heads(cfg: Config) -> Iterator[tuple[str, ConfigDict]]:
    """(Key, settings) of each head of the model, those within other heads too."""
    for key, node in nodes(cfg.model, 'model'):
        *_, outer, name = key.split('.') if '.' in key else ('', key)
        if (outer if name.isdigit() else name).endswith('_head'):
            yield key, node


def scheduler_settings(cfg: Config) -> list[ConfigDict]:
    """The schedulers of a config, one or several or none."""
    given = cfg.get('param_scheduler') or []
    return [given] if isinstance(given, dict) else given
