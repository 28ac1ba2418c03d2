"""How the programs of docs/clients read files, beside how predict reads them."""

import ast
from collections.abc import Callable
from pathlib import Path
from typing import Any

import cv2
import mmcv
import numpy as np
import pytest
from PIL import Image, ImageOps

CLIENTS = Path(__file__).resolve().parents[2] / 'docs' / 'clients'
LEVELS = np.linspace(0, 65535, 15 * 11).reshape(11, 15).astype(np.uint16)
GREY = Image.fromarray((LEVELS // 256).astype(np.uint8))
PICTURE = Image.merge('RGB', [GREY, GREY.rotate(180), ImageOps.invert(GREY)])


def save_wide(path: Path) -> None:
    cv2.imwrite(str(path), LEVELS)


def save_turned(path: Path) -> None:
    exif = Image.Exif()
    exif[0x0112] = 6
    PICTURE.save(path, exif=exif)


def save_as(mode: str) -> Callable[[Path], None]:
    return lambda path: PICTURE.convert(mode).save(path)


@pytest.mark.parametrize('client', ['detect.py', 'draw.py'])
@pytest.mark.parametrize(
    'name, save',
    [
        ('grey16.png', save_wide),
        ('grey16.tif', save_wide),
        ('turned.png', save_turned),
        *((f'{mode}.png', save_as(mode)) for mode in ('RGB', 'L', 'LA', 'P', '1')),
        ('RGBA.png', save_as('RGBA')),
    ],
)
def test_pixels_are_those_of_predict(
    client: str, name: str, save: Callable[[Path], None], tmp_path: Path
) -> None:
    path = tmp_path / name
    save(path)
    tree = ast.parse((CLIENTS / client).read_text())
    names: dict[str, Any] = dict(np=np, Image=Image, ImageOps=ImageOps)
    for node in tree.body:
        if isinstance(node, ast.FunctionDef) and node.name == 'read':
            exec(ast.unparse(node), names)
    found = np.asarray(names['read'](path))
    expected = mmcv.imread(str(path), channel_order='rgb')
    assert found.shape == expected.shape and expected.std() > 5
    assert np.abs(found.astype(int) - expected).max() <= 1
