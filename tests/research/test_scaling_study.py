"""The study of frequency scalings: its plan, its runs on a few generated images, its tables."""

import importlib.util
import json
import re
import sys
from pathlib import Path

import cv2
import numpy as np
import pytest
import torch
from mmengine.registry import MODELS
from mmseg.evaluation import IoUMetric
from mmseg.structures import SegDataSample

from rope_dense.backbones.position_bias import TableBiasAttention

STUDY = Path(__file__).parents[2] / 'docs' / 'research' / 'scaling_study'
sys.path.insert(0, str(STUDY))

import plan  # noqa: E402
import predictions  # noqa: E402
import scores  # noqa: E402
import summarize  # noqa: E402
import verdicts  # noqa: E402

# Under a name of its own: benchmarks/ has a run.py, too.
spec = importlib.util.spec_from_file_location('scaling_study_run', STUDY / 'run.py')
study = importlib.util.module_from_spec(spec)
spec.loader.exec_module(study)

pytestmark = pytest.mark.usefixtures('surroundings')

TINY = 'finer_vit_axial_rescale|extent_swin_bias|augmented_vit_ape|extent_vit_none_'
SEED_0 = plan.runs([0])
ROWS = [
    dict(zip(scores.COLUMNS, row, strict=True))
    for row in (
        ('0', 'finer', 'vit', 'axial', '', '', '1.0', 'kept', 'none', '20.0'),
        ('0', 'finer', 'vit', 'axial', '', '', '2.0', 'kept', 'none', '10.0'),
        ('0', 'finer', 'vit', 'axial', '', '', '2.0', 'kept', 'linear', '15.0'),
        ('1', 'finer', 'vit', 'axial', '', '', '1.0', 'kept', 'none', '22.0'),
        ('1', 'finer', 'vit', 'axial', '', '', '2.0', 'kept', 'none', '13.0'),
        ('1', 'finer', 'vit', 'axial', '', '', '2.0', 'kept', 'linear', '16.5'),
    )
]


@pytest.fixture(scope='module')
def data_root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root, draw = tmp_path_factory.mktemp('camvid'), np.random.default_rng(0)
    for split, number in dict(training=8, validation=4).items():
        for kind, suffix, shape in (
            ('images', 'jpg', (3,)),
            ('annotations', 'png', ()),
        ):
            (root / kind / split).mkdir(parents=True)
            for index in range(number):
                coarse = draw.integers(0, 11, (6, 8, *shape), dtype=np.uint8)
                pixels = cv2.resize(
                    coarse, plan.WHOLE[::-1], interpolation=cv2.INTER_NEAREST
                )
                pixels = (
                    pixels * 23
                    if shape
                    else np.where(pixels == 5, study.IGNORED, pixels)
                )
                assert cv2.imwrite(
                    str(root / kind / split / f'{index}.{suffix}'), pixels
                )
    return root


@pytest.fixture(scope='module')
def out(tmp_path_factory: pytest.TempPathFactory, data_root: Path) -> Path:
    """Results of four trainings of one iteration, of a fine-tuning and of tests another way."""
    folder = tmp_path_factory.mktemp('out')
    study.main(arguments(data_root, folder))
    return folder


def arguments(data_root: Path, out: Path) -> list[str]:
    folders = ['--data-root', str(data_root), '--out', str(out)]
    return [*folders, '--seeds', '0', '--iterations', '1', '--only', TINY]


def test_plan_is_seed_by_seed_and_has_each_run_once() -> None:
    runs = plan.runs()
    assert [run.seed for run in runs] == sorted(run.seed for run in runs)
    assert len({run.name for run in runs}) == len(runs) == 189
    assert all(
        run.parent is None or runs.index(run.parent) < runs.index(run) for run in runs
    )


