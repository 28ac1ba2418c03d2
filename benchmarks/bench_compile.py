"""Backbones through torch.compile and as CUDA graphs, against eager mode."""

from __future__ import annotations

import copy
import time
from collections.abc import Callable, Sequence
from typing import TypeVar

import torch
from torch import Tensor, nn
from torch._dynamo.testing import CompileCounterWithBackend

from bench_backbone import outputs, work
from correctness import relative_error
from measure import Case, Row, Run, compare, name_of
from peers import Builder

Result = TypeVar('Result')
MAX_COMPILATIONS = 2  # of a whole model, for any number of image sizes


def bench_graph(
    device: torch.device,
    build: Builder,
    size: tuple[int, int],
    *,
    batch: int,
    dtype: torch.dtype,
) -> list[Row]:
    """A forward captured as a CUDA graph, against the same in eager mode."""
    row = dict(bench='graphs', mode='forward', height=size[0], width=size[1])
    row |= dict(batch=batch, dtype=name_of(dtype))
    model, image = built(build, device).eval(), random_image(batch, size, device)

    @torch.no_grad()
    def forward() -> list[Tensor]:
        # What autocast caches would be made in the graph's memory.
        with torch.autocast(device.type, dtype=dtype, cache_enabled=False):
            return outputs(model(image))

    replay, results = captured(forward)
    image.copy_(random_image(batch, size, device))  # not the image of the capture
    replay()
    error = largest_error(results, forward())
    cases = [
        Case('eager', lambda: forward),
        Case('graph', lambda: replay, dict(error=error, ok=error < 1e-2)),
    ]
    return [row | measured for measured in compare(cases, device, rounds=20, warmup=3)]


def captured(forward: Callable[[], Result]) -> tuple[Run, Result]:
    """A call as a CUDA graph: a function that runs it, and the result, which each run overwrites.

    Raises:
        RuntimeError: the call waits for the GPU, or does what else a graph cannot have.
    """
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):  # the warm-up that capture asks for
        for _ in range(3):
            forward()
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        result = forward()
    return graph.replay, result


def bench_compile(
    device: torch.device,
    build: Builder,
    sizes: Sequence[tuple[int, int]],
    *,
    batch: int,
    dtype: torch.dtype,
    rounds: int,
    by_blocks: bool = False,
    backend: str = 'inductor',
) -> list[Row]:
    """A model through ``torch.compile(dynamic=True, fullgraph=True)``: compilations and errors over
    images of some sizes, then times at the first one against eager mode.

    Args:
        by_blocks: compile each of the backbone's ``ordered_blocks`` and leave the rest as it is:
            one compilation for each kind of block.
    """
    torch.compiler.reset()
    if torch.__version__.startswith('2.11.'):  # as ``compile_blocks`` does
        torch._inductor.config.triton.coalesce_tiling_analysis = False
    counter = CompileCounterWithBackend(backend)
    model = built(build, device).eval()
    settings = dict(backend=counter, dynamic=True, fullgraph=True)
    if by_blocks:
        blocks = enumerate(model.ordered_blocks)
        kinds = {
            (block.attn.proj.out_features, i in model.window_blocks)
            for i, block in blocks
        }
        optimized, most = copy.deepcopy(model), len(kinds)
        optimized.compile_blocks(**settings)
    else:
        optimized, most = torch.compile(model, **settings), MAX_COMPILATIONS
    bench = 'compile by blocks' if by_blocks else 'compile'
    common = dict(bench=bench, batch=batch, dtype=name_of(dtype))
    full = dtype == torch.float32
    results, expected, started = [], [], time.monotonic()
    for size in sizes:
        image = random_image(batch, size, device)
        with (
            torch.no_grad(),
            torch.autocast(device.type, dtype=dtype, enabled=not full),
        ):
            results += outputs(optimized(image))
            expected += outputs(model(image))
    count, error = counter.frame_count, largest_error(results, expected)
    ok = count <= most and error <= (1e-4 if full else 5e-2)
    rows = [
        common
        | dict(
            mode='forward',
            implementation=f'compiled, {len(sizes)} sizes',
            compilations=count,
        )
        | dict(error=error, seconds=time.monotonic() - started, ok=ok)
    ]
    image = random_image(batch, sizes[0], device)
    for mode in ('forward', 'both'):
        cases = [
            Case('eager', work(model, image, mode, dtype)),
            Case('compiled', work(optimized, image, mode, dtype)),
        ]
        for row in compare(cases, device, rounds=rounds, warmup=3):
            row |= dict(mode=mode, height=sizes[0][0], width=sizes[0][1])
            rows.append(common | row)
    return rows


def largest_error(actual: Sequence[Tensor], expected: Sequence[Tensor]) -> float:
    """NaN if any is."""
    return torch.tensor(list(map(relative_error, actual, expected))).max().item()


def built(build: Builder, device: torch.device) -> nn.Module:
    """A model, its random weights made on the device."""
    with device:
        return build().to(device)


def random_image(batch: int, size: tuple[int, int], device: torch.device) -> Tensor:
    return torch.randn(batch, 3, *size, device=device)
