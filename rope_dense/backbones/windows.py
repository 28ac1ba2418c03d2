"""Windows of a token grid: which token is in which place of which window.

Letters: B images, H x W token grid, W windows of all images, n tokens of a window, C channels.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd.function import FunctionCtx

from ..rope.cache import Cache, is_tracing
from ..rope.frequencies import Size
from ..rope.validation import check_size, is_integer, refuse

WindowSetting = int | Size | Literal['auto'] | None


@dataclass(frozen=True, eq=False)
class WindowPlan:
    """How the tokens of some images go into windows, and back.

    Windows that attend without a mask come first, then those with one. A place without a token, in
    a window that reaches over the edge of the grid, is padding.

    Attributes:
        window_size: (height, width) of a window.
        shape: (B, H W).
        into: [W n] the token of each place, an index into the flattened [B H W]; 0 for padding.
        back: [B H W] the place of each token.
        is_padding: [W n] bool, the places that have no token; None if all have one.
        padding_places: the indexes of these; None while tracing, too.
        num_unmasked: windows that attend without a mask.
        mask: [W - num_unmasked, 1, n, n] bool, which tokens (columns) a token may attend to;
            None if ``num_unmasked`` is W.
    """

    window_size: Size
    shape: tuple[int, int]
    into: Tensor
    back: Tensor
    is_padding: Tensor | None
    padding_places: Tensor | None
    num_unmasked: int
    mask: Tensor | None

    def partition(self, x: Tensor, padding: Tensor | None = None) -> Tensor:
        """Tokens of the grids, [B, H W, ...], to those of the windows, [W, n, ...].

        Args:
            padding: [...], what is in places without a token; None for zeros.
        """
        rows = x.flatten(0, 1).flatten(1)
        padding = None if padding is None else padding.to(x.dtype).flatten()
        if is_tracing():
            windows = rows.index_select(0, self.into)
            if self.is_padding is not None:
                fill = rows.new_zeros(()) if padding is None else padding
                windows = torch.where(self.is_padding[:, None], fill, windows)
        else:
            windows = Gather.apply(rows, padding, self.into, self.padding_places, self.back, None)
        height, width = self.window_size
        return windows.unflatten(0, (-1, height * width)).unflatten(2, x.shape[2:])

    def unpartition(self, windows: Tensor) -> Tensor:
        """The inverse of ``partition``, [W, n, C] to [B, H W, C]."""
        rows = windows.flatten(0, 1)
        if is_tracing():
            tokens = rows.index_select(0, self.back)
        else:
            tokens = Gather.apply(rows, None, self.back, None, self.into, self.padding_places)
        return tokens.view(*self.shape, windows.shape[-1])


class Gather(torch.autograd.Function):
    """``x[index]`` where each row of the result that is not padding is another row of x, so that
    the backward is a gather too.

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
        if places is not None:
            out[places] = 0.0 if fill is None else fill
        return out

    @staticmethod
    def setup_context(ctx: FunctionCtx, inputs: tuple, output: Tensor) -> None:
        _, _, *indexes = inputs
        ctx.save_for_backward(*indexes)

    @staticmethod
    def backward(ctx: FunctionCtx, grad: Tensor) -> tuple[Tensor | None, ...]:
        index, places, inverse, inverse_places = ctx.saved_tensors
        grad_x = Gather.apply(grad, None, inverse, inverse_places, index, places)
        grad_fill = grad[places].sum(0) if ctx.needs_input_grad[1] and places is not None else None
        return grad_x, grad_fill, None, None, None, None


PLANS: Cache[WindowPlan] = Cache(32)


def window_plan(
    batch: int,
    grid: Size,
    window_size: Size,
    *,
    shift: Size = (0, 0),
    mask_padding: bool = False,
    device: torch.device,
) -> WindowPlan:
    """The plan for grids that are padded at the bottom and right to whole windows.

    Args:
        batch: B.
        grid: (H, W).
        shift: tokens by which the padded grid is moved up and left, cyclically; tokens that meet in
            a window without being neighbours do not attend to each other (Liu et al., "Swin
            Transformer", ICCV 2021).
        mask_padding: keep padding out of attention; otherwise padding is attended to, as in the
            published code.
    """
    arguments = batch, *grid, window_size, shift, mask_padding
    return PLANS.get(arguments, device, lambda: make_plan(*arguments, device))


