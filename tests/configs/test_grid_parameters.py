"""Parameter counts of the grid against closed formulas.

Letters: C channels, L blocks, K channels of a head's convolutions.
"""

import pytest

from helpers.grid import GRID, Leaf, build_offline

VIT_SIZES = {'b': (768, 12), 'l': (1024, 24)}  # C, L
SWIN_SIZES = {'t': (96, (2, 2, 6, 2)), 's': (96, (2, 2, 18, 2)), 'b': (128, (2, 2, 18, 2))}
HEAD_DIM = {'ViT': 64, 'Swin': 32}


def linear(inputs: int, outputs: int) -> int:
    return inputs * outputs + outputs


def transformer_block(c: int) -> int:
    """Two norms, qkv, projection, and an MLP of 4 C."""
    return 2 * 2 * c + linear(c, 3 * c) + linear(c, c) + linear(c, 4 * c) + linear(4 * c, c)


def vit(leaf: Leaf) -> int:
    c, blocks = VIT_SIZES[leaf.size]
    count = linear(3 * 16**2, c) + blocks * (transformer_block(c) + 2 * c)  # with LayerScale
    if leaf.experiment == 'upernet_vit':
        count += c  # class token
    if 'mixed' in leaf.variant:
        count += 2 * blocks * c // 2  # x and y of each pair of channels
    if 'learned' in leaf.variant:
        count += blocks * c // 2  # x of half the pairs, y of the others
    if 'ape' in leaf.variant:
        count += c * (32**2 if leaf.experiment == 'upernet_vit' else 14**2)
    if (leaf.experiment, leaf.variant) == ('dino_vitdet', 'ape'):
        tables = 4 * (2 * 64 - 1) + (blocks - 4) * (2 * 14 - 1)  # 4 global blocks
        count += 2 * tables * HEAD_DIM['ViT']  # rows and columns
    return count


def swin(leaf: Leaf) -> int:
    c, depths = SWIN_SIZES[leaf.size]
    count = linear(3 * 4**2, c) + 2 * c  # patches and their norm
    for stage, blocks in enumerate(depths):
        width = c * 2**stage
        heads = width // HEAD_DIM['Swin']
        count += blocks * transformer_block(width)
        if 'mixed' in leaf.variant:
            count += blocks * 2 * width // 2
        if 'rpb' in leaf.variant:
            count += blocks * heads * (2 * 7 - 1) ** 2
        if stage < 3:
            count += 2 * 4 * width + 4 * width * 2 * width  # norm and reduction
        if stage > 0 or leaf.experiment == 'mask2former_swin':
            count += 2 * width  # output norm
    return count


def simple_fpn(c: int) -> int:
    """Three branches to 256 channels; the finest doubles the map and halves the channels."""
    upsampling = c * (c // 2) * 2**2 + c // 2
    outputs = [inputs * 256 + 2 * 256 + 256 * 256 * 3**2 + 2 * 256 for inputs in (c // 2, c, c)]
    return upsampling + sum(outputs)


def channel_mapper(inputs: list[int], extra_level: bool) -> int:
    """1 x 1 convolutions and GN, and a 3 x 3 one from the last map for one more level."""
    extra = linear(inputs[-1] * 3**2, 256) + 2 * 256 if extra_level else 0
    return sum(linear(channels, 256) + 2 * 256 for channels in inputs) + extra


def deformable_attention(levels: int) -> int:
    samples = 8 * levels * 4  # heads, levels, points
    return linear(256, 2 * samples) + linear(256, samples) + 2 * linear(256, 256)


def attention() -> int:
    return linear(256, 3 * 256) + linear(256, 256)


def ffn(hidden: int) -> int:
    return linear(256, hidden) + linear(hidden, 256)


def norms(number: int) -> int:
    return number * 2 * 256


def dino() -> int:
    """Transformer, queries, and heads of 4 levels and 80 classes."""
    encoder = 6 * (deformable_attention(4) + ffn(2048) + norms(2))
    decoder = 6 * (attention() + deformable_attention(4) + ffn(2048) + norms(3)) + norms(1)
    box = 2 * linear(256, 256) + linear(256, 4)
    return sum(
        (
            *(encoder, decoder),
            linear(512, 256) + linear(256, 256),  # positions of the reference boxes
            900 * 256 + 4 * 256 + 80 * 256,  # queries, levels, labels of denoising
            linear(256, 256) + norms(1),  # of the encoder's output
            7 * (linear(256, 80) + box),  # six decoder layers and the encoder
        )
    )


def upernet(c: int) -> int:
    """Pyramid, UperHead with K = C, and the auxiliary head; convolutions have BN and no bias."""

    def conv(inputs: int, outputs: int, kernel: int) -> int:
        return inputs * outputs * kernel**2 + 2 * outputs

    upsample = c * c * 2**2 + c
    pyramid = 3 * upsample + 2 * c
    pooling = 4 * conv(c, c, 1) + conv(c + 4 * c, c, 3)
    laterals = 3 * (conv(c, c, 1) + conv(c, c, 3))
    head = pooling + laterals + conv(4 * c, c, 3) + linear(c, 150)
    return pyramid + head + conv(c, 256, 3) + linear(256, 150)


def mask2former(inputs: list[int]) -> int:
    encoder = 6 * (deformable_attention(3) + ffn(1024) + norms(2)) + 3 * 256  # and level encoding
    maps = sum(linear(channels, 256) + norms(1) for channels in inputs[1:])
    finest = inputs[0] * 256 + norms(1) + 256 * 256 * 3**2 + norms(1)
    decoder = 9 * (2 * attention() + ffn(2048) + norms(3)) + norms(1)
    queries = 2 * 100 * 256 + 3 * 256
    heads = linear(256, 150 + 1) + 3 * linear(256, 256)
    return encoder + maps + finest + linear(256, 256) + decoder + queries + heads


def expected(leaf: Leaf) -> int:
    if leaf.is_vit:
        c = VIT_SIZES[leaf.size][0]
        if leaf.experiment == 'upernet_vit':
            return vit(leaf) + upernet(c)
        return vit(leaf) + simple_fpn(c) + channel_mapper([256] * 4, False) + dino()
    channels = [SWIN_SIZES[leaf.size][0] * 2**stage for stage in range(4)]
    if leaf.experiment == 'dino_swin':
        return swin(leaf) + channel_mapper(channels[1:], True) + dino()
    return swin(leaf) + mask2former(channels)


@pytest.mark.parametrize('leaf', GRID, ids=lambda leaf: leaf.name)
def test_parameters_follow_the_closed_formula(leaf: Leaf) -> None:
    model = build_offline(leaf)
    assert sum(param.numel() for param in model.parameters()) == expected(leaf)
