"""Exported files in programs and tools of others: the largest difference, or what they say.

    PYTHONPATH=.:tests:SITE python benchmarks/export_programs.py             # all, half an hour
    PYTHONPATH=.:tests:SITE python benchmarks/export_programs.py --models DEIM --programs tract

SITE is a folder with the packages of the programs: pip install --target SITE --no-deps tract ncnn
pnnx onnxslim onnxoptimizer onnxsim onnxconverter-common coremltools executorch MNN. What is absent
is left out. Small models with random weights, as in tests/export; each cell is a process of its
own, as programs may abort. A file has dynamic sizes; where the program needs one, `fixed` is in its
name. Differences are relative to the largest value, at the size of the file or at three sizes.
Tools that change files are followed by ONNX Runtime. coremltools converts only: it runs on macOS.
"""

import argparse
import csv
import json
import logging
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import torch

from measure import environment, table, write_csv

RESULTS = Path(__file__).parent / 'results' / 'export-programs.csv'
MODELS = 'RoPEViT', 'RoPESwin', 'linear, depth', 'EoMT, semantic', 'DEIM', 'Mask R-CNN'
SIZE = 96, 128  # of fixed files
SECONDS = 600  # of a cell
Outputs = list[torch.Tensor]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument('--models', default='', help='part of the names (all)')
    parser.add_argument('--programs', default='', help='part of the names (all)')
    parser.add_argument('--cell', nargs=3, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.cell:
        print(json.dumps(measured(*args.cell)))
        return
    rows = {}
    if RESULTS.exists():
        with RESULTS.open(newline='') as file:
            rows = {row['model']: row for row in csv.DictReader(file)}
    for name in MODELS:
        if args.models not in name:
            continue
        row = rows.setdefault(name, dict(model=name))
        with tempfile.TemporaryDirectory() as folder:
            for program in ('export', *PROGRAMS):
                if program == 'export' or args.programs in program:
                    said = cell(program, name, folder).replace(folder, '')
                    print(f'{name}: {program}: {said}', flush=True)
                    row[program] = said
        del row['export']
        rows[name] = row | environment(torch.device('cpu')) | dict(threads=1)
        write_csv(RESULTS, list(rows.values()))
    print(table(list(rows.values()), ('model', *PROGRAMS)))


def cell(program: str, name: str, folder: str) -> str:
    """The difference of a program, or the last line of its error."""
    command = [sys.executable, __file__, '--cell', program, name, folder]
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=SECONDS, check=False
        )
    except subprocess.TimeoutExpired:
        return f'more than {SECONDS} s'
    if done.returncode == 0:
        return json.loads(done.stdout.splitlines()[-1])
    lines = (done.stderr.strip() or done.stdout.strip()).splitlines()
    return f'stops: {lines[-1][:160] if lines else done.returncode}'


def measured(program: str, name: str, given: str) -> str:
    """The difference of a program for a model, whose files are in the folder."""
    from helpers.exported_models import KINDS
    from rope_dense.export.compare import largest_difference
    from rope_dense.export.exporter import graph_for

    folder = Path(given)
    torch.set_num_threads(1)
    torch.manual_seed(0)
    logging.disable(logging.WARNING)
    model = KINDS[name](folder)
    if program == 'export':
        return export_files(model, folder)
    metadata = json.loads((folder / 'model.json').read_text())
    graph = graph_for(model, metadata)
    sizes = [(1, *SIZE)]
    if 'fixed' not in program:
        height, width = graph.generic
        sizes += [(1, height, width), (2, height + 9, 2 * width + 5)]
    run = PROGRAMS[program](folder)
    if run is None:
        return 'converts'
    worst = 0.0
    for size in sizes:
        image = graph.example(*size)
        with torch.no_grad():
            expected = graph(image)
        worst = max(worst, largest_difference(graph, run(image), expected))
    return f'{worst:.0e}'


def export_files(model: torch.nn.Module, folder: Path) -> str:
    """A file with dynamic sizes, one of one size, and an archive of one size, if there is one."""
    from rope_dense.export import export

    export(model, folder / 'model.onnx')
    export(model, folder / 'fixed.onnx', size=SIZE, batch=1)
    try:
        export(model, folder / 'fixed.pt2', size=SIZE, batch=1)
    except ValueError as error:
        return str(error)
    return 'written'


def session(path: Path) -> Callable[[torch.Tensor], Outputs]:
    """A file in ONNX Runtime."""
    from rope_dense.export.compare import runners

    return next(iter(runners(path).values()))


def openvino(folder: Path) -> Any:
    from rope_dense.export.compare import runners

    found = runners(folder / 'model.onnx')
    return next(run for name, run in found.items() if name.startswith('OpenVINO'))


