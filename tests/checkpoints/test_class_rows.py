"""Rows of classes that stay, by their names: every head that has them, its boxes and scores."""

from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from mmengine.config import Config
from torch import nn

from helpers import deim
from helpers.small_configs import CONFIGS, make_data, small_config
from rope_dense.checkpoints.class_rows import fill_rows, has_rows, keep_rows
from rope_dense.checkpoints.detectors import convert_detector, to_published
from rope_dense.engine.class_rows_hook import ClassRowsHook
from rope_dense.project.contents import class_info, datasets_of
from rope_dense.project.launch import launch_runner
from rope_dense.project.load import load_config
from rope_dense.project.model import build_model
from rope_dense.project.weights import check_initial_weights, load_from_source
from rope_dense.training import print_recipe
from rope_dense.utils.errors import UsageError

# Of each task: its weights with rows of classes.
MODELS = dict(
    realtime=11,
    realtime_masks=11,
    oriented=11,
    detection=15,
    instance=6,
    semantic=4,
)
SEMANTIC = 'upernet_vit_rope_mixed'


@pytest.fixture(scope='module')
def shapes(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_data(tmp_path_factory.mktemp('shapes'))


def task_config(task: str, data: Path, folder: Path, **own: object) -> Config:
    """The recipe of a task on shapes, from random weights."""
    if task == 'semantic':
        cfg = Config.fromfile(small_config(SEMANTIC, data, folder))
        return cfg
    settings = dict(data_root=str(data / 'coco'), backbone='tiny', weights=None, **own)
    return load_config(str(CONFIGS / 'own' / f'{task}.py'), own=settings)


def test_rows_of_each_kind_by_hand() -> None:
    weights = {
        'roi_head.bbox_head.fc_cls.bias': torch.tensor([1.0, 2, 3, 9]),  # 9: background
        'roi_head.bbox_head.fc_reg.bias': torch.arange(12.0),
        'bbox_head.denoising.labels.weight': torch.tensor([[1.0], [2], [3], [0]]),
        'rpn_head.rpn_cls.bias': torch.ones(3),
    }
    own = {
        'roi_head.bbox_head.fc_cls.bias': torch.full((3,), -1.0),
        'roi_head.bbox_head.fc_reg.bias': torch.full((8,), -1.0),
        'bbox_head.denoising.labels.weight': torch.full((3, 1), -1.0),
        'rpn_head.rpn_cls.bias': torch.zeros(3),
    }
    assert keep_rows(weights, own, [2, None], 3)
    fill_rows({'state_dict': weights}, own)
    assert weights['rpn_head.rpn_cls.bias'].tolist() == [1] * 3
    biases = weights['roi_head.bbox_head.fc_cls.bias']
    assert biases.tolist() == [3, -1, 9]
    boxes = weights['roi_head.bbox_head.fc_reg.bias']
    assert boxes.tolist() == [8, 9, 10, 11, -1, -1, -1, -1]
    labels = weights['bbox_head.denoising.labels.weight']
    assert labels.tolist() == [[3], [-1], [0]]


def test_rows_of_other_classes_that_are_not_named_are_left() -> None:
    key = 'bbox_head.denoising.labels.weight'
    weights = {key: torch.ones(80, 1)}
    fill_rows({'state_dict': weights}, {key: torch.zeros(6, 1)})
    assert (weights[key] == 1).all()


def test_boxes_of_no_class_are_left() -> None:
    key = 'roi_head.bbox_head.fc_reg.bias'
    weights = {key: torch.arange(4.0)}
    assert not keep_rows(weights, {key: torch.zeros(4)}, [0, 1, None], 2)
    assert len(weights[key]) == 4


def started(cfg: Config, weights: dict, classes: list[str], folder: Path) -> nn.Module:
    """The model of a config that starts from weights of some classes, as a Runner starts it."""
    meta = dict(dataset_meta=dict(classes=classes))
    torch.save(dict(state_dict=weights, meta=meta), folder / 'x.pth')
    cfg.load_from = str(folder / 'x.pth')
    model = build_model(cfg)
    check_initial_weights(cfg, model)
    contents = load_from_source(cfg.load_from)
    runner = SimpleNamespace(model=model)
    ClassRowsHook().after_load_checkpoint(runner, contents)
    model.load_state_dict(contents['state_dict'], strict=bool(classes))
    return model


@pytest.mark.parametrize('task', MODELS)
def test_permuted_classes_are_permuted_rows_to_the_bit(
    task: str, shapes: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    cfg = task_config(task, shapes, tmp_path)
    _, dataset = next(datasets_of(cfg, 'train_dataloader'))
    names = list(class_info(cfg, dataset)['classes'])
    weights = build_model(cfg).state_dict()
    for weight in weights.values():  # mmdet leaves some to init_weights
        if weight.is_floating_point():
            weight.nan_to_num_(0, 0, 0)
    capsys.readouterr()
    same = started(cfg, weights, names, tmp_path).state_dict()
    assert not capsys.readouterr().out
    torch.testing.assert_close(same, weights, rtol=0, atol=0)
    order = [*range(1, len(names)), 0]
    theirs = [names[place] for place in order]
    mine = started(cfg, weights, theirs, tmp_path).state_dict()
    assert f'kept: {", ".join(names)}; new: none; left: none' in capsys.readouterr().out
    changed = 0
    for key, weight in weights.items():
        expected = weight
        if has_rows(key):
            changed += 1
            each = 4 if 'fc_reg' in key else 1
            parts = list(weight.split(each))  # a last one may be of no class
            for old, new in enumerate(order):
                parts[new] = weight[each * old : each * (old + 1)]
            expected = torch.cat(parts)
        torch.testing.assert_close(mine[key], expected, rtol=0, atol=0)
    assert changed == MODELS[task]


def test_some_classes_stay_and_others_are_new(
    shapes: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    own = dict(classes=['circle', 'square'], same_as=['square=box'])
    cfg = task_config('realtime', shapes, tmp_path, **own)
    model = build_model(cfg)
    weights = {}
    for key, weight in model.state_dict().items():
        if has_rows(key):
            weight = torch.cat([weight + 1, weight + 2])[: len(weight) + 1]
        weights[key] = weight
    theirs = ['dog', 'box', 'cat']
    mine = started(cfg, weights, theirs, tmp_path).state_dict()
    assert (
        'classes kept: square; new: circle; left: dog, cat' in capsys.readouterr().out
    )
    bias = mine['bbox_head.selection.cls.bias']
    assert bias[1] == weights['bbox_head.selection.cls.bias'][1]
    assert bias[0] == model.bbox_head.selection.cls.bias[0]  # as at the start
    labels = 'bbox_head.denoising.labels.weight'
    torch.testing.assert_close(mine[labels][1:], weights[labels][[1, 3]])
    cfg.own.same_as = ['square=bx']
    with pytest.raises(
        UsageError, match='square=bx: ours are circle, square, theirs dog'
    ):
        started(cfg, weights, theirs, tmp_path)
    with pytest.raises(UsageError, match=r'square=bx: .* theirs circle, square'):
        started(cfg, weights, ['circle', 'square'], tmp_path)
    with pytest.raises(UsageError, match='classes of --load-from, which is not given'):
        check_initial_weights(Config(dict(cfg, load_from=None)), model)
    cfg.own.same_as = []
    started(cfg, weights, [], tmp_path)
    assert 'does not name its classes' in capsys.readouterr().out


def test_a_recipe_says_which_rows_stay(
    shapes: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    cfg = task_config('realtime', shapes, tmp_path)
    names = ['ring', 'box', 'circle', 'star', 'cross', 'dog']
    meta = dict(dataset_meta=dict(classes=names))
    weights = build_model(cfg).state_dict()
    torch.save(dict(state_dict=weights, meta=meta), tmp_path / 'x.pth')
    cfg.own.same_as = ['square=box']
    cfg.dump(tmp_path / 'config.py')
    kept = 'circle, square, star, cross, ring'
    path = str(tmp_path / 'config.py')
    for file, says in (
        ('x.pth', f'kept: {kept}; new: triangle; left: dog'),
        ('y.pth', ''),
    ):
        print_recipe(path, load_from=str(tmp_path / file), resume=None)
        text = capsys.readouterr().out
        assert ('load_from: classes' in text) == bool(says)
        assert says in text
    with pytest.raises(UsageError, match=r'same_as: the labels have no box; it'):
        print_recipe(path, load_from=None, resume=None)
    with pytest.raises(UsageError, match=r'own\.same_as=box: give OURS=THEIRS'):
        task_config('realtime', shapes, tmp_path, same_as=['box'])


def test_published_detectors_of_80_classes_name_them() -> None:
    weights = deim.ours('s').state_dict()
    found = convert_detector(to_published(weights, 'deimv2'), 'file')
    assert 'meta' not in found
    for key in filter(has_rows, weights):
        rest = len(weights[key]) - deim.CLASSES
        weights[key] = torch.zeros(80 + rest, *weights[key].shape[1:])
    found = convert_detector(to_published(weights, 'deimv2'), 'file')
    names = found['meta']['dataset_meta']['classes']
    assert len(names) == 80
    assert (names[0], names[2]) == ('person', 'car')


def test_a_runner_completes_the_rows(shapes: Path, tmp_path: Path) -> None:
    cfg = task_config('semantic', shapes, tmp_path)
    cfg.work_dir = str(tmp_path / 'work')
    _, dataset = next(datasets_of(cfg, 'train_dataloader'))
    names = list(class_info(cfg, dataset)['classes'])
    model = build_model(cfg)
    meta = dict(dataset_meta=dict(classes=names[::-1]))
    weights = model.state_dict()
    torch.save(dict(state_dict=weights, meta=meta), tmp_path / 'x.pth')
    cfg.load_from = str(tmp_path / 'x.pth')
    check_initial_weights(cfg, model)
    runner = launch_runner(cfg, 'none', trains=True)
    runner.load_or_resume()
    key = 'decode_head.conv_seg.weight'
    torch.testing.assert_close(
        runner.model.state_dict()[key], weights[key].flip(0), rtol=0, atol=0
    )
