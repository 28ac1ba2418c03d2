"""The study of positions in metres: its scenes, and the table of its page."""

import importlib.util
from pathlib import Path

import torch

STUDY = Path(__file__).parents[2] / 'docs' / 'research' / 'ground_distance'
# Under a name of its own: other studies have a run.py, too.
spec = importlib.util.spec_from_file_location('ground_study_run', STUDY / 'run.py')
study = importlib.util.module_from_spec(spec)
spec.loader.exec_module(study)


def test_a_scene_has_the_same_metres_at_both_distances():
    areas = []
    for distance in (study.FINE, study.COARSE):
        draw = torch.Generator().manual_seed(0)
        images, labels = study.scenes(64, distance, draw)
        assert images.shape == (64, 3, 64, 64)
        share = (labels == 1).float().mean()
        areas.append(share.item())
    assert 2.5 < areas[0] / areas[1] < 5  # four times as many pixels, but for overlaps


def test_the_page_has_the_table_of_the_results():
    page = (STUDY / 'README.md').read_text(encoding='utf-8')
    assert '\n'.join(['', *study.table(), '']) in page
