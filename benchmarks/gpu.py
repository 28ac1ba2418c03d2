"""Check and measure everything on a GPU: results/gpu.md, results/gpu-*.csv.

    python benchmarks/gpu.py                        # all sections, until 45 minutes are over
    python benchmarks/gpu.py training --minutes 10  # one of them
    python benchmarks/gpu.py --pretend              # tiny sizes, without a GPU: does all of it run

Needs torch, triton, mmengine and mmcv; models of timm, mmdet and transformers and the rotation of
flash-attention are measured where they can be imported, and training steps need mmdet, mmseg and
mmcv's compiled operators. The jobs run in the order of their importance. A job that would not end
in time, by its estimate, is left out; one that fails does not stop the others, if need be in a new
process. Both have a row with the reason, and the page is written anew after each job. A second run
measures what is missing: jobs whose results are in results/gpu.jsonl for the same GPU, torch and
source files are not repeated.
"""

from __future__ import annotations

import argparse
import contextlib
import gc
import hashlib
import json
import os
import sys
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from unittest.mock import patch

import torch

import measure as measurement
from bench_backbone import bench_backbone
from bench_compile import bench_compile, bench_graph
from bench_realtime import bench_realtime
from bench_rotate import bench_rotate
from bench_two_gpus import bench_two_gpus
from correctness import correctness
from flagships import FLAGSHIPS, TINY
from measure import Row, clocks, environment, name_of, write_csv
from page import page
from parity import SIZE, architectures, parity
from peers import MIXED, swin, vit
from rope_dense.backbones import RoPENAT, RoPESwin, RoPEViT
from rope_dense.utils.disk import atomic_write_text
from rotations import SHAPES, RotationShape
from run import RESULTS, tables

BF16, FP16, FP32 = torch.bfloat16, torch.float16, torch.float32
SECTIONS = (
    'correctness parity rotation backbones realtime training graphs blocks compile two-gpus'
).split()
ROOT = Path(__file__).parents[1]
IMAGES = {  # of each shape
    'ViT-B, 512 px, mixed': 8,
    'ViT-B, 512 px, axial': 8,
    'ViT-B, 1024 px, mixed': 2,
    'DINOv3-L, 1024 px': 2,
    'Swin-T, stage 1, mixed': 2,
    'Swin-T, stage 3, mixed': 2,
}
COMPILED = ('ViT-B, 512 px, mixed', 'DINOv3-L, 1024 px', 'Swin-T, stage 1, mixed')
IMPLEMENTATIONS = ('triton', 'packed', 'definition')
MODELS = {  # names of each job to measure
    'vit': (
        'rope_dense, no position',
        'rope_dense, axial',
        'rope_dense, mixed',
        'timm, deit3 (no rope)',
        'timm, axial',
        'timm, mixed',
    ),
    'swin': (
        'mmdet',
        'rope_dense, no position',
        'rope_dense, mixed',
        'rope_dense, bias',
    ),
    'dinov3': ('rope_dense, no position', 'rope_dense, axial', 'timm, axial'),
    'vitdet': (
        'detectron2 / SAM form, window 14',
        'rope_dense, no position, window 14',
        'rope_dense, mixed, window 14',
        'rope_dense, mixed, window 16',
    ),
}
SHOWN = (
    'implementation values gradients grad_qkv grad_angles same_bits median_ms p20_ms p80_ms p99_ms '
    'median_ratio gb_per_s images_per_s peak_tensors_mb compilations peak_gb reserved_gb seconds '
    'error ok left_out'
).split()


@dataclass(frozen=True)
class Job:
    """A part of a section that can be left out.

    Attributes:
        section: its rows are in gpu-<section>.csv.
        seconds: a guess for an H100 or H200.
    """

    section: str
    name: str
    seconds: float
    run: Callable[[], list[Row]]


def main(argv: Sequence[str] | None = None) -> int:
    args = parse_args(argv)
    with pretending() if args.pretend else contextlib.nullcontext():
        return measure(
            args, (pretended_jobs if args.pretend else full_jobs)(torch.device('cuda'))
        )


