"""The list of the configs by words, from the metafiles."""

from helpers.grid import CONFIGS
from rope_dense.research.config_list import config_table, list_configs

ROOT = CONFIGS.parent


def test_every_config_has_a_line() -> None:
    listed = list_configs(ROOT)
    assert len(listed) == len({config.path for config in listed}) > 100
    assert all((ROOT / config.path).is_file() for config in listed)
    assert {config.task for config in listed} == {
        *('Object Detection', 'Object Detection, Instance Segmentation', 'Instance Segmentation'),
        *('Panoptic Segmentation', 'Semantic Segmentation', 'Depth Estimation'),
    }


def test_words_choose_lines() -> None:
    assert {config.backbone for config in list_configs(ROOT, ['EoMT', 'panoptic'])} == {
        *('dinov3-s', 'dinov3-b', 'dinov3-l')
    }
    (best,) = list_configs(ROOT, ['dinat-base', 'upernet'])
    assert best.result == '49.6 mIoU, 50.4 mIoU multi-scale'
    (untested,) = list_configs(ROOT, ['ddq'])
    assert (untested.task, untested.result) == ('Object Detection', '-')
    assert list_configs(ROOT, ['no such']) == []
    header, line = config_table([best]).splitlines()
    assert header.index('published') == line.index('49.6') and line.endswith(f'  {best.path}')
