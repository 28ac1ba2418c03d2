"""The study of kinds of positions: its models, its tests at larger sizes, its page."""

import importlib.util
import re
import sys
from pathlib import Path

import pytest
from mmengine.registry import MODELS

STUDY = Path(__file__).parents[2] / 'docs' / 'research' / 'scaling_study'
sys.path.insert(0, str(STUDY))

import kind_predictions  # noqa: E402
import plan  # noqa: E402
import scores  # noqa: E402
import summarize_kinds  # noqa: E402
from kinds.distance_bias import MeasuredAttention  # noqa: E402

# Under a name of its own: benchmarks/ has a run.py, too.
spec = importlib.util.spec_from_file_location('kind_study_run', STUDY / 'run.py')
study = importlib.util.module_from_spec(spec)
spec.loader.exec_module(study)

PAGE = (STUDY / 'kinds.md').read_text(encoding='utf-8')
FIRST = [run for run in plan.kind_runs([0]) if run.way == 'finer']


@pytest.mark.parametrize('run', FIRST, ids=lambda run: run.name)
def test_models_take_every_scaling(run: plan.Run) -> None:
    with MODELS.switch_scope_and_registry('mmseg') as models:
        model = models.build(study.config_of(run, Path('data')).model)
    rope = model.backbone.ordered_blocks[0].attn.rope
    assert (rope is not None and rope.coordinates.rescale) == (
        2.0 if run.position.endswith('_rescale') else None if rope else False
    )
    points = plan.kind_points(run)
    assert len(points) == len(set(points))
    for point in points:
        study.set_point(model, point)
    measured = isinstance(model.backbone.ordered_blocks[0].attn, MeasuredAttention)
    assert any('distances' in point.scaling for point in points) == measured


def test_predictions_of_the_page_are_all_evaluated() -> None:
    text = PAGE.split('## Predictions')[1].split('\n## ')[0]
    numbers = {int(number) for number in re.findall(r'^(\d+)\. ', text, re.MULTILINE)}
    empty = scores.Scores([])
    checks = [*kind_predictions.checks(empty), *kind_predictions.boxes(empty)]
    assert numbers == {
        check.prediction for check in [*checks, *summarize_kinds.spectrum_checks()]
    }


def test_page_has_the_tables_of_the_results() -> None:
    assert '\n'.join(['', *summarize_kinds.results(), '']) in PAGE