def measure(args: argparse.Namespace, jobs: Sequence[Job]) -> int:
    device, deadline = torch.device('cuda'), time.monotonic() + 60 * args.minutes
    constants = environment(device)
    log = args.out / ('gpu-pretended.jsonl' if args.pretend else 'gpu.jsonl')
    source = dict(
        device=constants['device'], torch=constants['torch'], source=source_hash()
    )
    done, rows = read_log(log, source, args.failed), {}
    for job in jobs:
        if job.section not in (args.sections or SECTIONS):
            continue
        name, started = f'{job.section}, {job.name}', time.monotonic()
        if (new := done.get(name)) is None:
            new = [row | constants | clocks() for row in run_job(job, deadline)]
            append(log, source | dict(job=name, rows=new))
        rows.setdefault(job.section, []).extend(new)
        write_csv(args.out / f'gpu-{job.section}.csv', rows[job.section])
        atomic_write_text(args.out / 'gpu.md', page(rows, constants))
        when = 'before' if name in done else f'{time.monotonic() - started:.0f} s'
        print(f'{name}: {when}\n')
        print('\n'.join(tables(new, SHOWN)), flush=True)
        if name not in done and not can_go_on():
            restart(name, deadline)
    failed = [
        row for section in rows.values() for row in section if row.get('ok') is False
    ]
    for row in failed:
        print(f'NOT OK: {row["bench"]}, {row["work"]}')
    return 1 if failed else 0


def can_go_on() -> bool:
    """Whether the GPU still answers: an illegal access ends that for a process."""
    try:
        torch.cuda.synchronize()
    except RuntimeError:
        return False
    return True


def restart(failed: str, deadline: float) -> None:
    """Go on behind a job that failed, in a new process for the rest of the time."""
    minutes = (deadline - time.monotonic()) / 60
    more = ['--minutes', str(max(0.0, minutes)), '--failed', failed]
    sys.stdout.flush()
    os.execv(sys.executable, [sys.executable, *sys.argv, *more])


def read_log(
    file: Path, source: Row, failed: Sequence[str] = ()
) -> dict[str, list[Row]]:
    """Rows of the jobs that ended well before, for the same GPU, torch and source files.

    Args:
        failed: jobs of the same run, which are not to be repeated.
    """
    lines = file.read_text().splitlines() if file.exists() else []
    entries = [json.loads(line) for line in lines]
    return {
        entry['job']: entry['rows']
        for entry in entries
        if source.items() <= entry.items()
        and (
            entry['job'] in failed
            or not any(
                row.get('ok') is False or row.get('no_time') for row in entry['rows']
            )
        )
    }


def append(file: Path, entry: Row) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    with file.open('a') as stream:
        stream.write(json.dumps(entry) + '\n')


def source_hash() -> str:
    """Of the files that decide a result, where a copy has no history too."""
    files = sorted(
        path
        for part in ('rope_dense', 'benchmarks')
        for path in (ROOT / part).rglob('*.py')
    )
    return hashlib.sha256(b''.join(path.read_bytes() for path in files)).hexdigest()[
        :16
    ]


@contextlib.contextmanager
def pretending() -> Iterator[None]:
    """The GPU of the tests, which holds its values on the CPU."""
    sys.path.append(str(ROOT / 'tests'))
    from helpers.pretended_gpu import pretended_cuda, pretended_gpu

    with (
        pretended_cuda(),
        pretended_gpu(),
        patch.object(measurement, 'OVERWRITTEN', [8, 8]),
    ):
        yield


def parse_args(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        'sections', nargs='*', metavar='SECTION', help=', '.join(SECTIONS)
    )
    parser.add_argument(
        '--minutes', type=float, default=45, help='to end within (%(default)s)'
    )
    parser.add_argument(
        '--out', type=Path, default=RESULTS, help='folder (benchmarks/results)'
    )
    parser.add_argument('--failed', action='append', default=[], help=argparse.SUPPRESS)
    parser.add_argument(
        '--pretend', action='store_true', help='every part, tiny, without a GPU'
    )
    args = parser.parse_args(argv)
    if unknown := [name for name in args.sections if name not in SECTIONS]:
        parser.error(f'no section {unknown[0]!r}; there are {", ".join(SECTIONS)}')
    if not args.pretend and not torch.cuda.is_available():
        parser.error('PyTorch finds no CUDA device; --pretend does without')
    return args


def run_job(job: Job, deadline: float) -> list[Row]:
    """The rows of a job, or one that says why it has none."""
    common: Row = dict(bench=job.section, work=job.name)
    if time.monotonic() + job.seconds > deadline:
        reason = f'no time left for about {job.seconds:.0f} s'
        return [common | dict(left_out=reason, no_time=True)]
    try:
        return [common | row for row in job.run()]
    except Exception as error:  # whatever it is, the other jobs can be measured
        traceback.print_exc()
        first_line = str(error).partition('\n')[0]
        return [
            common | dict(left_out=f'{type(error).__name__}: {first_line}', ok=False)
        ]
    finally:
        torch.compiler.reset()
        gc.collect()
        with contextlib.suppress(
            RuntimeError
        ):  # of a kernel that failed: the next job says so
            torch.cuda.empty_cache()


