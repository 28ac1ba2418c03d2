"""Compile the Triton kernel for GPUs, which needs none, and print what kind of code it became.

``rope.triton`` launches the kernel as ever, on CPU tensors; in place of a GPU's driver, one that
only names its target, and in place of the launch, the compilation that precedes it. A program of
its own, since Triton must not be in its interpreter's mode.
"""

import json
import re
import subprocess
import tempfile
from collections import Counter
from collections.abc import Callable
from itertools import product
from pathlib import Path
from types import SimpleNamespace

import torch
import triton
from torch import Tensor
from triton.backends.compiler import GPUTarget
from triton.compiler import CompiledKernel
from triton.runtime import JITFunction, driver

from rope_dense.rope.triton import rotate, rotate_backward

PTXAS = Path(triton.__file__).with_name('backends') / 'nvidia' / 'bin' / 'ptxas'
HEADS, HEAD_DIM = 3, 64
compiled: list[CompiledKernel] = []


def compile_in_place_of_launch(kernel: JITFunction, grid: tuple[int]) -> Callable[..., None]:
    return lambda *args, **kwargs: compiled.append(kernel.warmup(*args, grid=grid, **kwargs))


def compile_for(capability: int) -> None:
    """Compile for GPUs of a compute capability from now on."""
    driver.set_active(
        SimpleNamespace(
            get_current_target=lambda: GPUTarget('cuda', capability, 32),
            get_current_device=lambda: capability,
            get_current_stream=lambda device: 0,
        )
    )


def run(qkv: Tensor, table_shape: tuple[int, ...], layout: str, learned: bool) -> CompiledKernel:
    """The kernel of the rotation, or of its backward with the gradient of the angles."""
    settings = torch.zeros(*table_shape, 2), layout, 1
    if learned:
        rotate_backward(qkv, *settings, qkv)
    else:
        rotate(qkv, *settings)
    return compiled[-1]


def make_qkv(batch: int, num_tokens: int, dtype: torch.dtype) -> Tensor:
    return torch.zeros(batch, num_tokens, 3, HEADS, HEAD_DIM, dtype=dtype)


def instructions(ptx: str) -> dict[str, int]:
    """Counts of memory instructions."""
    found = re.findall(r'\b(ld|st)\.(global|shared|local)\.(v4)?', ptx)
    return dict(Counter(' '.join(part for part in parts if part) for parts in found))


def registers(ptx: str) -> tuple[int, int]:
    """Registers of a thread, and bytes of them that are spilled to memory."""
    architecture = re.search(r'\.target (\w+)', ptx)[1]
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder, 'kernel.ptx')
        source.write_text(ptx)
        command = [PTXAS, '-v', f'-arch={architecture}', source, '-o', source.with_suffix('.cubin')]
        report = subprocess.run(command, capture_output=True, text=True, check=True).stderr
    return (
        int(re.search(r'Used (\d+) registers', report)[1]),
        int(re.search(r'(\d+) bytes spill stores', report)[1]),
    )


def report(capability: int, pairs: int, dtype: torch.dtype, layout: str, learned: bool) -> dict:
    compile_for(capability)
    ptx = run(make_qkv(2, 50, dtype), (49, HEADS, pairs), layout, learned).asm['ptx']
    used, spilled = registers(ptx)
    return dict(
        name=f'sm_{capability} {dtype} {layout} {learned=} {pairs=}',
        layout=layout,
        learned=learned,
        registers=used,
        spilled=spilled,
        instructions=instructions(ptx),
    )


if __name__ == '__main__':
    JITFunction.__getitem__ = compile_in_place_of_launch
    settings = (torch.bfloat16, torch.float32), ('interleaved', 'half'), (False, True)
    kernels = [
        report(*gpu, *values) for gpu in ((80, 32), (90, 16)) for values in product(*settings)
    ]
    before = {kernel.hash for kernel in compiled}
    for learned in (False, True):  # other sizes and kinds of tables: the same kernels
        for batch, num_tokens in ((1, 2), (3, 17), (5, 101)):
            qkv, positions = make_qkv(batch, num_tokens, torch.float32), num_tokens - 1
            for shape in ((positions, 1, 16), (positions, 3, 16), (batch, positions, 3, 16)):
                run(qkv, shape, 'half', learned)
    others = {kernel.hash for kernel in compiled} - before
    print(json.dumps(dict(kernels=kernels, kernels_for_other_sizes=len(others))))
