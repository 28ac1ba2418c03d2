"""README.md and configs/README.md: their numbers are those of their sources."""

import csv
import re
import runpy
from pathlib import Path

import pytest
from matplotlib.image import imread
from PIL import Image

from research.papers import read_paper_tables

ROOT = Path(__file__).resolve().parents[2]
TEXT = (ROOT / 'README.md').read_text()
WORDS = ' '.join(TEXT.split())


def test_the_readme_is_short() -> None:
    assert len(TEXT.splitlines()) <= 110


def rows(file: str) -> list[dict[str, str]]:
    """The rows of a csv file of the repository."""
    with (ROOT / file).open() as stream:
        return list(csv.DictReader(stream))


def test_accuracies_of_the_paper() -> None:
    table = read_paper_tables()['table-a.4']
    mixed, ape = (
        dict(zip(table['sizes'], table['rows'][f'vit-b_{name}'], strict=True))
        for name in ('rope-mixed', 'ape')
    )
    assert (
        f'has {mixed[224]} there, {mixed[320]} at 320 and {mixed[512]} at 512' in WORDS
    )
    assert all(
        mixed[size] > ape[size] for size in table['sizes']
    )  # ahead at every size


def test_twice_the_size() -> None:
    measured = [
        row
        for row in rows('docs/research/scaling_study/results.csv')
        if (row['way'], row['backbone']) == ('finer', 'vit')
        and not row['tuned'] + row['tested']
    ]

    def score(factor: str, scaling: str, position: str = 'axial') -> str:
        setting = dict(factor=factor, scaling=scaling, position=position)
        found = [row['mIoU'] for row in measured if setting.items() <= row.items()]
        assert len(found) == 3
        return f'{sum(map(float, found)) / 3:.1f}'

    sentence = (
        f'has {score("1.0", "none")} mIoU at its size and, at twice the size, '
        f'{score("2.0", "linear")} with `linear` scaling and {score("2.0", "none")} without; with '
        f'absolute positions {score("1.0", "none", "ape")} and {score("2.0", "none", "ape")}'
    )
    assert sentence in WORDS


def test_a_training_step() -> None:
    """On a GPU."""
    measured = rows('benchmarks/results/gpu-backbones.csv')
    found = {
        row['implementation']: row
        for row in measured
        if (row['mode'], row['dtype']) == ('both', 'bfloat16') and 'vit' in row['work']
    }
    ours, other = (
        found['rope_dense, mixed, window 16'],
        found['detectron2 / SAM form, window 14'],
    )
    memory = float(ours['peak_tensors_mb']) / float(other['peak_tensors_mb'])
    assert f'{times(ours, other):.2f} times as fast' in WORDS
    assert f'with {memory:.2f} of the memory' in WORDS
    ratio = times(found['rope_dense, mixed'], found['timm, mixed'])
    assert f"ViT-B with mixed RoPE trains {ratio:.2f} times as fast as timm's" in WORDS
    [latency] = [
        float(row['median_ms'])
        for row in rows('benchmarks/results/gpu-realtime.csv')
        if row['implementation'] == 'rope_dense, deployed, graph'
        and (row['batch'], row['dtype']) == ('1', 'float16')
    ]
    assert f'DEIMv2-S takes {latency:.1f} ms an image' in WORDS


def times(row: dict, other: dict) -> float:
    return float(other['median_ms']) / float(row['median_ms'])


COSTS = {  # a page, and the columns of the csv file as its table shows them
    'windows': ('architecture.md', '{gflop:.1f}( GFLOP)? \\| {saved_mib:.0f}( MiB)? '),
    'positions': (
        'positions.md',
        '{saved_mib_256x352:.0f} \\| {saved_mib_512x512:.0f} ',
    ),
    'training': (
        'training.md',
        '{tensors:.0f} \\| {saved_mib:.0f}( MiB)? \\| {trained:,.0f} ',
    ),
    'heads': (
        'eomt.md',
        '{parameters:.1f} M \\| {multiply_adds:.1f} G \\| {prediction:.0f} \\| '
        '{forward:.0f} \\+ {backward:.0f} \\| {seconds:.1f} ',
    ),
}


