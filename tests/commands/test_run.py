"""rope_dense.train and rope_dense.load do what the commands do."""

import gc
import io
import logging
import shutil
from multiprocessing import active_children
from pathlib import Path

import cv2
import numpy as np
import pytest
import torch
from mmengine.config import Config
from mmengine.logging import MMLogger
from PIL import Image

import rope_dense
from rope_dense.backbones.archs import VIT_ARCHS
from rope_dense.project.model import random_model
from rope_dense.utils.errors import UsageError


@pytest.fixture
def run_folder(detector: str, tmp_path: Path) -> Path:
    """A run with its config, its best weights and earlier ones."""
    folder = tmp_path / 'run'
    folder.mkdir()
    shutil.copy(detector, folder / 'cats.py')
    torch.manual_seed(0)
    torch.save(
        dict(state_dict=random_model(Config.fromfile(detector)).state_dict()),
        folder / 'best_coco_bbox_mAP_iter_2.pth',
    )
    (folder / 'iter_1.pth').write_bytes(b'earlier')
    (folder / 'last_checkpoint').write_text(str(folder / 'iter_1.pth'))
    return folder


def test_paths_pictures_and_arrays_are_one(run_folder: Path, data: Path) -> None:
    from mmdet.apis import DetInferencer

    model = rope_dense.load(run_folder, device='cpu')
    assert model.classes[0] == 'circle' and model.checkpoint.endswith('iter_2.pth')
    path = data / 'coco' / 'val2017' / '00000000.jpg'
    array = cv2.imread(str(path))
    given = [path, str(path), array, array.astype(np.float32), Image.open(path)]
    samples = model(given, batch=2)
    boxes = [sample.pred_instances.bboxes for sample in samples]
    assert all(torch.allclose(box, boxes[0], atol=1e-3) for box in boxes)
    inferencer = DetInferencer(
        model.config, model.checkpoint, device='cpu', show_progress=False
    )
    expected = inferencer(str(path))['predictions'][0]['bboxes']
    np.testing.assert_allclose(boxes[0].numpy(), expected, atol=1e-3)
    (fixed,) = model.backbone(torch.zeros(1, 3, 32, 48))[:1]
    assert fixed.shape[0] == 1 and model.backbone is model.model.backbone
    (one,) = model(path)
    plain = model.plain(one, score=0.0)
    assert (
        plain['boxes'].shape == (len(plain['scores']), 4) == (len(plain['labels']), 4)
    )
    assert model.plain(one, score=1.0)['boxes'].shape == (0, 4)
    for name, reason in (
        ('cats.py', 'cannot be read as an image'),
        ('cats.jpg', 'no such file'),
    ):
        with pytest.raises(ValueError, match=reason):
            model(run_folder / name)


def test_a_logger_of_a_training_hears_nothing_of_mmengines_own(
    run_folder: Path,
) -> None:
    heard, logger = io.StringIO(), MMLogger.get_current_instance()
    handler = logging.StreamHandler(heard)
    logger.addHandler(handler)
    try:
        rope_dense.load(run_folder, device='cpu')
        logger.warning('of another')
    finally:
        logger.removeHandler(handler)
    assert heard.getvalue() == 'of another\n'


def test_a_segmentor(segmentor: str, data: Path, tmp_path: Path) -> None:
    path = tmp_path / 'weights.pth'
    torch.save(
        dict(state_dict=random_model(Config.fromfile(segmentor)).state_dict()), path
    )
    model = rope_dense.load(segmentor, path, device='cpu')
    picture = next((data / 'ade' / 'images' / 'validation').iterdir())
    (sample,) = model(Image.open(picture))
    labels = model.plain(sample)['labels']
    assert labels.shape == Image.open(picture).size[::-1] and labels.max() < len(
        model.classes
    )


@pytest.mark.slow
def test_evaluation_and_export_are_those_of_the_commands(
    run_folder: Path, tmp_path: Path
) -> None:
    model = rope_dense.load(run_folder, device='cpu')
    rows = model.evaluate(['64', '96'], work_dir=tmp_path / 'sizes')
    assert [row['size'] for row in rows] == ['64', '96']
    assert (tmp_path / 'sizes' / 'resolutions.png').is_file()
    out = model.export(tmp_path / 'model.pt2', size='96x128', batch=1)
    exported = torch.export.load(out).module()
    scores, *_ = exported(torch.zeros(1, 3, 96, 128, dtype=torch.uint8))
    assert scores.shape[0] == 1


@pytest.mark.slow
def test_three_lines_train_a_model(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(
        VIT_ARCHS, 'four_blocks', dict(embed_dims=32, depth=4, num_heads=2)
    )
    settings = dict(
        backbone='four_blocks', weights=None, epochs=1, size=96, batch_size=2
    )
    settings |= dict(data_root=data / 'coco', work_dir='cats')
    others = {*active_children()}
    model = rope_dense.train('detection', **settings)
    gc.collect()
    assert {
        *active_children()
    } <= others  # nothing holds the run, whose workers load data
    assert Path(model.checkpoint).parent.resolve() == (tmp_path / 'cats').resolve()
    assert len(model(data / 'coco' / 'val2017' / '00000000.jpg')) == 1

    with pytest.raises(UsageError, match='has 2 checkpoints of an earlier run'):
        rope_dense.train('detection', **settings)
    resumed = rope_dense.train(
        'detection', resume=True, amp='bf16', **settings | dict(epochs=2)
    )
    assert resumed.cfg.optim_wrapper.type == 'BFloat16OptimWrapper'


def test_what_is_no_run_is_named(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r'neither a run, .*, nor a stored model'):
        rope_dense.load(tmp_path)
    for name in ('iter_8.pth', 'street.jpg'):
        (tmp_path / name).touch()
        with pytest.raises(UsageError, match=r'not a config .* the folder of a run'):
            rope_dense.load(tmp_path / name)
    with pytest.raises(ValueError, match=r"task must be one of .*, got 'panoptic'"):
        rope_dense.train('panoptic')
    with pytest.raises(AttributeError, match="no attribute 'trian'"):
        rope_dense.trian  # noqa: B018
