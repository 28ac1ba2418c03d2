"""Settings as text, sizes of pipelines, settings of a model, progress."""

from collections.abc import Callable
from unittest.mock import Mock

import pytest
import torch
from mmengine.config import Config
from mmengine.runner import TestLoop
from torch import Tensor, nn

from rope_dense.backbones import RoPESwin, RoPEViT
from rope_dense.measure.candidates import with_factor
from rope_dense.measure.evaluator import Evaluator, ResolutionLoop
from rope_dense.measure.settings import (
    Setting,
    combine,
    parse_scaling,
    parse_window,
)
from rope_dense.project.contents import at_size, configured_size
from rope_dense.rope.grid import build_scaling
from rope_dense.utils.validation import parse_size

TINY = dict(
    embed_dims=32,
    depth=2,
    num_heads=2,
)


def test_settings_are_read() -> None:
    assert [parse_size(text) for text in ('96', '96x128')] == [96, (96, 128)]
    windows = [parse_window(text) for text in ('7', '7x14', 'auto', 'none')]
    assert windows == [7, (7, 14), 'auto', None]
    assert parse_scaling('none') is None
    scaling = dict(
        type='linear',
        factor=(1.5, 2.0),
        temperature='log',
    )
    assert parse_scaling('linear:1.5x2+log') == scaling
    assert parse_scaling('by_parts:2') == dict(
        type='by_parts',
        factor=2.0,
        temperature=None,
    )
    assert parse_scaling('ntk+yarn') == dict(
        type='ntk',
        factor=None,
        temperature='yarn',
    )
    assert parse_scaling('ntk:pretrain+yarn') == parse_scaling('ntk+yarn')
    assert parse_scaling('none+log') == dict(
        type='none',
        factor=None,
        temperature='log',
    )


@pytest.mark.parametrize('text', ['', '0', '-3', '12x', '96x0', '1x2x3', 'big', '1.5'])
def test_sizes_and_windows_that_are_none(text: str) -> None:
    for parse in (parse_size, parse_window):
        with pytest.raises(ValueError, match=f"size '{text}': give a side"):
            parse(text)


@pytest.mark.parametrize('text', ['', ':2', 'ntk:a', 'ntk:', 'ntk:1x2x3', 'a b'])
def test_scalings_that_are_none(text: str) -> None:
    with pytest.raises(ValueError, match=f'--scaling {text}: give TYPE'):
        parse_scaling(text)


def test_settings_have_each_combination_once() -> None:
    points = combine(['64', '96', '64'], ['none', 'ntk'], ['7'])
    assert [(point.scaling, point.size) for point in points] == [
        ('none', '64'), ('none', '96'), ('ntk', '64'), ('ntk', '96')
    ]  # fmt: skip


def pipeline_config(*steps: dict) -> Config:
    inner = dict(type='Inner', pipeline=[dict(type='Load'), *steps])
    return Config(dict(test_dataloader=dict(dataset=dict(type='Outer', dataset=inner))))


@pytest.mark.parametrize(
    'step, size, scale',
    [
        (dict(scale=(128, 128)), 96, (96, 96)),
        (dict(scale=(2048, 512), keep_ratio=True), 256, (1024, 256)),
        (dict(scale=(1333, 800), keep_ratio=True), 600, (1000, 600)),  # 999.75
        (dict(scale=(1333, 800)), (96, 128), (128, 96)),
        (dict(scale=640), 320, 320),
        (dict(scale=640), (96, 128), (128, 96)),
    ],
)
def test_pipelines_are_resized(
    step: dict,
    size: int | tuple,
    scale: int | tuple,
) -> None:
    config = pipeline_config(dict(type='Resize', **step))
    resized = at_size(config, size)
    assert resized.test_dataloader.dataset.dataset.pipeline[1].scale == scale
    assert config.test_dataloader.dataset.dataset.pipeline[1].scale == step['scale']
    height, width = (scale, scale) if isinstance(scale, int) else scale[::-1]
    assert configured_size(resized) == (height, width)


def test_the_limit_of_the_longer_side_grows_too() -> None:
    config = pipeline_config(
        dict(
            type='ResizeShortestEdge',
            scale=640,
            max_size=2560,
        )
    )
    step = at_size(config, 320).test_dataloader.dataset.dataset.pipeline[1]
    assert (step.scale, step.max_size) == (320, 1280)
    with pytest.raises(
        ValueError,
        match='ResizeShortestEdge takes a shorter side only',
    ):
        at_size(config, (96, 128))


