"""Find a config, or the config and the checkpoint of a trained model, without importing PyTorch."""

import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

from ..utils.configs import CONFIGS, values_in
from ..utils.disk import HUB, is_remote
from ..utils.errors import UsageError
from ..utils.validation import did_you_mean
from .run import Run

Place = str | Path
PICTURES = ('.png', '.jpg', '.jpeg')  # endings of what is drawn
ENDINGS = ('.py', '.yml', '.yaml', '.json')  # of configs
WEIGHTS = ('.pth', '.pt', '.safetensors')  # of checkpoints


class ModelFiles(NamedTuple):
    """The files of a trained model."""

    config: str  # a config file, or a stored model: its name on the hub or its folder
    checkpoint: str | None = None  # None where it is beside the config or named in it
    work_dir: str | None = None  # of a run


def find_files(source: Place, checkpoint: Place | None = None) -> ModelFiles:
    """The files of a trained model; UsageError if one is missing.

    Args:
        source: the folder of a run, a config, or a stored model: hf-hub:owner/name or a folder
            that ``rope-dense push-to-hub`` wrote.
        checkpoint: a file, an address or a name on the hub, for a config or a run.
    """
    source = str(source)
    given = None if checkpoint is None else str(checkpoint)
    is_name = is_hub_model(source) or (given and source in recipes())
    is_run = os.path.isdir(source) and not is_name
    config = Run(Path(source)).config_file if is_run else find_config(source)
    if given:
        check_checkpoint(given)
    if is_run:
        return ModelFiles(config, given or Run(Path(source)).best, source)
    written = None if given else read_written_settings(config)
    if written:
        folder = Path('work_dirs', Path(config).stem)
        if written.is_run:
            folder = Path(config).parent
        raise UsageError(
            f'{source} is a recipe, not a run: give {folder}, or a checkpoint, too'
        )
    return ModelFiles(config, given)


def find_config(path: str) -> str:
    """The path of a config, from a path or the name of a file of configs/own; else UsageError."""
    names = recipes()
    if is_hub_model(path):
        return path
    if path in names:
        return str(names[path])
    suffix = Path(path).suffix.lower()
    is_file = os.path.isfile(path)
    if suffix in WEIGHTS or (is_file and suffix not in ENDINGS):
        raise UsageError(
            f'config {path!r}: not a config ({", ".join(ENDINGS)}); give the folder of a run, '
            'or a config and its checkpoint'
        )
    if is_file:
        return path
    if os.path.isdir(path):
        return Run(Path(path)).config_file
    files = [file for file in files_beside(path) if file.endswith('.py')]
    meant = path.rpartition('=')[2]
    runs = []
    by_name = {}
    for folder in (Path(path).parent, Path('work_dirs')):
        for file in sorted(folder.glob('*/*.py')):
            runs.append(str(file.parent))
            by_name[file.parent.name] = runs[-1]
    if not os.path.isdir(meant):
        # configs/own/NAME.py, where no clone is, is meant as NAME.
        stem = Path(meant).stem
        meant = stem if stem in names else by_name.get(meant, meant)
    hint = did_you_mean(meant, [*names, *files, *runs])
    hint = hint or f'; recipes for own data: {", ".join(names)}'
    raise UsageError(
        f'config {path!r}: no such file (looked for {os.path.abspath(path)}){hint}'
    )


class Written(NamedTuple):
    """What a config of own data says."""

    settings: dict[str, Any]  # with 'task'
    is_run: bool


def read_written_settings(config: str) -> Written | None:
    """The settings in a config of own data; None if they are not plain, or it is another config."""
    if is_hub_model(config):
        return None
    try:
        values = values_in(Path(config).read_text(encoding='utf-8'))
    except (OSError, ValueError):
        return None
    own = values.get('own')
    is_run = 'own_files' in values
    if not isinstance(own, dict) or '_base_' in values or 'Ellipsis' in repr(own):
        return None
    more = dict(gpus=None) if is_run else dict(task=values.get('task'))
    return Written(own | more, is_run)


def recipes() -> dict[str, Path]:
    """The recipes of own data: the files of configs/own by their names."""
    return {file.stem: file for file in sorted((CONFIGS / 'own').glob('*.py'))}


def is_hub_model(source: str) -> bool:
    """Return whether a name is a model of the hub, or a folder with the files of one."""
    # One without the other is no run either.
    files = Path(source, 'config.json'), Path(source, 'model.safetensors')
    return source.startswith(HUB) or any(file.is_file() for file in files)


def check_checkpoint(path: str) -> None:
    """Raise UsageError for a path, not an address, where nothing is."""
    if not is_remote(path) and not os.path.exists(path):
        near = did_you_mean(path, files_beside(path))
        raise UsageError(f'checkpoint {path!r}: no such file{near}')


def check_path(path: Place) -> None:
    """Raise UsageError unless there is such a file or folder."""
    if not os.path.exists(path):
        near = did_you_mean(str(path), files_beside(str(path)))
        raise UsageError(f'{path}: no such file or folder{near}')


def check_ending(option: str, path: Place, endings: Iterable[str]) -> None:
    """Raise UsageError unless a path, which an option gives, has one of these suffixes."""
    if Path(path).suffix.lower() not in endings:
        raise UsageError(
            f'{option} {path}: give a name that ends with {" or ".join(endings)}'
        )


def files_beside(path: str) -> list[str]:
    """The files in the folder of a path."""
    place = Path(path).parent
    return [str(file) for file in sorted(place.iterdir())] if place.is_dir() else []
