"""Load checkpoints of whole models strictly, also when mmengine loads them; write a backbone."""

import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Protocol, runtime_checkable

import torch
from mmengine.config import Config
from mmengine.registry import MODELS
from mmengine.runner import CheckpointLoader
from torch import Tensor, nn

from ..backbones.base import Backbone
from ..checkpoints.channels import (
    RGB,
    WHOLE,
    adapt_channels,
    channels_text,
    example_of_sources,
    rgb_keys,
)
from ..checkpoints.class_rows import has_rows, keep_rows
from ..checkpoints.detectors import convert_detector
from ..checkpoints.errors import keys_text
from ..checkpoints.fetch import Location, fetch
from ..checkpoints.keys import StateDict
from ..checkpoints.read import keep_read, read_ahead, read_checkpoint
from ..checkpoints.weights import check_plain, select_weights
from ..utils.config_parts import nodes
from ..utils.disk import HUB, TRAINING, WEB, is_remote
from ..utils.errors import UsageError
from ..utils.results import Results
from .contents import check_angle_convention, class_info, datasets_of, stored_classes
from .own.fit import BACKBONE
from .own.settings import other_names
from .run import Run

Reader = Callable[[str, str], dict]  # of a file, by its name in errors
TRAINING_STATE = ('meta', 'message_hub', 'optimizer')


@runtime_checkable
class SelfLoadingModel(Protocol):
    """A model that converts published checkpoints on its own."""

    def load_checkpoint(self, checkpoint: str) -> None:
        """Load a file, address or name on the hub."""


def load_from_source(filename: str, map_location: object = None) -> dict:
    """``read_checkpoint`` with our keys for mmengine, on the CPU whatever `map_location` is."""
    return convert_detector(read_checkpoint(fetch(filename), filename), filename)


def patch_mmengine_reader() -> None:
    """Let mmengine read files, addresses and the hub with ``read_checkpoint``.

    Its own reader, of 0.10.12, runs code from a file that ``weights_only`` refuses.
    """
    CheckpointLoader.register_scheme(['', *WEB, HUB], load_from_source, force=True)


def resolve_resume(cfg: Config, resume: str) -> None:
    """Resume from a checkpoint file or, for 'auto', from the last one in the work_dir, if any."""
    path = Run(Path(cfg.work_dir)).last if resume == 'auto' else resume
    if path is None:
        print(
            f'--resume: no checkpoint in {cfg.work_dir}, training starts from the beginning'
        )
        return
    cfg.resume = True
    cfg.load_from = path


def check_initial_weights(cfg: Config, model: nn.Module) -> None:
    """Check the files that training starts from: Pretrained `init_cfg`s, and `load_from` or resume.

    Their contents are kept for the Runner, which reads the same files next. An address of a whole
    model is left to ``check_fetched_weights``.

    Raises:
        CheckpointError: a file cannot be read.
        UsageError: it does not fit, lacks finite weights or the training state to resume; or
            `model.pretrained` of a stock config names a zoo's weights.
    """
    given = str(cfg.model.get('pretrained') or '')  # mmseg gives it to the backbone
    backbone = getattr(model, 'backbone', None)
    is_used = isinstance(backbone, Backbone) and not cfg.model.backbone.get('init_cfg')
    if is_used and '://' in given and not given.startswith(WEB):
        raise UsageError(
            f'model.pretrained={given!r}: weights of the backbone that {type(backbone).__name__} '
            'replaces; set model.pretrained=None, and give weights by model.backbone.init_cfg'
        )
    for key, node in nodes(cfg.model, 'model'):
        if key.endswith('init_cfg') and node.get('type') == 'Pretrained':
            checkpoint = node.get('checkpoint')
            if not is_remote(checkpoint):
                read_ahead(fetch(checkpoint), f'{key}.checkpoint {str(checkpoint)!r}')
    check_same_as(cfg)
    path = cfg.get('load_from')
    if path and not is_remote(path):
        prepare_start(cfg, model, path)


def check_fetched_weights(cfg: Config, model: nn.Module) -> None:
    """Check a `load_from` or resume to download, after processes are connected: one fetches it."""
    path = cfg.get('load_from')
    if path and str(path).startswith((*WEB, HUB)):
        prepare_start(cfg, model, path)