@pytest.mark.parametrize('table', COSTS)
def test_costs(table: str) -> None:
    page, cells = COSTS[table]
    text = (ROOT / 'docs' / page).read_text()
    measured = rows(f'benchmarks/results/costs-{table}.csv')
    assert len(measured) > 2
    for row in measured:
        numbers = {
            key: float(x) for key, x in row.items() if re.fullmatch(r'\d+(\.\d+)?', x)
        }
        assert re.search(cells.format(**numbers), text), row


def test_positions_in_maps_of_random_weights() -> None:
    text = ' '.join((ROOT / 'docs' / 'positions.md').read_text().split())
    found: dict[str, list[float]] = {}
    for row in rows('benchmarks/results/position_bias.csv'):
        found.setdefault(row['form'], []).append(float(row['bias']))
    spans = [f'{min(values):.2f} to {max(values):.2f}' for values in found.values()]
    assert len(spans) == 4
    assert all(span in text for span in spans if span != '0.00 to 0.00')
    assert (
        max(found['without prefix tokens']) < 7e-7
        and 'without prefix tokens 7e-7' in text
    )


def test_parity_with_timm() -> None:
    models = rows('docs/parity.csv')
    largest = max(
        float(row[name]) for row in models for name in row if 'difference' in name
    )
    within = f'{largest:.1e}'.replace('e-0', 'e-')
    assert f"{len(models)} architectures equal timm's within {within}" in WORDS


@pytest.mark.parametrize(
    'program, pictures',
    [
        ('research/sizes.py', ['sizes.png']),
        (
            'pictures/draw.py',
            [
                f'pictures/{n}.png'
                for n in ('layers', 'windows', 'views', 'tiles', 'scores')
            ],
        ),
    ],
)
def test_pictures_are_drawn(program: str, pictures: list[str], tmp_path: Path) -> None:
    given = tmp_path if len(pictures) > 1 else tmp_path / pictures[0]
    runpy.run_path(str(ROOT / 'docs' / program))['main'](given)
    for picture in pictures:
        drawn, stored = (
            imread(tmp_path / Path(picture).name),
            imread(ROOT / 'docs' / picture),
        )
        assert drawn.shape == stored.shape


def test_predictions_are_drawn(tmp_path: Path) -> None:
    """The middle ones of folders, or a picture, whole in rows as wide as each other."""
    for folder, number, width in (('boxes', 5, 80), ('depth', 1, 40)):
        (tmp_path / folder / 'pictures').mkdir(parents=True)
        for index in range(number):
            picture = Image.new('RGB', (width, 40), (50 * index, width, 0))
            picture.save(tmp_path / folder / f'pictures/{index}.png')
    draw = runpy.run_path(str(ROOT / 'docs/pictures/draw.py'))['predictions']
    wide, square = tmp_path / 'boxes', tmp_path / 'depth'
    drawn = draw(wide, wide / 'pictures/0.png', wide, square).convert('RGB')
    # Two wide ones above a wide one beside a square.
    assert drawn.size == (1200, 298 + 6 + 398)
    places = {(590, 5): (100, 80, 0), (610, 290): (0, 80, 0)}
    places |= {(790, 310): (100, 80, 0), (810, 700): (0, 40, 0)}
    places |= {(599, 100): (255, 255, 255), (799, 400): (255, 255, 255)}
    places |= {(599, 301): (255, 255, 255)}
    for place, colour in places.items():
        assert drawn.getpixel(place) == colour
    assert draw(wide).width == 1200


def test_configs_are_counted() -> None:
    text = (ROOT / 'configs' / 'README.md').read_text()
    table = re.findall(r'^\| (\[.*?) \|.*\| ([\d, ]+) \|$', text, re.MULTILINE)
    assert len(table) > 12
    for cell, counts in table:
        folders = [ROOT / 'configs' / name for name in re.findall(r'\]\((\S+)\)', cell)]
        for folder, count in zip(folders, counts.split(', '), strict=True):
            files = {
                path.stem for path in folder.iterdir() if path.suffix in ('.py', '.yml')
            }
            assert len(files - {'backbones', 'metafile'}) == int(count), folder
