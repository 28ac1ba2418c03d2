"""Files that other programs run: their cases, and what the programs give."""

import json
from pathlib import Path

import numpy as np
import onnx
import pytest
import torch
from test_export_compare import Rows
from test_translations import written

from helpers.exported import run, session
from rope_dense_command import command


def detector(folder: Path, score: float = 0.0, **changes: object) -> Path:
    """A file of a detector with the metadata that ``check-file`` needs."""
    path = folder / 'model.onnx'
    written(Rows(score).eval(), path, 3)
    model = onnx.load(path)
    metadata = dict(
        outputs=['scores', 'boxes', 'labels'], size='dynamic', batch='dynamic'
    )
    metadata |= dict(
        input=dict(channels=3, dtype='float32'), backbone_dtype='fp32', task='detection'
    )
    metadata |= dict(resize=dict(scale=[48, 32]), resized=None, smallest_size=[16, 16])
    for entry in model.metadata_props:
        entry.value = json.dumps(metadata | changes)
    onnx.save(model, path)
    return path


def test_what_another_program_gives_is_judged(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path, cases, theirs = detector(tmp_path), tmp_path / 'a.npz', tmp_path / 'b.npz'
    check = command('check_file')
    assert check([str(path), '--write', str(cases)]) == 0
    given = dict(np.load(cases))
    shapes = [given[f'{number}_image'].shape for number in range(3)]
    assert shapes == [(1, 3, 32, 48), (2, 3, 41, 101), (1, 3, 64, 49)]
    found = {}
    for number in range(3):
        outputs = run(session(path), torch.from_numpy(given[f'{number}_image']))
        for name, out in zip(('scores', 'boxes', 'labels'), outputs, strict=True):
            found[f'{number}_{name}'] = out.numpy()
            np.testing.assert_array_equal(
                found[f'{number}_{name}'], given[f'{number}_{name}']
            )
    np.savez(theirs, **found)
    assert check([str(path), '--results', str(theirs)]) == 0
    assert '2_scores, 2_boxes, 2_labels: 0.0e+00' in capsys.readouterr().out
    np.savez(theirs, **found | {'1_boxes': found['1_boxes'] * 1.1})
    assert check([str(path), '--results', str(theirs)]) == 2
    assert (
        '1_scores, 1_boxes, 1_labels: 1.0e-01 of the largest value, above'
        in capsys.readouterr().err
    )
    np.savez(theirs, **found | {'1_scores': found['1_scores'][:, :1]})
    assert check([str(path), '--results', str(theirs)]) == 2
    assert 'b.npz: 1_boxes is [2, ' in capsys.readouterr().err
    del found['2_labels']
    np.savez(theirs, **found)
    assert check([str(path), '--results', str(theirs)]) == 2
    assert 'has no 2_labels' in capsys.readouterr().err
    theirs.write_text('no archive')
    assert check([str(path), '--results', str(theirs)]) == 2
    assert 'b.npz: no arrays as numpy.savez writes' in capsys.readouterr().err
    with pytest.raises(SystemExit):  # NumPy writes no other name
        check([str(path), '--write', str(tmp_path / 'cases.txt')])
    assert 'cases.txt: give NAME.npz' in capsys.readouterr().err


def test_labels_of_pixels_and_several_tasks_are_judged(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    check, theirs = command('check_file'), tmp_path / 'b.npz'
    objects = dict(task='detection', outputs=['scores', 'boxes', 'labels'])
    several = dict(task='several', tasks=dict(objects=objects))
    for changes in (dict(task='segmentation'), several):
        path, cases = detector(tmp_path, **changes), tmp_path / 'a.npz'
        assert check([str(path), '--write', str(cases)]) == 0
        given = dict(np.load(cases))
        assert check([str(path), '--results', str(cases)]) == 0
        said = capsys.readouterr().out
        assert ('2_boxes, 2_labels: 0.0' in said) == (changes is several)
        np.savez(theirs, **given | {'1_labels': given['1_labels'] + 1})
        assert check([str(path), '--results', str(theirs)]) == 2
        assert '1_labels: 1.0e+00 of the' in capsys.readouterr().err
    detector(tmp_path, task='segmentation')
    np.savez(theirs, **given | {'1_labels': given['1_labels'][:1]})
    assert check([str(path), '--results', str(theirs)]) == 2
    assert '1_labels is [1, 101], right is [2, 101]' in capsys.readouterr().err


def test_cases_without_a_detection_are_none(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path, cases = detector(tmp_path, 0.99999), tmp_path / 'a.npz'
    model = onnx.load(path)
    for tensor in model.graph.initializer:
        if tensor.name == 'threshold':
            tensor.CopyFrom(
                onnx.numpy_helper.from_array(np.full((1, 1), 2, np.float32))
            )
            tensor.name = 'threshold'
    onnx.save(model, path)
    assert command('check_file')([str(path), '--write', str(cases)]) == 2
    assert 'exported without --score' in capsys.readouterr().err
    assert not cases.exists()
