"""Texts in CSV files: no name of a class or a run is a formula of a spreadsheet."""

import csv
import io

import pytest

from rope_dense.measure.results import csv_text


@pytest.mark.parametrize(
    'name',
    ["=cmd|'/C calc'!A0", '+1', '-1', '@SUM(A1)', '\tx', '\rx\ry\nz'],
)
def test_a_formula_is_a_text(name: str) -> None:
    text = csv_text([{name: 0.5, 'label': name}])
    cell = "'" + name.replace('\r', r'\r')
    assert [*csv.reader(io.StringIO(text, newline=''))] == [
        [cell, 'label'],
        ['0.5', cell],
    ]


def test_other_values_stay() -> None:
    lines = [dict(label='a=b', value=-0.5), dict(label="it's", count=-3)]
    assert csv_text(lines) == "label,value,count\na=b,-0.5,\nit's,,-3\n"
