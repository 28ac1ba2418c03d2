"""Trained models on the Hugging Face hub: config, weights, classes and a card, by one name.

A repository has three files: config.py (settings only, nothing that runs), model.safetensors and
README.md. Files of other people's repositories are read as data: see ``check_settings``.
"""

from __future__ import annotations

import ast
import copy
import importlib
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from mmengine.config import Config
from mmengine.model import BaseModel, revert_sync_batchnorm
from mmengine.registry import MODELS, init_default_scope
from torch import Tensor

from ..checkpoints.errors import CheckpointError
from ..checkpoints.fetch import HUB, fetch
from ..checkpoints.read import read_checkpoint
from ..utils.atomic_write import atomic_write, atomic_write_text

CONFIG, WEIGHTS, CARD = 'config.py', 'model.safetensors', 'README.md'
TASKS = {'mmdet': 'object-detection', 'mmseg': 'image-segmentation'}
PREDICT = {'mmdet': ('mmdet', 'inference_detector'), 'mmseg': ('mmseg', 'inference_model')}
CARD_TEXT = """---
library_name: rope_dense
pipeline_tag: {pipeline}
{license}tags:
- {package}
- rope
---

# {title}

{model}, for rope_dense.

```bash
python tools/predict.py {source} pictures/
```

```python
from {package}.apis import {predict}
from rope_dense.integrations.hub import load_from_hub

model = load_from_hub('{source}')
result = {predict}(model, 'picture.jpg')
```

{classes}
"""
IMPORTS = ('rope_dense', 'mmdet', 'mmseg', 'mmpretrain')  # that a config of the hub may ask for
SHIPPED = ('work_dir', 'launcher', 'own', 'experiment_name')  # keys of the user's machine


def save_for_hub(
    config: Config,
    weights: Mapping[str, Tensor],
    folder: str | Path,
    *,
    name: str,
    classes: Sequence[str],
    colours: Sequence[Sequence[int]],
    license: str | None = None,
    metrics: Mapping[str, float] | None = None,
) -> Path:
    """Write a model as the files of a hub repository.

    Paths of this machine are left out of the config, and so are the names of the weights that the
    training started from: the file has all of them.

    Args:
        config: what the model was trained with; it is not changed.
        weights: state dict of the whole model.
        folder: it must be empty or not there.
        name: of the repository, for the card, OWNER/NAME.
        classes, colours: names, and (red, green, blue), in the order of the class numbers.
        license: identifier for the card, such as 'apache-2.0'; that of the initial weights may
            bind it.
        metrics: results for the card.

    Returns:
        The folder.

    Raises:
        ValueError: the folder has files in it, or the config's task is none of mmdet and mmseg.
    """
    folder = Path(folder)
    if folder.exists() and any(folder.iterdir()):
        raise ValueError(f'{folder} is not empty: give another folder')
    if (scope := config.get('default_scope')) not in TASKS:
        raise ValueError(f'default_scope must be one of {tuple(TASKS)}, it is {scope!r}')
    from safetensors.torch import save_file

    cfg = portable(config, classes, colours)
    folder.mkdir(parents=True, exist_ok=True)
    with atomic_write(folder / WEIGHTS) as partial:
        # Copies: tensors that share memory are refused by the format.
        tensors = {key: value.detach().cpu().contiguous().clone() for key, value in weights.items()}
        save_file(tensors, str(partial), metadata={'format': 'pt'})
    atomic_write_text(folder / CONFIG, cfg.pretty_text)
    check_settings(folder / CONFIG)
    atomic_write_text(folder / CARD, card(cfg, name, classes, license, metrics or {}))
    return folder


