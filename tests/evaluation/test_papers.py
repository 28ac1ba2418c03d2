"""The papers' tables: against their transcript, against each other, and as runs to compare with."""

import itertools
import re
from pathlib import Path

import pytest

from rope_dense.evaluation.papers import expand_sizes, paper_tables, read_runs, relative_to

ROOT = Path(__file__).resolve().parents[2]
TABLES = paper_tables()
TOP1 = {name: table for name, table in TABLES.items() if table['metric'] == 'accuracy/top1'}
# How the part of the transcript begins that has a table, and what comes after it.
PARTS = {
    'table-5': (r'Table 5 \(top-1\)', 'Tables A.1'),
    'table-a.1': ('- S Axial', '- B Axial'),
    'table-a.2': ('- B Axial', 'Tables A.3'),
    'table-a.3': ('- S: APE', '- B: APE'),
    'table-a.4': ('- B: APE', '- L: APE'),
    'table-a.5': ('- L: APE', 'Tables A.6'),
    'table-a.6': ('- T: RPB', '- S: RPB'),
    'table-a.7': ('- S: RPB', '- B: RPB'),
    'table-a.8': ('- B: RPB', 'Table A.9'),
    'table-a.9': (r'Table A\.9', 'Table A.10'),
    'table-a.10': (r'Table A\.10', 'Claims'),
    'fused-table-2': ('Table 2, top-1', 'Table 3'),
    'fused-table-3-na': (r'\| NAT Mini', '| model'),
    'fused-table-3': (r'\| Swin Tiny', 'Table 4'),
    'fused-table-4': ('RPB: ', 'Table 5'),
    'fused-table-5': (r'Table 5 \(non-shared\)', 'Table 6'),
    'fused-table-8': ('Table 8', 'Table 9'),
    'fused-table-9': ('Table 9', 'Table 10'),
    'fused-table-10': ('Table 10', 'Table 11'),
    'fused-table-11': ('Table 11', 'Tables 12'),
    'fused-table-14-real': ('Table 14', 'Table 15'),
    'fused-table-15-a': ('Table 15', 'Evaluation'),
}
TOGETHER = {
    'fused-table-11': 'fused-table-11-speed',
    'fused-table-14-real': 'fused-table-14-v2',
    'fused-table-15-a': 'fused-table-15-r',
}
NO_NUMBERS = r'\(.*?\)|\[.*?\]|[kd]=\d+|sizes [\d,]+|S-224|top-1|^Table [\dA.]+'


def transcript(text: str, name: str) -> list[float]:
    """The numbers of a table in the transcript."""
    if name.startswith('fused'):
        text = text[text.index('## G2') :]
    begin, end = PARTS[name]
    text = text[re.search(rf'^{begin}|{begin}', text, re.MULTILINE).start() :]
    text = re.sub(NO_NUMBERS, '', text[: text.index(end, 1)])
    return [float(number) for number in re.findall(r'\d+(?:\.\d+)?', text)]


def in_printed_order(name: str) -> list[float]:
    """The same of the file."""
    values = list(TABLES[name]['rows'].values())
    if name in ('fused-table-4', 'fused-table-5'):  # 2D / log-axial at each size
        pairs = zip(values[1::2], values[2::2], strict=True)
        values = values[: name == 'fused-table-4'] + [  # the first row is printed once
            list(itertools.chain(*zip(*pair, strict=True))) for pair in pairs
        ]
    if name in TOGETHER:
        others, step = list(TABLES[TOGETHER[name]]['rows'].values()), 1 if '11' in name else 3
        starts = range(0, len(values), step)
        values = [row for i in starts for row in values[i : i + step] + others[i : i + step]]
    return [value for row in values for value in row if value is not None]


@pytest.mark.parametrize('name', PARTS)
def test_numbers_are_those_of_the_transcript(name: str, shared_data: Path) -> None:
    path = shared_data.parent / 'papers.md'
    if not path.is_file():
        pytest.skip(f'no transcript of the papers at {path}')
    assert in_printed_order(name) == transcript(path.read_text(), name)


