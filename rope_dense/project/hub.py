"""Trained models on the Hugging Face hub: config, weights, classes and a card, by one name.

A repository has three files: config.json, model.safetensors and README.md. Nothing in them can
run: see ``hub_config``.
"""

import copy
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from textwrap import shorten
from typing import Any

import torch
from mmengine.config import Config
from mmengine.model import BaseModel, revert_sync_batchnorm
from mmengine.registry import MODELS, init_default_scope
from torch import Tensor

from ..checkpoints.errors import CheckpointError
from ..checkpoints.read import file_format, read_checkpoint
from ..utils.config_parts import without_labels
from ..utils.disk import HUB, atomic_write, atomic_write_text
from .hub_config import TILES, read_settings, registered_only, storable_settings

CONFIG, WEIGHTS, CARD = 'config.json', 'model.safetensors', 'README.md'
TASKS = {'mmdet': 'object-detection', 'mmseg': 'image-segmentation'}
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
rope-dense predict {source} pictures/
```

```python
import rope_dense

model = rope_dense.load('{source}')
(sample,) = model('picture.jpg')
print(model.plain(sample))
```

{classes}
"""


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
    masks: Sequence[int] | None = None,
) -> Path:
    """Write a model as the files of a hub repository.

    The config keeps what predictions need: model, test pipeline, classes and tiles.

    Args:
        config: what the model was trained with; it is not changed.
        weights: state dict of the whole model.
        folder: it must be empty or not there.
        name: of the repository, for the card, OWNER/NAME.
        classes, colours: names, and (red, green, blue), in the order of the class numbers.
        license: identifier for the card, such as 'apache-2.0'; the initial weights' licence may
            bind it.
        metrics: results for the card.
        masks: of a segmentor, the numbers of the classes in masks, and of ignored pixels.

    Returns:
        The folder.

    Raises:
        ValueError: the folder has files in it; the config's task is none of mmdet and mmseg; or
            the config has parts that reading would refuse, see ``hub_config``.
    """
    folder = Path(folder)
    if folder.exists() and any(folder.iterdir()):
        raise ValueError(f'{folder} is not empty: give another folder')
    scope = config.get('default_scope')
    if scope not in TASKS:
        raise ValueError(
            f'default_scope must be one of {tuple(TASKS)}, it is {scope!r}'
        )
    from safetensors.torch import save_file

    plain = config._cfg_dict.to_dict()
    dataset = plain['test_dataloader']['dataset']
    palette = [tuple(map(int, colour)) for colour in colours]
    settings = dict(
        default_scope=scope,
        model=plain['model'],
        test_pipeline=prediction_steps(dataset),
        metainfo=dict(classes=tuple(classes), palette=palette),
    )
    if dataset.get('type') == 'TiledDataset':
        settings['tiles'] = {name: dataset[name] for name in TILES}
    if masks:
        settings['masks'] = list(masks)
    settings = storable_settings(settings)
    folder.mkdir(parents=True, exist_ok=True)
    # Copies: tensors that share memory are refused by the format.
    tensors = {}
    for key, value in weights.items():
        tensors[key] = value.detach().cpu().contiguous().clone()
    with atomic_write(folder / WEIGHTS) as partial:
        save_file(tensors, str(partial), metadata={'format': 'pt'})
    atomic_write_text(folder / CONFIG, json.dumps(settings, indent=1) + '\n')
    card = card_text(config, name, classes, license, metrics or {})
    atomic_write_text(folder / CARD, card)
    return folder


def prediction_steps(dataset: dict) -> list[dict]:
    """The test pipeline of a data set without annotations, all steps by their registered names."""
    while 'pipeline' not in dataset:  # RepeatDataset, ConcatDataset and the like
        dataset = dataset['dataset'] if 'dataset' in dataset else dataset['datasets'][0]
    steps = []
    for step in without_labels(dataset['pipeline']):
        kind = step['type']
        if kind.startswith('rope_dense.'):
            kind = kind.rpartition('.')[2]
        steps.append(dict(step, type=kind))
    return steps


def card_text(
    cfg: Config,
    name: str,
    classes: Sequence[str],
    license: str | None,
    metrics: Mapping[str, float],
) -> str:
    """The text of a model card, its head as the hub reads it."""
    backbone = cfg.model.get('backbone') or {}
    text = CARD_TEXT.format(
        license=f'license: {license}\n' if license else '',
        pipeline=TASKS[cfg.default_scope],
        title=name.split('/')[-1],
        model=f'{cfg.model.type} on {backbone.get("type")} ({backbone.get("arch")})',
        package=cfg.default_scope,
        source=f'{HUB}{name}',
        classes=f'{len(classes)} classes: {", ".join(classes)}.',
    )
    if metrics:
        text += '\n| metric | |\n|---|---:|\n'
        for metric, value in metrics.items():
            text += f'| {metric} | {value:.4g} |\n'
    return text


def push_to_hub(
    folder: str | Path, name: str, *, private: bool = False, api: Any = None
) -> str:
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

    ``rope_dense.load`` predicts with such a model. This is a bare one for ``inference_detector`` of
    mmdet and ``inference_model`` of mmseg; mmengine's default scope is the config's afterwards.

    Args:
        source: ``hf-hub:owner/name``, with ``@revision`` if wanted; or a folder.

    Raises:
        CheckpointError: a file cannot be fetched or read, the model cannot be built, or the
            weights do not fit.
    """
    cfg = read_settings(fetch_model_file(source, CONFIG))
    weights = fetch_weights_file(source)
    init_default_scope(cfg.default_scope)
    scope = MODELS.switch_scope_and_registry(cfg.default_scope)
    try:
        with scope as models, registered_only():
            model = models.build(copy.deepcopy(cfg.model))
    except Exception as error:  # of any code
        problem = f'the model cannot be built: {one_line(error)}'
        raise CheckpointError(f'{source}: {problem}') from error
    try:
        model.load_state_dict(read_checkpoint(weights, source))
    except RuntimeError as error:
        problem = f'weights do not fit the config: {one_line(error)}'
        raise CheckpointError(f'{source}: {problem}') from error
    model.cfg = cfg
    model.dataset_meta = dict(cfg.metainfo)
    return revert_sync_batchnorm(model).to(device).eval()


def one_line(error: Exception) -> str:
    """The message of an error of other code, on one line and not endless."""
    return shorten(str(error), 400, placeholder=' ...') or type(error).__name__


def fetch_weights_file(source: str) -> str:
    """The safetensors file of a model; CheckpointError if it is missing, or of another format."""
    path = str(fetch_model_file(source, WEIGHTS))
    if file_format(path, source) != 'safetensors':
        raise CheckpointError(
            f'{path}: not a safetensors file, which {WEIGHTS} has to be'
        )
    return path


def fetch_model_file(source: str, name: str) -> Path:
    """A file of ``hf-hub:owner/name[@revision]``, downloaded, or of a folder.

    Raises:
        CheckpointError: there is none, or it is a link that leaves the folder.
    """
    if source.startswith(HUB):  # into huggingface_hub's cache
        repository, _, revision = source.removeprefix(HUB).partition('@')
        try:
            from huggingface_hub import hf_hub_download

            return Path(hf_hub_download(repository, name, revision=revision or None))
        except (ImportError, OSError, ValueError) as error:
            problem = f'no {name} ({one_line(error)})'
            raise CheckpointError(f'{source}: {problem}') from error
    folder = Path(source)
    if not (folder / name).is_file():
        raise CheckpointError(
            f'{folder}: no folder with {CONFIG} and {WEIGHTS}, as rope-dense push-to-hub writes; a '
            f'model of the hub is {HUB}owner/name, and a config needs a checkpoint'
        )
    if not (folder / name).resolve().is_relative_to(folder.resolve()):
        raise CheckpointError(
            f'{folder / name}: a link that leaves the folder, {(folder / name).resolve()}'
        )
    return folder / name
