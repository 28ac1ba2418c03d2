"""Window plans: indexes that gather the tokens of a grid into windows, and back.

Letters: B images, H x W token grid, W windows of all images, n tokens of a window, C channels,
P prefix tokens (class token and registers).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from ..utils.memo import is_tracing, memo
from ..utils.sizes import Size
from ..utils.upload import can_upload, upload
from ..utils.validation import check_size, is_integer, refuse
from .archs import WindowSetting
from .layers import may_differ, padding_to_multiple


@dataclass(frozen=True, eq=False)
class WindowPlan:
    """Indexes that gather the tokens of a batch of images into windows, and back.

    Windows that attend without a mask come first, then those with one. A place without a token, in
    a window that reaches over the edge of the grid, is padding.

    Each window can have a copy of the prefix tokens in front of its n tokens. The copies of all
    windows of an image are in front of the tokens of its grid then, and count as tokens: an image
    has N = H W tokens without copies, and W / B P + H W with them.

    Attributes:
        window_size: (height, width) of a window.
        num_windows: of an image, W / B.
        num_copies: prefix tokens that each window has a copy of; P or 0.
        shape: (B, N).
        num_unmasked: windows that attend without a mask.
        gather_index: [W (num_copies + n)] the token of each place, an index into the flattened
            [B N]; 0 for padding.
        inverse_index: [B N] the place of each token.
        is_padding: [W (num_copies + n)] bool, the places that have no token; None if all have one.
        padding_index: the places where ``is_padding``; None while tracing, too.
        mask: [W - num_unmasked, 1, n or 1, keys] bool, which keys (columns) a token may attend to;
            None if ``num_unmasked`` is W.
    """

    window_size: Size
    num_windows: int
    num_copies: int
    shape: tuple[int, int]
    num_unmasked: int
    gather_index: Tensor
    inverse_index: Tensor
    is_padding: Tensor | None = None
    padding_index: Tensor | None = None
    mask: Tensor | None = None

    def partition(self, x: Tensor, padding: Tensor | None = None) -> Tensor:
        """Gather tokens of the images, [B, N, ...], into windows, [W, num_copies + n, ...].

        Args:
            x: the tokens.
            padding: [...], the value of places without a token; None for zeros.
        """
        rows = x.flatten(0, 1).flatten(1)
        fill = None if padding is None else padding.to(x.dtype).flatten()
        to_windows = self.gather_index, self.padding_index
        windows = gather(rows, fill, *to_windows, self.inverse_index, None, self.is_padding)
        height, width = self.window_size
        places = self.num_copies + height * width
        return windows.unflatten(0, (-1, places)).unflatten(2, x.shape[2:])

    def unpartition(self, windows: Tensor) -> Tensor:
        """Gather the tokens of windows, [W, num_copies + n, C], into images, [B, N, C]."""
        rows = windows.flatten(0, 1)
        tokens = gather(rows, None, self.inverse_index, None, self.gather_index, self.padding_index)
        return tokens.view(*self.shape, windows.shape[-1])

    def copy_prefix(self, x: Tensor) -> Tensor:
        """Copy the prefix tokens into each window: [B, P + H W, C] to [B, N, C]."""
        if not self.num_copies:
            return x
        prefix, tokens = x[:, : self.num_copies], x[:, self.num_copies :]
        return torch.cat([prefix.repeat(1, self.num_windows, 1), tokens], 1)

    def mean_prefix(self, x: Tensor) -> Tensor:
        """Average the copies of each prefix token: [B, N, C] to [B, P + H W, C]."""
        if not self.num_copies:
            return x
        number = self.num_windows * self.num_copies
        copies, tokens = x[:, :number], x[:, number:]
        copies = copies.unflatten(1, (self.num_windows, self.num_copies))
        return torch.cat([copies.mean(1), tokens], 1)


def gather(
    x: Tensor,
    fill: Tensor | None,
    index: Tensor,
    places: Tensor | None,
    inverse: Tensor,
    inverse_places: Tensor | None,
    is_filled: Tensor | None = None,
) -> Tensor:
    """``Gather``, or operations that can be traced.

    Args:
        is_filled: [S] bool, true at ``places``; None for nowhere.
        others: see ``Gather``, in its order.
    """
    if not is_tracing():
        return Gather.apply(x, fill, index, places, inverse, inverse_places)
    out = x.index_select(0, index)
    if is_filled is None:
        return out
    return torch.where(is_filled[:, None], x.new_zeros(()) if fill is None else fill, out)


class Gather(torch.autograd.Function):
    """``x[index]`` with a gather as backward: no row of x is in the result twice.

    Args:
        x: [R, C].
        fill: [C] or None for zeros, what is at ``places`` of the result.
        index: [S] rows of x.
        places: rows of the result that are not of x, or None.
        inverse: [R] rows of the result.
        inverse_places: rows of x that are not in the result, or None.

    Returns:
        [S, C].
    """

    @staticmethod
    def forward(
        x: Tensor,
        fill: Tensor | None,
        index: Tensor,
        places: Tensor | None,
        inverse: Tensor,
        inverse_places: Tensor | None,
    ) -> Tensor:
        out = x.index_select(0, index)
        if places is not None and fill is None:
            out.index_fill_(0, places, 0.0)  # assigned, a number would be uploaded to a GPU
        elif places is not None and fill is not None:
            out[places] = fill
        return out

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple, output: Tensor) -> None:
        _, _, *indexes = inputs
        ctx.save_for_backward(*indexes)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        index, places, inverse, inverse_places = ctx.saved_tensors
        grad_x = Gather.apply(grad, None, inverse, inverse_places, index, places)
        grad_fill = grad[places].sum(0) if ctx.needs_input_grad[1] and places is not None else None
        return grad_x, grad_fill, None, None, None, None


@memo
def window_plan(
    batch: int,
    grid: Size,
    window_size: Size,
    *,
    shift: Size = (0, 0),
    mask_padding: bool = False,
    num_copies: int = 0,
    num_shared: int = 0,
    uniform: bool = False,
    device: torch.device,
) -> WindowPlan:
    """Return the plan for grids that are padded at the bottom and right to whole windows.

    It is made on the host and sent in one copy: a new image size launches nothing else. While
    tracing, its operations are part of the graph.

    Args:
        batch: B.
        grid: (H, W).
        window_size: (height, width) of a window.
        shift: tokens by which the padded grid is moved up and left, cyclically; tokens that meet in
            a window without being neighbours do not attend to each other (Liu et al., "Swin
            Transformer", ICCV 2021). Not together with prefix tokens.
        mask_padding: exclude padding from attention; otherwise it is attended to, as in the
            published code.
        num_copies: prefix tokens that each window has a copy of.
        num_shared: prefix tokens that are keys of every window, in front of its own tokens.
        uniform: make plans that have the same tensors with and without shift and padding, so that
            compiled blocks share a graph.
        device: of the indexes.
    """
    on_host = can_upload()
    xp: Any = np if on_host else torch  # the same operations of either
    dtype = np.int32 if on_host else torch.int64  # which takes half the memory
    arange = partial(xp.arange, dtype=dtype, **({} if on_host else dict(device=device)))
    bottom, right = map(padding_to_multiple, grid, window_size)
    rows, columns = (grid[0] + bottom) // window_size[0], (grid[1] + right) // window_size[1]
    is_padded = uniform or may_differ((bottom, right), (0, 0))
    has_border = uniform or shift != (0, 0)
    has_masked_padding = mask_padding and is_padded
    height, width = rows * window_size[0], columns * window_size[1]  # H', W'
    row, column = arange(height) + shift[0], arange(width) + shift[1]
    row = xp.where(row >= height, row - height, row)  # of the token at each place of an axis
    column = xp.where(column >= width, column - width, column)
    row = xp.where(row >= grid[0], -height * width, row * grid[1])
    column = xp.where(column >= grid[1], -height * width, column)
    token = row[:, None] + column  # [H', W'], below 0 for padding
    token = split_windows(token, rows, columns, window_size)  # [windows of an image, n]

    # Windows at the shifted border (the last row and column) come last. (No two keys are
    # equal: ONNX has no stable sort.)
    row, column = (arange(side) == side - 1 for side in (rows, columns))
    number = arange(rows * columns)
    is_last = (row[:, None] | column).reshape(-1)
    order = xp.where(is_last, number + rows * columns, number).argsort()
    num_unmasked = (rows - 1) * (columns - 1) if has_border else rows * columns
    num_unmasked = 0 if has_masked_padding else num_unmasked

    # The first window of each image, then the second of each ...; reshaping [W / B, B, n] would
    # compile anew for B = 1.
    windows = arange(rows * columns * batch)
    place = windows // batch
    order, image = order[place], windows - place * batch  # not %, of which ONNX has none by a size
    mask = None
    if has_border or has_masked_padding:
        row, column = (  # what was moved over the edge
            arange(side) >= side - by for side, by in zip((height, width), shift, strict=True)
        )
        region = split_windows(2 * row[:, None] + column, rows, columns, window_size)
        if mask_padding:
            region = xp.where(token < 0, -1, region)
        region = region[order[num_unmasked * batch :]]  # [number, n]
        if on_host:
            region = region.astype(np.int8)
        mask = (region[:, :, None] == region[:, None])[:, None]

    num_tokens = rows * columns * num_copies + grid[0] * grid[1]  # N
    token = token[order]  # [W, n]
    if num_copies:
        copy = place[:, None] * num_copies + arange(num_copies)
        token = xp.where(token < 0, token, token + rows * columns * num_copies)
        token = xp.concatenate([copy, token], 1)  # [W, num_copies + n]
    if mask is not None and num_copies + num_shared:  # only padding is masked
        shared = (place[:, None] >= 0) & (arange(num_shared) >= 0)  # all of them
        mask = xp.concatenate([shared, token >= 0], 1)[:, None, None]
    is_padding = (token < 0).reshape(-1)
    gather_index = xp.where(is_padding, 0, (token + num_tokens * image[:, None]).reshape(-1))
    indexes = dict(
        gather_index=gather_index,
        inverse_index=invert(gather_index, is_padding, batch * num_tokens),
    )
    if is_padded:
        indexes['is_padding'] = is_padding
    if mask is not None:
        indexes['mask'] = mask
    if is_padded and on_host:
        indexes['padding_index'] = is_padding.nonzero()[0]
    elif is_padded and not is_tracing():
        indexes['padding_index'] = find_padding(is_padding, batch * num_tokens)
    if on_host:
        indexes = upload(indexes, device)
    return WindowPlan(
        window_size=window_size,
        num_windows=rows * columns,
        num_copies=num_copies,
        shape=(batch, num_tokens),
        num_unmasked=num_unmasked * batch,
        **indexes,
    )


def invert(index: Any, is_padding: Any, number: int) -> Any:
    """The place in ``index``, an array or a tensor, of each of ``number`` tokens.

    Args:
        index: the token of each place.
        is_padding: bool, places without a token.
    """
    if isinstance(index, np.ndarray):
        inverse = np.empty(number + 1, index.dtype)  # and one more, where padding goes
        inverse[np.where(is_padding, number, index)] = np.arange(len(index), dtype=index.dtype)
        return inverse[:-1]
    places = torch.arange(index.shape[0], device=index.device)
    rest = places.new_zeros(number + 1)
    return rest.scatter(0, index.masked_fill(is_padding, number), places)[:-1]


def find_padding(is_padding: Tensor, num_tokens: int) -> Tensor:
    """Return the indexes of places without a token.

    ``nonzero`` depends on values, which fake tensors and tensors on the meta device do not have.

    Args:
        is_padding: bool, all places.
        num_tokens: places with a token.
    """
    places = torch.arange(len(is_padding), device=is_padding.device)
    padding_first = torch.where(is_padding, places - len(places), places).sort().indices
    return padding_first[: len(places) - num_tokens]


def split_windows(x: Any, rows: int, columns: int, window_size: Size) -> Any:
    """A grid [H', W'] of whole windows, an array or a tensor, to [rows * columns, n]."""
    height, width = window_size
    x = x.reshape(rows, height, columns, width).swapaxes(1, 2)
    return x.reshape(rows * columns, height * width)


def check_window_setting(window_size: WindowSetting) -> Size | Literal['auto'] | None:
    """A window size in its final form: a pair, 'auto', or None for the whole grid.

    Raises:
        ValueError: anything else.
    """
    if window_size is None or window_size == 'auto':
        return window_size
    if not isinstance(window_size, (tuple, list)) and not is_integer(window_size):
        refuse(
            'window_size',
            window_size,
            "a number of tokens, two of them (height, width), 'auto' or None (the whole grid)",
        )
    return check_size('window_size', window_size)


def fitting_side(size: Any, reference: int) -> Any:
    """The side of windows that pads ``size`` tokens least, nearest to ``reference`` among equals.

    From half to twice ``reference``, so that a prime size does not end in windows of one token.
    """
    least = max(1, reference // 2)
    if isinstance(size, Tensor):  # torch.jit.trace keeps what Python computes as a constant
        sides = torch.arange(1, 2 * reference + 1)
        cost = -size % sides * 2 * reference + (sides - reference).abs()
        return cost.masked_fill(sides < size.clamp(max=least), cost.max() + 1).argmin() + 1
    return min(
        range(min(size, least), 2 * reference + 1),
        key=lambda side: (-size % side, abs(side - reference)),
    )