def test_every_table_is_compared_and_complete() -> None:
    assert {*PARTS, *TOGETHER.values()} == TABLES.keys()
    for name, table in TABLES.items():
        columns = table.get('sizes') or table['columns']
        assert all(len(values) == len(columns) for values in table['rows'].values()), name
        assert table['paper'] == ('fused' if name.startswith('fused') else 'heo')
        if 'sizes' in table:
            assert table['sizes'] == sorted(set(table['sizes']))
    assert all(0 < x < 100 for t in TOP1.values() for row in t['rows'].values() for x in row)


def curve(table: str, row: str) -> dict[int, float]:
    content = TABLES[table]
    return dict(zip(content['sizes'], content['rows'][row], strict=True))


@pytest.mark.parametrize(
    'tables, places',
    [
        (('table-a.3', 'table-a.1'), 1),
        (('table-a.4', 'table-a.2'), 1),
        (('table-a.3', 'table-5'), 1),
        (('fused-table-4', 'fused-table-5'), 2),
        (('fused-table-2', 'fused-table-10'), 1),
    ],
)
def test_tables_agree_where_they_have_the_same(tables: tuple[str, str], places: int) -> None:
    first, second = (TABLES[name]['rows'].keys() for name in tables)
    assert first & second
    for row in first & second:
        curves = [curve(table, row) for table in tables]
        sizes = curves[0].keys() & curves[1].keys()
        assert sizes
        for size in sizes:
            assert round(curves[0][size], places) == round(curves[1][size], places), (row, size)


def test_improvements_are_the_differences() -> None:
    """Of numbers that were rounded before: 0.1 either way."""
    for name in ('table-a.9', 'table-a.10'):
        table, baseline = TABLES[name]['baseline'].split(':')
        assert len(TABLES[name]['rows']) == 2
        for row in TABLES[name]['rows']:
            own, other, printed = curve(table, row), curve(table, baseline), curve(name, row)
            sizes = own.keys() & printed.keys()
            assert len(sizes) >= 6
            for size in sizes:
                assert printed[size] == pytest.approx(own[size] - other[size], abs=0.11), row


def test_ablations_repeat_rows_of_the_main_tables() -> None:
    """Tables 8 and 9 are corners of Tables 5 and 4, and Table 10 has a row of Table 4."""
    for table, source, form in (
        ('fused-table-8', 'fused-table-5', 'vit-s_{}_k2_per-head'),
        ('fused-table-9', 'fused-table-4', 'vit-s_{}_k1_shared'),
    ):
        number = table[-1]
        for kind, row in (('2d', 'exponential_index'), ('log-axial', 'bounded-log_unit')):
            expected = curve(source, form.format(kind))[224]
            assert curve(table, f'vit-s_table{number}_{row}')[224] == pytest.approx(
                expected, abs=0.051
            )
    shared = curve('fused-table-4', 'vit-s_log-axial_k8_shared')[224]
    assert curve('fused-table-10', 'vit-s_table10')[224] == pytest.approx(shared, abs=0.051)
    for name in (
        'fused-table-14-real',
        'fused-table-14-v2',
        'fused-table-15-a',
        'fused-table-15-r',
    ):
        assert TABLES[name]['rows'].keys() == TABLES['fused-table-2']['rows'].keys()


def test_configs_of_ablations_quote_their_row() -> None:
    paths = sorted((ROOT / 'configs' / 'ablation').glob('*.py'))
    assert len(paths) == 17
    for path in paths:
        text = path.read_text()
        (value,) = re.findall(r'As published: ([\d.]+) %', text)
        table = re.findall(r'Tables? (\d+)', text)[-1]
        row = curve(f'fused-table-{table}', path.stem.removesuffix('_in1k'))
        assert float(value) == row[224]


