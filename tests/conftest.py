import os
import random
import sys
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from unittest.mock import MagicMock

import numpy as np
import pytest
import torch
from torch import nn

REPOSITORY = Path(__file__).resolve().parents[1]

# One thread: small tensors gain nothing from more, and threads on a busy machine wait in turn.
torch.set_num_threads(1)

# Without a GPU, kernels run in Triton's interpreter; Triton asks for that when it is imported.
if not torch.cuda.is_available():
    os.environ['TRITON_INTERPRET'] = '1'


@pytest.fixture(autouse=True)
def seed() -> int:
    """The seed every test starts from."""
    random.seed(0)
    np.random.seed(0)
    torch.manual_seed(0)
    return 0


@pytest.fixture(scope='session')
def shared_data() -> Path:
    """Folder with coco_mini and ade_mini: $ROPE_DENSE_SHARED_DATA, or ../shared/data."""
    folder = Path(os.environ.get('ROPE_DENSE_SHARED_DATA', REPOSITORY.parent / 'shared' / 'data'))
    if not folder.is_dir():
        pytest.skip(f'no real images in {folder}; ROPE_DENSE_SHARED_DATA can name another folder')
    return folder


@pytest.fixture(scope='session')
def timm() -> ModuleType:
    """timm, imported without torchvision."""
    return import_timm()


def import_timm() -> ModuleType:
    """timm without torchvision.

    The models compared here need nothing from torchvision but one class to test against; timm
    imports its data pipeline along with them. Stand-ins satisfy those imports and are removed
    again, so that nothing else takes them for an installed torchvision.
    """
    stand_ins = {}
    if find_spec('torchvision') is None:
        stand_ins = {name: MagicMock(name=name) for name in _TORCHVISION_MODULES}
        frozen_norm = type('FrozenBatchNorm2d', (nn.Module,), {})
        stand_ins['torchvision.ops.misc'].FrozenBatchNorm2d = frozen_norm
    sys.modules.update(stand_ins)
    try:
        return pytest.importorskip('timm', reason='no timm; pip install --no-deps timm==1.0.31')
    finally:
        for name in stand_ins:
            del sys.modules[name]


_TORCHVISION_MODULES = (
    'torchvision',
    'torchvision.datasets',
    'torchvision.models',
    'torchvision.models.feature_extraction',
    'torchvision.ops',
    'torchvision.ops.misc',
    'torchvision.transforms',
    'torchvision.transforms.functional',
)