def prepare_start(cfg: Config, model: nn.Module, path: str) -> None:
    """Check a whole model to start from or to resume; its weights get the model's channels."""
    origin = f'{"--resume" if cfg.get("resume") else "load_from"} {path!r}'
    checkpoint, weights = read_checkpoint_weights(path, origin)
    check_angle_convention(cfg, checkpoint)
    if not cfg.get('resume'):
        adapt_to_channels(cfg, model, weights, origin)
        check_whole_backbone(model, weights, origin)
        check_finite(weights, origin)
        keep_class_rows(cfg, model, checkpoint, weights)
        leave_out_misfits(weights, model)
        keep_read(fetch(path), checkpoint | {'state_dict': weights})
        return
    missing = [key for key in TRAINING_STATE if key not in checkpoint]
    if missing:
        raise UsageError(
            f'{origin}: no training run to continue, the file has no {", ".join(missing)}. To '
            f'start from its weights: --cfg-options load_from={path}'
        )
    load_complete(model, weights, origin)


def names_same_as(cfg: Config) -> dict[str, str]:
    """``other_names`` of ``own.same_as``; {} where a config has none."""
    return other_names((cfg.get('own') or {}).get('same_as') or ())


def check_same_as(cfg: Config) -> None:
    """Raise UsageError for names of ``own.same_as`` that no label and no model can have."""
    names = names_same_as(cfg).keys() - cfg.get('own_renamed', ())
    if names and not cfg.get('load_from') and not cfg.get('resume'):
        raise UsageError(
            f'own.same_as: the labels have no {", ".join(sorted(names))}; it names classes of '
            '--load-from, which is not given'
        )


def say_class_rows(cfg: Config, model: nn.Module) -> None:
    """Say which rows of classes a training keeps, if the file that it starts from is here.

    UsageError as of a training.
    """
    check_same_as(cfg)
    path = cfg.get('load_from')
    if path and not cfg.get('resume') and os.path.isfile(path):
        origin = f'load_from {path!r}'
        read = read_checkpoint_weights(path, origin, read_checkpoint)
        keep_class_rows(cfg, model, *read)


def keep_class_rows(
    cfg: Config, model: nn.Module, checkpoint: dict, weights: StateDict
) -> None:
    """Give weights to start from the rows of the training's classes, in place; says which stay.

    Their names are equal, or equal by ``own.same_as``. UsageError for a name there that neither
    has.
    """
    expected = model.state_dict()
    if not cfg.get('train_dataloader'):
        return
    _, dataset = next(datasets_of(cfg, 'train_dataloader'))
    names = list(class_info(cfg, dataset).get('classes') or ())
    stored = list(stored_classes(checkpoint).get('classes', ()))
    if not stored and any(map(has_rows, expected)):
        print(
            'load_from: the file does not name its classes: of as many classes rows stay in their '
            'order, else they start anew'
        )
    if not stored or not names:
        return
    same_as = names_same_as(cfg)
    others = [*stored, *cfg.get('own_renamed', ())]
    for theirs, ours in same_as.items():
        if ours not in names or theirs not in others:
            raise UsageError(
                f'own.same_as={ours}={theirs}: ours are {", ".join(names)}, theirs '
                f'{", ".join(others)}'
            )
    if stored == names:
        return
    given = [same_as.get(name, name) for name in stored]
    sources = [given.index(name) if name in given else None for name in names]
    kept = []
    is_sharded = cfg.get('runner_type', 'Runner') != 'Runner'  # then there are no rows
    if not is_sharded and keep_rows(weights, expected, sources, len(stored)):
        kept = [name for name in names if name in given]
    said = dict(
        kept=kept,
        new=[name for name in names if name not in kept],
        left=[name for name in given if name not in names],
    )
    parts = [f'{word}: {", ".join(some) or "none"}' for word, some in said.items()]
    print(f'load_from: classes {"; ".join(parts)}')