def onnxslim(folder: Path) -> Any:
    import onnxslim

    onnx.save(onnxslim.slim(str(folder / 'model.onnx')), folder / 'slim.onnx')
    return session(folder / 'slim.onnx')


def onnxoptimizer(folder: Path) -> Any:
    import onnxoptimizer

    onnx.save(onnxoptimizer.optimize(read(folder)), folder / 'optimized.onnx')
    return session(folder / 'optimized.onnx')


def onnxsim(folder: Path) -> Any:
    import onnxsim

    onnx.save(onnxsim.simplify(read(folder))[0], folder / 'sim.onnx')
    return session(folder / 'sim.onnx')


def half_common(folder: Path) -> Any:
    from onnxconverter_common import float16

    changed = float16.convert_float_to_float16(read(folder), keep_io_types=True)
    onnx.save(changed, folder / 'half.onnx')
    return session(folder / 'half.onnx')


def half_transformers(folder: Path) -> Any:
    from onnxruntime.transformers import float16

    changed = float16.convert_float_to_float16(read(folder), keep_io_types=True)
    onnx.save(changed, folder / 'half.onnx')
    return session(folder / 'half.onnx')


def mnn(folder: Path) -> Any:
    # Not by MNN.tools.mnnconvert, which installs a package that reports its use.
    convert = 'import sys, _tools; _tools.mnnconvert(sys.argv)'
    command = [sys.executable, '-c', convert, '-f', 'ONNX']
    given = ['--modelFile', folder / 'model.onnx', '--MNNModel', folder / 'model.mnn']
    done = subprocess.run(
        [*command, *given], capture_output=True, text=True, check=False
    )
    if not (folder / 'model.mnn').exists():
        raise RuntimeError(' '.join((done.stdout + done.stderr).split()[-20:]))


def tract_fixed(folder: Path) -> Any:
    import tract

    model = tract.onnx().load(str(folder / 'fixed.onnx')).into_model()
    runnable = model.into_runnable()
    return lambda image: [
        torch.from_numpy(x.to_numpy().copy()) for x in runnable.run([image.numpy()])
    ]


def ncnn_fixed(folder: Path) -> Any:
    import pnnx

    binary = Path(pnnx.EXEC_PATH)
    kind = read(folder).graph.input[0].type.tensor_type.elem_type
    suffix = 'u8' if kind == onnx.TensorProto.UINT8 else 'f32'
    shape = f'inputshape=[1,3,{SIZE[0]},{SIZE[1]}]{suffix}'
    done = subprocess.run(
        [binary, 'fixed.onnx', shape], cwd=folder, capture_output=True, check=False
    )
    if not (folder / 'fixed.ncnn.param').exists():
        lines = (done.stdout + done.stderr).decode().splitlines()
        raise RuntimeError(f'pnnx: {lines[-1] if lines else done.returncode}')
    import ncnn

    net = ncnn.Net()
    net.opt.use_fp16_storage = net.opt.use_fp16_arithmetic = False
    if net.load_param(str(folder / 'fixed.ncnn.param')):
        raise RuntimeError('ncnn cannot load what pnnx has written')
    net.load_model(str(folder / 'fixed.ncnn.bin'))

    def run(image: torch.Tensor) -> Outputs:
        extractor = net.create_extractor()
        pixels = image[0].float().numpy()
        extractor.input('in0', ncnn.Mat(np.ascontiguousarray(pixels)))
        names = net.output_names()
        found = [np.array(extractor.extract(name)[1]) for name in names]
        return [torch.from_numpy(x)[None] for x in found]

    return run


def coremltools_fixed(folder: Path) -> Any:
    import coremltools

    program = torch.export.load(folder / 'fixed.pt2').run_decompositions({})
    coremltools.convert(program)


def executorch_fixed(folder: Path) -> Any:
    from executorch.exir import to_edge
    from executorch.runtime import Runtime

    program = torch.export.load(folder / 'fixed.pt2')
    written = to_edge(program).to_executorch().buffer
    method = Runtime.get().load_program(written).load_method('forward')
    return lambda image: [x.clone() for x in method.execute([image])]


def read(folder: Path) -> onnx.ModelProto:
    return onnx.load(folder / 'model.onnx')


PROGRAMS: dict[str, Callable[[Path], Any]] = {
    'ONNX Runtime': lambda folder: session(folder / 'model.onnx'),
    'OpenVINO': openvino,
    'onnxsim': onnxsim,
    'onnxslim': onnxslim,
    'onnxoptimizer': onnxoptimizer,
    'fp16, onnxconverter': half_common,
    'fp16, ONNX Runtime': half_transformers,
    'MNN': mnn,
    'tract, fixed': tract_fixed,
    'ncnn, fixed': ncnn_fixed,
    'coremltools, fixed': coremltools_fixed,
    'executorch, fixed': executorch_fixed,
}


if __name__ == '__main__':
    main()
