"""Models that cannot be built, and image sizes that cannot work: one message each."""

import pytest

from helpers.small_configs import HEIGHT, WIDTH
from helpers.tool_names import TRAIN_DATA, Fails, Main


@pytest.mark.parametrize(
    'option, says',
    [
        ('backbone.patchsize=8', "'patchsize'"),
        ('backbone.rope.thetas=3', "'thetas'"),
        ('backbone.type=RoPEVit', 'RoPEVit is not in the mmdet::model registry'),
        ('backbone.arch=huge', 'huge'),
        (
            'bbox_head.loss_iou.type=Nothing',
            'Nothing is not in the mmdet::model registry',
        ),
    ],
)
def test_component_that_cannot_be_built(
    train: Main, detector: str, fails: Fails, option: str, says: str
) -> None:
    fails(
        train,
        detector,
        '--cfg-options',
        f'model.{option}',
        says=['error: model: ', says],
    )


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
def test_image_smaller_than_a_patch(
    train: Main, segmentor: str, fails: Fails, option: str
) -> None:
    shown = option.replace(',', ', ')
    fails(
        train, segmentor, '--cfg-options', option, says=[shown, 'patches of 16 pixels']
    )


def test_patch_size_may_be_that_of_the_architecture(
    train: Main, segmentor: str, fails: Fails
) -> None:
    options = [
        'model.backbone.arch.patch_size=32',
        'model.data_preprocessor.size=(16,64)',
    ]
    fails(train, segmentor, '--cfg-options', *options, says=['patches of 32 pixels'])


def test_image_sizes_in_branches_of_a_pipeline(
    train: Main, detector: str, fails: Fails
) -> None:
    key = f'{TRAIN_DATA}.pipeline.3.transforms.1.2.scales'
    fails(
        train,
        detector,
        '--cfg-options',
        f'{key}=[(64,96),(8,8)]',
        says=[key, '8 pixels'],
    )


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


def test_windows_with_gaps(train: Main, segmentor: str, fails: Fails) -> None:
    options = ['--cfg-options', 'model.test_cfg.stride=(64,65)']
    fails(
        train, segmentor, *options, says=['model.test_cfg.stride=(64, 65) is more than']
    )