def full_jobs(device: torch.device) -> list[Job]:
    shapes = {
        name: replace(shape, batch=IMAGES[name] * shape.batch)
        for name, shape in SHAPES.items()
    }
    bench = partial(backbones, device, rounds=10)
    vits = partial(bench, 'vit', 'base', sizes=[(512, 512)], batch=8)
    swins = partial(bench, 'swin', 'tiny', sizes=[(800, 1344)], batch=2)
    dinov3s = partial(bench, 'dinov3', 'large', sizes=[(1024, 1024)], batch=2)
    vitdets = partial(bench, 'vitdet', 'base', sizes=[(1024, 1024)], batch=2)
    dinov3 = partial(vit, 'dinov3_large')
    graph = partial(bench_graph, device, batch=1, dtype=BF16)
    compilation = partial(bench_compile, device, batch=2, dtype=BF16, rounds=10)
    mixed_vit, mixed_swin = partial(vit, rope=MIXED), partial(swin, rope=MIXED)
    sizes = [(512, 512), (512, 768), (640, 480), (750, 1333), (800, 1344)]
    rotate = partial(rotation, device, rounds=30)
    rotations = [(name, shape, BF16) for name, shape in shapes.items()]
    rotations.append((name := 'ViT-B, 512 px, mixed', shapes[name], FP32))
    steps = [
        (f'{name}, {precision}', partial(training, device, name, precision, size=size))
        for precision in ('bf16', 'fp16')
        for name, size in FLAGSHIPS.items()
    ]
    by_blocks = partial(compilation, by_blocks=True)
    two = partial(bench_two_gpus, device, size=(512, 512), batch=8, rounds=10)

    def latency(batch: int, dtype: torch.dtype) -> list[Row]:
        return bench_realtime(device, batch=batch, dtype=dtype)

    return [
        Job(
            'correctness',
            'all',
            30,
            partial(correctness, device, shapes, (BF16, FP16, FP32)),
        ),
        Job(
            'parity',
            'all',
            120,
            partial(parity, device, names=architectures(), size=SIZE),
        ),
        *(
            Job(
                'rotation',
                f'{name}, {name_of(dtype)}',
                12,
                partial(rotate, name, shape, dtype),
            )
            for name, shape, dtype in rotations
        ),
        Job('backbones', 'ViT-B, bfloat16', 15, partial(vits, dtype=BF16)),
        Job('backbones', 'Swin-T, bfloat16', 15, partial(swins, dtype=BF16)),
        Job('backbones', 'DINOv3-L, bfloat16', 15, partial(dinov3s, dtype=BF16)),
        Job('backbones', 'ViTDet-B, bfloat16', 15, partial(vitdets, dtype=BF16)),
        *(
            Job(
                'realtime',
                f'{name_of(dtype)}, batch {batch}',
                40,
                partial(latency, batch, dtype),
            )
            for dtype in (FP16, BF16)
            for batch in (1, 8)
        ),
        *(Job('training', name, 25, step) for name, step in steps),
        Job(
            'two-gpus',
            'ViT-B',
            40,
            partial(two, partial(mixed_vit, drop_path_rate=0.0)),
        ),
        Job('blocks', 'ViT-B, mixed', 25, partial(by_blocks, mixed_vit, sizes)),
        Job('blocks', 'DINOv3-L', 30, partial(by_blocks, dinov3, sizes)),
        Job('graphs', 'ViT-B, mixed', 5, partial(graph, mixed_vit, (512, 512))),
        Job('graphs', 'Swin-T, mixed', 5, partial(graph, mixed_swin, (800, 1344))),
        Job('blocks', 'Swin-T, mixed', 90, partial(by_blocks, mixed_swin, sizes[::-1])),
        Job('compile', 'ViT-B, mixed', 60, partial(compilation, mixed_vit, sizes)),
        Job(
            'compile',
            'Swin-T, mixed',
            80,
            partial(compilation, mixed_swin, sizes[::-1]),
        ),
        Job(
            'backbones',
            'ViT-B, compiled',
            150,
            partial(vits, dtype=BF16, compiled=True),
        ),
        Job(
            'backbones',
            'Swin-T, compiled',
            150,
            partial(swins, dtype=BF16, compiled=True),
        ),
        Job(
            'backbones',
            'DINOv3-L, compiled',
            150,
            partial(dinov3s, dtype=BF16, compiled=True),
        ),
        Job('backbones', 'ViT-B, float32', 25, partial(vits, dtype=FP32)),
        Job('backbones', 'Swin-T, float32', 20, partial(swins, dtype=FP32)),
        Job('backbones', 'DINOv3-L, float32', 35, partial(dinov3s, dtype=FP32)),
        Job('compile', 'DINOv3-L', 110, partial(compilation, dinov3, sizes)),
        Job(
            'compile',
            'ViT-B, float32',
            60,
            partial(compilation, mixed_vit, sizes, dtype=FP32),
        ),
        Job(
            'compile',
            'Swin-T, float32',
            80,
            partial(compilation, mixed_swin, sizes, dtype=FP32),
        ),
    ]


