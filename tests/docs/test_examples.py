"""Configs in the pages build, and the table of settings has those of configs/own."""

import dataclasses
import importlib.util
import inspect
import re
from pathlib import Path

import pytest
import torch
from mmengine.config import Config
from mmengine.registry import MODELS, init_default_scope

from rope_dense.models.shared_backbone import read_task
from rope_dense.project.own.tasks import TASKS

pytestmark = pytest.mark.usefixtures('surroundings')
ROOT = Path(__file__).resolve().parents[2]


def example(page: str, number: int = 0) -> str:
    """A config of a page: a block of Python that names its base first."""
    code = re.findall(r'```python\n(.*?)```', (ROOT / page).read_text(), re.DOTALL)
    return [block for block in code if re.match(r'(#.*\n)?_base_', block)][number]


def read(text: str, folder: Path) -> Config:
    """The config with this text."""
    path = folder / 'mine.py'
    path.write_text(text.replace("'configs/", f"'{ROOT}/configs/"))
    return Config.fromfile(path)


def test_a_detector_of_mmdet(tmp_path: Path) -> None:
    cfg = read(example('README.md'), tmp_path)
    init_default_scope(cfg.default_scope)
    with torch.device('meta'):
        model = MODELS.build(cfg.model)
        maps = model.extract_feat(torch.rand(1, 3, 64, 96))
    assert [list(x.shape[1:]) for x in maps][:2] == [[256, 16, 24], [256, 8, 12]]
    assert len(maps) == cfg.model.neck.num_outs == 5


def test_a_segmentor_of_mmseg(tmp_path: Path) -> None:
    spec = importlib.util.find_spec('mmseg')
    assert spec is not None and spec.origin is not None
    text = example('docs/heads.md', -1).replace(
        'MMSEG', f'{Path(spec.origin).parent}/.mim'
    )
    cfg = read(text, tmp_path)
    init_default_scope(cfg.default_scope)
    with torch.device('meta'):
        MODELS.build(cfg.model)


def test_eomt_on_own_data(tmp_path: Path) -> None:
    """It has a weight for each of its classes."""
    cfg = read(example('docs/eomt.md', -1), tmp_path)
    assert cfg.train_dataloader.dataset.metainfo.classes == ('road', 'car')
    assert len(cfg.train_dataloader.dataset.pipeline) > 4
    with torch.device('meta'), MODELS.switch_scope_and_registry('mmseg') as models:
        head = models.build(cfg.model).decode_head
    weights = [
        part.class_weight for part in head.modules() if hasattr(part, 'loss_mask')
    ]
    assert head.num_classes == 2 and weights == [[1.0, 1.0, 0.1]]


def test_several_tasks(tmp_path: Path) -> None:
    names: dict = {}
    exec(example('docs/one_encoder.md'), names)
    model = names['model']
    model.pop('_delete_')
    inspect.signature(MODELS.get(model.pop('type'))).bind(**model)
    (tmp_path / 'task.py').touch()
    for name, task in model['tasks'].items():
        assert names['_base_'] in [other['config'] for other in model['tasks'].values()]
        read_task(name, task | dict(config=str(tmp_path / 'task.py')))


def test_every_setting_of_own_data_is_explained() -> None:
    text = (ROOT / 'docs' / 'own_data.md').read_text()
    table = text.split('## Settings')[1].split('## Folders')[0]
    rows = '\n'.join(re.findall(r'^\| (`.+?) \|', table, re.MULTILINE))
    assert set(re.findall(r'`(\w+)`', rows)) - {'own'} == {
        field.name
        for task in TASKS.values()
        for field in dataclasses.fields(task.settings)
    }
