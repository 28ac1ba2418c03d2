"""A report: its figures as PNG and JSON files, and one HTML page that contains all of them."""

import base64
import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import cv2
import numpy as np
from jinja2 import Environment, PackageLoader, select_autoescape
from matplotlib.figure import Figure

from ..utils.atomic_write import atomic_write, atomic_write_text

PICTURE_WIDTH = 1200  # pixels of a picture within the page


class Page:
    """Sections of a report, written by ``write``.

    Args:
        out: folder for index.html, report.json and the pictures.
        title: of the page.
        about: the subject of the report, by name.
    """

    def __init__(self, out: Path, title: str, about: dict[str, Any]) -> None:
        self.out, self.title = out, title
        self.figures: dict[str, Any] = dict(about=about, advice=[])
        self.sections: list[dict[str, Any]] = []
        out.mkdir(parents=True, exist_ok=True)

    def advise(self, text: str) -> None:
        """Add a sentence to 'What to do next', at the top of the page."""
        self.figures['advice'].append(text)

    def section(self, title: str, text: str = '') -> None:
        """Begin a section, with a sentence on how to read it."""
        self.sections.append(dict(title=title, text=text, parts=[]))

    def add_table(self, name: str, rows: Sequence[dict[str, Any]]) -> None:
        """Add rows with the same keys; they are in the JSON file under `name`."""
        self.figures[name] = rows
        lines = [[cell_text(value) for value in row.values()] for row in rows]
        self.sections[-1]['parts'].append(dict(header=list(rows[0]) if rows else [], lines=lines))

    def add_figure(self, name: str, figure: Figure, caption: str, data: object = None) -> None:
        """Add a plot; it is `name`.png, and its data are in the JSON file under `name`."""
        if data is not None:
            self.figures[name] = data
        with atomic_write(self.out / f'{name}.png') as file:
            figure.savefig(file, format='png', dpi=130)
        self.embed('image/png', (self.out / f'{name}.png').read_bytes(), caption)

    def add_picture(self, name: str, picture: np.ndarray, caption: str) -> None:
        """Add a picture (BGR); it is `name`.png, and smaller in the page."""
        with atomic_write(self.out / f'{name}.png') as file:
            file.write_bytes(cv2.imencode('.png', picture)[1].tobytes())
        scale = min(1.0, PICTURE_WIDTH / picture.shape[1])
        small = cv2.resize(picture, None, fx=scale, fy=scale, interpolation=cv2.INTER_AREA)
        self.embed('image/jpeg', cv2.imencode('.jpg', small)[1].tobytes(), caption)

    def embed(self, kind: str, content: bytes, caption: str) -> None:
        """Add the content of an image file to the page."""
        source = f'data:{kind};base64,{base64.b64encode(content).decode()}'
        self.sections[-1]['parts'].append(dict(source=source, caption=caption))

    def write(self) -> Path:
        """Write the JSON file and the page; returns the path of the page."""
        text = json.dumps(json_value(self.figures), indent=1, allow_nan=False)
        atomic_write_text(self.out / 'report.json', text + '\n')
        loader = PackageLoader('rope_dense.report', '.')
        template = Environment(loader=loader, autoescape=select_autoescape()).get_template(
            'page.html'
        )
        about = {name: cell_text(value) for name, value in self.figures['about'].items()}
        advice = self.figures['advice']
        text = template.render(title=self.title, about=about, advice=advice, sections=self.sections)
        atomic_write_text(self.out / 'index.html', text + '\n')
        return self.out / 'index.html'


def cell_text(value: object) -> str:
    """A value as the text of a cell."""
    if isinstance(value, float):
        return '-' if math.isnan(value) else f'{value:.3f}'
    return '-' if value is None else str(value)


def json_value(value: Any) -> Any:
    """A value for JSON: arrays are lists, and what is not a number is None."""
    if isinstance(value, dict):
        return {str(key): json_value(item) for key, item in value.items()}
    if isinstance(value, np.ndarray | np.generic):
        return json_value(value.tolist())
    if isinstance(value, list | tuple):
        return [json_value(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
