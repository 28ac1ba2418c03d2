"""CPU seconds of an export to ONNX, and the largest difference of the file in each program.

    PYTHONPATH=tests python benchmarks/export.py                      # all models, an hour
    PYTHONPATH=tests python benchmarks/export.py --models demo --docs

Small models of each kind, as in tests/export, and models of configs/demo, with random weights. Each
is exported by a process of its own, in one thread; imports do not count. Differences are relative
to the largest value, at six sizes, see `differences` in tests/helpers/exported_models.py. `--docs`
writes the table of docs/export.md from the results.
"""

import argparse
import csv
import json
import logging
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import onnx
import torch
from mmengine.config import Config
from torch import nn

from measure import environment, table, write_csv

ROOT = Path(__file__).parents[1]
RESULTS, PAGE = ROOT / 'benchmarks' / 'results' / 'export.csv', ROOT / 'docs' / 'export.md'
START, END = '<!-- from benchmarks/export.py -->\n', '<!-- end -->\n'
DEMOS = {
    'demo: DEIM': 'deim_vit_rope_mixed_shapes',
    'demo: DINO': 'dino_vitdet_rope_mixed_shapes',
    'demo: Mask2Former on ViT': 'mask2former_vit_rope_mixed_shapes',
    'demo: Mask2Former on Swin-T': 'mask2former_swin_rope_mixed_ade_mini',
}
COLUMNS = ('model', 'parameters', 'nodes', 'mb', 'cpu_s', 'checker', 'onnxruntime', 'openvino')


def main() -> None:
    from helpers.exported_models import KINDS

    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument('--models', default='', help='part of the names of models (all)')
    parser.add_argument('--docs', action='store_true', help='write the table of docs/export.md')
    parser.add_argument('--one', help=argparse.SUPPRESS)  # what another process measures
    args = parser.parse_args()
    if args.one:
        print(json.dumps(measured(args.one)))
        return
    rows = {row['model']: row for row in read()}
    for name in (*DEMOS, *KINDS):
        if args.models in name:
            command = [sys.executable, __file__, '--one', name]
            row = json.loads(subprocess.check_output(command, text=True).splitlines()[-1])
            rows[name] = row | environment(torch.device('cpu'))
            print(table([rows[name]], COLUMNS), flush=True)
            write_csv(RESULTS, list(rows.values()))
    if args.docs:
        write_page(list(rows.values()))


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
        onnx.checker.check_model(path, full_check=True)
        worst = differences(model, path, metadata)
        return dict(
            model=name,
            parameters=sum(parameter.numel() for parameter in model.parameters()),
            nodes=len(onnx.load(path).graph.node),
            mb=round(path.stat().st_size / 1e6, 1),
            cpu_s=round(seconds, 1),
            checker='ok',
            **{
                key.split()[0].lower().replace('onnx', 'onnxruntime'): x for key, x in worst.items()
            },
            programs=', '.join(worst),
        )


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


def write_page(rows: list[dict]) -> None:
    """Put the table of models and programs into docs/export.md."""
    lines = [
        '| model | nodes | CPU s | checker | ONNX Runtime | OpenVINO |',
        '|---|---:|---:|---|---:|---:|',
    ]
    for row in rows:
        found = (f'{float(row[key]):.0e}' for key in ('onnxruntime', 'openvino'))
        cells = row['model'], row['nodes'], row['cpu_s'], row['checker'], *found
        lines.append(f'| {" | ".join(map(str, cells))} |')
    text = PAGE.read_text()
    before, rest = text.split(START)
    PAGE.write_text(before + START + '\n'.join(lines) + '\n' + END + rest.split(END, 1)[1])


if __name__ == '__main__':
    main()
