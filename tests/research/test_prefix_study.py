"""The study of prefix tokens: its models, its predictions, its page."""

import importlib.util
import re
import sys
from pathlib import Path

import pytest
from mmengine.registry import MODELS

from rope_dense.backbones.position_bias import RelativePrefixAttention

STUDY = Path(__file__).parents[2] / 'docs' / 'research' / 'scaling_study'
sys.path.insert(0, str(STUDY))
# ``summarize_prefix`` imports ``run``, a name that benchmarks/ has, too.
spec = importlib.util.spec_from_file_location('run', STUDY / 'run.py')
study = importlib.util.module_from_spec(spec)
other = sys.modules.get('run')
sys.modules['run'] = study
spec.loader.exec_module(study)

import plan  # noqa: E402
import prefix_predictions  # noqa: E402
import scores  # noqa: E402
import summarize_prefix  # noqa: E402

del sys.modules['run']
if other is not None:
    sys.modules['run'] = other

PAGE = (STUDY / 'prefix.md').read_text(encoding='utf-8')


@pytest.mark.parametrize('run', plan.prefix_runs([0]), ids=lambda run: run.name)
def test_models_are_what_their_names_say(run: plan.Run) -> None:
    with MODELS.switch_scope_and_registry('mmseg') as models:
        backbone = models.build(study.config_of(run, Path('data')).model).backbone
    assert backbone.num_prefix_tokens == (1 if run.position.endswith('class') else 5)
    kinds = {type(block.attn) is RelativePrefixAttention for block in backbone.blocks}
    assert kinds == {run.position.endswith('relative')}
    assert (
        type(backbone.blocks[0].attn.rope)
        .__name__.lower()
        .startswith(run.position.split('_')[0])
    )
    points = plan.prefix_points(run)
    assert len({*points}) == len(points) == len(summarize_prefix.POINTS)
    assert {(point.factor, point.scaling) for point in points} == {
        *summarize_prefix.POINTS
    }


def test_predictions_of_the_page_are_all_evaluated() -> None:
    text = PAGE.split('## Predictions')[1].split('\n## ')[0]
    numbers = {int(number) for number in re.findall(r'^(\d+)\. ', text, re.MULTILINE)}
    checks = [
        *prefix_predictions.checks(scores.Scores([])),
        *prefix_predictions.spreads({}),
    ]
    assert numbers == {check.prediction for check in checks}


def test_page_has_the_tables_of_the_results() -> None:
    assert '\n'.join(['', *summarize_prefix.results(), '']) in PAGE
    assert len(scores.read(summarize_prefix.RESULTS)) == len(plan.prefix_runs()) * 7
