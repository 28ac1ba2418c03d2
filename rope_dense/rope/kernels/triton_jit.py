"""The Triton kernel of the rotation. Importing this file imports Triton: ``triton_rotary`` does so
when it first launches the kernel."""

import triton
import triton.language as tl

# Sizes that differ between images: one compiled kernel serves all of them.
SIZES = ['batch', 'num_tokens', 'num_prefix_tokens', 'images_each']


@triton.jit(do_not_specialize=SIZES)
def rotate_kernel(
    source,
    target,
    cos_sin,
    rotated,
    angle_grads,
    source_batch_stride,
    source_token_stride,
    source_part_stride,
    source_head_stride,
    target_batch_stride,
    target_token_stride,
    target_part_stride,
    target_head_stride,
    table_batch_stride,
    table_token_stride,
    table_head_stride,
    batch,
    num_tokens,
    num_prefix_tokens,
    images_each,
    H: tl.constexpr,
    D: tl.constexpr,
    P: tl.constexpr,
    PARTS: tl.constexpr,
    INTERLEAVED: tl.constexpr,
    BACKWARD: tl.constexpr,
    ANGLE_GRADS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Copy ``source`` [B, N, PARTS, H, D] to ``target``, the first two parts (queries and keys)
    rotated; with BACKWARD by the opposite angles.

    Each part of an image has H D / 2 pairs for each token, numbered consecutively. A program takes
    BLOCK consecutive numbers: it loads their cosines and sines once, and goes through the parts of
    ``images_each`` images. Prefix tokens and pairs behind the first P of a head are copied.

    With ANGLE_GRADS it also sums, over the queries and keys of its images, what they add to the
    gradient of each angle, from ``rotated`` (its strides are those of ``target``) and its gradient
    ``source``, to a slot of its own: ``angle_grads`` [slots, n, H, P].
    """
    blocks = tl.cdiv(num_tokens * (H * D // 2), BLOCK)
    block = tl.program_id(0) % blocks
    slot = (tl.program_id(0) // blocks).to(tl.int64)  # 64 bits: offsets may need them
    token, head, pair = locate(block * BLOCK + tl.arange(0, BLOCK), H, D // 2)
    position = token - num_prefix_tokens
    rotates = (token < num_tokens) & (position >= 0) & (pair < P)
    angle = (position * H + head) * P + pair

    # A cosine and its sine lie side by side, like both channels of an interleaved pair.
    entry_token, entry_head, entry = locate(block * 2 * BLOCK + tl.arange(0, 2 * BLOCK), H, D)
    entry_position = entry_token - num_prefix_tokens
    has_angle = (entry_token < num_tokens) & (entry_position >= 0) & (entry < 2 * P)
    table = entry_position * table_token_stride + entry_head * table_head_stride + entry
    cos, sin = load_pairs(cos_sin + slot * table_batch_stride + table, 0, has_angle, True)
    if BACKWARD:
        sin = -sin

    if INTERLEAVED:
        token, head, channel, second = entry_token, entry_head, entry, 0
    else:  # P first channels, P second ones, and the channels to copy as two halves, too
        channel, second = tl.where(pair < P, pair, pair + P), tl.where(pair < P, P, D // 2 - P)
    mask = token < num_tokens
    read = token * source_token_stride + head * source_head_stride + channel
    write = token * target_token_stride + head * target_head_stride + channel
    angle_grad = tl.zeros((BLOCK,), tl.float32)

    first = slot * images_each
    for image in range(first, tl.minimum(first + images_each, batch)):
        source_part = source + image * source_batch_stride + read
        start = image * target_batch_stride + write
        for part in tl.static_range(PARTS):
            a, b = load_pairs(source_part, second, mask, INTERLEAVED)
            if part < 2:
                if ANGLE_GRADS:
                    rotated_a, rotated_b = load_pairs(rotated + start, second, mask, INTERLEAVED)
                    angle_grad += rotated_a * b - rotated_b * a
                new_a, new_b = a * cos - b * sin, a * sin + b * cos
                a, b = tl.where(rotates, new_a, a), tl.where(rotates, new_b, b)
            store_pairs(target + start, second, mask, INTERLEAVED, a, b)
            source_part += source_part_stride
            start += target_part_stride

    if ANGLE_GRADS:
        slot_start = slot * (num_tokens - num_prefix_tokens) * (H * P)
        tl.store(angle_grads + slot_start + angle, angle_grad, mask=rotates)


@triton.jit
def locate(index, H: tl.constexpr, D: tl.constexpr):
    """The token and the head, in 64 bits, and the place in it of an index into [N, H, D]."""
    return (index // (H * D)).to(tl.int64), (index // D % H).to(tl.int64), index % D


@triton.jit
def load_pairs(first, second, mask, INTERLEAVED: tl.constexpr):
    """Both channels of pairs in float32. Interleaved ones are one contiguous load, split in
    registers; else the second is ``second`` elements behind the first."""
    a = tl.load(first, mask=mask, other=0.0).to(tl.float32)
    if INTERLEAVED:
        a, b = tl.split(tl.reshape(a, (a.shape[0] // 2, 2)))
    else:
        b = tl.load(first + second, mask=mask, other=0.0).to(tl.float32)
    return a, b


@triton.jit
def store_pairs(first, second, mask, INTERLEAVED: tl.constexpr, a, b):
    """The inverse of ``load_pairs``, rounding to what the pointers point to."""
    if INTERLEAVED:
        tl.store(first, tl.interleave(a, b), mask=mask)
    else:
        tl.store(first, a, mask=mask)
        tl.store(first + second, b, mask=mask)
