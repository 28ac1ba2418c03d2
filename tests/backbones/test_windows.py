"""Window plans: which token is in which place of which window, and which may attend to which."""

import itertools

import pytest
import torch
from torch import Tensor

from rope_dense.backbones.windows import Gather, WindowPlan, shifted_plan, window_plan
from rope_dense.utils.memo import count_bytes

CPU = torch.device('cpu')

PLANS = {  # images, height, width; window; options
    'whole windows': ((2, 6, 8), (3, 4), {}),
    'padded': ((2, 7, 9), (3, 4), {}),
    'padded below': ((1, 7, 8), (3, 4), {}),
    'shifted': ((2, 6, 8), (3, 4), dict(shift=(1, 2))),
    'shifted and padded': ((2, 7, 9), (3, 4), dict(shift=(1, 2))),
    'shifted in one axis': ((2, 6, 9), (3, 4), dict(shift=(0, 2))),
    'one row': ((2, 3, 21), (1, 7), dict(shift=(0, 3))),
    'larger than the grid': ((3, 1, 2), (3, 4), {}),
    'larger than the grid, shifted': ((3, 1, 2), (3, 4), dict(shift=(1, 2))),
    'one window': ((3, 3, 4), (3, 4), {}),
    'one window, shifted': ((3, 3, 4), (3, 4), dict(shift=(1, 2))),
    'one token': ((2, 1, 1), (1, 1), {}),
    'one token a window': ((2, 3, 2), (1, 1), {}),
    'no images': ((0, 7, 9), (3, 4), dict(shift=(1, 2))),
    'one image': ((1, 7, 9), (3, 4), dict(shift=(1, 2))),
}
MASKED_PLANS = {
    f'{name}, mask_padding={mask}': (shape, window, dict(options, mask_padding=mask))
    for name, (shape, window, options) in PLANS.items()
    for mask in (False, True)
}
PLAN = pytest.mark.parametrize(
    'shape, window_size, options', MASKED_PLANS.values(), ids=MASKED_PLANS
)
Token = tuple[int, int]  # (row, column) in the padded grid


def make(shape: tuple[int, int, int], window_size: Token, options: dict) -> WindowPlan:
    make_plan = shifted_plan if 'shift' in options else window_plan
    return make_plan(shape[0], shape[1:], window_size, device=CPU, **options)