@pytest.mark.parametrize('run', SEED_0, ids=lambda run: run.name)
def test_models_are_as_named_and_take_every_scaling(run: plan.Run) -> None:
    config = study.config_of(run, Path('data'))
    with MODELS.switch_scope_and_registry('mmseg') as models:
        model = models.build(config.model)
    attn = model.backbone.ordered_blocks[0].attn
    kinds = dict(axial='AxialRoPE', mixed='MixedRoPE', log='LogAxialRoPE')
    name, _, suffix = run.position.partition('_')
    assert (type(attn.rope).__name__ if attn.rope else None) == kinds.get(name)
    assert isinstance(attn, TableBiasAttention) == (name == 'bias')
    assert (getattr(model.backbone, 'pos_embed', None) is not None) == (name == 'ape')
    if name in ('axial', 'mixed'):
        coordinates = attn.rope.coordinates
        assert (coordinates.rescale, coordinates.is_normalized) == (
            2.0 if suffix == 'rescale' else None,
            suffix == 'reference',
        )
    for point in plan.points(run):
        study.set_point(model, point)
    size = plan.WHOLE if run.tuned else plan.SIZE
    assert config.model.data_preprocessor.size == size


@pytest.mark.parametrize('factor', plan.FACTORS['extent'])
def test_each_pixel_is_scored_once_in_a_view_that_contains_it(factor: float) -> None:
    times = np.zeros(plan.WHOLE, int)
    for seen, scored in zip(*study.views(factor), strict=True):
        top, left, height, width = scored
        times[top : top + height, left : left + width] += 1
        assert seen[0] <= top and top + height <= seen[0] + seen[2] <= plan.WHOLE[0]
        assert seen[1] <= left and left + width <= seen[1] + seen[3] <= plan.WHOLE[1]
        assert seen[2:] == tuple(round(side * factor) for side in plan.SIZE)
    assert (times == 1).all()


@pytest.mark.slow
def test_runs_train_and_are_tested(out: Path, data_root: Path) -> None:
    results = sorted(out.glob('results/*.json'))
    assert len(results) == 6
    valid = sum(
        (label != study.IGNORED).sum() for _, label in study.load_scenes(data_root)
    )
    for path in results:
        content = json.loads(path.read_text())
        run = plan.Run(**content['run'])
        assert path.stem == run.name
        tested = [plan.Point(p['factor'], p['scaling'], p['grown_windows'])
                  for p in content['points']]  # fmt: skip
        assert tested == plan.points(run)
        assert all(
            torch.tensor(p['confusion']).sum() == valid for p in content['points']
        )
    before, after = (
        torch.load(out / 'weights' / f'{name}_seed0.pth')
        for name in ('extent_vit_none', 'extent_vit_none_tuned_none')
    )
    assert before.keys() == after.keys()
    assert any(not torch.equal(before[name], after[name]) for name in before)


