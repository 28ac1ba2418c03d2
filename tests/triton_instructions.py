"""Compile the Triton kernel for a GPU, which needs none, and print what kind of code it became.

A program of its own, since Triton must not be in its interpreter's mode.
"""

import json
import re
from collections import Counter

import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from rope_dense.rope.kernels.triton_jit import turn_kernel

VALUES = ('q_in', 'k_in', 'q_out', 'k_out', 'q_rotated', 'k_rotated')
TABLES = ('columns', 'rows', 'x_positions', 'y_positions', 'partial_sums')
STRIDES = ('in_strides', 'out_strides', 'rotated_strides')
ALIGNED = [['tt.divisibility', 16]]


def instructions(value_type: str, capability: int, **constants: int) -> dict[str, int]:
    """Counts of memory instructions in the kernel for heads of 64 channels."""
    constants = dict(P=32, SHARED=False, BLOCK_J=128, **constants)
    signature, attributes = {}, {}
    for index, name in enumerate(turn_kernel.arg_names):
        if name in constants:
            signature[name] = 'constexpr'
            continue
        if name in STRIDES:
            signature[name] = ('i32',) * 6
            attributes |= {(index, dim): ALIGNED for dim in range(6)}
            continue
        pointer = f'*{value_type}' if name in VALUES else '*fp32' if name in TABLES else None
        signature[name] = pointer or 'i32'
        if pointer or name == 'num_pairs':
            attributes[(index,)] = ALIGNED
    source = ASTSource(
        turn_kernel,
        signature,
        {(turn_kernel.arg_names.index(name),): value for name, value in constants.items()},
        attributes,
    )
    kernel = triton.compile(source, target=GPUTarget('cuda', capability, 32))
    found = re.findall(r'\b(ld|st)\.(global|shared|local)\.(v4)?', kernel.asm['ptx'])
    return dict(Counter(' '.join(part for part in parts if part) for parts in found))


if __name__ == '__main__':
    kernels = [
        dict(
            adjacent=adjacent,
            learned=learned,
            instructions=instructions(
                value_type,
                capability,
                ADJACENT=adjacent,
                BACKWARD=learned,
                LEARNED=learned,
                BLOCK_X=4 if learned else 8,
            ),
        )
        for value_type, capability, adjacent, learned in (
            ('bf16', 80, True, False),
            ('bf16', 90, False, False),
            ('fp32', 90, True, True),
        )
    ]
    print(json.dumps(kernels))