def portable(config: Config, classes: Sequence[str], colours: Sequence[Sequence[int]]) -> Config:
    """A copy of a config without what belongs to one machine, with the classes in its data sets."""
    cfg = Config(copy.deepcopy(config._cfg_dict.to_dict()))
    for key in SHIPPED:
        cfg.pop(key, None)
    cfg.load_from, cfg.resume = None, False
    metainfo = dict(classes=tuple(classes), palette=[tuple(map(int, rgb)) for rgb in colours])
    for part in dicts(cfg._cfg_dict):
        if root := part.get('data_root'):
            part['data_root'] = 'data'
            part['metainfo'] = copy.deepcopy(metainfo)
            part['ann_file'] = relative(part.get('ann_file') or '', root)
        elif part.get('ann_file'):
            part['ann_file'] = f'data/{Path(part["ann_file"]).name}'
        init_cfg = part.get('init_cfg')
        if isinstance(init_cfg, dict) and init_cfg.get('type') == 'Pretrained':
            part['init_cfg'] = None
    return cfg


def relative(path: str, root: str) -> str:
    """A path without the folder of the data set before it."""
    return os.path.relpath(path, root) if path.startswith(str(root)) else path


def dicts(part: object) -> Iterator[dict]:
    """All dicts at or below a part of a config."""
    if isinstance(part, dict):
        yield part
        part = list(part.values())
    if isinstance(part, (list, tuple)):
        for item in part:
            yield from dicts(item)


def card(
    cfg: Config,
    name: str,
    classes: Sequence[str],
    license: str | None,
    metrics: Mapping[str, float],
) -> str:
    """The text of a model card, its head as the hub reads it."""
    backbone = cfg.model.get('backbone') or {}
    package, predict = PREDICT[cfg.default_scope]
    text = CARD_TEXT.format(
        license=f'license: {license}\n' if license else '',
        pipeline=TASKS[cfg.default_scope],
        title=name.split('/')[-1],
        model=f'{cfg.model.type} on {backbone.get("type")} ({backbone.get("arch")})',
        package=package,
        predict=predict,
        source=f'{HUB}{name}',
        classes=f'{len(classes)} classes: {", ".join(classes)}.',
    )
    if metrics:
        rows = [f'| {metric} | {value:.4g} |\n' for metric, value in metrics.items()]
        text += ''.join(['\n| metric | |\n|---|---:|\n', *rows])
    return text


def push_to_hub(folder: str | Path, name: str, *, private: bool = False, api: Any = None) -> str:
    """Upload what ``save_for_hub`` wrote, to a new repository or over an earlier version.

    Args:
        name: OWNER/NAME.
        api: a ``huggingface_hub.HfApi``; by default one with the token of ``hf auth login``.

    Returns:
        The address of the commit, as the hub gives it.
    """
    if api is None:
        from huggingface_hub import HfApi

        api = HfApi()
    api.create_repo(name, private=private, exist_ok=True)
    return str(api.upload_folder(repo_id=name, folder_path=str(folder)))


def load_from_hub(source: str, device: str | torch.device = 'cpu') -> BaseModel:
    """The model of a hub repository, or of a folder with its files, ready to predict.

    It has ``cfg`` and ``dataset_meta``, so ``inference_detector`` of mmdet and ``inference_model``
    of mmseg take it; as by their ``init_detector`` and ``init_model``, mmengine's default scope is
    that of the config afterwards.

    Args:
        source: ``hf-hub:owner/name``, with ``@revision`` if wanted; or a folder.

    Raises:
        CheckpointError: a file cannot be fetched or read, or does not fit.
    """
    config, weights = model_files(source)
    cfg = Config.fromfile(config)
    importlib.import_module(f'{cfg.default_scope}.models')
    init_default_scope(cfg.default_scope)
    with MODELS.switch_scope_and_registry(cfg.default_scope) as models:
        model = models.build(copy.deepcopy(cfg.model))
    try:
        model.load_state_dict(read_checkpoint(fetch(weights), source))
    except RuntimeError as error:
        raise CheckpointError(f'{source}: weights do not fit the config: {error}') from error
    dataset = cfg.test_dataloader.dataset
    cfg.test_pipeline = dataset.pipeline  # where mmseg looks for it
    model.cfg, model.dataset_meta = cfg, dict(dataset.metainfo)
    return revert_sync_batchnorm(model).to(device).eval()


