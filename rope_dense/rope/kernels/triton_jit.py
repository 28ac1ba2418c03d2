"""The Triton kernel of the rotation. Importing this file imports Triton; ``triton_rotary`` does so
when it first launches the kernel.

Checked in tests/test_triton.py: compiled on a GPU where there is one, else in Triton's interpreter.
"""

from __future__ import annotations

import triton
import triton.language as tl

# Sizes that differ from call to call: the compiled kernel is the same for all.
SIZES = [
    'num_windows',
    'window_rows',
    'window_columns',
    'height',
    'width',
    'rows_each',
    'windows_each',
]


@triton.jit(do_not_specialize=SIZES)
def turn_kernel(
    q_in,
    k_in,
    q_out,
    k_out,
    q_rotated,
    k_rotated,
    columns,
    rows,
    x_positions,
    y_positions,
    partial_sums,
    in_strides,
    out_strides,
    rotated_strides,
    num_pairs,
    num_windows,
    window_rows,
    window_columns,
    height,
    width,
    rows_each,
    windows_each,
    P: tl.constexpr,
    ADJACENT: tl.constexpr,
    SHARED: tl.constexpr,
    BACKWARD: tl.constexpr,
    LEARNED: tl.constexpr,
    BLOCK_J: tl.constexpr,
    BLOCK_X: tl.constexpr,
):
    """Turn queries and keys from ``in`` to ``out``; with ``BACKWARD`` gradients, by the opposite
    angle.

    A program has one block of channel pairs in BLOCK_X columns of a window. It goes through
    ``rows_each`` rows and, in each, through ``windows_each`` windows: the table entries of its
    columns stay in registers, those of a row are loaded once, and their product serves all its
    windows, queries and keys alike. With ``LEARNED`` it also writes what its tokens add to the
    gradient of the frequencies, from the ``rotated`` queries and keys, to a slot of its own.

    An image has ``window_rows`` x ``window_columns`` windows. Strides are in elements: of images,
    rows and columns of windows, rows and columns of tokens, heads; those of channels are 1. Pairs
    are numbered across heads, j = head * P + pair, so that blocks fit whatever P is. A table keeps
    cosines and sines as a head keeps its pairs, adjacent or all first ones before all second ones:
    so every load is contiguous, and the thread that has a pair has its table entry too.
    """
    x_blocks = tl.cdiv(width, BLOCK_X)
    block = tl.program_id(0) // x_blocks
    x = (tl.program_id(0) % x_blocks * BLOCK_X + tl.arange(0, BLOCK_X))[:, None]
    if ADJACENT:  # one load takes both channels of BLOCK_J pairs
        c = (block * 2 * BLOCK_J + tl.arange(0, 2 * BLOCK_J))[None, :]
        head, channel, inside = c // (2 * P), c % (2 * P), c < 2 * num_pairs
        head_entries: tl.constexpr = 2 * P
    else:
        j = (block * BLOCK_J + tl.arange(0, BLOCK_J))[None, :]
        head, channel, inside = j // P, j % P, j < num_pairs
        head_entries: tl.constexpr = P
    if SHARED:
        entries = head_entries
        entry = channel
    else:
        entries = num_pairs // P * head_entries
        entry = head * head_entries + channel
    mask = (x < width) & inside
    column_cos, column_sin = load_pairs(
        columns + x * entries + entry, width * entries, mask, ADJACENT
    )
    at_row = x * 0 + entry  # the same for each column, loaded by the threads that need it
    at_in = x * in_strides[4] + head * in_strides[5] + channel
    at_out = x * out_strides[4] + head * out_strides[5] + channel
    at_rotated = x * rotated_strides[4] + head * rotated_strides[5] + channel
    along_x = tl.zeros((BLOCK_X, BLOCK_J), tl.float32)
    along_y = tl.zeros((BLOCK_X, BLOCK_J), tl.float32)

    first_row = tl.program_id(1).to(tl.int64) * rows_each  # 64 bits: offsets may need them
    first_window = tl.program_id(2).to(tl.int64) * windows_each
    for row in range(first_row, tl.minimum(first_row + rows_each, height)):
        row_cos, row_sin = load_pairs(
            rows + row * entries + at_row, height * entries, mask, ADJACENT
        )
        cos = row_cos * column_cos - row_sin * column_sin
        sin = row_cos * column_sin + row_sin * column_cos
        if BACKWARD:
            sin = -sin
        angle_grad = tl.zeros((BLOCK_X, BLOCK_J), tl.float32)
        for window in range(first_window, tl.minimum(first_window + windows_each, num_windows)):
            image = window // (window_rows * window_columns)
            down = window // window_columns % window_rows
            across = window % window_columns
            start = start_of_row(image, down, across, row, in_strides)
            q_a, q_b = load_pairs(q_in + start + at_in, P, mask, ADJACENT)
            k_a, k_b = load_pairs(k_in + start + at_in, P, mask, ADJACENT)
            if LEARNED:  # Im(conj(rotated) gradient)
                start = start_of_row(image, down, across, row, rotated_strides)
                a, b = load_pairs(q_rotated + start + at_rotated, P, mask, ADJACENT)
                angle_grad += a * q_b - b * q_a
                a, b = load_pairs(k_rotated + start + at_rotated, P, mask, ADJACENT)
                angle_grad += a * k_b - b * k_a
            start = start_of_row(image, down, across, row, out_strides)
            a, b = q_a * cos - q_b * sin, q_a * sin + q_b * cos
            store_pairs(q_out + start + at_out, P, mask, ADJACENT, a, b)
            a, b = k_a * cos - k_b * sin, k_a * sin + k_b * cos
            store_pairs(k_out + start + at_out, P, mask, ADJACENT, a, b)
        if LEARNED:
            along_x += angle_grad
            along_y += angle_grad * tl.load(y_positions + row)

    if LEARNED:
        along_x *= tl.load(x_positions + x, mask=x < width, other=0.0)
        slots = x_blocks * tl.num_programs(1) * tl.num_programs(2)
        slot = tl.program_id(2) * tl.num_programs(1) + tl.program_id(1)
        slot = slot * x_blocks + tl.program_id(0) % x_blocks
        j = block * BLOCK_J + tl.arange(0, BLOCK_J)
        to_sum = partial_sums + slot.to(tl.int64) * num_pairs + j
        tl.store(to_sum, tl.sum(along_x, 0), mask=j < num_pairs)
        to_sum += slots.to(tl.int64) * num_pairs
        tl.store(to_sum, tl.sum(along_y, 0), mask=j < num_pairs)


@triton.jit
def start_of_row(image, down, across, row, strides):
    """Where a row of the window begins that is ``down`` and ``across`` in the image."""
    window = image * strides[0] + down * strides[1] + across * strides[2]
    return window + row * strides[3]


@triton.jit
def load_pairs(first, second, mask, ADJACENT: tl.constexpr):
    """Both channels of pairs in float32. Adjacent ones are one contiguous load, split in registers;
    else the second is ``second`` elements behind the first."""
    if ADJACENT:
        both = tl.load(first, mask=mask, other=0.0).to(tl.float32)
        a, b = tl.split(tl.reshape(both, (both.shape[0], both.shape[1] // 2, 2)))
    else:
        a = tl.load(first, mask=mask, other=0.0).to(tl.float32)
        b = tl.load(first + second, mask=mask, other=0.0).to(tl.float32)
    return a, b


@triton.jit
def store_pairs(first, second, mask, ADJACENT: tl.constexpr, a, b):
    """The inverse of ``load_pairs``, rounding to what the pointers point to."""
    if ADJACENT:
        tl.store(first, tl.interleave(a, b), mask=mask)
    else:
        tl.store(first, a, mask=mask)
        tl.store(first + second, b, mask=mask)
