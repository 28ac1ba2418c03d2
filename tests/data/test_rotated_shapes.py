"""Rotated shapes: their boxes against the pixels, and DOTA's files against mmrotate's reader."""

from pathlib import Path

import cv2
import numpy as np
import pytest

from rope_dense.data.generated import ShapesSettings, make_scene, write_shapes
from rope_dense.data.generated.shapes import ROTATED_METAINFO, RotatedShape, coverage


@pytest.mark.parametrize('label', range(4))
@pytest.mark.parametrize('angle', [0.0, 0.4, 2.9, 5.0])
def test_a_box_fits_the_pixels_along_its_angle(label: int, angle: float) -> None:
    shape = RotatedShape(label, 0.5, 0.5, 0.35, angle, (1, 0, 0), breadth=0.4)
    covered = coverage(shape, 200, 300)
    assert covered.sum() == pytest.approx(shape.area * 70**2, rel=0.02)
    rows, columns = np.nonzero(covered > 0.5)
    points = np.stack([columns, rows], 1) + 0.5
    first, second, _, last = shape.corners(200, 300)
    for end, length in ((second, 140), (last, 56)):
        axis = (end - first) / np.linalg.norm(end - first)
        assert np.linalg.norm(end - first) == pytest.approx(length)
        places = (points - first) @ axis
        assert (places.min(), places.max()) == pytest.approx((0, length), abs=3)


def test_files_are_those_of_dota(tmp_path: Path) -> None:
    pytest.importorskip('mmrotate', reason='no mmrotate; see the extra [oriented]')
    import rope_dense.models.mmrotate  # noqa: F401, I001
    from mmrotate.datasets import DOTADataset

    write_shapes(
        tmp_path / 'set', ShapesSettings(2, 1, (96, 128), seed=3, layouts=('dota',))
    )
    dataset = DOTADataset(
        data_root=str(tmp_path / 'set' / 'dota' / 'train'),
        ann_file='labelTxt',
        data_prefix=dict(img_path='images'),
        metainfo=ROTATED_METAINFO,
        pipeline=[],
    )
    assert len(dataset) == 2
    for index in range(2):
        data = dataset.get_data_info(index)
        scene = make_scene(
            3, 'train', int(data['img_id']), aspect=128 / 96, kind=RotatedShape
        )
        assert cv2.imread(data['img_path']).shape == (96, 128, 3)
        for shape, instance in zip(scene.shapes, data['instances'], strict=True):
            assert instance['bbox_label'] == shape.label
            np.testing.assert_allclose(
                instance['bbox'], shape.corners(96, 128).flatten(), atol=1e-3
            )