def test_pipelines_without_a_size_of_their_own() -> None:
    with pytest.raises(ValueError, match='no step has a `scale`'):
        at_size(pipeline_config(), 64)
    resize = dict(type='Resize', scale=(8, 8))
    pad = dict(type='Pad', size=(16, 16))
    with pytest.raises(ValueError, match='fixes the size'):
        at_size(pipeline_config(resize, pad), 64)


class Dense(nn.Module):
    """A model as far as settings go."""

    def __init__(self, backbone: nn.Module) -> None:
        super().__init__()
        self.backbone = backbone.eval()
        self.test_cfg = None

    @torch.no_grad()
    def outputs(self, side: int = 64) -> Tensor:
        generator = torch.Generator().manual_seed(1)
        return self.backbone(torch.randn(1, 3, side, side, generator=generator))[-1]


def evaluator_of(
    backbone: nn.Module, *, keep_ratio: bool = False, **test_cfg: object
) -> Evaluator:
    config = pipeline_config(
        dict(
            type='Resize',
            scale=(64, 64),
            keep_ratio=keep_ratio,
        )
    )
    config.model = dict(test_cfg=test_cfg)
    return Evaluator(Dense(backbone), config)


def vit(**options: object) -> RoPEViT:
    settings = dict(
        img_size=32,
        patch_size=8,
        with_cls_token=False,
        window_block_indexes=(0,),
    )
    return RoPEViT(TINY, **{**settings, 'window_size': 3, **options})


def swin(**options: object) -> RoPESwin:
    arch = dict(
        embed_dims=16,
        depths=(2, 2),
        num_heads=(1, 2),
    )
    return RoPESwin(arch, window_size=4, out_indices=(0, 1), **options)


@pytest.mark.parametrize('build', [vit, swin])
def test_settings_act_and_are_taken_back(build: Callable[..., nn.Module]) -> None:
    evaluator = evaluator_of(build(rope_scaling=dict(type='linear', factor=2.0)))
    model = evaluator.model
    unchanged = evaluator.model.outputs()
    for scaling, window in (
        ('none', 'config'),
        ('config', '2'),
        ('by_parts:3+log', '2x5'),
    ):
        evaluator.apply(Setting('64', scaling, window))
        assert not torch.equal(model.outputs(), unchanged)
    evaluator.apply(Setting('64'))
    assert torch.equal(model.outputs(), unchanged)


def test_a_setting_is_that_of_a_model_built_with_it() -> None:
    evaluator = evaluator_of(vit())
    evaluator.apply(Setting('64', 'by_parts:2', '2x4'))
    scaling = dict(type='by_parts', factor=2.0)
    built = Dense(vit(window_size=(2, 4), rope_scaling=scaling))
    built.backbone.load_state_dict(evaluator.model.backbone.state_dict())
    assert torch.equal(evaluator.model.outputs(), built.outputs())


@pytest.mark.parametrize(
    'backbone, point, message',
    [
        (vit, Setting('7'), '--sizes 7: 7 x 7 pixels leave no token of 8 x 8'),
        (
            vit,
            Setting('64', window='9'),
            '--window 9: larger than the map, 8 x 8 tokens at --size',
        ),
        (
            vit,
            Setting('32x64', window='4x9'),
            '--window 4x9: larger than the map, 4 x 8 tokens',
        ),
        (
            swin,
            Setting('30', window='9'),
            '--window 9: larger than the map, 8 x 8 tokens',
        ),
        (vit, Setting('64', 'ntk'), "'ntk' changes the theta"),
        (vit, Setting('64', 'cubic'), 'rope_scaling: type must be one of'),
        (vit, Setting('64', slide='scale'), '--slide scale: the config does not slide'),
    ],
)
def test_settings_that_a_model_refuses(
    backbone: Callable[[], nn.Module],
    point: Setting,
    message: str,
) -> None:
    with pytest.raises(ValueError, match=message):
        evaluator_of(backbone()).apply(point)


@pytest.mark.parametrize(
    'scaling, text, factors',
    [
        (None, 'linear', (1.5, 1.5)),
        (None, 'by_parts+log', (1.5, 1.5)),
        (dict(type='linear', factor=3.0), 'linear', (4.5, 4.5)),
        (dict(type='linear'), 'by_parts', (3, 3)),  # 2 in training
        (None, 'linear:pretrain', (3, 3)),
        (None, 'linear:1.25', (1.25, 1.25)),
    ],
)
def test_an_open_factor_is_of_the_training(
    scaling: dict | None,
    text: str,
    factors: tuple[float, float],
) -> None:
    """S3: the pre-training saw 4 x 4 tokens, the training 8 x 8, and images have 12 x 12 now."""
    evaluator = evaluator_of(vit(rope_scaling=scaling, window_block_indexes=()))
    evaluator.apply(with_factor(evaluator, Setting('96', text), (64, 64)))
    scaled = build_scaling(
        evaluator.backbone.rope_scaling,
        evaluator.backbone.pretrain_grid,
    )
    assert scaled.factors(12, 12) == pytest.approx(factors)


