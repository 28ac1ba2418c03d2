"""Window plans: indexes that gather the tokens of a grid into windows, and back.

Letters: B images, H x W token grid, N tokens of an image, R of them prefix tokens, w windows of all
images, n tokens of the grid in a window, C channels.
"""

from dataclasses import dataclass
from typing import Any, Literal

import torch
import torch.nn.functional as F
from torch import Tensor

from ..utils.memo import is_tracing, memo, on_host
from ..utils.sizes import Size
from ..utils.validation import checked_size, is_integer, refuse
from .archs import WindowSetting
from .layers import may_differ, round_up


@dataclass(frozen=True, eq=False)
class WindowPlan:
    """Indexes that gather the tokens of a batch of images into windows, and back.

    Windows that attend without a mask come first, then those with one. A place without a token, in
    a window that reaches over the edge of the grid, is padding.

    Each window can have a copy of the prefix tokens in front of its n tokens. The copies of all
    windows of an image are in front of the tokens of its grid then, and count as tokens: an image
    has N = H W tokens without copies, and w / B R + H W with them.

    Attributes:
        window_size: (height, width) of a window.
        num_windows: of an image, w / B.
        num_copies: prefix tokens that each window has a copy of; R or 0.
        shape: (B, N).
        num_unmasked: windows that attend without a mask.
        contiguous: whether a window is a rectangle of neighbours, whose positions are those of an
            image of its size. Tokens of other windows, such as every second one, keep their
            positions in the grid, which costs angles for each window.
        gather_index: [w (num_copies + n)] the token of each place, an index into the flattened
            [B N]; 0 for padding.
        inverse_index: [B N] the place of each token.
        is_padding: [w (num_copies + n)] bool, the places that have no token; None if all have one.
        padding_index: the places where ``is_padding``; None while tracing, too.
        mask: [w - num_unmasked, 1, n or 1, keys] bool, which keys (columns) a token may attend to;
            None if ``num_unmasked`` is w.
    """

    window_size: Size
    num_windows: int
    num_copies: int
    shape: tuple[int, int]
    num_unmasked: int
    contiguous: bool
    gather_index: Tensor
    inverse_index: Tensor
    is_padding: Tensor | None = None
    padding_index: Tensor | None = None
    mask: Tensor | None = None

    def partition(self, x: Tensor, padding: Tensor | None = None) -> Tensor:
        """Gather tokens of the images, [B, N, ...], into windows, [w, num_copies + n, ...].

        Places without a token have the value ``padding`` [...], or zeros.
        """
        rows = x.flatten(0, 1).flatten(1)
        fill = None if padding is None else padding.to(x.dtype).flatten()
        to_windows = self.gather_index, self.padding_index
        windows = gather(
            rows, fill, *to_windows, self.inverse_index, None, self.is_padding
        )
        height, width = self.window_size
        places = self.num_copies + height * width
        return windows.unflatten(0, (-1, places)).unflatten(2, x.shape[2:])

    def unpartition(self, windows: Tensor) -> Tensor:
        """Gather the tokens of windows, [w, num_copies + n, C], into images, [B, N, C]."""
        rows = windows.flatten(0, 1)
        tokens = gather(
            rows, None, self.inverse_index, None, self.gather_index, self.padding_index
        )
        return tokens.view(*self.shape, windows.shape[-1])

    def copy_prefix(self, x: Tensor) -> Tensor:
        """Copy the prefix tokens into each window: [B, R + H W, C] to [B, N, C]."""
        if not self.num_copies:
            return x
        prefix, tokens = x[:, : self.num_copies], x[:, self.num_copies :]
        return torch.cat([prefix.repeat(1, self.num_windows, 1), tokens], 1)

    def mean_prefix(self, x: Tensor) -> Tensor:
        """Average the copies of each prefix token: [B, N, C] to [B, R + H W, C]."""
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
    needs_grad = x.requires_grad or (fill is not None and fill.requires_grad)
    if not is_tracing():
        if not (needs_grad and torch.is_grad_enabled()):
            return gather_rows(x, fill, index, places)
        return Gather.apply(x, fill, index, places, inverse, inverse_places)
    out = x.index_select(0, index)
    if is_filled is None:
        return out
    return torch.where(
        is_filled[:, None], x.new_zeros(()) if fill is None else fill, out
    )


