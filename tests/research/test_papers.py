"""The papers' tables: against checksums, against each other, and as runs to compare with."""

import copy
import hashlib
import json
import re
from pathlib import Path

import pytest

from research.comparison import relative_to
from research.papers import expand_sizes, read_paper_tables, read_runs

ROOT = Path(__file__).resolve().parents[2]
TABLES = read_paper_tables()
TOP1 = {
    name: table for name, table in TABLES.items() if table['metric'] == 'accuracy/top1'
}
# The first digits of the SHA-256 of each table, which was compared with its paper number by number.
# A table changes together with its checksum, after another comparison.
CHECKSUMS = {
    'table-5': 'ca890ca21b1e',
    'table-a.1': '13da60587f17',
    'table-a.2': 'f15b3def79fb',
    'table-a.3': '1f91f7b13a7e',
    'table-a.4': '78f9d50cd3d5',
    'table-a.5': '5c36bb607456',
    'table-a.6': 'd312e16ce149',
    'table-a.7': '9205491a5fd4',
    'table-a.8': 'db669c0d7a8a',
    'table-a.9': '5df3f015f575',
    'table-a.10': 'ad67b11b1915',
    'fused-table-2': '714d57df6efe',
    'fused-table-3-na': '59797d33dfe6',
    'fused-table-3': '2089f5605520',
    'fused-table-4': '4f9e516354ed',
    'fused-table-5': '6247790f0997',
    'fused-table-6': '6b9a7c8f2304',
    'fused-table-8': '3d6092e58072',
    'fused-table-9': '6867f3830495',
    'fused-table-10': 'c496faf9ccab',
    'fused-table-11': '8d0943dcd7da',
    'fused-table-11-speed': '6c7747db37cf',
    'fused-table-14-real': 'b021f9010203',
    'fused-table-14-v2': '00ab63a9e199',
    'fused-table-15-a': '38bc0b283c5c',
    'fused-table-15-r': '1e41b84f0db1',
}


def checksum(table: dict) -> str:
    """Of the numbers of a table, with the names of its rows and columns."""
    content = [table.get('sizes') or table['columns'], list(table['rows'].items())]
    return hashlib.sha256(json.dumps(content).encode()).hexdigest()[:12]


def test_numbers_are_those_of_the_papers() -> None:
    assert {name: checksum(table) for name, table in TABLES.items()} == CHECKSUMS


def test_a_changed_number_changes_the_checksum() -> None:
    table = copy.deepcopy(TABLES['fused-table-4'])
    assert table['rows']['vit-s_rpb'][-1] == 73.89
    table['rows']['vit-s_rpb'][-1] = 73.9
    assert checksum(table) != CHECKSUMS['fused-table-4']


def test_every_table_is_complete() -> None:
    for name, table in TABLES.items():
        columns = table.get('sizes') or table['columns']
        assert all(len(values) == len(columns) for values in table['rows'].values()), (
            name
        )
        assert table['paper'] == ('fused' if name.startswith('fused') else 'heo')
        if 'sizes' in table:
            assert table['sizes'] == sorted(set(table['sizes']))
    assert all(
        0 < x < 100 for t in TOP1.values() for row in t['rows'].values() for x in row
    )


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
def test_tables_agree_where_they_have_the_same(
    tables: tuple[str, str], places: int
) -> None:
    first, second = (TABLES[name]['rows'].keys() for name in tables)
    assert first & second
    for row in first & second:
        curves = [curve(table, row) for table in tables]
        sizes = curves[0].keys() & curves[1].keys()
        assert sizes
        for size in sizes:
            assert round(curves[0][size], places) == round(curves[1][size], places), (
                row,
                size,
            )


def test_improvements_are_the_differences() -> None:
    """Of numbers that were rounded before: 0.1 either way."""
    for name in ('table-a.9', 'table-a.10'):
        table, baseline = TABLES[name]['baseline'].split(':')
        assert len(TABLES[name]['rows']) == 2
        for row in TABLES[name]['rows']:
            own, other, printed = (
                curve(table, row),
                curve(table, baseline),
                curve(name, row),
            )
            sizes = own.keys() & printed.keys()
            assert len(sizes) >= 6
            for size in sizes:
                assert printed[size] == pytest.approx(
                    own[size] - other[size], abs=0.11
                ), row


