"""The Triton kernels of the rotation.

Importing this file imports Triton: ``triton_rotary`` does so when it first launches a kernel.
"""

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
    """Copy ``source`` [B, N, PARTS, H, D] to ``target``, queries and keys rotated.

    These are the first two parts. With BACKWARD they are rotated by the opposite angles. Each part
    of an image has H D / 2 pairs for each token, numbered consecutively. A program takes BLOCK
    consecutive numbers: it loads their cosines and sines once, and goes through the parts of
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
    """Both channels of pairs in float32.

    Interleaved ones are one contiguous load, split in registers; else the second is ``second``
    elements behind the first.
    """
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


@triton.jit(do_not_specialize=['batch', 'num_tokens', 'images_each'])
def apply_kernel(
    source,
    target,
    theta,
    rotated,
    theta_grad,
    source_batch_stride,
    source_head_stride,
    source_token_stride,
    source_channel_stride,
    target_batch_stride,
    target_head_stride,
    target_token_stride,
    target_channel_stride,
    theta_head_stride,
    theta_token_stride,
    theta_pair_stride,
    batch,
    num_tokens,
    images_each,
    HEADS: tl.constexpr,
    THETA_HEADS: tl.constexpr,
    P: tl.constexpr,
    LANES: tl.constexpr,
    DOUBLE: tl.constexpr,
    BACKWARD: tl.constexpr,
    THETA_GRAD: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Rotate ``source`` [B, HEADS, N, C] to ``target`` by ``theta`` [THETA_HEADS, N, P].

    With BACKWARD by the opposite angles. A token and head has LANES lanes: P pairs (t, t + P), and
    C - 2 P channels behind them that are copied, or none if ``target`` is ``source``. A program
    takes BLOCK lanes: it computes their cosines and sines once, in float64 if DOUBLE, else in
    float32, and goes through ``images_each`` images, and through all heads if they share angles.

    With THETA_GRAD, where a program goes through all images, it also sums the gradient of each
    angle, from ``rotated`` (its strides are those of ``target``) and its gradient ``source``, and
    writes it to ``theta_grad``, a contiguous tensor like ``theta``.
    """
    blocks = tl.cdiv(THETA_HEADS * num_tokens * LANES, BLOCK)
    index = tl.program_id(0) % blocks * BLOCK + tl.arange(0, BLOCK)
    lane = index % LANES
    token = (index // LANES % num_tokens).to(tl.int64)  # 64 bits: offsets may need them
    theta_head = (index // LANES // num_tokens).to(tl.int64)
    exists = theta_head < THETA_HEADS
    rotates = exists & (lane < P)

    place = theta_head * theta_head_stride + token * theta_token_stride + lane * theta_pair_stride
    precision = tl.float64 if DOUBLE else tl.float32
    angle = tl.load(theta + place, mask=rotates, other=0.0).to(precision)  # 0 copies
    cos, sin = tl.cos(angle), tl.sin(angle)
    if BACKWARD:
        sin = -sin

    channel = tl.where(lane < P, lane, lane + P)
    read = theta_head * source_head_stride + token * source_token_stride
    read += channel * source_channel_stride
    write = theta_head * target_head_stride + token * target_token_stride
    write += channel * target_channel_stride
    grad = tl.zeros((BLOCK,), precision)

    first = (tl.program_id(0) // blocks).to(tl.int64) * images_each
    for image in range(first, tl.minimum(first + images_each, batch)):
        for head in range(HEADS // THETA_HEADS):  # beside theta_head, which is 0 then
            start = source + image * source_batch_stride + head * source_head_stride + read
            a = tl.load(start, mask=exists, other=0.0).to(precision)
            b = tl.load(start + P * source_channel_stride, mask=rotates, other=0.0).to(precision)
            offset = image * target_batch_stride + head * target_head_stride + write
            second = offset + P * target_channel_stride
            if THETA_GRAD:
                rotated_a = tl.load(rotated + offset, mask=rotates, other=0.0).to(precision)
                rotated_b = tl.load(rotated + second, mask=rotates, other=0.0).to(precision)
                grad += rotated_a * b - rotated_b * a
            round_and_store(target + offset, a * cos - b * sin, exists)
            round_and_store(target + second, a * sin + b * cos, rotates)
    if THETA_GRAD:
        place = (theta_head * num_tokens + token) * P + lane
        round_and_store(theta_grad + place, grad, rotates)


@triton.jit
def round_and_store(pointers, values, mask):
    """Store values, half precision by way of float32.

    Triton's interpreter does not convert float64 to bfloat16.
    """
    if pointers.dtype.element_ty.primitive_bitwidth == 16:
        values = values.to(tl.float32)
    tl.store(pointers, values, mask=mask)
