"""The images of a run that a file is compared on."""

import shutil
from pathlib import Path

import pytest
import torch
from mmengine.config import Config

from helpers.small_configs import make_data, small_config
from rope_dense.export.trained import pictures_of
from rope_dense.utils.errors import UsageError


def test_two_test_images_as_the_model_gets_them(tmp_path: Path) -> None:
    data = tmp_path / 'data'
    cfg = Config.fromfile(
        small_config('upernet_vit_rope_mixed', make_data(data), tmp_path)
    )
    pictures = pictures_of(cfg)
    assert len(pictures) == 2 and not torch.equal(*pictures)
    assert {(x.dtype, x.ndim, x.shape[0]) for x in pictures} == {(torch.uint8, 3, 3)}
    for folder in [x for x in data.rglob('*') if x.is_dir()]:
        shutil.rmtree(folder, ignore_errors=True)
    with pytest.raises((UsageError, OSError)):
        pictures_of(cfg)
    cfg.test_dataloader = None
    assert pictures_of(cfg) == []
