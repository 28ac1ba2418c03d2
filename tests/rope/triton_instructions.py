"""Compile the Triton kernel for GPUs, which needs none, and print what kind of code it became.

``rope.rotation_triton`` launches the kernel as ever, on CPU tensors; in place of a GPU's driver,
one that only names its target, and in place of the launch, the compilation that precedes it. A
program of its own, since Triton must not be in its interpreter's mode.
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

from rope_dense.rope.rotation_triton import rotate_triton, triton_backward

PTXAS = Path(triton.__file__).with_name('backends') / 'nvidia' / 'bin' / 'ptxas'
HEADS, HEAD_DIM = 3, 64
TARGETS = [
    GPUTarget('cuda', 80, 32),
    GPUTarget('cuda', 90, 32),
    GPUTarget('hip', 'gfx942', 64),
]
PAIRS = (32, 16, 32)  # for each target, as are the types
DTYPES = (torch.float32, torch.bfloat16, torch.bfloat16)
KINDS = ('forward', 'backward', 'learned')
compiled: list[CompiledKernel] = []


def compile_in_place_of_launch(
    kernel: JITFunction, grid: tuple[int]
) -> Callable[..., None]:
    return lambda *args, **kwargs: compiled.append(
        kernel.warmup(*args, grid=grid, **kwargs)
    )


def compile_for(target: GPUTarget) -> None:
    """Compile for GPUs of a kind from now on."""
    driver.set_active(
        SimpleNamespace(
            get_current_target=lambda: target,
            get_current_device=lambda: TARGETS.index(target),
            get_current_stream=lambda device: 0,
        )
    )


def run(
    qkv: Tensor, table_shape: tuple[int, ...], layout: str, kind: str
) -> CompiledKernel:
    """The kernel of the rotation, or of its backward, without or with the angles' gradient."""
    settings = torch.zeros(*table_shape, 2), layout, 1
    if kind != 'forward':
        triton_backward(qkv, *settings, qkv if kind == 'learned' else None)
    else:
        rotate_triton(qkv, *settings)
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
        command = [
            PTXAS,
            '-v',
            f'-arch={architecture}',
            source,
            '-o',
            source.with_suffix('.cubin'),
        ]
        report = subprocess.run(
            command, capture_output=True, text=True, check=True
        ).stderr
    return (
        int(re.search(r'Used (\d+) registers', report)[1]),
        int(re.search(r'(\d+) bytes spill stores', report)[1]),
    )


def amd_instructions(code: str) -> dict[str, int]:
    """Counts of memory instructions, by the number of 32-bit words of each."""
    found = re.findall(r'\b(buffer|global|flat|scratch)_(load|store)_(\w+)', code)
    return dict(Counter(' '.join(parts) for parts in found))


def amd_registers(code: str) -> tuple[int, int]:
    """Vector registers of a thread, and how many of all are spilled to memory."""
    (used,) = re.findall(r'\.vgpr_count: +(\d+)', code)
    return int(used), sum(map(int, re.findall(r'gpr_spill_count: +(\d+)', code)))


def narrow_offsets(ttir: str) -> set[str]:
    """Products of 32 bits with a size that is not a constant of the kernel."""
    products = re.findall(
        r'(%\w+) = arith\.muli %\w+, %(\w+) : (?:tensor<\w+xi32>|i32)', ttir
    )
    return {name for name, factor in products if not re.match(r'c\d+_', factor)}


def report(
    target: GPUTarget,
    pairs: int,
    dtype: torch.dtype,
    layout: str,
    kind: str,
    parts: int,
) -> dict:
    compile_for(target)
    asm = run(
        make_qkv(2, 50, dtype)[:, :, :parts], (49, HEADS, pairs), layout, kind
    ).asm
    is_amd = target.backend == 'hip'
    code = asm['amdgcn' if is_amd else 'ptx']
    used, spilled = (amd_registers if is_amd else registers)(code)
    return dict(
        name=f'{target.arch} {dtype} {layout} {kind} {pairs=} {parts=}',
        backend=target.backend,
        layout=layout,
        kind=kind,
        parts=parts,
        registers=used,
        spilled=spilled,
        instructions=(amd_instructions if is_amd else instructions)(code),
        sines=len(re.findall(r'\b(?:sin|cos)\.approx|v_(?:sin|cos)_', code)),
        narrow=sorted(narrow_offsets(asm['ttir'])),
    )


if __name__ == '__main__':
    JITFunction.__getitem__ = compile_in_place_of_launch
    settings = ('interleaved', 'half'), KINDS, (3, 1)
    kernels = [
        report(target, pairs, dtype, *values)
        for target, pairs, dtype in zip(TARGETS, PAIRS, DTYPES, strict=True)
        for values in product(*settings)
    ]
    compile_for(TARGETS[1])
    for kind in KINDS:
        run(make_qkv(2, 50, torch.float32), (49, 3, 16), 'half', kind)
    before = {kernel.hash for kernel in compiled}
    for kind in KINDS:  # other sizes and kinds of tables: the same kernels
        for batch, num_tokens in ((1, 2), (3, 17), (5, 101)):
            qkv, positions = make_qkv(batch, num_tokens, torch.float32), num_tokens - 1
            for shape in (
                (positions, 1, 16),
                (positions, 3, 16),
                (batch, positions, 3, 16),
            ):
                run(qkv, shape, 'half', kind)
    others = {kernel.hash for kernel in compiled} - before
    print(json.dumps(dict(kernels=kernels, kernels_for_other_sizes=len(others))))
