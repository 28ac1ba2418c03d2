"""Draw the pictures of the guides, with the package's own functions.

python docs/pictures/draw.py            # layers, windows, views, tiles and scores beside it
python docs/pictures/draw.py OUT GIVEN [...]  # in OUT, and predictions.png, of folders of
                                              # rope-dense predict or their pictures
"""

from __future__ import annotations

import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from PIL import Image

from rope_dense.backbones.windows import shifted_plan
from rope_dense.data.generated.shapes import make_scene, render
from rope_dense.data.tiles.plan import TilePlan
from rope_dense.rope import AxialRoPE, GridRoPE, LogAxialRoPE, MixedRoPE, RopeScaling

ROOT = Path(__file__).parents[2]
CPU = torch.device('cpu')
LINE = dict(fill=False, linewidth=2)
COLOURS = ('#e76f51', '#269db2', '#f4b942', '#54699a')


def panels(number: int, width: float, height: float) -> tuple[Figure, list[Axes]]:
    """A figure in inches with empty axes beside each other."""
    figure = Figure((width, height), layout='constrained')
    axes = [figure.add_subplot(1, number, 1 + index) for index in range(number)]
    for one in axes:
        one.set(xticks=[], yticks=[])
    return figure, axes


def layers() -> Figure:
    """Packages of rope_dense as pyproject.toml lets them import: two wings, and a roof above."""
    settings = tomllib.loads((ROOT / 'pyproject.toml').read_text())['tool']
    contracts = settings['importlinter']['contracts']
    rows = contracts[0]['layers'][::-1]  # the lowest first
    model = {
        name.removeprefix('rope_dense.') for name in contracts[1]['source_modules']
    }
    figure, (one,) = panels(1, 5.2, 4.4)

    def box(
        name: str, place: float, width: float, row: int, rows: int, wing: int
    ) -> None:
        height = rows - 0.15
        colour = COLOURS[wing]
        patch = Rectangle(
            (place, row), width - 0.01, height, facecolor=colour, alpha=0.35
        )
        one.add_patch(patch)
        middle = place + width / 2, row + height / 2
        one.text(*middle, name, ha='center', va='center', fontsize=9)

    for row, level in enumerate(rows):
        names = level.replace(' | ', ' : ').split(' : ')
        is_wing = model.issuperset(set(names) - {'data'})
        names = [name for name in names if name != 'data']
        width = (0.58 if is_wing else 1) / len(names)
        for index, name in enumerate(names):
            wing = 3 if name == 'utils' else int(is_wing)
            box(name, index * width, width, row, 1, wing)
    floors = [row for row, level in enumerate(rows) if model & set(level.split(' '))]
    rooms = sorted(
        path.parent.name
        for path in (ROOT / 'rope_dense' / 'data').glob('*/__init__.py')
    )
    text = 'data\n\n' + '\n'.join(rooms)
    box(text, 0.62, 0.38, floors[0], len(floors), 1)
    one.set(xlim=(0, 1), ylim=(0, len(rows)))
    one.spines[:].set_visible(False)
    return figure


def windows() -> Figure:
    """Windows of 3 x 3 tokens on a grid of 5 x 7: padded to 6 x 9, and shifted by 1."""
    (rows, columns), (height, width) = (5, 7), (3, 3)
    figure, axes = panels(2, 7.2, 2.9)
    for one, shift in zip(axes, ((0, 0), (1, 1)), strict=True):
        options = dict(shift=shift, mask_padding=any(shift), device=CPU)
        plan = shifted_plan(1, (rows, columns), (height, width), **options)
        window = plan.inverse_index // (height * width)  # of each token
        region = torch.zeros(rows * columns, dtype=torch.long)
        if (
            plan.mask is not None
        ):  # the first token that a token attends to tells its region
            region = plan.mask[:, 0].int().argmax(-1).flatten()[plan.inverse_index]
        for token in range(rows * columns):
            row, column = divmod(token, columns)
            colour = f'C{int(window[token])}'
            one.add_patch(
                Rectangle((column, row), 1, 1, facecolor=colour, alpha=0.35, ec='white')
            )
            number = '' if plan.mask is None else f'{int(region[token])}'
            one.text(column + 0.5, row + 0.5, number, ha='center', va='center')
        one.set(xlim=(-0.1, 9.1), ylim=(6.1, -0.1), aspect='equal')
        one.add_patch(Rectangle((0, 0), columns, rows, ec='black', **LINE))
        one.add_patch(Rectangle((0, 0), 9, 6, ec='grey', linestyle=':', **LINE))
        one.set_title(f'windows of 3 x 3, shift {shift[0]}', fontsize=9)
    axes[0].set_xlabel('colour: the window of a token; dotted: padding', fontsize=8)
    axes[1].set_xlabel(
        'tokens of one colour and number attend to each other', fontsize=8
    )
    return figure


def views() -> Figure:
    """One training image, the same at twice the size, and a wider view; patches of 16 pixels."""
    scene = make_scene(3, 'val', 4, colors='any')
    pixels = {side: render(scene, side, side)[0] for side in (128, 256)}
    mosaic = torch.zeros(256, 256, 3, dtype=torch.uint8).numpy()
    for index, (top, left) in enumerate(((0, 0), (0, 128), (128, 0), (128, 128))):
        part = make_scene(3, 'val', 4 + index, colors='any')
        mosaic[top : top + 128, left : left + 128] = render(part, 128, 128)[0]
    figure, axes = panels(3, 7.6, 3.2)
    figure.get_layout_engine().set(wspace=0.05)
    titles = (
        'training: 8 x 8 patches',
        'higher resolution: objects grow',
        'wider view: they do not',
    )
    for one, image, title in zip(
        axes, (pixels[128], pixels[256], mosaic), titles, strict=True
    ):
        side = len(image)
        one.imshow(image, extent=(0, side, side, 0))
        for place in range(0, side, 16):
            one.axhline(place, color='white', linewidth=0.4)
            one.axvline(place, color='white', linewidth=0.4)
        one.set_title(title, fontsize=9)
        one.set(xlim=(0, 256), ylim=(256, 0))
        one.spines[:].set_visible(False)
    return figure


