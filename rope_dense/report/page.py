"""A report: its figures as PNG and JSON files, and one HTML page that contains all of them."""

import base64
import io
import json
import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import cv2
import numpy as np
from jinja2 import Environment, PackageLoader, select_autoescape
from matplotlib.figure import Figure

from ..data.images.drawing import encoded
from ..utils.disk import atomic_write
from ..utils.results import Results

NAME, PAGE, FIGURES = (
    'report',
    'index.html',
    'report.json',
)  # of ``Results``, and its files
PICTURE_WIDTH = 1200  # pixels of a picture within the page


class Page:
    """Sections of a report, written by ``write``.

    Args:
        results: where index.html, report.json and the pictures go.
        title: of the page.
        about: the subject of the report, by name.

    Attributes:
        files: contents of the other files by their names.
    """

    def __init__(self, results: Results, title: str, about: dict[str, Any]) -> None:
        self.results, self.title = results, title
        self.figures: dict[str, Any] = dict(about=about, advice=[])
        self.sections: list[dict[str, Any]] = []
        self.files: dict[str, bytes] = {}

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
        self.sections[-1]['parts'].append(
            dict(header=list(rows[0]) if rows else [], lines=lines)
        )

    @contextmanager
    def drawing(self, name: str) -> Iterator[None]:
        """Within this context an error costs a picture; the page names it, and goes on."""
        try:
            yield
        except Exception as error:  # whatever it is, the rest can be drawn
            words = ' '.join(str(error).split()) or type(error).__name__
            self.figures.setdefault('not_drawn', []).append(f'{name}: {words}')

    def add_figure(
        self, name: str, figure: Figure, caption: str, data: object = None
    ) -> None:
        """Add a plot; it is `name`.png, and its data are in the JSON file under `name`."""
        if data is not None:
            self.figures[name] = data
        file = io.BytesIO()
        figure.savefig(file, format='png', dpi=130)
        self.files[f'{name}.png'] = file.getvalue()
        self.embed('image/png', file.getvalue(), caption)

    def add_picture(self, name: str, picture: np.ndarray, caption: str) -> None:
        """Add a picture (BGR); it is `name`.png, and smaller in the page."""
        scale = min(1.0, PICTURE_WIDTH / picture.shape[1])
        small = cv2.resize(
            picture, None, fx=scale, fy=scale, interpolation=cv2.INTER_AREA
        )
        self.files[f'{name}.png'] = encoded(picture, '.png')
        self.embed('image/jpeg', encoded(small), caption)

    def embed(self, kind: str, content: bytes, caption: str) -> None:
        """Add the content of an image file to the page."""
        source = f'data:{kind};base64,{base64.b64encode(content).decode()}'
        self.sections[-1]['parts'].append(dict(source=source, caption=caption))

    def write(self) -> Path:
        """Write all files together, in place of those of an earlier report; returns the page.

        Names that are no UTF-8 are escaped.

        Raises:
            ForeignFileError: a file there is the user's.
            OSError: they cannot be written; the files of the earlier report stay.
        """
        text = json.dumps(json_value(self.figures), indent=1, allow_nan=False)
        loader = PackageLoader('rope_dense.report', '.')
        template = Environment(
            loader=loader, autoescape=select_autoescape()
        ).get_template('page.html')
        about = {
            name: cell_text(value) for name, value in self.figures['about'].items()
        }
        if lines := self.figures.get('not_drawn'):
            about['not drawn'] = '\n'.join(lines)
        advice = self.figures['advice']
        page = template.render(
            title=self.title, about=about, advice=advice, sections=self.sections
        )
        for name, content in ((FIGURES, text), (PAGE, page)):
            self.files[name] = f'{content}\n'.encode(errors='backslashreplace')
        folder = self.results.folder
        earlier = self.results.paths(NAME)
        with self.results.fresh() as fresh:
            for name, file in self.files.items():
                with atomic_write(fresh / name) as partial:
                    partial.write_bytes(file)
        for path in earlier:
            if path.name not in self.files:
                self.results.remove(path)
        return folder / PAGE


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
