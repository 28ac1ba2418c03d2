"""The numbers of each figure, as rows of a table.

Lengths are in patches, x is the column and y the row.
"""

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from .attention import BlockStatistics
from .frequencies import (
    POINT_SETS,
    axial_reference,
    cross_reference,
    partial_sums,
    reconstruct,
    sequence_frequencies,
    series_of_dimensions,
)

REACH = 5  # patches from the middle of figure 1 to its edge
DECAY_REACH, DECAY_LENGTH = 16, 256
SEQUENCE = '1-D, D = 128, theta = 10000'
Rows = list[dict]


def square(reach: int) -> Tensor:
    """[(2 reach + 1)**2, 2], the (x, y) up to ``reach`` around (0, 0), row by row."""
    side = torch.arange(-reach, reach + 1).float()
    return torch.cartesian_prod(side, side).flip(-1)


def fourier_rows(name: str, freqs: Tensor) -> Rows:
    """Points from frequencies [2, P] called ``name``, and from the reference frequencies."""
    positions, rows = square(REACH), []
    references = {
        'axial, D = 64, theta = 100': axial_reference(),
        'axial + cross, D = 64': cross_reference(),
    }
    for label, frequencies in ({name: freqs} | references).items():
        for points in POINT_SETS:
            values = reconstruct(frequencies, torch.tensor(points).float(), positions)
            kind = dict(frequencies=label, points=' '.join(map(str, points)))
            rows += position_rows(kind, positions, dict(value=values))
    return rows


def decay_rows(name: str, freqs: Tensor) -> Rows:
    """B and ``|S_P|`` of ``partial_sums``.

    For frequencies [2, P], at offsets up to ``DECAY_REACH`` patches; and for the frequencies of a
    sequence, up to ``DECAY_LENGTH`` tokens.
    """
    rows = []
    along = torch.stack(
        [torch.arange(DECAY_LENGTH + 1), torch.zeros(DECAY_LENGTH + 1)], -1
    )
    sets = {
        SEQUENCE: (sequence_frequencies(), along),
        name: (freqs, square(DECAY_REACH)),
    }
    for label, (frequencies, offsets) in sets.items():
        sums = partial_sums(
            frequencies.double(), offsets[:, : len(frequencies)].double()
        )
        columns = dict(mean_partial_sum=sums.mean(-1), sum=sums[:, -1])
        rows += position_rows(
            dict(frequencies=label, pairs=sums.shape[-1]), offsets, columns
        )
    return rows


def position_rows(kind: dict, positions: Tensor, columns: Mapping[str, Tensor]) -> Rows:
    """A row for each position [n, 2] with its values, [n] each."""
    cells = zip(*(column.tolist() for column in columns.values()), strict=True)
    return [
        dict(kind, x=int(x), y=int(y)) | dict(zip(columns, values, strict=True))
        for (x, y), values in zip(positions.tolist(), cells, strict=True)
    ]


def angle_rows(name: str, freqs: Tensor) -> Rows:
    """Figure 4 of the fused-attention paper, and ``|F|`` of frequencies [2, h, P].

    The figure has 256 and 512 channels; all are in order, head after head.
    """
    series = {
        (f'{dims} channels', label): values
        for dims in (256, 512)
        for label, values in series_of_dimensions(dims).items()
    }
    of_model = f'{2 * freqs[0].numel()} rotated channels', f'{name} (unit: a patch)'
    series[of_model] = freqs.norm(dim=0).flatten()
    return [
        dict(channels=channels, frequencies=label, index=index, radians=value)
        for (channels, label), values in series.items()
        for index, value in enumerate(values.tolist())
    ]


def attention_rows(
    label: str, num_images: int, size: int, statistics: Sequence[BlockStatistics]
) -> Rows:
    """A row for each block, for images of ``size`` x ``size`` pixels."""
    return [
        dict(
            label=label,
            images=num_images,
            size=size,
            block=block.block,
            stride=block.stride,
            distance_patches=block.distance,
            distance_px=block.distance_px,
            entropy_nats=block.entropy,
        )
        for block in statistics
    ]
