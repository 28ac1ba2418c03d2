"""The result of configs/own/adapt.py: the backbone alone, for ``own.weights`` of another task."""

from pathlib import Path

from mmengine.config import Config
from mmengine.registry import MODELS

from ..checkpoints.weights import select_weights
from ..utils.results import Results
from ..utils.run_files import TRAINING
from .own.fit import BACKBONE
from .run import Run
from .weights import load_from_source


def write_backbone(cfg: Config) -> None:
    """Write the backbone of a run's last checkpoint to its folder, adapters merged.

    A safetensors file in this package's layout, whose metadata names the architecture, the weights
    that the training started from, and the teacher's: their licences apply to it.
    """
    from safetensors.torch import save_file

    run, settings = Run(Path(cfg.work_dir)), cfg.model.backbone
    last = str(run.last)
    backbone = MODELS.build(dict(settings, init_cfg=None))
    backbone.load_state_dict(select_weights(load_from_source(last), 'backbone.', last))
    if backbone.lora is not None:
        backbone.merge_lora()
    about = dict(format='pt', arch=str(settings.get('arch', settings.type)))
    for name, part in (('weights', settings), ('teacher', cfg.model.get('teacher') or {})):
        about[name] = str((part.get('init_cfg') or {}).get('checkpoint'))
    with Results(run.folder, TRAINING).write(run.folder / BACKBONE) as partial:
        save_file({k: x.contiguous() for k, x in backbone.state_dict().items()}, partial, about)
