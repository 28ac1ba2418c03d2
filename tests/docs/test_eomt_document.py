"""docs/eomt.md: the config for own data builds, with a weight for each of its classes."""

import re
from pathlib import Path

import pytest
import torch
from mmengine.config import Config
from mmengine.registry import MODELS

pytestmark = pytest.mark.usefixtures('surroundings')
ROOT = Path(__file__).resolve().parents[2]


def test_own_data(tmp_path: Path) -> None:
    text = (ROOT / 'docs' / 'eomt.md').read_text().split('## Own data')[1]
    config = re.search(r'```python\n(_base_.*?)```', text, re.DOTALL)
    assert config
    (tmp_path / 'mine.py').write_text(config[1].replace("'configs/", f"'{ROOT}/configs/"))
    cfg = Config.fromfile(tmp_path / 'mine.py')
    assert cfg.train_dataloader.dataset.metainfo.classes == ('road', 'car')
    assert len(cfg.train_dataloader.dataset.pipeline) > 4
    with torch.device('meta'), MODELS.switch_scope_and_registry('mmseg') as models:
        head = models.build(cfg.model).decode_head
    weights = [part.class_weight for part in head.modules() if hasattr(part, 'loss_mask')]
    assert head.num_classes == 2 and weights == [[1.0, 1.0, 0.1]]
