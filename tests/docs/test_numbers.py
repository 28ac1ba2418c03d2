"""README.md and configs/README.md: their numbers are those of their sources."""

import csv
import re
import runpy
from pathlib import Path

import pytest
from matplotlib.image import imread
from PIL import Image

from rope_dense.research.papers import read_paper_tables

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
    assert f'has {mixed[224]} there, {mixed[320]} at 320 and {mixed[512]} at 512' in WORDS
    assert all(mixed[size] > ape[size] for size in table['sizes'])  # ahead at every size


def test_twice_the_size() -> None:
    measured = [
        row
        for row in rows('docs/research/scaling_study/results.csv')
        if (row['way'], row['backbone']) == ('finer', 'vit') and not row['tuned'] + row['tested']
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
    ours, other = found['rope_dense, mixed, window 16'], found['detectron2 / SAM form, window 14']
    bare = found['rope_dense, no position, window 14']
    memory = float(ours['peak_tensors_mb']) / float(other['peak_tensors_mb'])
    assert f'{times(ours, other):.2f} times as fast' in WORDS
    assert (
        f'with {memory:.2f} of the memory; without any position {times(bare, other):.2f}' in WORDS
    )
    ratio = times(found['rope_dense, mixed'], found['timm, mixed'])
    assert f"ViT-B with mixed RoPE is {ratio:.2f} times as fast as timm's" in WORDS
    [latency] = [
        float(row['median_ms'])
        for row in rows('benchmarks/results/gpu-realtime.csv')
        if row['implementation'] == 'rope_dense, deployed, graph'
        and (row['batch'], row['dtype']) == ('1', 'float16')
    ]
    assert f'DEIMv2-S takes {latency:.1f} ms an image' in WORDS


def times(row: dict, other: dict) -> float:
    return float(other['median_ms']) / float(row['median_ms'])


def test_parity_with_timm() -> None:
    models = rows('docs/parity.csv')
    largest = max(float(row[name]) for row in models for name in row if 'difference' in name)
    within = f'{largest:.1e}'.replace('e-0', 'e-')
    assert f"{len(models)} architectures equal timm's within {within}" in WORDS


@pytest.mark.parametrize(
    'program, pictures',
    [
        ('research/sizes.py', ['sizes.png']),
        (
            'pictures/draw.py',
            [f'pictures/{n}.png' for n in ('windows', 'views', 'tiles', 'scores')],
        ),
    ],
)
def test_pictures_are_drawn(program: str, pictures: list[str], tmp_path: Path) -> None:
    given = tmp_path if len(pictures) > 1 else tmp_path / pictures[0]
    runpy.run_path(str(ROOT / 'docs' / program))['main'](given)
    for picture in pictures:
        drawn, stored = imread(tmp_path / Path(picture).name), imread(ROOT / 'docs' / picture)
        assert drawn.shape == stored.shape


def test_predictions_are_drawn(tmp_path: Path) -> None:
    (tmp_path / 'pictures').mkdir()
    for index in range(13):
        Image.new('RGB', (40 + index, 30), (20 * index, 0, 0)).save(
            tmp_path / f'pictures/{index:02}.png'
        )
    draw = runpy.run_path(str(ROOT / 'docs/pictures/draw.py'))['predictions']
    drawn = draw(tmp_path).convert('RGB')
    assert drawn.size == Image.open(ROOT / 'docs/pictures/predictions.png').size
    reds = [drawn.crop((200 * i, 0, 200 * i + 1, 1)).tobytes()[0] for i in range(6)]
    assert reds == [20 * index for index in (1, 3, 5, 7, 9, 11)]


def test_configs_are_counted() -> None:
    text = (ROOT / 'configs' / 'README.md').read_text()
    table = re.findall(r'^\| (\[.*?) \|.*\| ([\d, ]+) \|$', text, re.MULTILINE)
    assert len(table) > 12
    for cell, counts in table:
        folders = [ROOT / 'configs' / name for name in re.findall(r'\]\((\S+)\)', cell)]
        for folder, count in zip(folders, counts.split(', '), strict=True):
            files = {path.stem for path in folder.iterdir() if path.suffix in ('.py', '.yml')}
            assert len(files - {'backbones', 'metafile'}) == int(count), folder