def gather_rows(
    x: Tensor, fill: Tensor | None, index: Tensor, places: Tensor | None
) -> Tensor:
    """The forward of ``Gather``."""
    out = x.index_select(0, index)
    if places is not None and fill is None:
        out.index_fill_(0, places, 0.0)  # assigned, a number would be uploaded to a GPU
    elif places is not None and fill is not None:
        out[places] = fill
    return out


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
        ctx: Any,
        x: Tensor,
        fill: Tensor | None,
        index: Tensor,
        places: Tensor | None,
        inverse: Tensor,
        inverse_places: Tensor | None,
    ) -> Tensor:
        ctx.save_for_backward(index, places, inverse, inverse_places)
        return gather_rows(x, fill, index, places)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        index, places, inverse, inverse_places = ctx.saved_tensors
        grad_x = Gather.apply(grad, None, inverse, inverse_places, index, places)
        grad_fill = (
            grad[places].sum(0)
            if ctx.needs_input_grad[1] and places is not None
            else None
        )
        return grad_x, grad_fill, None, None, None, None


@memo
@on_host
def window_plan(
    batch: int,
    grid: Size,
    window_size: Size,
    *,
    mask_padding: bool = False,
    num_copies: int = 0,
    num_shared: int = 0,
    device: torch.device,
) -> WindowPlan:
    """The plan for grids that are padded at the bottom and right to whole windows.

    Args:
        batch: B.
        grid: (H, W).
        window_size: (height, width) of a window.
        mask_padding: exclude padding from attention; otherwise it is attended to, as in the
            published code.
        num_copies: prefix tokens that each window has a copy of.
        num_shared: prefix tokens that are keys of every window, in front of its own tokens.
        device: of the indexes.
    """
    height, width = map(round_up, grid, window_size)  # H', W'
    rows, columns = height // window_size[0], width // window_size[1]
    is_padded = may_differ((height, width), grid)
    token, number, image, _ = split_windows(
        batch, grid, (height, width), window_size, (0, 0), device
    )
    if num_copies:
        # [w, num_copies]
        copies = number * num_copies + torch.arange(num_copies, device=device)
        token = torch.where(token < 0, token, token + rows * columns * num_copies)
        token = torch.cat([copies, token], 1)  # [w, num_copies + n]
    mask = None
    if mask_padding and is_padded:
        mask = F.pad(token >= 0, (num_shared, 0), value=True)[:, None, None]
    shape = batch, rows * columns * num_copies + grid[0] * grid[1]
    return WindowPlan(
        window_size=window_size,
        num_windows=rows * columns,
        num_copies=num_copies,
        shape=shape,
        num_unmasked=rows * columns * batch if mask is None else 0,
        contiguous=True,
        mask=mask,
        **token_indexes(token, image, shape, is_padded),
    )


@memo
@on_host
def shifted_plan(
    batch: int,
    grid: Size,
    window_size: Size,
    *,
    shift: Size = (0, 0),
    mask_padding: bool = False,
    uniform: bool = False,
    device: torch.device,
) -> WindowPlan:
    """The plan for grids that are padded, then moved up and left cyclically.

    Tokens that meet in a window without being neighbours do not attend to each other (Liu et al.,
    "Swin Transformer", ICCV 2021).

    Args:
        shift: tokens by which the grid is moved.
        uniform: make plans that have the same tensors with and without shift and padding, so that
            compiled blocks share a graph.
        others: see ``window_plan``.
    """
    height, width = map(round_up, grid, window_size)  # H', W'
    rows, columns = height // window_size[0], width // window_size[1]
    is_padded = uniform or may_differ((height, width), grid)
    is_shifted = uniform or shift != (0, 0)
    token, _, image, region = split_windows(
        batch, grid, (height, width), window_size, shift, device
    )
    masks_all = mask_padding and is_padded
    mask, num_unmasked = None, rows * columns * batch
    if is_shifted or masks_all:
        num_unmasked = 0 if masks_all else (rows - 1) * (columns - 1) * batch
        region = torch.where(token < 0, -1, region) if mask_padding else region
        region = region[num_unmasked:]
        # [w - num_unmasked, 1, n, n]
        mask = (region[:, :, None] == region[:, None])[:, None]
    shape = batch, grid[0] * grid[1]
    return WindowPlan(
        window_size=window_size,
        num_windows=rows * columns,
        num_copies=0,
        shape=shape,
        num_unmasked=num_unmasked,
        contiguous=True,
        mask=mask,
        **token_indexes(token, image, shape, is_padded),
    )


