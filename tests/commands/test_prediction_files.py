"""Files of predictions: the message without a box, and images that are done."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from mmdet.structures import DetDataSample
from mmengine.structures import InstanceData

from rope_dense.predict import files as prediction_files
from rope_dense.predict.formats import Output
from rope_dense.predict.journal import ImageJournal


def output_of(folder: Path, least: dict[str, float], *formats: str, **more: Any) -> Output:
    """Where predictions go, by default as predictions.json."""
    given = dict(scores=False, ids=None, read=lambda name: None) | more
    return Output(folder, {}, least, formats=formats or ('coco',), **given)


def test_no_box_is_above_the_least_score(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prediction_files, 'draw', lambda *_, **__: None)
    instances = InstanceData(
        bboxes=torch.tensor([[0.0, 0, 4, 4], [1, 1, 2, 2]]),
        scores=torch.tensor([0.125, 0.0625]),
        labels=torch.tensor([0, 0]),
    )
    output = output_of(tmp_path, {'cat': 0.3})
    files = prediction_files.DetectionFiles(None, output, ('cat',))
    files.add(
        'a.png', 'a.jpg', np.zeros((8, 8, 3), np.uint8), DetDataSample(pred_instances=instances)
    )
    first, second = files.close().splitlines()
    assert first.startswith('0 objects in 1 images: ')
    assert second == 'the highest score is 0.12, below --score 0.3'
    output = output_of(tmp_path, {'cat': 0.1})
    files = prediction_files.DetectionFiles(None, output, ('cat',))
    files.add(
        'b.png', 'b.jpg', np.zeros((8, 8, 3), np.uint8), DetDataSample(pred_instances=instances)
    )
    assert (said := files.close()).startswith('1 objects in 1 images: ') and '\n' not in said


def test_an_image_is_done_when_all_tasks_are(tmp_path: Path) -> None:
    """A kill may come between two tasks."""
    writers = {
        name: prediction_files.FeatureFiles(tmp_path / name, ImageJournal(tmp_path / name, {}))
        for name in ('a', 'b')
    }
    files = prediction_files.TaskFiles(tmp_path, writers)
    for name, image in (('a', 'x.png'), ('a', 'y.png'), ('b', 'x.png')):
        writers[name].journal.add(dict(file_name=image))
    assert files.done() == {'x.png'}
