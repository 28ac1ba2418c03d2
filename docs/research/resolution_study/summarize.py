"""Tables and plots of the resolution study from the results of its sweeps.

    python docs/research/resolution_study/summarize.py work_dirs/study

reads FOLDER/NAME_seedN/resolutions.json, writes results.csv, vit.png and swin.png beside this file
and prints the tables of README.md. Figures are mIoU in percent, means over the seeds.
"""

import csv
import re
import sys
from pathlib import Path
from statistics import mean

from matplotlib.figure import Figure

from rope_dense.measure.results import read_results

HERE = Path(__file__).parent
FOLDER = re.compile(
    r'upernet_(?P<model>vit|swin)_(?P<variant>\w+)_shapes_seed(?P<seed>\d+)'
)
NAMES = {
    'ape': 'APE',
    'rpb': 'RPB',
    'rope_axial': 'axial',
    'rope_mixed': 'mixed',
    'rope_mixed_ape': 'mixed + APE',
}
COLOURS = dict(
    zip(NAMES, ('#777777', '#777777', '#54699a', '#e76f51', '#269db2'), strict=True)
)
Row = dict[str, str | int | float]
Key = tuple[str | int, ...]


def read(folder: Path) -> list[Row]:
    rows = []
    for path in sorted(folder.glob('*_seed*/resolutions.json')):
        run = FOLDER.fullmatch(path.parent.name).groupdict()
        for row in read_results(path)['rows']:
            scaling = row.get('given') or row['scaling']
            setting = dict(size=row['height'], window=row['window'], scaling=scaling)
            rows.append(run | setting | dict(mIoU=row['metrics']['mIoU']))
    if not rows:
        sys.exit(f'{folder}: no NAME_seedN/resolutions.json in it')
    return rows


def by_seed(rows: list[Row], *names: str) -> dict[Key, list[float]]:
    """The figures of all seeds for each combination of values in the columns ``names``."""
    runs: dict[Key, list[float]] = {}
    for row in rows:
        runs.setdefault(tuple(row[name] for name in names), []).append(row['mIoU'])
    return runs


def print_table(rows: list[Row], column: str) -> None:
    """A line for each variant and scaling, one column for each value of ``column``."""
    runs = by_seed(rows, 'variant', 'scaling', column)
    columns = sorted({key[-1] for key in runs}, key=int)
    print(f'\n| variant | scaling | {" | ".join(map(str, columns))} |')
    print('|---|---|' + '---:|' * len(columns))
    for variant, scaling in dict.fromkeys(key[:2] for key in runs):
        cells = [mean(runs[variant, scaling, value]) for value in columns]
        print(
            f'| {NAMES[variant]} | {scaling} | {" | ".join(f"{cell:.1f}" for cell in cells)} |'
        )
    spread = [max(values) - min(values) for values in runs.values()]
    seeds = {len(values) for values in runs.values()}
    print(
        f'\nseeds: {seeds}; between seeds: {mean(spread):.1f} on average, at most {max(spread):.1f}'
    )


def draw(
    panels: dict[str, list[Row]], column: str, trained: int, label: str, path: Path
) -> None:
    """mIoU against ``column``, a panel for each selection; thin lines are single seeds."""
    figure = Figure(figsize=(4.2 * len(panels), 3.8), layout='constrained')
    for axes, (title, rows) in zip(
        figure.subplots(1, len(panels), squeeze=False)[0], panels.items(), strict=True
    ):
        runs = by_seed(rows, 'variant', column)
        for variant in dict.fromkeys(key[0] for key in runs):
            lines = {
                int(key[1]): values for key, values in runs.items() if key[0] == variant
            }
            x = sorted(lines)
            colour = COLOURS[variant]
            for seeds in zip(*(lines[value] for value in x), strict=True):
                axes.plot(x, seeds, color=colour, linewidth=0.6, alpha=0.6)
            means = [mean(lines[value]) for value in x]
            axes.plot(
                x, means, color=colour, marker='o', markersize=4, label=NAMES[variant]
            )
        axes.axvline(trained, color='gray', linestyle=(0, (1, 2)), linewidth=1)
        axes.set(
            xlabel=label, title=title, xticks=sorted({int(key[1]) for key in runs})
        )
        axes.tick_params(axis='x', labelsize=8)
        axes.spines[['top', 'right']].set_visible(False)
        axes.grid(alpha=0.3)
    figure.axes[0].set_ylabel('mIoU (%)')
    figure.axes[0].legend(frameon=False, fontsize=8)
    figure.savefig(path, dpi=130)


def main(folder: Path) -> None:
    rows = read(folder)
    with open(HERE / 'results.csv', 'w', newline='', encoding='utf-8') as file:
        writer = csv.DictWriter(file, rows[0])
        writer.writeheader()
        writer.writerows(rows)
    vit = [row for row in rows if row['model'] == 'vit']
    print_table(vit, 'size')
    plain = [row for row in vit if row['scaling'] == 'none']
    ape = {
        (row['seed'], row['size']): row['mIoU']
        for row in plain
        if row['variant'] == 'ape'
    }
    ahead = [
        row | dict(mIoU=row['mIoU'] - ape[row['seed'], row['size']]) for row in plain
    ]
    panels = {'frequencies as trained': plain, 'points ahead of APE': ahead}
    draw(panels, 'size', 128, 'image side in pixels', HERE / 'vit.png')
    panels = {}
    for size in sorted({row['size'] for row in rows if row['model'] == 'swin'}):
        swin = [row for row in rows if row['model'] == 'swin' and row['size'] == size]
        print(f'\n{size} px')
        print_table(swin, 'window')
        panels[f'images of {size} px'] = [
            row for row in swin if row['scaling'] == 'none'
        ]
    draw(panels, 'window', 7, 'window side in tokens', HERE / 'swin.png')


if __name__ == '__main__':
    main(Path(sys.argv[1]))