def test_ablations_repeat_rows_of_the_main_tables() -> None:
    """Tables 8 and 9 are corners of Tables 5 and 4, and Table 10 has a row of Table 4."""
    for table, source, form in (
        ('fused-table-8', 'fused-table-5', 'vit-s_{}_k2_per-head'),
        ('fused-table-9', 'fused-table-4', 'vit-s_{}_k1_shared'),
    ):
        number = table[-1]
        for kind, row in (
            ('2d', 'exponential_index'),
            ('log-axial', 'bounded-log_unit'),
        ):
            expected = curve(source, form.format(kind))[224]
            assert curve(table, f'vit-s_table{number}_{row}')[224] == pytest.approx(
                expected, abs=0.051
            )
    shared = curve('fused-table-4', 'vit-s_log-axial_k8_shared')[224]
    assert curve('fused-table-10', 'vit-s_table10')[224] == pytest.approx(
        shared, abs=0.051
    )
    for name in (
        'fused-table-14-real',
        'fused-table-14-v2',
        'fused-table-15-a',
        'fused-table-15-r',
    ):
        assert TABLES[name]['rows'].keys() == TABLES['fused-table-2']['rows'].keys()


def test_configs_of_ablations_quote_their_row() -> None:
    paths = sorted((ROOT / 'configs' / 'research' / 'ablation').glob('*.py'))
    assert len(paths) == 17
    for path in paths:
        text = path.read_text()
        (value,) = re.findall(r'As published: ([\d.]+) %', text)
        table = re.findall(r'Tables? (\d+)', text)[-1]
        row = curve(f'fused-table-{table}', path.stem.removesuffix('_in1k'))
        assert float(value) == row[224]


def test_the_guide_has_the_numbers() -> None:
    """Tables A.3 to A.8 at 224 pixels, and the name of every table, in classification.md."""
    text = (ROOT / 'docs' / 'research' / 'classification.md').read_text()
    models = ('vit-s', 'vit-b', 'vit-l', 'swin-t', 'swin-s', 'swin-b')
    printed = re.findall(
        r'^\| ([a-z][^|]+) \|((?: \d\d\.\d \|){6})$', text, re.MULTILINE
    )
    assert len(printed) == 5
    for line, (_, cells) in enumerate(printed):
        for number, (model, cell) in enumerate(
            zip(models, cells.split('|'), strict=False), 3
        ):
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
    assert (
        ape['rows'][1]['metrics'] == {'accuracy/top1': 79.1}
        and ape['rows'][1]['height'] == 144
    )
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
    (ape,), (mixed,) = (
        read_runs('', f'table-a.4:vit-b_{x}') for x in ('ape', 'rope-mixed')
    )
    difference, left_out = relative_to(ape, mixed, 'accuracy/top1')
    assert left_out == []
    values = {
        row['size']: row['metrics']['accuracy/top1'] for row in difference['rows']
    }
    assert values['512'] == 2.4 and values['192'] == 0.1 and len(values) == 8
    assert mixed['rows'][0]['metrics'] == {'accuracy/top1': 68.1}  # as it was
    (swin,) = read_runs('', 'table-a.8:swin-b_rpb')
    common, left_out = relative_to(ape, swin, 'accuracy/top1')
    assert [row['height'] for row in common['rows']] == [96, 192, 224, 256, 320, 384]
    assert left_out == [128, 160]
    for other in (dict(scaling='linear', height=97, width=97), dict(width=128)):
        two = dict(ape, rows=[*ape['rows'], dict(ape['rows'][0], **other)])
        with pytest.raises(
            ValueError, match=r'vit-b_ape, table-a.4 must have one scaling'
        ):
            relative_to(two, mixed, 'accuracy/top1')
    factors = [
        dict(x, scaling=f'linear:{x["height"] / 224}', given='linear')
        for x in ape['rows']
    ]
    assert relative_to(dict(ape, rows=factors), mixed, 'accuracy/top1')[1] == []
    with pytest.raises(ValueError, match='has mIoU at no size of vit-b_ape'):
        relative_to(ape, mixed, 'mIoU')


def test_the_benchmarks_quote_the_gains_of_the_operator() -> None:
    """benchmarks/README.md has the cells of Table 6, mean / least / largest."""
    text = (ROOT / 'benchmarks' / 'README.md').read_text()
    rows = list(TABLES['fused-table-6']['rows'].values())
    for number, bits in enumerate(('16-16', '16-32', '32-32')):
        cells = [' / '.join(map(str, row)) for row in rows[3 * number : 3 * number + 3]]
        line = f'| {bits} | {" | ".join(cells)} |'
        assert line.replace('illegible', 'not legible') in text