def check_class_names(cfg: Config, loader: str, checkpoint: dict) -> None:
    """Compare the classes of a checkpoint with the classes of a dataloader.

    A warning names both if they differ; UsageError for the same words in another order.
    """
    stored = list(stored_classes(checkpoint).get('classes', ()))
    if not stored or not cfg.get(loader):
        return
    for key, dataset in datasets_of(cfg, loader):
        names = list(class_info(cfg, dataset).get('classes') or ())
        if not names or stored == names:
            continue
        text = f'classes of the checkpoint: {", ".join(stored)}; of {key}: {", ".join(names)}'
        if sorted(stored) == sorted(names):
            raise UsageError(
                f'{text}: give {key}.metainfo.classes in the order of the checkpoint'
            )
        print(f'warning: {text}', file=sys.stderr)


def preload_tested_weights(path: str, model: nn.Module) -> dict:
    """``load_tested_weights`` where a Runner reads the same file next, for which it is kept."""
    if path.startswith((*WEB, HUB)) and 'LOCAL_RANK' in os.environ:
        return {}  # the first process of a distributed run downloads it for all, later
    return load_tested_weights(path, model, read_ahead)


def load_tested_weights(
    path: str, model: nn.Module, reader: Reader = read_checkpoint
) -> dict:
    """Load the checkpoint of a test into a model; return its contents.

    CheckpointError or UsageError if it cannot be read, does not fit, or is not finite.
    """
    origin = f'checkpoint {path!r}'
    if isinstance(model, SelfLoadingModel):
        model.load_checkpoint(path)
        check_finite(model.state_dict(), origin)
        return {}
    checkpoint, weights = read_checkpoint_weights(path, origin, reader)
    load_complete(model, weights, origin)
    return checkpoint


def read_checkpoint_weights(
    path: Location, origin: str, reader: Reader = read_ahead
) -> tuple[dict, StateDict]:
    """The contents of a checkpoint, by default kept for ``load_from_source``, and its weights.

    UsageError if it has none where mmengine looks for them, CheckpointError for odd ones.
    """
    checkpoint = convert_detector(reader(fetch(path), origin), origin)
    entries = checkpoint.get('state_dict', checkpoint)
    weights = {}
    if isinstance(entries, dict):
        for key, value in entries.items():
            if isinstance(value, Tensor):
                weights[key] = value
    if not weights:
        raise UsageError(
            f"{origin}: no weights under 'state_dict' or at the top, where mmengine looks for "
            f'them; the file has {keys_text(checkpoint, 8)}'
        )
    check_plain(weights, origin)
    plain = {key.removeprefix('module.'): value for key, value in weights.items()}
    return checkpoint, plain


def load_complete(model: nn.Module, weights: StateDict, origin: str) -> None:
    """Load weights into a model; UsageError unless complete (mmengine only warns) and finite."""
    empty = [key for key, weight in weights.items() if weight.is_meta]
    if empty:
        raise UsageError(
            f'{origin}: has no values (meta device) for {keys_text(empty)}'
        )
    problem = try_load_weights(model, weights, ('num_batches_tracked',))
    if problem:
        raise UsageError(
            f'{origin} does not fit the config: {problem}; give the config and the --cfg-options '
            'that it was trained with'
        )
    check_finite(weights, origin)


def check_finite(weights: StateDict, origin: str) -> None:
    """Raise UsageError for numbers that are NaN or infinite, as a diverged training leaves."""
    wrong = [key for key, weight in weights.items() if not torch.isfinite(weight).all()]
    if wrong:
        raise UsageError(
            f'{origin}: {len(wrong)} of {len(weights)} weights are not finite, such as '
            f'{keys_text(wrong, 2)}: its training diverged; take an earlier checkpoint'
        )


def check_whole_backbone(model: nn.Module, weights: StateDict, origin: str) -> None:
    """Raise UsageError unless a checkpoint to start from has all of the model's backbone.

    Of a model without a backbone, one weight has to fit.
    """
    part = model
    start = ''
    may_lack: tuple[str, ...] = ('',)  # anything
    backbone = getattr(model, 'backbone', None)
    if isinstance(backbone, nn.Module):
        part = backbone
        start = 'backbone.'
        may_lack = ('num_batches_tracked', '.lora.down', '.lora.up')
    elif not weights.keys() & model.state_dict().keys():
        may_lack = ()
    own = {}
    for key, weight in weights.items():
        if key.startswith(start):
            own[key.removeprefix(start)] = weight
    problem = try_load_weights(part, own, may_lack)
    if start and not problem:
        modules = dict(part.named_modules())
        more = sorted(own.keys() - part.state_dict().keys())
        lost = [key for key in more if key.rpartition('.')[0] in modules]
        if lost:
            problem = f'it has {len(lost)} weights more, such as {keys_text(lost, 3)}'
    if problem:
        raise UsageError(
            f'{origin} does not fit the {"backbone" if start else "model"} of the config: '
            f'{problem}; give the --weights (None begins with convolutions) or --cfg-options that '
            'it was trained with. Weights of a backbone alone are for model.backbone.init_cfg='
            "dict(type='Pretrained', checkpoint=...)"
        )