def model_files(source: str) -> tuple[str, str]:
    """The config file of a model, which has settings alone, and the source of its weights.

    Args:
        source: ``hf-hub:owner/name``, with ``@revision`` if wanted; or a folder.

    Raises:
        CheckpointError: the config cannot be fetched, or has more than settings.
    """
    if source.startswith(HUB):
        config, weights = hub_config(source), source
    else:
        config, weights = (str(Path(source, name)) for name in (CONFIG, WEIGHTS))
        if not Path(config).is_file():
            raise CheckpointError(
                f'{source}: no folder with {CONFIG} and {WEIGHTS}, as tools/push_to_hub.py writes; '
                f'a model of the hub is {HUB}owner/name, and a config needs a checkpoint'
            )
    check_settings(Path(config))
    return config, weights


def hub_config(source: str) -> str:
    """The config file of a hub repository, downloaded."""
    try:
        from huggingface_hub import hf_hub_download

        repository, _, revision = source.removeprefix(HUB).partition('@')
        return str(hf_hub_download(repository, CONFIG, revision=revision or None))
    except (ImportError, OSError, ValueError) as error:
        raise CheckpointError(f'{source}: no {CONFIG} ({error})') from error


def check_settings(path: Path) -> None:
    """Check that a config file is data: names with numbers, texts, lists and dicts.

    A config is a program, and mmengine runs it. One that passes here only builds values; what it
    may import (`custom_imports`) and which classes it names are of the packages in IMPORTS, or
    registered by them.

    Raises:
        CheckpointError: it has anything else.
    """
    try:
        tree = ast.parse(path.read_text(encoding='utf-8'))
    except (OSError, SyntaxError, ValueError) as error:
        raise CheckpointError(f'{path}: cannot be read ({error})') from error
    for statement in tree.body:
        plain = isinstance(statement, ast.Assign) and isinstance(statement.targets[0], ast.Name)
        if not (isinstance(statement, ast.Assign) and plain and is_plain(statement.value)):
            raise CheckpointError(
                f'{path}, line {statement.lineno}: not a plain setting; configs from a hub may '
                'have numbers, texts, lists and dicts only'
            )
        if isinstance(statement.targets[0], ast.Name) and statement.targets[0].id == '_base_':
            raise CheckpointError(f'{path}: builds on other files (_base_)')
    for name in imports_of(tree):
        if name.split('.')[0] not in IMPORTS:
            raise CheckpointError(f'{path}: imports {name}; allowed: {", ".join(IMPORTS)}')


def is_plain(node: ast.expr) -> bool:
    """Return True for a literal, or dict(...) of literals."""
    if isinstance(node, ast.Constant):
        return not (isinstance(node.value, str) and '{{' in node.value)  # mmengine's substitution
    if isinstance(node, (ast.List, ast.Tuple)):
        return all(map(is_plain, node.elts))
    if isinstance(node, ast.Dict):
        return all(key is not None and is_plain(key) for key in node.keys) and all(
            map(is_plain, node.values)
        )
    if isinstance(node, ast.UnaryOp):
        return isinstance(node.op, ast.USub) and isinstance(node.operand, ast.Constant)
    return (
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Name)
        and node.func.id == 'dict'
        and all(isinstance(given, ast.Dict) and is_plain(given) for given in node.args)
        and all(word.arg is not None and is_plain(word.value) for word in node.keywords)
    )


def imports_of(tree: ast.Module) -> list[str]:
    """The modules that `custom_imports` names, anywhere in a config."""
    names = []
    for node in ast.walk(tree):
        if isinstance(node, ast.keyword) and node.arg == 'imports':
            names += [c.value for c in ast.walk(node.value) if isinstance(c, ast.Constant)]
    return [str(name) for name in names]
