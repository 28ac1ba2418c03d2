"""Inputs of a file with what it has to compute, for programs that cannot run here.

An archive of NumPy: N_image and N_OUTPUT of each case N, and metadata, the JSON of the file.
"""

import json
from itertools import product
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from zipfile import BadZipFile

import numpy as np
import torch

from ..utils.errors import UsageError
from ..utils.results import Results
from .compare import input_shapes, largest_difference, runners
from .file_model import metadata_of
from .graphs import TOO_MUCH

TOO_MUCH_IN_HALF = 0.1  # of the largest value


def check_file(
    file: Path, write: Path | None = None, results: Path | None = None
) -> None:
    """Write the cases of a file, or compare what another program computes for them.

    Args:
        file: NAME.onnx or NAME.pt2, of ``export``.
        write: archive to write, NAME.npz, with images of three sizes.
        results: archive with the outputs of another program by the same names.

    Raises:
        UsageError: outputs are missing or wrong, and the first is named; or there are none.
    """
    metadata = metadata_of(file)
    cases = cases_of(file, metadata)
    if write is not None:
        with Results(write.parent, write.name) as owned, owned.write(write) as part:
            arrays: Any = dict(cases, metadata=json.dumps(metadata))
            np.savez(part, **arrays)
        print(f'{write}: images and outputs {", ".join(sorted(cases))}')
    if results is not None:
        compare_results(results, read_arrays(results), cases, metadata)
        print(f'{results}: as {file}')


def cases_of(file: Path, metadata: dict) -> dict[str, np.ndarray]:
    """Images of noise, and what the first program here computes for them."""
    run = next(iter(runners(file).values()), None)
    if run is None:
        raise UsageError(f"{file}: needs onnxruntime: pip install 'rope_dense[export]'")
    about = metadata['input']
    resize = metadata['resize'] or metadata['resized'] or dict(scale=[320, 256])
    sides = map(max, resize['scale'][::-1], metadata['smallest_size'])
    generic: Any = SimpleNamespace(generic=tuple(sides))
    noise = np.random.default_rng(0)
    found = {}
    has_output = False
    for number, (batch, *size) in enumerate(input_shapes(generic, metadata)):
        pixels = noise.integers(0, 256, (batch, about['channels'], *size))
        image = pixels.astype(about['dtype'])
        found[f'{number}_image'] = image
        outputs = run(torch.from_numpy(image))
        for name, out in zip(metadata['outputs'], outputs, strict=True):
            found[f'{number}_{name}'] = out.numpy()
            has_output |= out.numel() > 0
    if not has_output:
        raise UsageError(
            f'{file}: no detection in noise reaches its score; judge one exported without --score'
        )
    return found


def read_arrays(path: Path) -> dict[str, np.ndarray]:
    """The arrays of an archive by name; UsageError if there are none."""
    try:
        with np.load(path) as found:
            return dict(found)
    except (ValueError, EOFError, BadZipFile) as error:
        raise UsageError(f'{path}: no arrays as numpy.savez writes them') from error


def compare_results(
    path: Path,
    found: dict[str, np.ndarray],
    cases: dict[str, np.ndarray],
    metadata: dict,
) -> None:
    """Print the difference of each output; UsageError with the first that is missing or wrong."""
    limit = TOO_MUCH if metadata['backbone_dtype'] == 'fp32' else TOO_MUCH_IN_HALF
    tasks = metadata.get('tasks') or dict(all=metadata)
    groups = [x['outputs'] for x in tasks.values() if x['task'] == 'detection']
    grouped = [name for names in groups for name in names]
    single = [[name] for name in metadata['outputs'] if name not in grouped]
    images = [key.partition('_')[0] for key in cases if key.endswith('_image')]
    for number, names in product(images, groups + single):
        keys = [f'{number}_{name}' for name in names]
        missing = [key for key in keys if key not in found]
        if missing:
            raise UsageError(f'{path}: has no {missing[0]}, but {", ".join(found)}')
        theirs = [torch.from_numpy(found[key]) for key in keys]
        ours = [torch.from_numpy(cases[key]) for key in keys]
        for key, x, y in zip(keys, theirs, ours, strict=True):
            given, right = list(x.shape), list(y.shape)
            if len(names) > 1:  # detections, whose number may differ by rounding
                right[1:2] = theirs[0].shape[1:2]
            if given != right:
                raise UsageError(f'{path}: {key} is {given}, right is {right}')
        difference = case_difference(names, theirs, ours)
        said = f'{", ".join(keys)}: {difference:.1e} of the largest value'
        print(said)
        if not difference <= limit:
            raise UsageError(f'{path}: {said}, above {limit}')


def case_difference(
    names: list[str], theirs: list[torch.Tensor], ours: list[torch.Tensor]
) -> float:
    """The difference of one output, of labels their share that differ, or of a detector."""
    if names[0].endswith('labels'):
        return float((theirs[0] != ours[0]).float().mean())
    detections = [names] if len(names) > 1 else []
    graph: Any = SimpleNamespace(outputs=names, detections=detections)
    return largest_difference(graph, theirs, ours)