def adapt_to_channels(
    cfg: Config, model: nn.Module, weights: StateDict, origin: str
) -> None:
    """Adapt the RGB weights of a checkpoint to start from to a model of other channels, in place.

    UsageError or CheckpointError if `load_channels` of the config is missing, or wrong.
    """
    numbers = {*rgb_keys(model, weights, WHOLE).values()} - {len(RGB)}
    if not numbers:
        return
    channels = cfg.get('load_channels')
    if channels is None:
        number = max(numbers)
        raise UsageError(
            f'{origin} is for RGB images, and the model has {number} channels: give '
            f"load_channels='mean', or the source of each channel, "
            f'such as {example_of_sources(number)}'
        )
    changed = adapt_channels(model, weights, channels, WHOLE)
    print(f'load_from: {keys_text(changed)} adapted to {channels_text(channels)}')


def leave_out_misfits(weights: StateDict, model: nn.Module) -> None:
    """Remove weights whose shape differs from the model's, in place, and say so.

    A head of other classes has such weights; mmengine would print a line for each.
    """
    own = model.state_dict()
    misfits = []
    for key, weight in weights.items():
        if key in own and own[key].shape != weight.shape:
            misfits.append(key)
    if misfits:
        parts = ', '.join(sorted({key.split('.')[0] for key in misfits}))
        first = misfits[0]
        old = tuple(weights[first].shape)
        new = tuple(own[first].shape)
        print(
            f'load_from: {len(misfits)} weights of {parts} start anew, as their shapes differ: '
            f'{first} {old} -> {new} ...'
        )
    for key in misfits:
        del weights[key]


def try_load_weights(
    module: nn.Module, weights: StateDict, may_lack: tuple[str, ...]
) -> str:
    """Load weights, which may lack keys with these ends; returns what does not fit, else ''."""
    try:
        missing = module.load_state_dict(weights, strict=False).missing_keys
    except RuntimeError as error:  # a heading, then one line for each size mismatch
        return ' '.join(str(error).split('\n')[1:2]).strip().rstrip('.') or str(error)
    missing = [key for key in missing if not key.endswith(may_lack)]
    if not missing:
        return ''
    return f'it lacks {len(missing)} weights, such as {keys_text(missing, 3)}'


def write_backbone(cfg: Config) -> None:
    """Write the backbone of a run's last checkpoint to its folder, adapters merged.

    It is the result of configs/own/adapt.py, for ``own.weights`` of another task: a safetensors
    file in this package's layout, whose metadata names the architecture, the weights that the
    training started from, and the teacher's: their licences apply to it. After sliding windows it
    names the largest ``img_size`` of the training, too.
    """
    from safetensors.torch import save_file

    run = Run(Path(cfg.work_dir))
    settings = cfg.model.backbone
    last = str(run.last)
    backbone = MODELS.build(dict(settings, init_cfg=None))
    backbone.load_state_dict(select_weights(load_from_source(last), 'backbone.', last))
    if backbone.lora is not None:
        backbone.merge_lora()
    about = dict(format='pt', arch=str(settings.get('arch', settings.type)))
    parts = dict(weights=settings, teacher=cfg.model.get('teacher') or {})
    for name, part in parts.items():
        about[name] = str((part.get('init_cfg') or {}).get('checkpoint'))
    if cfg.model.type == 'SlidingDistiller':
        about['teacher'] = f'sliding windows of {about["weights"]}'
        about['img_size'] = str(cfg.model.data_preprocessor.size)
    weights = {key: x.contiguous() for key, x in backbone.state_dict().items()}
    with Results(run.folder, TRAINING).write(run.folder / BACKBONE) as partial:
        save_file(weights, partial, about)