def split_windows(
    batch: int,
    grid: Size,
    padded: Size,
    window_size: Size,
    shift: Size,
    device: torch.device,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """The windows of all images, in the order of a plan.

    The first window of each image, then the second of each ...; windows of the last row and
    column, which are at the border of a shifted grid, come last.

    Returns:
        token: [w, n] of its image at each place; -1 for padding.
        number: [w, 1] of each window in its image.
        image: [w, 1] of each window.
        region: [w, n] what ``shift`` moved over an edge: 0 neither, 1 columns, 2 rows, 3 both.
    """
    height, width = window_size
    rows, columns = padded[0] // height, padded[1] // width
    token = torch.arange(grid[0] * grid[1], device=device).view(grid)  # [H, W]
    # [H', W']
    token = F.pad(token, (0, padded[1] - grid[1], 0, padded[0] - grid[0]), value=-1)
    moved = [
        torch.arange(n, device=device) < by for n, by in zip(padded, shift, strict=True)
    ]
    maps = torch.stack([token, 2 * moved[0][:, None] + moved[1]], -1)  # [H', W', 2]
    maps = maps.roll((-shift[0], -shift[1]), (0, 1))
    maps = maps.view(rows, height, columns, width, 2).transpose(1, 2)
    maps = maps.reshape(rows * columns, height * width, 2)

    number = torch.arange(rows * columns, device=device)
    row = number // columns
    is_last = (row == rows - 1) | (number - row * columns == columns - 1)
    # No two keys are equal: ONNX has no stable sort.
    order = torch.where(is_last, number + rows * columns, number).argsort()
    windows = torch.arange(rows * columns * batch, device=device)[:, None]
    number = windows // batch  # reshaping [w / B, B, n] would compile anew for B = 1
    token, region = maps[order[number[:, 0]]].unbind(-1)
    # Not %, of which ONNX has none by a size.
    return token, number, windows - number * batch, region


def token_indexes(
    token: Tensor, image: Tensor, shape: tuple[int, int], is_padded: bool
) -> dict[str, Tensor]:
    """The indexes of a ``WindowPlan``.

    Args:
        token: [w, num_copies + n] of its image at each place, below 0 for padding.
        image: [w, 1] of each window.
        shape: (B, N).
        is_padded: whether there may be padding.
    """
    is_padding = (token < 0).flatten()
    gather_index = torch.where(token < 0, 0, token + shape[1] * image).flatten()
    inverse_index = invert(gather_index, is_padding, shape[0] * shape[1])
    found = dict(gather_index=gather_index.int(), inverse_index=inverse_index.int())
    if is_padded:
        found['is_padding'] = is_padding
    if is_padded and not is_tracing():
        number = len(is_padding) - shape[0] * shape[1]
        found['padding_index'] = invert(is_padding.cumsum(0) - 1, ~is_padding, number)
    return found


def invert(index: Tensor, is_left_out: Tensor, number: int) -> Tensor:
    """The place in ``index`` of each of ``number`` values; none counts where ``is_left_out``."""
    places = torch.arange(index.shape[0], device=index.device)
    inverse = places.new_zeros(number + 1)  # and one more, where the others go
    return inverse.scatter(0, index.masked_fill(is_left_out, number), places)[:-1]


def checked_window_setting(window_size: WindowSetting) -> Size | Literal['auto'] | None:
    """A window size as a pair, 'auto', or None for the whole grid; ValueError for anything else."""
    if window_size is None or window_size == 'auto':
        return window_size
    if not isinstance(window_size, (tuple, list)) and not is_integer(window_size):
        refuse(
            'window_size',
            window_size,
            "a number of tokens, two of them (height, width), 'auto' or None (the whole grid)",
        )
    return checked_size('window_size', window_size)


def fitting_side(size: Any, reference: int) -> Any:
    """The side of windows that pads ``size`` tokens least, nearest to ``reference`` among equals.

    From half to twice ``reference``, so that a prime size does not end in windows of one token.
    """
    least = max(1, reference // 2)
    # torch.jit.trace keeps what Python computes as a constant.
    if isinstance(size, Tensor):
        sides = torch.arange(1, 2 * reference + 1)
        cost = -size % sides * 2 * reference + (sides - reference).abs()
        return (
            cost.masked_fill(sides < size.clamp(max=least), cost.max() + 1).argmin() + 1
        )
    return min(
        range(min(size, least), 2 * reference + 1),
        key=lambda side: (-size % side, abs(side - reference)),
    )
