"""CPU seconds of an export to ONNX, and the largest difference of the file in each program.

    PYTHONPATH=.:tests python benchmarks/export.py                      # all models, an hour
    PYTHONPATH=.:tests python benchmarks/export.py --models demo
    PYTHONPATH=.:tests python benchmarks/export.py --run work_dirs/demo/training # AP of a detector

Small models of each kind, as in tests/export, and models of configs/demo, with random weights. Each
is exported by a process of its own, in one thread; imports do not count. Differences are relative
to the largest value, at six sizes, see `differences` in tests/helpers/exported_models.py; in
JavaScript, too, if NODE_MODULES names a folder with onnxruntime-node and onnxruntime-web. `--run`
measures a trained detector in float32 and 8 bits: box AP on its test set in ONNX Runtime, and CPU
milliseconds of an image in one thread.
"""

import argparse
import csv
import json
import logging
import os
import subprocess
import sys
import tempfile
import time
from functools import partial
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import torch
from mmengine.config import Config
from pycocotools.coco import COCO
from pycocotools.cocoeval import COCOeval
from torch import nn

from measure import environment, table, write_csv
from rope_dense.export.compare import Runner

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / 'benchmarks' / 'results' / 'export.csv'
QUANTIZED, DTYPES = RESULTS.with_name('export-int8.csv'), ('fp32', 'int8')
DEMOS = {
    'demo: DEIM': 'deim_vit_rope_mixed_shapes',
    'demo: DINO': 'dino_vitdet_rope_mixed_shapes',
    'demo: Mask2Former on ViT': 'mask2former_vit_rope_mixed_shapes',
    'demo: Mask2Former on Swin-T': 'mask2former_swin_rope_mixed_ade_mini',
}
NODE_SCRIPT = ROOT / 'benchmarks' / 'export_node.mjs'
PROGRAMS = {  # the beginning of a program's name, and its column
    'ONNX Runtime': 'onnxruntime',
    'OpenVINO': 'openvino',
    'onnxruntime-node': 'node',
    'onnxruntime-web': 'web',
}
COLUMNS = ('model', 'parameters', 'nodes', 'mb', 'cpu_s', *PROGRAMS.values())


def main() -> None:
    from helpers.exported_models import KINDS

    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        '--models', default='', help='part of the names of models (all)'
    )
    parser.add_argument(
        '--run', help='folder of a trained detector, whose AP is measured'
    )
    parser.add_argument(
        '--one', help=argparse.SUPPRESS
    )  # what another process measures
    args = parser.parse_args()
    if args.one:
        print(json.dumps(measured(args.one)))
        return
    if args.run:
        about = environment(torch.device('cpu')) | dict(threads=1)
        results = [quantized(args.run, dtype) | about for dtype in DTYPES]
        print(table(results, ('dtype', 'mb', 'ap', 'ms')))
        write_csv(QUANTIZED, results)
        return
    rows = {row['model']: row for row in read()}
    for name in (*DEMOS, *KINDS):
        if args.models in name:
            command = [sys.executable, __file__, '--one', name]
            row = json.loads(
                subprocess.check_output(command, text=True).splitlines()[-1]
            )
            rows[name] = row | environment(torch.device('cpu')) | dict(threads=1)
            print(table([rows[name]], COLUMNS), flush=True)
            write_csv(RESULTS, list(rows.values()))


def measured(name: str) -> dict:
    """The figures of a model."""
    from helpers.exported_models import differences
    from rope_dense.export import export

    torch.set_num_threads(1)
    logging.disable(logging.WARNING)
    with tempfile.TemporaryDirectory() as folder:
        model, path = build(name, Path(folder)), Path(folder, 'model.onnx')
        import rope_dense.export.onnx_file  # noqa: F401  # imported before the clock starts

        started = time.process_time()
        metadata = export(model, path)
        seconds = time.process_time() - started
        worst = differences(model, path, metadata, javascript(path))
        return dict(
            model=name,
            parameters=sum(parameter.numel() for parameter in model.parameters()),
            nodes=len(onnx.load(path).graph.node),
            mb=round(path.stat().st_size / 1e6, 1),
            cpu_s=round(seconds, 1),
            **{
                PROGRAMS[name.rpartition(' ')[0]]: value
                for name, value in worst.items()
            },
            programs=', '.join(worst),
        )


