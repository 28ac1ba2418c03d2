"""What the flags of the tools change, and when they cannot be used."""

from importlib import import_module
from pathlib import Path

import pytest
import torch
from mmengine.config import Config
from mmengine.registry import STRATEGIES

from helpers.grid import CONFIGS
from helpers.tool_names import TOOLS, Fails, Main
from rope_dense.measure.evaluate import enable_tta, saved_predictions
from rope_dense.project.load import load_config
from rope_dense.project.options import (
    apply_training_options,
    enable_amp,
    enable_compile,
    enable_ema,
    enable_fsdp,
)
from rope_dense.utils.errors import UsageError
from rope_dense_command import PACKAGES, command

DEIM = 'deim/deimv2-s_vit-t_4xb8-488k_coco'


@pytest.mark.parametrize('name', PACKAGES)
def test_the_help_of_every_command_has_debug(
    name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        command(name)(['--help'])
    assert '--debug' in capsys.readouterr().out


@pytest.mark.parametrize('name', ['train', 'test', 'eval_resolutions'])
def test_processes_of_torchrun_are_connected(
    name: str, detector: str, weights: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    parse_args = import_module(f'rope_dense.commands.{name}').parse_args
    argv = [detector] if name == 'train' else [detector, weights]
    argv += ['--sizes', '64'] if name == 'eval_resolutions' else []
    assert parse_args(argv).launcher == 'none'
    monkeypatch.setenv('TORCHELASTIC_RUN_ID', 'none')
    monkeypatch.setenv('LOCAL_RANK', '1')
    assert parse_args(argv).launcher == 'pytorch'
    assert parse_args([*argv, '--launcher', 'slurm']).launcher == 'slurm'


@pytest.mark.parametrize(
    'name, last', [('test', []), ('export', ['m.onnx']), ('predict', ['0'])]
)
def test_queries_of_a_trained_detector(
    name: str, last: list[str], detector: str, weights: str
) -> None:
    """An option of the config, beside others."""
    parse_args = import_module(f'rope_dense.commands.{name}').parse_args
    more = ['--queries', '7', '--cfg-options', 'a=1']
    options = parse_args([detector, weights, *last, *more]).cfg_options
    assert options == ['queries=7', 'a=1']
    cfg = load_config(str(CONFIGS / f'{DEIM}.py'), options[:1])
    assert cfg.model.bbox_head.num_queries == cfg.model.test_cfg.max_per_img == 7
    assert cfg.tta_model.tta_cfg.max_per_img == 7
    with pytest.raises(UsageError, match='--queries: only real-time detectors'):
        load_config(detector, options[:1])
    with pytest.raises(UsageError, match='queries must be an integer from 1 up'):
        load_config(str(CONFIGS / f'{DEIM}.py'), ['queries=few'])


@pytest.mark.skipif(torch.cuda.is_available(), reason='has an accelerator')
def test_amp_without_an_accelerator(train: Main, detector: str, fails: Fails) -> None:
    for flag in (['--amp'], ['--amp', 'fp16']):
        fails(
            train, detector, *flag, says=['--amp fp16: needs a GPU', 'give --amp bf16']
        )


def test_amp_with_another_wrapper(train: Main, detector: str, fails: Fails) -> None:
    options = ['--cfg-options', 'optim_wrapper.type=MyWrapper']
    fails(
        train,
        detector,
        '--amp',
        *options,
        says=["'MyWrapper', it must be OptimWrapper"],
    )


@pytest.mark.parametrize(
    'precision, given, expected',
    [
        (
            'fp16',
            {},
            dict(type='AmpOptimWrapper', dtype='float16', loss_scale='dynamic'),
        ),
        ('bf16', {}, dict(type='BFloat16OptimWrapper')),
        ('bf16', dict(type='OptimWrapper'), None),
        (
            'fp16',
            dict(type='AmpOptimWrapper', dtype='bfloat16', loss_scale=512.0),
            dict(type='AmpOptimWrapper', dtype='float16', loss_scale=512.0),
        ),
        (
            'bf16',
            dict(type='AmpOptimWrapper', dtype='float16', loss_scale='dynamic'),
            None,
        ),
        ('fp16', dict(type='BFloat16OptimWrapper'), None),
    ],
)
def test_amp_exchanges_the_wrapper(
    precision: str, given: dict, expected: dict | None
) -> None:
    """Clipping stays. None: as without a wrapper of its own."""
    plain = dict(
        fp16=dict(type='AmpOptimWrapper', dtype='float16', loss_scale='dynamic'),
        bf16=dict(type='BFloat16OptimWrapper'),
    )
    clip = dict(clip_grad=dict(max_norm=0.1))
    cfg = Config(dict(optim_wrapper=given | clip))
    enable_amp(cfg, precision)
    assert cfg.optim_wrapper == (expected or plain[precision]) | clip


def test_flags_change_the_config() -> None:
    cfg = Config(
        dict(
            auto_scale_lr=dict(base_batch_size=16, enable=False),
            model=dict(backbone=dict(type='RoPEViT')),
            custom_hooks=[dict(type='SubsetLossHook')],
        )
    )
    apply_training_options(
        cfg, auto_scale_lr=True, with_cp=True, ema=0.001, compile=True
    )
    enable_compile(cfg)  # once is enough
    assert cfg.auto_scale_lr == dict(base_batch_size=16, enable=True)
    assert cfg.model.backbone == dict(type='RoPEViT', with_cp=True)
    hooks = [dict(type='SubsetLossHook'), dict(type='EMAHook', momentum=0.001)]
    hooks += [dict(type='CompileBlocksHook')]
    assert cfg.custom_hooks == hooks
    cfg = Config()
    enable_fsdp(cfg, 'pytorch')
    assert cfg.runner_type == 'FlexibleRunner'
    assert (
        STRATEGIES.get(cfg.strategy.type)
        is STRATEGIES.get('BlockFSDPStrategy')
        is not None
    )


def test_averages_and_shards_that_cannot_be(
    train: Main, detector: str, fails: Fails
) -> None:
    fails(train, detector, '--fsdp', says=['--fsdp', 'tools/dist_train.sh'])
    averaged = Config(dict(custom_hooks=[dict(type='EMAHook')]))
    with pytest.raises(UsageError, match='has an EMAHook already'):
        enable_ema(averaged, 0.1)
    restarted = Config(dict(custom_hooks=[dict(type='BestRestartHook', epoch=120)]))
    for cfg, kind in ((averaged, 'EMAHook'), (restarted, 'BestRestartHook')):
        with pytest.raises(
            UsageError, match=f'{kind} of custom_hooks .*need whole weights'
        ):
            enable_fsdp(cfg, 'pytorch')
    dense = Config.fromfile(
        Path(__file__).parents[2] / 'configs/_base_/schedules/dense.py'
    )
    with pytest.raises(UsageError, match='EMAHook and BestRestartHook'):
        enable_fsdp(dense, 'pytorch')
    with pytest.raises(UsageError, match='runner_type or strategy of its own'):
        enable_fsdp(Config(dict(runner_type='MyRunner')), 'pytorch')


def test_views_of_other_sizes_than_the_test_pipeline_give_a_warning(
    capsys: pytest.CaptureFixture[str],
) -> None:
    for size, said in ((192, '512 to 896 pixels, the test pipeline to 192'), (512, '')):
        cfg = Config.fromfile(TOOLS.parent / 'configs' / 'upernet_vit_rope_mixed.py')
        cfg.test_dataloader.dataset.pipeline[1].scale = (2048, size)
        enable_tta(cfg)
        assert said in (err := capsys.readouterr().err) and bool(err) == bool(said)


def test_tta_that_the_config_does_not_have(
    test: Main, detector: str, weights: str, fails: Fails
) -> None:
    options = ['--cfg-options', 'tta_model=None']
    fails(test, detector, weights, '--tta', *options, says=['lacks tta_model'])


@pytest.mark.parametrize(
    'model, evaluator, out, says',
    [
        (
            dict(type='DINO'),
            {},
            'labels',
            'the boxes of a detector are a pickle, such as',
        ),
        (dict(type='DepthEstimator'), {}, 'labels', 'not of depth'),
        (
            dict(type='MaskRCNN'),
            dict(metrics=[dict(metric=['bbox', 'segm'])]),
            'a.pkl',
            'in tiles',
        ),
    ],
)
def test_predictions_that_a_test_does_not_write(
    model: dict, evaluator: dict, out: str, says: str, tmp_path: Path
) -> None:
    cfg = Config(dict(default_scope='mmdet', model=model, test_evaluator=evaluator))
    with (
        pytest.raises(UsageError, match=f'--out.*{says}'),
        saved_predictions(cfg, str(tmp_path / out)),
    ):
        pass
    assert not [*tmp_path.iterdir()]
