"""Models that cannot be built, and image sizes that cannot work: one message each."""

from pathlib import Path

import pytest

from helpers.small_configs import CONFIGS, HEIGHT, WIDTH
from helpers.tool_names import TRAIN_DATA, Fails, Main
from rope_dense.cli.building import arguments_of
from rope_dense.cli.config import load_config
from rope_dense.cli.model_checks import build_model, check_maps


@pytest.mark.parametrize(
    'option, says',
    [
        (
            'backbone.patchsize=8',
            "model.backbone: unknown argument 'patchsize' of RoPEViT, did you",
        ),
        ('backbone.patchsize=8', "mean 'patch_size'?; allowed: arch, img_size, patch_size"),
        ('backbone.rope.thetas=3', "model.backbone.rope: unknown argument 'thetas' of MixedRoPE"),
        ('neck.0.channels=3', "model.neck.0: unknown argument 'channels' of PlainViTFPN"),
        (
            'bbox_head.num_clases=6',
            "'num_clases' of PublishedDINOHead, did you mean 'num_classes'?",
        ),
        ('num_querys=6', "model: unknown argument 'num_querys' of PublishedDINO"),
        ('num_querys=6', "did you mean 'num_queries'?; allowed: "),
    ],
)
def test_unknown_argument(train: Main, detector: str, fails: Fails, option: str, says: str) -> None:
    fails(train, detector, '--cfg-options', f'model.{option}', says=[says])


def test_arguments_of_follows_the_bases() -> None:
    class Base:
        def __init__(self, a: int, *, b: int = 0) -> None: ...

    class Middle(Base):
        def __init__(self, *args: int, c: int = 0, **kwargs: int) -> None: ...

    class Leaf(Middle):
        def __init__(self, d: int, **kwargs: int) -> None: ...

    class Closed(Leaf):
        def __init__(self, e: int) -> None: ...

    assert arguments_of(Leaf) == ['d', 'c', 'a', 'b']
    assert arguments_of(Closed) == ['e']


@pytest.mark.parametrize(
    'option, says',
    [
        ('backbone.type=RoPEVit', ["no 'RoPEVit' in the registry mmdet::model", "'RoPEViT'?"]),
        ('backbone.arch=huge', ['huge', 'base']),
        ('bbox_head.num_reg_fcs=two', ['model.bbox_head: PublishedDINOHead cannot be built: ']),
        ('bbox_head.loss_iou.type=Nothing', ["no 'Nothing' in the registry mmdet::model"]),
    ],
)
def test_component_that_cannot_be_built(
    train: Main, detector: str, fails: Fails, option: str, says: list[str]
) -> None:
    fails(train, detector, '--cfg-options', f'model.{option}', says=says)


def test_part_without_a_type(train: Main, segmentor: str, fails: Fails, tmp_path: Path) -> None:
    config = tmp_path / 'config.py'
    backbone = "dict(_delete_=True, tpye='RoPEViT', arch='tiny')"
    config.write_text(f'_base_ = {segmentor!r}\nmodel = dict(backbone={backbone})\n')
    fails(train, str(config), says=['model.backbone: a type is missing, the keys are tpye, arch'])


@pytest.mark.parametrize(
    'config, option, says',
    [
        (
            'detector',
            'backbone.out_indices=(0,1)',
            'model.neck does not take the maps of blocks or stages [0, 1], of [32, 32] channels',
        ),
        ('segmentor', 'backbone.out_indices=(0,)', 'model.neck does not take the maps of blocks'),
        (
            'segmentor',
            'decode_head.in_index=(0,1,2,7)',
            'model.decode_head does not take the 4 maps of backbone and neck',
        ),
        ('segmentor', 'auxiliary_head.in_channels=5', 'model.auxiliary_head does not take the'),
    ],
)
def test_maps_that_do_not_fit(
    request: pytest.FixtureRequest, train: Main, fails: Fails, config: str, option: str, says: str
) -> None:
    path = request.getfixturevalue(config)
    fails(train, path, '--cfg-options', f'model.{option}', says=[says, 'backbone.out_indices'])


@pytest.mark.parametrize('path', sorted(CONFIGS.glob('demo/*.py')), ids=lambda path: path.stem)
def test_maps_that_fit(path: Path) -> None:
    """EoMT's backbone does not run alone."""
    cfg = load_config(str(path))
    check_maps(cfg, build_model(cfg))


@pytest.mark.parametrize(
    'option',
    [
        'model.data_preprocessor.size=(8,64)',
        'model.test_cfg.crop_size=(64,15)',
        'train_dataloader.dataset.pipeline.3.crop_size=(8,8)',
        'val_dataloader.dataset.pipeline.1.scale=(15,12)',
        'val_dataloader.dataset.pipeline.1.scale=(96,0)',
    ],
)
def test_image_smaller_than_a_patch(train: Main, segmentor: str, fails: Fails, option: str) -> None:
    shown = option.replace(',', ', ')
    fails(train, segmentor, '--cfg-options', option, says=[shown, 'patches of 16 pixels'])


def test_patch_size_may_be_that_of_the_architecture(
    train: Main, segmentor: str, fails: Fails
) -> None:
    options = ['model.backbone.arch.patch_size=32', 'model.data_preprocessor.size=(16,64)']
    fails(train, segmentor, '--cfg-options', *options, says=['patches of 32 pixels'])


def test_image_sizes_in_branches_of_a_pipeline(train: Main, detector: str, fails: Fails) -> None:
    key = f'{TRAIN_DATA}.pipeline.3.transforms.1.2.scales'
    fails(train, detector, '--cfg-options', f'{key}=[(64,96),(8,8)]', says=[key, '8 pixels'])


def test_sizes_that_only_look_small(train: Main, detector: str, fails: Fails) -> None:
    """A crop relative to the image, and a short side that only bounds the long one."""
    branch = f'{TRAIN_DATA}.pipeline.3.transforms.1'
    options = [
        f'{branch}.1.crop_type=relative_range',
        f'{branch}.1.crop_size=(0.5,0.5)',
        f'{branch}.2.scales=[(8,{HEIGHT}),(12,{WIDTH})]',
        'model.bbox_head.num_classes=5',  # the next check
    ]
    says = ['model.bbox_head.num_classes=5, but']
    fails(train, detector, '--cfg-options', *options, says=says)


def test_windows_with_gaps_and_crops_of_one_patch(
    train: Main, segmentor: str, detector: str, fails: Fails
) -> None:
    options = ['--cfg-options', 'model.test_cfg.stride=(64,65)']
    says = ['model.test_cfg.stride=[64, 65] is more than', 'model.test_cfg.crop_size=[64, 64]']
    fails(train, segmentor, *options, says=[says[0].replace('[', '(').replace(']', ')')])
    options = ['--cfg-options', f'{TRAIN_DATA}.pipeline.3.transforms.1.1.crop_size=(16,16)']
    says = ['crop_size=(16, 16)', 'of an image of 16 x 16 pixels', 'does not take']
    fails(train, detector, *options, says=says)