def windows_of_image(
    size: Token, window_size: Token, shift: Token = (0, 0), mask_padding: bool = False
) -> list[list[Token]]:
    """The tokens of each window of the padded grid, moved up and left cyclically; by definition."""
    sides = [
        -(-side // window) * window
        for side, window in zip(size, window_size, strict=True)
    ]
    return [
        [
            ((top + row + shift[0]) % sides[0], (left + column + shift[1]) % sides[1])
            for row in range(window_size[0])
            for column in range(window_size[1])
        ]
        for top in range(0, sides[0], window_size[0])
        for left in range(0, sides[1], window_size[1])
    ]


@PLAN
def test_each_window_has_its_tokens(
    shape: tuple[int, int, int], window_size: Token, options: dict
):
    """Each token tells its image, row and column; padding tells -1."""
    images, height, width = shape
    sides = [torch.arange(side) for side in shape]
    grid = torch.stack(torch.meshgrid(*sides, indexing='ij'), -1).flatten(
        1, 2
    )  # [B, N, 3]
    plan = make(shape, window_size, options)
    windows = plan.partition(grid, torch.tensor([-1, -1, -1]))

    def label(image: int, token: Token) -> tuple[int, ...]:
        inside = token[0] < height and token[1] < width
        return (image, *token) if inside else (-1, -1, -1)

    expected = [
        [label(image, token) for token in window]
        for image in range(images)
        for window in windows_of_image(
            shape[1:], window_size, options.get('shift', (0, 0))
        )
    ]
    found = [[tuple(token) for token in window] for window in windows.tolist()]
    assert sorted(found) == sorted(expected)
    is_padding = (windows[..., 0] < 0).flatten()
    if plan.is_padding is None:
        assert not is_padding.any() and plan.padding_index is None
    else:
        assert torch.equal(plan.is_padding, is_padding)
        assert torch.equal(plan.padding_index, is_padding.nonzero()[:, 0])
    tokens = torch.arange(images * height * width, dtype=plan.gather_index.dtype)
    assert torch.equal(
        plan.gather_index[~is_padding].sort().values, tokens
    )  # each once
    assert torch.equal(plan.gather_index[plan.inverse_index], tokens)


def test_a_plan_takes_nine_bytes_a_place():
    """And its mask."""
    plan = shifted_plan(2, (50, 84), (7, 7), shift=(3, 3), device=CPU)
    places = 2 * 56 * 84
    assert (
        count_bytes(plan)
        <= 9 * places + 8 * len(plan.padding_index) + plan.mask.numel()
    )


@PLAN
def test_masks_part_what_was_moved_over_the_edge(
    shape: tuple[int, int, int], window_size: Token, options: dict
):
    """Pairs of tokens of which one may attend to the other, by definition."""
    images, height, width = shape
    down, right = options.get('shift', (0, 0))
    plan = make(shape, window_size, options)
    number = len(plan.gather_index) // (window_size[0] * window_size[1])
    allowed = torch.ones(
        number, *[window_size[0] * window_size[1]] * 2, dtype=torch.bool
    )
    if plan.mask is not None:
        assert plan.mask.shape[:2] == (number - plan.num_unmasked, 1)
        allowed[plan.num_unmasked :] = plan.mask[:, 0]
    assert (plan.mask is None) == (plan.num_unmasked == number) or not images
    assert allowed.any(2).all()  # no softmax over nothing
    if not options['mask_padding'] and (
        down or right
    ):  # inside, nothing was moved over the edge
        windows_of_sides = [
            -(-side // of) for side, of in zip(shape[1:], window_size, strict=True)
        ]
        assert plan.num_unmasked == images * (windows_of_sides[0] - 1) * (
            windows_of_sides[1] - 1
        )
    sides = [
        -(-side // window) * window
        for side, window in zip(shape[1:], window_size, strict=True)
    ]
    rows = torch.arange(sides[0])[:, None].expand(sides)
    columns = torch.arange(sides[1]).expand(sides)
    padded = torch.stack([rows, columns], -1)  # (row, column) of the padded grid
    everything = shifted_plan(
        images, tuple(sides), window_size, shift=(down, right), device=CPU
    )
    tokens = everything.partition(padded.flatten(0, 1).expand(images, -1, -1))
    for window, may in zip(tokens.tolist(), allowed.tolist(), strict=True):
        for (i, query), (j, key) in itertools.product(enumerate(window), repeat=2):
            moved = [(row < down, column < right) for row, column in (query, key)]
            inside = [row < height and column < width for row, column in (query, key)]
            seen = moved[0] == moved[1]
            if options['mask_padding']:
                seen = seen and inside[0] == inside[1]
                if not inside[0]:
                    continue  # nobody sees what padding attends to
            assert may[i][j] == seen, (query, key)


@PLAN
def test_unpartition_is_the_inverse(
    shape: tuple[int, int, int], window_size: Token, options: dict
):
    plan = make(shape, window_size, options)
    for dtype in (torch.float32, torch.bfloat16, torch.int64):
        x = (10 * torch.randn(shape[0], shape[1] * shape[2], 3)).to(dtype)
        windows = plan.partition(x)
        assert windows.is_contiguous() and windows.shape[1:] == (
            plan.window_size[0] * plan.window_size[1],
            3,
        )
        assert torch.equal(plan.unpartition(windows), x)


@pytest.mark.parametrize(
    'name', ['whole windows', 'shifted and padded', 'one row', 'no images']
)
def test_gradients_of_both_orders(name: str):
    plan = make(*PLANS[name])
    x = torch.randn(*plan.shape, 2, 2, dtype=torch.float64, requires_grad=True)
    padding = torch.randn(2, 2, dtype=torch.float64, requires_grad=True)

    def there_and_back(x: Tensor, padding: Tensor) -> tuple[Tensor, Tensor]:
        windows = plan.partition(x.exp(), padding.exp())
        return windows, plan.unpartition(windows.flatten(2).square())

    if plan.shape[0]:
        assert torch.autograd.gradcheck(there_and_back, (x, padding), fast_mode=True)
        assert torch.autograd.gradgradcheck(
            there_and_back, (x, padding), fast_mode=True
        )
    windows, tokens = there_and_back(x, padding)
    (windows.sum() + tokens.sum()).backward()
    assert x.grad.shape == x.shape
    if plan.padding_index is not None:
        expected = len(plan.padding_index) * padding.detach().exp()
        torch.testing.assert_close(padding.grad, expected)


def test_padding_gets_no_gradient_back_from_tokens():
    plan = make(*PLANS['shifted and padded'])
    windows = torch.randn(len(plan.gather_index) // 12, 12, 3, requires_grad=True)
    weight = torch.randn(*plan.shape, 3)
    (gradient,) = torch.autograd.grad(
        (plan.unpartition(windows) * weight).sum(), windows
    )
    assert torch.equal(gradient, plan.partition(weight))
    assert not gradient.flatten(0, 1)[plan.is_padding].any()


def test_gather_takes_what_is_not_contiguous_and_expanded_gradients():
    plan = make(*PLANS['shifted and padded'])
    x = torch.randn(3, *plan.shape).permute(1, 2, 0).requires_grad_()
    windows = plan.partition(x)
    assert torch.equal(windows, plan.partition(x.contiguous()))
    (gradient,) = torch.autograd.grad(
        windows.sum(), x
    )  # whose gradient is one number, expanded
    assert torch.equal(gradient, torch.ones_like(x))


def test_gather_by_definition():
    x = torch.randn(5, 2, dtype=torch.float64, requires_grad=True)
    fill = torch.randn(2, dtype=torch.float64, requires_grad=True)
    index = torch.tensor([3, 0, 0, 4])  # the third place is no row of x
    inverse, places = torch.tensor([1, 0, 0, 0, 3]), torch.tensor([2])
    inverse_places = torch.tensor([1, 2])  # rows of x that are left out

    def gather(x: Tensor, fill: Tensor) -> Tensor:
        return Gather.apply(x, fill, index, places, inverse, inverse_places)

    def three_exact(x: Tensor, fill: Tensor) -> Tensor:
        return gather(x.pow(3), fill.pow(3))

    expected = torch.stack([x[3], x[0], fill, x[4]])
    assert torch.equal(gather(x, fill), expected)
    assert torch.equal(
        Gather.apply(x, None, index, places, inverse, inverse_places)[2], 0 * fill
    )
    # Row 3 of x is place 0, and what ``inverse`` says of rows 1 and 2 does not count.
    inverse[3] = 0
    assert torch.autograd.gradcheck(three_exact, (x, fill))
    assert torch.autograd.gradgradcheck(three_exact, (x, fill))


def test_plans_are_cached_by_all_that_they_depend_on():
    plan = window_plan(2, (5, 6), (3, 3), device=CPU)
    assert window_plan(2, (5, 6), (3, 3), device=CPU) is plan
    others = [
        window_plan(1, (5, 6), (3, 3), device=CPU),
        window_plan(2, (6, 5), (3, 3), device=CPU),
        window_plan(2, (5, 6), (3, 2), device=CPU),
        shifted_plan(2, (5, 6), (3, 3), shift=(1, 1), device=CPU),
        shifted_plan(2, (5, 6), (3, 3), uniform=True, device=CPU),
        window_plan(2, (5, 6), (3, 3), mask_padding=True, device=CPU),
    ]
    assert len({id(other) for other in [plan, *others]}) == 7
    with torch.inference_mode():
        made_there = window_plan(2, (5, 7), (3, 3), mask_padding=True, device=CPU)
    tensors = (
        made_there.gather_index,
        made_there.inverse_index,
        made_there.padding_index,
        made_there.mask,
    )
    assert not any(tensor.is_inference() for tensor in tensors)


@pytest.mark.slow
@pytest.mark.parametrize(
    'options',
    [
        dict(shift=(1, 2)),
        dict(shift=(0, 0), mask_padding=True),
        dict(mask_padding=True),
    ],
)
def test_plans_of_any_size_compile_once(options: dict):
    """Sizes that change from call to call, which the compiler does not know as numbers."""

    def parts(x: Tensor) -> tuple[Tensor, ...]:
        plan = make(x.shape[:3], (3, 4), options)
        windows = plan.partition(x.flatten(1, 2), torch.ones(5))
        out = plan.unpartition(windows * 2).view_as(x)
        return (out, windows) if plan.mask is None else (out, windows, plan.mask)

    graphs = []

    def backend(
        graph: torch.fx.GraphModule, inputs: list[Tensor]
    ) -> torch.fx.GraphModule:
        graphs.append(graph)
        return graph

    compiled = torch.compile(parts, fullgraph=True, dynamic=True, backend=backend)
    for shape in ((2, 7, 9, 5), (3, 10, 13, 5), (4, 8, 14, 5)):
        x = torch.randn(shape)
        for found, expected in zip(compiled(x), parts(x), strict=True):
            assert torch.equal(found, expected)
    assert len(graphs) == 1