def javascript(path: Path) -> dict[str, Runner]:
    """Programs for JavaScript that the folder NODE_MODULES has, by name and version."""
    found: dict[str, Runner] = {}
    for package in ('onnxruntime-node', 'onnxruntime-web'):
        about = Path(os.environ.get('NODE_MODULES', ''), package, 'package.json')
        if about.exists():
            version = json.loads(about.read_text())['version']
            found[f'{package} {version}'] = partial(run_node, package, path)
    return found


def run_node(package: str, path: Path, image: torch.Tensor) -> list[torch.Tensor]:
    """Outputs of a file, by a process of node."""
    with tempfile.TemporaryDirectory() as name:
        folder, values = Path(name), image.numpy()
        values.tofile(folder / 'input.bin')
        about = dict(type=str(values.dtype), dims=values.shape)
        (folder / 'input.json').write_text(json.dumps(about))
        subprocess.run(['node', NODE_SCRIPT, package, path, folder], check=True)
        outputs = []
        for out in json.loads((folder / 'output.json').read_text()):
            numbers = np.fromfile(folder / f'{out["key"]}.bin', out['type'])
            outputs.append(torch.from_numpy(numbers.reshape(out['dims'])))
    return outputs


def quantized(run: str, dtype: str) -> dict:
    """Size, box AP and milliseconds of a trained detector as a file."""
    from rope_dense.export.trained import export_model
    from rope_dense.project.checks.data import build_dataset
    from rope_dense.project.load import find_model

    results, times = [], []
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, 'model.onnx')
        export_model(run, None, path, dtype=dtype)
        size = path.stat().st_size / 1e6
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = 1
        session = onnxruntime.InferenceSession(path, options)
    cfg, loader = find_model(run, None)[0], 'test_dataloader'
    dataset = build_dataset(cfg, loader, cfg[loader].dataset)
    for data in map(dataset.__getitem__, range(len(dataset))):
        sample, started = data['data_samples'], time.process_time()
        found = session.run(None, {'image': data['inputs'][None].numpy()})
        times.append(time.process_time() - started)
        for score, box, label in zip(*(values[0] for values in found), strict=True):
            if score == 0:
                continue
            box = box / np.tile(sample.scale_factor, 2)
            kind, sides = dataset.cat_ids[label], box[2:] - box[:2]
            one = dict(image_id=sample.img_id, category_id=kind, score=float(score))
            results.append(one | dict(bbox=[*box[:2].tolist(), *sides.tolist()]))
    truth = COCO(dataset.ann_file)
    evaluation = COCOeval(truth, truth.loadRes(results), 'bbox')
    evaluation.evaluate(), evaluation.accumulate(), evaluation.summarize()
    milliseconds = 1000 * float(np.median(times))
    return dict(dtype=dtype, mb=size, ap=evaluation.stats[0], ms=milliseconds)


def build(name: str, folder: Path) -> nn.Module:
    """A model with random weights, the same in each process."""
    from helpers.exported import strong
    from helpers.exported_models import KINDS
    from rope_dense.project.model import build_model

    torch.manual_seed(0)
    if name in KINDS:
        return KINDS[name](folder)
    cfg = Config.fromfile(ROOT / 'configs' / 'demo' / f'{DEMOS[name]}.py')
    cfg.model.backbone.init_cfg = None  # no download
    return strong(build_model(cfg))


def read() -> list[dict]:
    """The rows that were measured before."""
    if not RESULTS.exists():
        return []
    with RESULTS.open(newline='') as file:
        return list(csv.DictReader(file))


if __name__ == '__main__':
    main()
