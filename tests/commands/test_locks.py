"""Two processes that would write one result: the second one is refused, and names the first."""

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from helpers.locks import hold
from rope_dense_command import command

pytest.importorskip('rasterio', reason="no rasterio: pip install -e '.[large]'")


@pytest.mark.parametrize(
    'tool, result, lock',
    [
        ('train', 'work', 'work/.rope_dense/training/lock'),
        ('eval_resolutions', 'work', 'work/.rope_dense/resolutions.json/lock'),
        ('predict', 'predictions', 'predictions/.rope_dense/predict/0/lock'),
        ('predict_large', 'out/boxes.json', 'out/.rope_dense/boxes.json/lock'),
        ('export', 'out/model.onnx', 'out/.rope_dense/model.onnx/lock'),
    ],
)
def test_a_result_is_written_by_one_process(
    tool: str,
    result: str,
    lock: str,
    detector: str,
    weights: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    image, work = tmp_path / 'image.png', ['--work-dir', str(tmp_path / 'work')]
    Image.fromarray(np.zeros((64, 64, 3), np.uint8)).save(image)
    arguments = {
        'train': [
            *work,
            '--cfg-options',
            'experiment_name=lock',
            'visualizer.name=lock',
        ],
        'eval_resolutions': [weights, '--sizes', '64', *work],
        'predict': [weights, str(image), '--out', str(tmp_path / result), *work],
        'predict_large': [weights, str(image), '--out', str(tmp_path / result), *work],
        'export': [weights, str(tmp_path / result), '--size', '64x64'],
    }
    written = tmp_path / lock.partition('/.rope_dense')[0]
    process = hold(written, file=tmp_path / lock)
    try:
        main = command(tool)
        assert main([detector, *arguments[tool]]) == 2
    finally:
        process.communicate(timeout=30)
    message = capsys.readouterr().err
    assert f'error: {written}: is being written by process {process.pid} on' in message
    assert 'Traceback' not in message and not (tmp_path / result).is_file()
    assert not [path for path in tmp_path.rglob('lock') if path.is_file()]
