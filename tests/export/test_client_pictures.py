"""How the programs of docs/clients read files, beside how predict reads them."""

import ast
import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pytest
from PIL import Image, ImageOps

from rope_dense.data.images.sources import read_image
from rope_dense.predict.inferencer import pad_to_ratio

CLIENTS = Path(__file__).resolve().parents[2] / 'docs' / 'clients'
LEVELS = np.linspace(0, 65535, 15 * 11).reshape(11, 15).astype(np.uint16)
GREY = Image.fromarray((LEVELS // 256).astype(np.uint8)).resize((60, 44), Image.BICUBIC)
PICTURE = Image.merge('RGB', [GREY, GREY.rotate(180), ImageOps.invert(GREY)])
WIDE = np.asarray(PICTURE).astype(np.uint16) * 257
FILES = {  # a name, and the mode of Pillow
    **{f'{mode}.png': mode for mode in ('RGB', 'L', 'LA', 'P', '1', 'RGBA')},
    **{f'{mode}.jpg': mode for mode in ('RGB', 'L', 'CMYK')},
    **{f'{mode}.tif': mode for mode in ('RGB', 'L', '1')},
    **{f'{mode}.bmp': mode for mode in ('RGB', 'L')},
    **{f'{mode}.webp': mode for mode in ('RGB', 'RGBA')},
    'P.gif': 'P',
}
DEEP = {
    'grey16.png': WIDE[..., 0],
    'grey16.tif': WIDE[..., 0],
    'rgb16.png': WIDE,
    'rgb16.tif': WIDE,
}
# sharp reads no BMP, and other colours from CMYK.
NOT_IN_NODE = 'RGB.bmp', 'L.bmp', 'CMYK.jpg'


@pytest.fixture(scope='module')
def files(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """A picture in each kind of file."""
    folder = tmp_path_factory.mktemp('pictures')
    for name, mode in FILES.items():
        lossless = dict(lossless=True) if name.endswith('webp') else {}
        PICTURE.convert(mode).save(folder / name, **lossless)
    for name, pixels in DEEP.items():
        cv2.imwrite(str(folder / name), pixels)
    exif = Image.Exif()
    for turn in range(2, 9):
        exif[0x0112] = turn
        PICTURE.save(folder / f'turned{turn}.jpg', exif=exif)
    PICTURE.save(folder / 'turned.png', exif=exif)
    PICTURE.save(folder / 'lzw.tif', compression='tiff_lzw')
    PICTURE.save(folder / 'progressive.jpg', progressive=True)
    PICTURE.convert('P').save(folder / 'transparent.png', transparency=3)
    faded = PICTURE.copy()
    faded.putalpha(GREY)
    faded.save(folder / 'faded.png')
    PICTURE.crop((0, 0, 1, 1)).save(folder / 'one.png')
    return sorted(folder.iterdir())


def assert_read(path: Path, found: np.ndarray) -> None:
    expected = read_image(path)[..., ::-1]
    assert found.shape == expected.shape, path
    assert expected.std() > 5
    assert np.abs(found.astype(int) - expected).max() <= 1, path


@pytest.mark.filterwarnings('ignore:Palette images with Transparency')
@pytest.mark.parametrize('client', ['detect.py', 'draw.py'])
def test_pixels_are_those_of_predict(client: str, files: list[Path]) -> None:
    assert len(files) == 34
    read: Callable[[Path], Image.Image] = function(client, 'read')
    for path in files:
        assert_read(path, np.asarray(read(path)))


def function(client: str, name: str, **names: Any) -> Any:
    """A function of a client, without the rest of the program."""
    names |= dict(np=np, Image=Image, ImageOps=ImageOps)
    for node in ast.parse((CLIENTS / client).read_text()).body:
        if isinstance(node, ast.FunctionDef) and node.name == name:
            exec(ast.unparse(node), names)
    return names[name]


@pytest.mark.parametrize('ratio', [2.5, 8.0, None])
def test_long_pictures_are_padded_as_by_predict(ratio: float | None) -> None:
    padded = function('draw.py', 'padded', about=dict(resize=dict(ratio=ratio)))
    for size in ((60, 7), (3, 44), (60, 44)):
        image = PICTURE.crop((0, 0, *size))
        expected = pad_to_ratio(np.asarray(image), ratio or np.inf)
        np.testing.assert_array_equal(np.asarray(padded(image)), expected)


def test_pixels_of_node_are_those_of_predict(files: list[Path], tmp_path: Path) -> None:
    modules = Path(os.environ.get('NODE_MODULES', ''))
    if not shutil.which('node') or not (modules / 'sharp').exists():
        pytest.skip('no node, or NODE_MODULES names no folder with sharp')
    (tmp_path / 'node_modules').symlink_to(modules.resolve())
    lines = (CLIENTS / 'detect.mjs').read_text().splitlines()
    reading = [line for line in lines if 'upright' in line]
    assert len(reading) == 2
    program = [
        "import { writeFileSync } from 'node:fs';",
        "import sharp from 'sharp';",
        'for (const [i, picture] of process.argv.slice(2).entries()) {',
        *reading,
        'writeFileSync(`${i}.raw`, data);',
        'writeFileSync(`${i}.txt`, `${info.height} ${info.width}`); }',
    ]
    (tmp_path / 'read.mjs').write_text('\n'.join(program))
    known = [path for path in files if path.name not in NOT_IN_NODE]
    subprocess.run(['node', 'read.mjs', *known], cwd=tmp_path, check=True)
    for number, path in enumerate(known):
        size = map(int, (tmp_path / f'{number}.txt').read_text().split())
        pixels = np.fromfile(tmp_path / f'{number}.raw', np.uint8)
        assert_read(path, pixels.reshape(*size, 3))
