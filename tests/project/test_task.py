"""Every task has an entry in each table, or is refused there by name."""

from collections.abc import Collection
from typing import get_args

import pytest

from rope_dense.predict.output import FILES
from rope_dense.predict.tiles import REFUSED, RESULTS
from rope_dense.project.contents import Task
from rope_dense.report.write import SECTIONS

SEVERAL = 'several'  # has the files of each of its tasks, and no report
FEATURES = 'features'  # are no model to predict with, see ``find_model``
ROTATED = 'oriented'  # has no report


@pytest.mark.parametrize(
    'table, others',
    [
        (FILES, (SEVERAL, FEATURES)),
        ({**RESULTS, **REFUSED}, (FEATURES,)),
        (SECTIONS, (SEVERAL, ROTATED)),
    ],
    ids=[
        'FILES of predict/output.py',
        'RESULTS of predict/tiles.py',
        'SECTIONS of report/write.py',
    ],
)
def test_every_task_has_an_entry(
    table: Collection[str], others: Collection[str]
) -> None:
    assert {*table, *others} == {*get_args(Task)} and not {*table} & {*others}
