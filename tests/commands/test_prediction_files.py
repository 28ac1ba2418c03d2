"""Messages of predict when it writes no box."""

from pathlib import Path

import numpy as np
import pytest
import torch
from mmdet.structures import DetDataSample
from mmengine.structures import InstanceData

from rope_dense.predict import files as prediction_files
from rope_dense.predict.journal import ImageJournal


def test_no_box_is_above_the_least_score(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prediction_files, 'draw', lambda *_, **__: None)
    instances = InstanceData(
        bboxes=torch.tensor([[0.0, 0, 4, 4], [1, 1, 2, 2]]),
        scores=torch.tensor([0.125, 0.0625]),
        labels=torch.tensor([0, 0]),
    )
    journal = ImageJournal(tmp_path, {})
    files = prediction_files.DetectionFiles(None, tmp_path, ('cat',), 0.3, journal)
    files.add(
        'a.png', 'a.jpg', np.zeros((8, 8, 3), np.uint8), DetDataSample(pred_instances=instances)
    )
    first, second = files.close().splitlines()
    assert first.startswith('0 objects in 1 images: ')
    assert second == 'the highest score is 0.12, below --score 0.3'
    files.min_score = 0.1
    journal = files.journal = ImageJournal(tmp_path, {})
    files.add(
        'b.png', 'b.jpg', np.zeros((8, 8, 3), np.uint8), DetDataSample(pred_instances=instances)
    )
    assert (said := files.close()).startswith('1 objects in 1 images: ') and '\n' not in said
