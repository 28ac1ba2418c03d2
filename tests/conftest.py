import ctypes
import gc
import os
import random
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
import torch
from mmengine.registry import DefaultScope
from mmengine.visualization import Visualizer

from helpers.timm_import import import_timm

REPOSITORY = Path(__file__).resolve().parents[1]

# One thread: small tensors gain nothing from more, and threads on a busy machine wait in turn.
torch.set_num_threads(1)

# Without a GPU, kernels run in Triton's interpreter; Triton asks for that when it is imported.
if not torch.cuda.is_available():
    os.environ['TRITON_INTERPRET'] = '1'

# Before mmcv.ops, which reads the operators that it provides where mmcv has none; mmdet may import
# Triton.
import_module('rope_dense')


def pytest_collection_finish() -> None:
    """Keep what was imported out of garbage collection, which took 7 % of the time."""
    gc.freeze()


@pytest.fixture(autouse=True)
def seed() -> int:
    """The seed every test starts from."""
    random.seed(0)
    np.random.seed(0)
    torch.manual_seed(0)
    return 0


@pytest.fixture(scope='session', autouse=True)
def configs_as_they_are() -> Iterator[None]:
    """Configs are written without layout for readers: yapf takes a second for each."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            'yapf.yapflib.yapf_api.FormatCode', lambda text, **options: (text, True)
        )
        yield


@pytest.fixture(scope='session', autouse=True)
def own_data_elsewhere(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Canonical files of own data are written to a temporary folder, not to the checkout."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            'rope_dense.project.own.data.CONVERTED', tmp_path_factory.mktemp('own_data')
        )
        yield


@pytest.fixture(scope='session', autouse=True)
def no_loading_processes() -> Iterator[None]:
    """Own data is loaded in the process of a test: to fork it takes longer than to load."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr('os.sched_getaffinity', lambda process: set())
        yield


@pytest.fixture(autouse=True)
def no_visualizer_of_another_run() -> Iterator[None]:
    """mmengine would give it to a run that starts within the same second; its folder is gone."""
    yield
    for kind in (Visualizer, *Visualizer.__subclasses__()):
        kind._instance_dict.clear()


@pytest.fixture(autouse=True)
def no_launcher(monkeypatch: pytest.MonkeyPatch) -> None:
    """A launcher's variable, which a training in this process leaves, is not of the next test."""
    monkeypatch.delenv('LOCAL_RANK', raising=False)


@pytest.fixture(scope='module', autouse=True)
def freed_memory() -> Iterator[None]:
    """glibc returns what a file freed: it would keep gigabytes, which each loader's fork copies.

    What it left, such as the tables of traces, is kept out of later collections, which took most
    of the time of tests that read data sets: mmengine collects for each.
    """
    yield
    gc.collect()
    gc.freeze()
    if trim := getattr(ctypes.CDLL(None), 'malloc_trim', None):
        trim(0)


@pytest.fixture(scope='module')
def surroundings() -> Iterator[None]:
    """Leave no default scope to other tests."""
    with DefaultScope.overwrite_default_scope('mmengine'):
        yield


@pytest.fixture(scope='session')
def shared_data() -> Path:
    """Folder with coco_mini and ade_mini: $ROPE_DENSE_SHARED_DATA, or ../shared/data."""
    folder = Path(
        os.environ.get('ROPE_DENSE_SHARED_DATA', REPOSITORY.parent / 'shared' / 'data')
    )
    if not folder.is_dir():
        pytest.skip(
            f'no real images in {folder}; ROPE_DENSE_SHARED_DATA can name another folder'
        )
    return folder


@pytest.fixture(scope='session')
def transformers() -> ModuleType:
    """Hugging Face's transformers, which need no torchvision for the models compared here."""
    return pytest.importorskip(
        'transformers', reason='no transformers; see requirements/common.txt'
    )


@pytest.fixture(scope='session')
def timm() -> ModuleType:
    """timm, imported without torchvision."""
    return import_timm()