def test_the_guide_has_the_numbers() -> None:
    """docs/classification.md, Tables A.3 to A.8 at 224 pixels, and the name of every table."""
    text = (ROOT / 'docs' / 'classification.md').read_text()
    models = ('vit-s', 'vit-b', 'vit-l', 'swin-t', 'swin-s', 'swin-b')
    printed = re.findall(r'^\| ([a-z][^|]+) \|((?: \d\d\.\d \|){6})$', text, re.MULTILINE)
    assert len(printed) == 5
    for line, (_, cells) in enumerate(printed):
        for number, (model, cell) in enumerate(zip(models, cells.split('|'), strict=False), 3):
            table = f'table-a.{number}'
            row = list(TABLES[table]['rows'])[line]
            assert row.startswith(model) and curve(table, row)[224] == float(cell)
    named = set(re.findall(r'`((?:fused-)?table-[\w.-]+)`', text))
    ranges = {f'table-a.{number}' for number in range(1, 11)}
    ranges |= {'fused-table-9', 'fused-table-14-v2', 'fused-table-15-r'}
    assert named <= TABLES.keys() <= named | ranges


def test_names_stand_for_sizes() -> None:
    assert expand_sizes(['table-a.10', '640', '96x128']) == [
        *('128', '160', '192', '224', '256', '320', '384', '640', '96x128')
    ]
    for name in ('table-9', 'fused-table-3'):
        with pytest.raises(
            ValueError, match=f'--sizes {name}: no such table .* table-5, table-a.1'
        ):
            expand_sizes(['96', name])


def test_rows_are_runs() -> None:
    (ape,) = read_runs('--overlay', 'table-a.4:vit-b_ape')
    assert ape['label'] == 'vit-b_ape, table-a.4' and ape['training_size'] == (224, 224)
    assert ape['rows'][1]['metrics'] == {'accuracy/top1': 79.1} and ape['rows'][1]['height'] == 144
    assert len(read_runs('--overlay', 'table-a.4')) == 5
    for name, message in (
        ('table-a.4:ape', '--overlay table-a.4:ape: no such row; known are vit-b_ape'),
        ('none.json', '--overlay: none.json is no results file'),
        ('fused-table-3', '--overlay fused-table-3: no such table'),
        ('table-a.9', 'differences to table-a.4:vit-b_ape; give rows of table-a.4'),
    ):
        with pytest.raises(ValueError, match=message):
            read_runs('--overlay', name)


def test_a_run_relative_to_another() -> None:
    """Figure 6 of Heo et al. draws these numbers, Table A.9."""
    (ape,), (mixed,) = (read_runs('', f'table-a.4:vit-b_{x}') for x in ('ape', 'rope-mixed'))
    difference, left_out = relative_to(ape, mixed, 'accuracy/top1')
    assert left_out == []
    values = {row['size']: row['metrics']['accuracy/top1'] for row in difference['rows']}
    assert values['512'] == 2.4 and values['192'] == 0.1 and len(values) == 8
    assert mixed['rows'][0]['metrics'] == {'accuracy/top1': 68.1}  # as it was
    (swin,) = read_runs('', 'table-a.8:swin-b_rpb')
    common, left_out = relative_to(ape, swin, 'accuracy/top1')
    assert [row['height'] for row in common['rows']] == [96, 192, 224, 256, 320, 384]
    assert left_out == [128, 160]
    for other in (dict(scaling='linear', height=97, width=97), dict(width=128)):
        two = dict(ape, rows=[*ape['rows'], dict(ape['rows'][0], **other)])
        with pytest.raises(ValueError, match=r'vit-b_ape, table-a.4 must have one scaling'):
            relative_to(two, mixed, 'accuracy/top1')
    with pytest.raises(ValueError, match='has mIoU at no size of vit-b_ape'):
        relative_to(ape, mixed, 'mIoU')
