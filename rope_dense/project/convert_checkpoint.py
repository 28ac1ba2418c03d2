"""Convert the weights of a file between published layouts and ours."""

from pathlib import Path
from typing import Literal

import torch
from mmengine.registry import MODELS
from safetensors.torch import save_file

from ..checkpoints.detectors import convert_detector, find_detector, to_published
from ..checkpoints.fetch import fetch
from ..checkpoints.keys import Layout, Rows, StateDict, new_keys
from ..checkpoints.publishers import TARGETS, find_layout
from ..checkpoints.read import read_checkpoint
from ..checkpoints.weights import select_weights
from ..models.eomt.annealing import find_eomt, load_eomt
from ..utils.errors import UsageError
from ..utils.results import Results
from .building import build_part
from .load import Options, load_config

DETECTORS = ('deimv2', 'edgecrafter')


def convert_checkpoint(
    source: str,
    out: Path,
    *,
    to: Literal['ours', 'naver', 'timm', 'deimv2', 'edgecrafter'] = 'ours',
    config: str | None = None,
    cfg_options: Options = (),
    base: str | None = None,
    report: bool = False,
) -> None:
    """Write the weights of a backbone, of a real-time detector, or of an EoMT or PMT.

    Args:
        source: path, https:// address or hf-hub:owner/name.
        out: NAME.pth or NAME.safetensors; it is complete or absent, and replaces no file of the
            user's.
        to: layout to write.
        config, cfg_options: of a model with EoMT or PMT, whose published weights the source has.
        base: DINOv3's weights that such a source lacks, see ``read_eomt``.
        report: print each key, and its new one.

    Raises:
        UsageError, CheckpointError: the source or a setting does not fit, or cannot be read.
    """
    results = Results(out.parent, out.name, [source, config or '', base or ''])
    results.check([out])
    if config is not None:
        if to != 'ours' or report:
            raise UsageError(
                '--config: EoMT and PMT are converted to ours only, without --report'
            )
        cfg = load_config(config, cfg_options)
        model = build_part(cfg, 'model', MODELS, cfg.model)
        load_eomt(model.backbone, find_eomt(model), source, base)
        write_weights(model.state_dict(), results, out, 'state_dict')
        print(f'{out}: {len(model.state_dict())} tensors')
        return
    if base is not None or cfg_options:
        raise UsageError(
            '--base, --cfg-options: are of EoMT and PMT; give the --config'
        )
    contents = read_checkpoint(fetch(source), source)
    if to in DETECTORS or (to == 'ours' and find_detector(contents)):
        ours = select_weights(convert_detector(contents, source), '', source)
        converted = ours if to == 'ours' else to_published(ours, to)
        wrapper = 'state_dict' if to == 'ours' else 'model'
        write_weights(converted, results, out, wrapper)
        lines = [f'{key} {list(tensor.shape)}' for key, tensor in converted.items()]
        said = 'tensors of a whole detector'
    else:  # a backbone; a classifier's head is dropped
        weights = select_weights(contents, None, source)
        target = TARGETS[to]
        layout = find_layout(weights, source)
        ours = layout.to_ours(weights)
        converted = target.from_ours(ours)
        write_weights(converted, results, out, target.wrapper)
        lines = key_table(weights, layout, target.keys(ours)) if report else []
        said = f'tensors of {len(weights)} from {layout.name}'
    if report:
        print('\n'.join(lines))
    print(f'{out}: {len(converted)} {said}')


def write_weights(
    weights: StateDict, results: Results, path: Path, wrapper: str | None
) -> None:
    """Write a whole file, or none; ``wrapper`` is the key of the weights in a PyTorch file."""
    weights = {key: tensor.contiguous() for key, tensor in weights.items()}
    with results, results.write(path) as partial:
        if path.suffix == '.safetensors':
            save_file(weights, partial, metadata={'format': 'pt'})
        else:
            torch.save({wrapper: weights} if wrapper else weights, partial)


def key_table(weights: StateDict, layout: Layout, rows: Rows) -> list[str]:
    """A line for each key of the source; ``rows`` are our keys and the new ones."""
    lines = []
    for key, tensor in weights.items():
        new: list[str] = []
        for ours in new_keys(key, layout.keys):
            new += new_keys(ours, rows)
        name = ' + '.join(new).replace('%', '*') or 'dropped'
        if new == [key]:
            name = 'same'
        lines.append(f'{key} {list(tensor.shape)} -> {name}')
    return lines