def test_an_open_factor_of_crops_and_windows() -> None:
    slide = dict(
        mode='slide',
        crop_size=(64, 64),
        stride=(48, 48),
    )
    evaluator = evaluator_of(vit(), **slide)
    for way, factor in (('keep', '1'), ('scale', '2'), ('whole', '2')):
        setting = Setting('128', 'linear', slide=way)
        assert with_factor(evaluator, setting, (64, 64)).scaling == f'linear:{factor}'
    for text in ('none', 'config', 'linear:2', 'linear:pretrain'):
        assert with_factor(evaluator, Setting('128', text), (64, 64)) == Setting(
            '128',
            text,
        )
    setting = Setting(
        '128',
        'linear',
    )  # a window of as many tokens as in training scales nothing
    assert with_factor(evaluator_of(swin()), setting, (64, 64)) == setting
    windows = with_factor(
        evaluator_of(vit(), keep_ratio=True),
        Setting('96x160', 'linear'),
        (64, 64),
    )
    assert windows.scaling == 'linear:1.5'


def test_settings_that_a_backbone_has_no_use_for() -> None:
    baseline = evaluator_of(vit(rope=None, use_ape=True))
    baseline.apply(Setting('64', 'none'))
    with pytest.raises(ValueError, match='rope_scaling needs a rotary embedding'):
        baseline.apply(Setting('64', 'linear'))
    with pytest.raises(
        ValueError,
        match='--window 2: all blocks of this RoPEViT attend globally',
    ):
        evaluator_of(vit(window_block_indexes=())).apply(Setting('64', window='2'))
    other = evaluator_of(nn.Identity())
    other.apply(Setting('64'))
    for point in (Setting('64', 'none'), Setting('64', window='2')):
        with pytest.raises(
            ValueError,
            match='the backbone must be one of rope_dense, it is Id',
        ):
            other.apply(point)


def test_windows_may_be_longer_either_way_where_proportions_are_kept() -> None:
    """An image of 32 x 64 may be wide or tall."""
    evaluator = evaluator_of(vit(), keep_ratio=True)
    for window in ('4x8', '8x4'):
        evaluator.apply(Setting('32x64', window=window))
    with pytest.raises(ValueError, match='--window 8x4: larger than the map'):
        evaluator_of(vit()).apply(Setting('32x64', window='8x4'))


def test_crops_are_kept_or_scaled_or_left_out() -> None:
    slide = dict(
        mode='slide',
        crop_size=(32, 48),
        stride=(21, 32),
    )
    evaluator = evaluator_of(vit(), **slide)
    evaluator.apply(Setting('128'))
    assert evaluator.model.test_cfg == slide
    evaluator.apply(Setting('128', slide='scale'))
    assert evaluator.model.test_cfg == dict(
        mode='slide',
        crop_size=(64, 96),
        stride=(42, 64),
    )
    evaluator.apply(Setting('128x32', slide='scale'))
    assert evaluator.model.test_cfg == dict(
        mode='slide',
        crop_size=(64, 24),
        stride=(42, 16),
    )
    evaluator.apply(Setting('128', slide='whole'))
    assert evaluator.model.test_cfg.mode == 'whole'
    with pytest.raises(
        ValueError,
        match='--window 5x5: larger than the map, 4 x 6 tokens',
    ):
        evaluator.apply(
            Setting('128', window='5x5')
        )  # the crop bounds what the backbone sees


def test_an_image_is_timed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Three batches of two images in a minute."""
    clock = iter([0.0, 2.0, 40.0, 60.0])
    monkeypatch.setattr('time.monotonic', lambda: next(clock))
    monkeypatch.setattr(TestLoop, 'run_iter', lambda self, idx, data_batch: None)
    batches = [dict(inputs=['a', 'b'])] * 3

    def run(loop: ResolutionLoop) -> dict[str, float]:
        for index, batch in enumerate(loop.dataloader):
            loop.run_iter(index, batch)
        return dict(mIoU=1.0)

    monkeypatch.setattr(TestLoop, 'run', run)
    loader = type('Loader', (list,), dict(dataset=None))(batches)
    loop = object.__new__(ResolutionLoop)
    loop._runner = Mock(**{'build_dataloader.return_value': loader})
    metrics, seconds = loop.run_on(
        Config(dict(test_dataloader={}, test_evaluator={})),
        'size 64',
    )
    assert (metrics, seconds) == (dict(mIoU=1.0), 10)
