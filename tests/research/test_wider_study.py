"""The study of temperatures in a wider view: its plan, and the tables of its page."""

import sys
from pathlib import Path

STUDY = Path(__file__).parents[2] / 'docs' / 'research' / 'scaling_study'
sys.path.insert(0, str(STUDY))

import plan  # noqa: E402
import summarize_wider  # noqa: E402


def test_the_plan_tests_every_gain():
    runs = plan.wider_runs()
    assert len({run.name for run in runs}) == len(runs) == 10
    assert not {run.seed for run in runs} & {*plan.SEEDS}
    for run, number in zip(runs[:2], (17, 13), strict=True):
        points = plan.wider_points(run)
        assert len({*points}) == len(points) == number
        assert {point.scaling for point in points} <= {*plan.SCALINGS}


def test_the_page_has_the_tables_of_the_results():
    page = (STUDY / 'wider.md').read_text(encoding='utf-8')
    assert '\n'.join(['', *summarize_wider.results(), '']) in page


def test_single_seeds_do_not_count():
    assert summarize_wider.gain_text({3: 2.0}) == '+2.00 (0.00), 1 of 1'
    three = {3: 2.0, 4: 2.5, 5: 1.5}
    assert summarize_wider.gain_text(three) == '**+2.00** (1.00), 3 of 3'