@pytest.mark.slow
def test_finished_runs_are_not_repeated_and_stopped_ones_are(
    out: Path, data_root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    results = {path: path.read_text() for path in out.glob('results/*.json')}
    monkeypatch.setattr(
        study, 'train', lambda run, args: pytest.fail(f'{run.name} is trained')
    )
    study.main(arguments(data_root, out))
    lost = out / 'results' / 'augmented_vit_ape_seed0.json'
    lost.unlink()  # as if stopped while it was tested
    study.main(arguments(data_root, out))
    assert json.loads(lost.read_text())['points'] == json.loads(results[lost])['points']


def test_runs_are_selected_with_those_they_start_from() -> None:
    folders = ['--data-root', 'data', '--out', 'out', '--seeds', '1']
    args = study.parse_args([*folders, '--only', 'extent_vit_none_tuned'])
    names = [run.name for run in study.select(args)]
    assert names == ['extent_vit_none_seed1', 'extent_vit_none_tuned_none_seed1']


def test_only_one_process_has_a_run(tmp_path: Path, data_root: Path) -> None:
    args = study.parse_args(arguments(data_root, tmp_path))
    run = plan.Run(0, 'extent', 'vit', 'none')
    with study.claim(tmp_path / 'locks' / run.name) as first:
        assert first
        assert not study.execute(run, args)
    tuned = plan.Run(0, 'extent', 'vit', 'none', tuned='none')
    assert not study.execute(tuned, args)  # its parent is not trained yet
    assert not list(tmp_path.glob('results/*'))


@pytest.mark.parametrize('factor', [0.5, 2.0, 3.0])
def test_predictions_and_score_are_those_of_mmseg(
    data_root: Path, factor: float
) -> None:
    config = study.config_of(plan.Run(0, 'finer', 'vit', 'mixed'), data_root)
    with MODELS.switch_scope_and_registry('mmseg') as models:
        model = models.build(config.model).eval()
    scenes = study.load_scenes(data_root)
    metric = IoUMetric(iou_metrics=['mIoU'])
    metric.dataset_meta = dict(classes=range(study.NUM_CLASSES))
    for image, label in scenes:
        inputs = study.resized(image, factor).permute(2, 0, 1)
        size = tuple(inputs.shape[1:])
        info = dict(img_shape=size, ori_shape=plan.WHOLE, pad_shape=size)
        data = dict(inputs=[inputs], data_samples=[SegDataSample(metainfo=info)])
        with torch.no_grad():
            (sample,) = model.test_step(data)
        areas = metric.intersect_and_union(
            sample.pred_sem_seg.data[0], label.long(), study.NUM_CLASSES, study.IGNORED
        )
        metric.results.append(areas)
    matrix = study.confusion(model, scenes, 'finer', factor)
    expected = metric.compute_metrics(metric.results)['mIoU']
    assert study.mean_iou(matrix) == pytest.approx(
        expected, abs=0.006
    )  # mmseg rounds to 0.01


@pytest.mark.slow
def test_results_are_gathered(out: Path) -> None:
    rows = scores.gather(out)
    assert len(rows) == sum(
        len(plan.points(run)) for run in SEED_0 if re.search(TINY, run.name)
    )
    found = scores.Scores(rows)
    assert found('augmented', 'ape', 3).keys() == {0}
    assert found('extent', 'bias', 2, backbone='swin', windows='grown').keys() == {0}
    assert found('extent', 'none', 2, tuned='none').keys() == {0}
    assert found('extent', 'none', 3, tested='finer').keys() == {0}
    assert summarize.finished(rows) == 6


def test_what_counts_as_a_difference() -> None:
    found = scores.Scores(ROWS)
    assert found.change('finer', 'axial') == {0: -10.0, 1: -9.0}
    ahead = scores.less(
        found('finer', 'axial', 2, 'linear'), found('finer', 'axial', 2)
    )
    assert ahead == {0: 5.0, 1: 3.5}
    assert (scores.spread(ahead), scores.counts(ahead)) == (1.5, True)
    assert not scores.counts({0: 1.0, 1: 3.1, 2: 2.0})  # mean 2.03, range 2.1
    assert not scores.counts({0: 0.4, 1: 0.4, 2: 0.4})
    held = [
        verdicts.Check(1, '', ahead, **bounds).held
        for bounds in (dict(low=4), dict(low=4.5), dict(high=5), dict(nothing=True))
    ]
    assert held == [True, False, True, False]
    assert not verdicts.Check(1, '', {0: 1.0, 1: 4.0}, low=0.5).held  # does not count
    assert verdicts.Check(1, '', {0: -1.0, 1: 1.0}, low=-2, high=2).held


def test_every_prediction_is_checked() -> None:
    text = (STUDY / 'README.md').read_text(encoding='utf-8')
    numbers = {int(number) for number in re.findall(r'^(\d+)\. ', text, re.MULTILINE)}
    checks = list(predictions.checks(scores.Scores([])))
    assert numbers == {check.prediction for check in checks} == set(range(1, 14))


def test_tables_of_a_few_results() -> None:
    lines = summarize.results(ROWS) + summarize.tables(ROWS)
    assert '| axial | none | - | 21.0 (2.0) | - | 11.5 (3.0) | - |' in lines
    assert '| axial | linear | - | - | - | 15.8 (1.5) | - |' in lines
    assert (
        '| 2 | finer at 2, axial: linear less none | +4.2 | 1.5 | at least 4 | '
        'yes (2 of 3 seeds) |' in lines
    )


def test_page_has_the_tables_of_the_results() -> None:
    page = (STUDY / 'README.md').read_text(encoding='utf-8')
    assert summarize.with_results(page, scores.read()) == page
    tables = (STUDY / 'tables.md').read_text(encoding='utf-8')
    assert '\n'.join(summarize.tables(scores.read())) == tables


def test_figures_are_drawn(tmp_path: Path) -> None:
    found = scores.Scores(scores.read())
    for name in ('growth', 'by_parts'):
        getattr(summarize, f'draw_{name}')(found, tmp_path / 'figure.png')
        assert cv2.imread(str(tmp_path / 'figure.png')).std() > 1
