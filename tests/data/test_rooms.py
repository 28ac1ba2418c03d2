"""Rooms: the depth of every pixel against their geometry, and the files."""

from __future__ import annotations

from pathlib import Path

import mmcv
import numpy as np
import pytest

from rope_dense.data.generated import ShapesSettings, write_shapes
from rope_dense.data.generated.rooms import FOCAL, Room, Solid, make_room, render_room

HEIGHT, WIDTH = 48, 80


def points_of(room: Room, depth: np.ndarray) -> np.ndarray:
    """What each pixel sees, [H, W, 3], from the camera's axes to the room's."""
    height, width = depth.shape
    focal = FOCAL * min(height, width)
    rows, columns = np.mgrid[:height, :width] + 0.5
    x, y = (columns - width / 2) / focal * depth, (rows - height / 2) / focal * depth
    down, ahead = np.sin(room.tilt), np.cos(room.tilt)
    return np.stack([x, ahead * y + down * depth, ahead * depth - down * y], -1)


def distance(solid: Solid, points: np.ndarray) -> np.ndarray:
    """To the surface, negative within."""
    offset = np.abs(points - solid.centre)
    if solid.is_sphere:
        return np.linalg.norm(offset, axis=-1) - solid.half[0]
    return (offset - solid.half).max(-1)


def to_walls(room: Room, points: np.ndarray) -> np.ndarray:
    low, high = np.array(room.bounds).T
    return np.minimum(points - low, high - points).min(-1)


@pytest.mark.parametrize('index', range(6))
def test_a_pixel_sees_a_surface_and_nothing_before_it(index: int) -> None:
    room = make_room(3, 'train', index)
    _, depth = render_room(room, HEIGHT, WIDTH)
    known = depth > 0
    assert 0.6 < known.mean() < 1 and depth.max() < 15
    points = points_of(room, depth.astype(float))[known]
    nearest = np.min([np.abs(distance(s, points)) for s in room.solids], 0)
    assert np.minimum(nearest, np.abs(to_walls(room, points))).max() < 1e-5
    for share in np.linspace(0.02, 0.98, 49):
        for solid in room.solids:
            assert distance(solid, share * points).min() > -1e-5
        assert to_walls(room, share * points).min() > 0


def test_a_room_depends_only_on_seed_split_and_index() -> None:
    one, same = (render_room(make_room(0, 'val', 2), HEIGHT, WIDTH) for _ in range(2))
    assert all(map(np.array_equal, one, same))
    others = [make_room(*x) for x in ((1, 'val', 2), (0, 'train', 2), (0, 'val', 3))]
    assert all(other != make_room(0, 'val', 2) for other in others)


def test_at_twice_the_size_it_is_the_same_picture() -> None:
    (small, near), (large, far) = (
        render_room(make_room(0, 'val', 0), factor * HEIGHT, factor * WIDTH)
        for factor in (1, 2)
    )
    shrunk = large.reshape(HEIGHT, 2, WIDTH, 2, 3).mean((1, 3))
    assert np.abs(shrunk - small).mean() < 4  # of 255
    spread = np.abs(far.reshape(HEIGHT, 2, WIDTH, 2).mean((1, 3)) - near)
    assert np.median(spread) < 0.005  # metres


def test_files_have_millimetres(tmp_path: Path) -> None:
    write_shapes(tmp_path, ShapesSettings(2, 1, (64, 96), layouts=('depth',)))
    for split, count in (('train', 2), ('val', 1)):
        files = sorted((tmp_path / 'depth' / 'depth' / split).iterdir())
        assert len(files) == count
        for index, file in enumerate(files):
            stored = mmcv.imread(file, 'unchanged')
            image, depth = render_room(make_room(0, split, index), 64, 96)
            assert (
                stored.dtype == np.uint16
                and np.abs(stored / 1000 - depth).max() <= 0.0005 + 1e-6
            )
            assert ((stored == 0) == (depth == 0)).all()
            path = tmp_path / 'depth' / 'images' / split / f'{file.stem}.jpg'
            assert (
                np.abs(
                    mmcv.imread(path, channel_order='rgb').astype(int) - image
                ).mean()
                < 5
            )