def pretended_jobs(device: torch.device) -> list[Job]:
    """Every function once, on something tiny and without a compiler."""
    import mmcv.ops  # noqa: F401  # which asks for a GPU when it is imported: not for this one

    window = RotationShape(6, (2, 3), 2, 8)
    prefix = RotationShape(2, (3, 2), 2, 8, 1, 'axial', 'half')
    shapes = {'window': window, 'prefix': prefix}
    tiny = partial(
        vit, dict(embed_dims=16, depth=2, num_heads=2), patch_size=8, rope=MIXED
    )
    sizes = [(32, 48), (40, 64), (64, 32)]
    swins = partial(
        backbones, device, 'swin', 'tiny', sizes=[(32, 64)], modes=['forward']
    )
    graph = partial(bench_graph, device, tiny, sizes[0])
    compilation = partial(bench_compile, device, tiny, sizes, batch=2, rounds=1)

    some = [(RoPEViT, 'deimv2_tiny'), (RoPESwin, 'tiny'), (RoPENAT, 'nat_mini')]
    two = partial(bench_two_gpus, torch.device('cpu'), size=sizes[0], batch=2, rounds=1)

    def step(name: str, precision: str) -> list[Row]:
        settings = dict(size=(64, 96), rounds=1, options=TINY[name])
        return training(device, name, precision, **settings)

    return [
        Job(
            'correctness',
            'all',
            1,
            partial(correctness, device, shapes, (BF16, FP16, FP32)),
        ),
        Job('parity', 'some', 1, partial(parity, device, names=some, size=(64, 80))),
        Job(
            'rotation',
            'window',
            1,
            partial(rotation, device, 'window', window, FP32, rounds=1),
        ),
        Job('backbones', 'Swin-T', 1, partial(swins, batch=1, dtype=FP32, rounds=1)),
        Job(
            'backbones',
            'compiled',
            1,
            partial(swins, batch=1, dtype=FP32, rounds=1, compiled=True),
        ),
        Job(
            'realtime',
            'batch 1',
            1,
            partial(bench_realtime, device, batch=1, dtype=BF16, side=160, rounds=1),
        ),
        *(
            Job('training', f'{name}, bf16', 1, partial(step, name, 'bf16'))
            for name in TINY
        ),
        Job(
            'training',
            'upernet_vit_rope_mixed, fp16',
            1,
            partial(step, 'upernet_vit_rope_mixed', 'fp16'),
        ),
        Job('two-gpus', 'ViT', 1, partial(two, tiny)),
        Job('graphs', 'ViT', 1, partial(graph, batch=1, dtype=BF16)),
        Job('blocks', 'ViT', 1, partial(compilation, dtype=FP32, by_blocks=True)),
        Job('compile', 'ViT', 1, partial(compilation, dtype=FP32)),
    ]


def rotation(
    device: torch.device,
    name: str,
    shape: RotationShape,
    dtype: torch.dtype,
    *,
    rounds: int,
) -> list[Row]:
    """The forms against a copy, and the implementations within attention against none."""
    common = dict(
        work=name, shape=shape, dtype=dtype, rounds=rounds, modes=('forward', 'both')
    )
    names = (*IMPLEMENTATIONS, 'stack (timm form)', 'complex (rope-vit form)')
    names += ('flash-attention', *('definition, compiled',) * (name in COMPILED))
    rows = bench_rotate(device, names=names, **common)
    return rows + bench_rotate(device, names=IMPLEMENTATIONS, attention=True, **common)


def backbones(
    device: torch.device, job: str, arch: str, **settings: object
) -> list[Row]:
    """Backbones of one job, see ``bench_backbone``."""
    return bench_backbone(job, arch, device, processes=0, names=MODELS[job], **settings)


def training(
    device: torch.device, name: str, precision: str, **settings: object
) -> list[Row]:
    """Steps of a flagship, see ``bench_training``; imported here, as it needs mmcv's operators,
    which the other sections do without."""
    from bench_training import bench_training

    return bench_training(device, name, precision, **settings)


if __name__ == '__main__':
    sys.exit(main())
