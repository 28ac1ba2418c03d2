"""The result of configs/own/adapt.py: the backbone alone, for ``own.weights`` of another task."""

from __future__ import annotations

from pathlib import Path

from mmengine.config import Config
from mmengine.registry import MODELS

from ..utils.atomic_write import atomic_write
from .own.fit import BACKBONE
from .run import Run
from .weights import load_from_source

PREFIX = 'backbone.'


def write_backbone(cfg: Config) -> Path:
    """Write the backbone of the last checkpoint of a run to its folder, adapters merged.

    A safetensors file in this package's layout, whose metadata names the architecture, the weights
    that the training started from, and the teacher's: their licences apply to it.
    """
    from safetensors.torch import save_file

    run = Run(Path(cfg.work_dir))
    stored = load_from_source(str(run.last))['state_dict']
    settings = dict(cfg.model.backbone, init_cfg=None)
    backbone = MODELS.build(settings)
    weights = {k.removeprefix(PREFIX): x for k, x in stored.items() if k.startswith(PREFIX)}
    backbone.load_state_dict(weights)
    if backbone.lora is not None:
        backbone.merge_lora()
    about = dict(format='pt', arch=str(settings.get('arch', settings['type'])))
    for name, part in (('weights', cfg.model.backbone), ('teacher', cfg.model.get('teacher'))):
        about[name] = str(((part or {}).get('init_cfg') or {}).get('checkpoint'))
    file = run.folder / BACKBONE
    with atomic_write(str(file)) as partial:
        save_file({k: x.contiguous() for k, x in backbone.state_dict().items()}, partial, about)
    return file
