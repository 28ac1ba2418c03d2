"""What is said of the images, the evaluator, the limit and the weights of a figure."""

from dataclasses import asdict
from types import SimpleNamespace
from typing import Any

import pytest

from rope_dense.engine import figure_source
from rope_dense.engine.figure_source import EVALUATED, FigureSource, evaluator_text


class Images(list):
    """A data set with an annotation file."""

    ann_file = 'kept/val.json'


def metric(name: str, **values: Any) -> Any:
    return type(name, (), values)()


OWN = dict(
    own=dict(data_root='DATA'), own_files=dict(val=dict(ann_file='kept/val.json'))
)


@pytest.mark.parametrize(
    'asked, word',
    [
        (None, 'validation'),
        ('val', 'validation'),
        ('train', 'training'),
        ('test', 'test'),
        ('all', 'labelled'),
    ],
)
def test_images_of_own_data_are_of_a_split(asked: str | None, word: str) -> None:
    cfg = OWN | {EVALUATED: asked}
    assert str(FigureSource.of(cfg, Images([1, 2]))) == f'2 {word} images of DATA'


def test_all_that_is_known_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    metrics = [metric('CocoMetric', proposal_nums=(1, 10, 500), use_mp_eval=False)]
    for has_faster, name in ((True, 'faster-coco-eval'), (False, 'pycocotools')):
        monkeypatch.setattr(figure_source, 'has_faster_coco', lambda x=has_faster: x)
        source = FigureSource.of({}, Images([1]), metrics, 'runs/a/best.pth')
        assert str(source) == (
            f'1 image of kept/val.json; CocoMetric by {name}; the 500 best boxes of a '
            'class in an image; best.pth'
        )
        assert FigureSource(**asdict(source)) == source
        assert source.labels == 'kept/val.json'


@pytest.mark.parametrize('is_old, kind', [(True, '11 points'), (False, 'the area')])
def test_dota_says_which_ap_it_is(is_old: bool, kind: str) -> None:
    for name in ('DOTAMetric', 'HorizontalDOTAMetric'):
        text = evaluator_text(metric(name, use_07_metric=is_old))
        assert text == f'{name}, AP by {kind} of the precision-recall curve'
    pytest.importorskip('mmrotate', reason='no mmrotate; see the extra [oriented]')
    from mmrotate.evaluation.metrics import DOTAMetric

    mode = '11points' if is_old else 'area'
    assert f'AP by {kind}' in evaluator_text(DOTAMetric(eval_mode=mode))


def test_the_weights_of_a_training_have_no_file() -> None:
    loop = SimpleNamespace(
        evaluator=SimpleNamespace(metrics=[metric('IoUMetric')]),
        dataloader=SimpleNamespace(dataset=Images([1, 2, 3])),
    )
    cfg = dict(load_from='start.pth')
    runner: Any = SimpleNamespace(val_loop=loop, test_loop=loop, cfg=cfg)
    said = '3 images of kept/val.json; IoUMetric'
    assert str(FigureSource.of_runner(runner, 'val')) == said
    assert str(FigureSource.of_runner(runner, 'test')) == f'{said}; start.pth'
