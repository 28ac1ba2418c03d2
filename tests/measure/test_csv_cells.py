"""Texts in CSV files: no name of a class or a run is a formula of a spreadsheet."""

import csv
import io
import json
import math

import numpy as np
import pytest

from rope_dense.measure.results import csv_text, json_text


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


def test_json_has_no_number_that_is_not_finite() -> None:
    content = dict(a=[math.nan, -math.inf, np.float32(0.5)], b={1: np.arange(2)})
    assert json.loads(json_text(content)) == {
        'a': [None, None, 0.5],
        'b': {'1': [0, 1]},
    }
    assert 'NaN' not in json_text(content) and 'Infinity' not in json_text(content)