def tiles() -> Figure:
    """Four tiles with overlap: of two objects one is whole in a tile, the other in none."""
    plan = TilePlan(tile=320, overlap=96)
    height, width = 400, 544
    image, masks = render(
        make_scene(5, 'val', 8, colors='any', aspect=1.36), height, width
    )
    figure, (one,) = panels(1, 4.6, 3.5)
    one.imshow(image)
    windows = plan.windows(height, width)
    for colour, tile in zip(COLOURS, windows, strict=True):
        sides = tile.right - tile.left - 4, tile.bottom - tile.top - 4
        one.add_patch(
            Rectangle((tile.left + 2, tile.top + 2), *sides, ec=colour, **LINE)
        )
    for mask in masks:
        (top, bottom), (left, right) = ((x.min(), x.max()) for x in mask.nonzero())
        whole = [
            colour
            for colour, tile in zip(COLOURS, windows, strict=True)
            if tile.left <= left
            and tile.top <= top
            and right < tile.right
            and bottom < tile.bottom
        ]
        colour, text = (
            (whole[0], 'whole here') if whole else ('black', 'whole in no tile')
        )
        one.add_patch(
            Rectangle(
                (left, top), right - left, bottom - top, ec=colour, ls='--', **LINE
            )
        )
        one.text(right + 6, (top + bottom) / 2, text, color=colour, fontsize=8)
    one.set_title('tiles of 320 pixels, which share 96 or more', fontsize=9)
    return figure


def scores() -> Figure:
    """Mean over heads and pairs of cos(F d), the score of equal tokens, up to 16 patches away."""
    torch.manual_seed(0)
    reach = torch.arange(-16, 17).float()
    offsets = torch.cartesian_prod(reach, reach).flip(-1)  # [n, 2], (x, y)
    shown = [*embeddings()]
    figure, axes = panels(len(shown), 8.4, 2.3)
    for one, (title, rope) in zip(axes, shown, strict=True):
        freqs = rope.frequencies(CPU)  # [2, h or 1, P]
        if rope.scaling is not None:
            freqs = rope.scaling.scale(freqs, 28, 28)
        kernel = (offsets @ freqs.flatten(1)).cos().mean(-1).view(33, 33).detach()
        image = one.imshow(kernel, extent=(-16.5, 16.5, 16.5, -16.5), vmin=-0.3, vmax=1)
        one.set_title(title, fontsize=8)
        one.set(xticks=[-16, 0, 16], yticks=[])
        one.tick_params(labelsize=7)
    figure.colorbar(image, ax=axes, shrink=0.8).ax.tick_params(labelsize=7)
    return figure


def embeddings() -> Iterator[tuple[str, GridRoPE]]:
    """Titles of embeddings as training begins, of heads of 64 channels; some scaled to twice 14."""
    yield 'AxialRoPE, theta 100', AxialRoPE(64, 12)
    yield 'MixedRoPE, theta 10', MixedRoPE(64, 12)
    yield 'LogAxialRoPE', LogAxialRoPE(64, 12)
    for kind in ('linear', 'by_parts'):
        rope = AxialRoPE(64, 12)
        rope.set_scaling(RopeScaling((14, 14), kind))
        yield f'Axial, {kind} for 28 x 28', rope


WIDTH, GAP = 1200, 6  # pixels: of joined predictions, and between them


def predictions(*given: Path) -> Image.Image:
    """Pictures, or the middle ones of folders of predictions, whole in rows of three or fewer."""
    pictures = []
    for path in given:
        if path.is_dir():
            files = sorted((path / 'pictures').iterdir())
            path = files[len(files) // 2]
        pictures.append(Image.open(path).convert('RGB'))
    rows = []
    for row in np.array_split(np.arange(len(pictures)), -(-len(pictures) // 3)):
        aspects = [pictures[index].width / pictures[index].height for index in row]
        height = round((WIDTH - GAP * (len(row) - 1)) / sum(aspects))
        strip = Image.new('RGB', (WIDTH, height), 'white')
        left = 0
        for index, aspect in zip(row, aspects, strict=True):
            size = round(height * aspect), height
            strip.paste(
                pictures[index].resize(size, Image.Resampling.LANCZOS), (left, 0)
            )
            left += size[0] + GAP
        rows.append(strip)
    total = sum(strip.height for strip in rows) + GAP * (len(rows) - 1)
    joined = Image.new('RGB', (WIDTH, total), 'white')
    top = 0
    for strip in rows:
        joined.paste(strip, (0, top))
        top += strip.height + GAP
    return joined.quantize(256, kmeans=3)  # which keeps the colours of thin lines


def main(out: Path = Path(__file__).parent, *predicted: Path) -> None:
    for draw in (layers, windows, views, tiles, scores):
        draw().savefig(out / f'{draw.__name__}.png', dpi=100)
    if predicted:
        predictions(*predicted).save(out / 'predictions.png', optimize=True)


if __name__ == '__main__':
    main(*map(Path, sys.argv[1:]))