def make_plan(
    batch: int,
    height: int,
    width: int,
    window_size: Size,
    shift: Size,
    mask_padding: bool,
    device: torch.device,
) -> WindowPlan:
    """See ``window_plan``. Works with symbolic sizes."""
    (rows, bottom), (columns, right) = map(whole_windows, (height, width), window_size)
    padded = is_tracing() or bottom > 0 or right > 0
    token = torch.arange(height * width, device=device).view(height, width)
    token = F.pad(token, (0, right, 0, bottom), value=-1)  # [H', W'], -1 for padding
    token = token.roll((-shift[0], -shift[1]), (0, 1))
    token = split_windows(token, rows, columns, window_size)
    if mask_padding and padded:
        num_unmasked = 0
    elif shift != (0, 0):
        num_unmasked = (rows - 1) * (columns - 1)
    else:
        num_unmasked = rows * columns
    # Windows at the shifted border last: those of the last row and column. (By keys without equals,
    # as ONNX has no stable sort.)
    row, column = (torch.arange(n, device=device) == n - 1 for n in (rows, columns))
    last = (row[:, None] | column).flatten()
    number = torch.arange(rows * columns, device=device)
    order = torch.where(last, number + rows * columns, number).argsort()
    # Each window of one image, for image 0, 1, ...; reshaping [W / B, B, n] would compile anew for
    # B = 1.
    windows = torch.arange(rows * columns * batch, device=device)
    place = windows // batch
    order, image = order[place], windows - place * batch  # not %, of which ONNX has none by a size
    mask = None
    if shift != (0, 0) or (mask_padding and padded):
        row, column = (
            torch.arange(number * side, device=device) >= number * side - by
            for number, side, by in zip((rows, columns), window_size, shift, strict=True)
        )  # what was moved over the edge
        region = split_windows(2 * row[:, None] + column, rows, columns, window_size)
        if mask_padding:
            region = region.masked_fill(token < 0, -1)
        region = region[order[num_unmasked * batch :]]  # [number, n]
        mask = (region[:, :, None] == region[:, None])[:, None]
    token = token[order]  # [W, n]
    is_padding = (token < 0).flatten()
    into = (token + height * width * image[:, None]).flatten().masked_fill(is_padding, 0)
    places = torch.arange(into.shape[0], device=device)
    num_tokens = batch * height * width  # and one more, where padding goes
    back = places.new_zeros(num_tokens + 1)
    back = back.scatter(0, into.masked_fill(is_padding, num_tokens), places)[:-1]
    return WindowPlan(
        window_size,
        (batch, height * width),
        into,
        back,
        is_padding if padded else None,
        is_padding.nonzero()[:, 0] if padded and not is_tracing() else None,
        num_unmasked * batch,
        mask,
    )


def whole_windows(side: int, window: int) -> tuple[int, int]:
    """How many windows cover ``side`` tokens, and how much padding that takes."""
    number = (side + window - 1) // window
    return number, number * window - side


def split_windows(x: Tensor, rows: int, columns: int, window_size: Size) -> Tensor:
    """A grid [H', W'] of whole windows to [rows * columns, n]."""
    height, width = window_size
    x = x.view(rows, height, columns, width).transpose(1, 2)
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


def fitting_side(size: int, reference: int) -> int:
    """The side of windows that pads ``size`` tokens least, nearest to ``reference`` among equals.

    From half to twice ``reference``, so that a prime size does not end in windows of one token.
    """
    sides = range(max(1, min(size, reference // 2)), 2 * reference + 1)
    return min(sides, key=lambda side: (-size % side, abs(side - reference)))
