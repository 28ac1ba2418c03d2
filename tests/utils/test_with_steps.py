"""Settings of steps that a config changes in the pipelines of its base."""

import pytest

from rope_dense.utils.config_parts import with_steps

LOADER = dict(
    dataset=dict(
        type='CocoDataset',
        pipeline=[
            dict(type='mmdet.Resize', scale=(640, 640), keep_ratio=True),
            dict(type='Pad', size=(640, 640)),
        ],
    )
)


def test_steps_of_a_type_change_and_the_base_does_not():
    changed = with_steps(LOADER, Resize=dict(scale=(1280, 1280)))
    resize, pad = changed['dataset']['pipeline']
    assert resize == dict(type='mmdet.Resize', scale=(1280, 1280), keep_ratio=True)
    assert pad == LOADER['dataset']['pipeline'][1]
    assert LOADER['dataset']['pipeline'][0]['scale'] == (640, 640)


def test_a_type_without_a_step_is_an_error():
    with pytest.raises(ValueError, match='no step of type Resizes'):
        with_steps(LOADER, Resizes=dict(scale=(1280, 1280)))
