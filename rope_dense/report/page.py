"""A report: its figures as PNG and JSON files, and one HTML page that contains all of them."""

import base64
import io
import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Generic, TypeVar

import cv2
import numpy as np
from jinja2 import Environment, PackageLoader, select_autoescape
from matplotlib.figure import Figure

from ..data.images.drawing import encoded
from ..utils.disk import atomic_write
from ..utils.results import Results
from .record import Record, ReportRecord, Row

NAME = 'report'  # of ``Results``
PAGE, FIGURES = 'index.html', 'report.json'
PICTURE_WIDTH = 1200  # pixels of a picture within the page


AnyRecord = TypeVar('AnyRecord', bound=Record)


class Page(Generic[AnyRecord]):
    """Sections of a report, written by ``write``.

    Args:
        results: where index.html, report.json and the pictures go.
        title: of the page.
        record: the content of report.json, as far as it is known.

    Attributes:
        files: contents of the other files by their names.
    """

    def __init__(self, results: Results, title: str, record: AnyRecord) -> None:
        self.results = results
        self.title = title
        self.record = record
        self.sections: list[dict[str, Any]] = []
        self.files: dict[str, bytes] = {}

    def advise(self, text: str) -> None:
        """Add a sentence to 'What to do next', at the top of the page."""
        self.record.advice.append(text)

    def section(self, title: str, text: str = '') -> None:
        """Begin a section, with a sentence on how to read it."""
        self.sections.append(dict(title=title, text=text, parts=[]))

    def add_table(self, rows: Sequence[Row]) -> None:
        """Add rows with the same keys."""
        header = list(rows[0]) if rows else []
        lines = [list(map(cell_text, row.values())) for row in rows]
        self.sections[-1]['parts'].append(dict(header=header, lines=lines))

    @contextmanager
    def drawing(self, name: str) -> Iterator[None]:
        """Within this context an error costs a picture; the page names it, and goes on."""
        try:
            yield
        except Exception as error:  # whatever it is, the rest can be drawn
            words = ' '.join(str(error).split()) or type(error).__name__
            failed = self.record.not_drawn or []
            self.record.not_drawn = [*failed, f'{name}: {words}']

    def add_figure(self, name: str, figure: Figure, caption: str) -> None:
        """Add a plot; it is `name`.png."""
        file = io.BytesIO()
        figure.savefig(file, format='png', dpi=130)
        self.files[f'{name}.png'] = file.getvalue()
        self._embed('image/png', file.getvalue(), caption)

    def add_picture(self, name: str, picture: np.ndarray, caption: str) -> None:
        """Add a picture (BGR); it is `name`.png, and smaller in the page."""
        scale = min(1.0, PICTURE_WIDTH / picture.shape[1])
        area = cv2.INTER_AREA
        small = cv2.resize(picture, None, fx=scale, fy=scale, interpolation=area)
        self.files[f'{name}.png'] = encoded(picture, '.png')
        self._embed('image/jpeg', encoded(small), caption)

    def _embed(self, kind: str, content: bytes, caption: str) -> None:
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
        about = {name: cell_text(x) for name, x in self.record.about.items()}
        if self.record.not_drawn:
            about['not drawn'] = '\n'.join(self.record.not_drawn)
        loader = PackageLoader('rope_dense.report', '.')
        environment = Environment(loader=loader, autoescape=select_autoescape())
        page = environment.get_template('page.html').render(
            title=self.title,
            about=about,
            advice=self.record.advice,
            sections=self.sections,
        )
        for name, text in ((FIGURES, self.record.text()), (PAGE, page)):
            self.files[name] = f'{text}\n'.encode(errors='backslashreplace')
        earlier = self.results.paths(NAME)
        with self.results.fresh() as fresh:
            for name, content in self.files.items():
                with atomic_write(fresh / name) as partial:
                    partial.write_bytes(content)
        for path in earlier:
            if path.name not in self.files:
                self.results.remove(path)
        return self.results.folder / PAGE


ReportPage = Page[ReportRecord]


def cell_text(value: object) -> str:
    """A value as the text of a cell."""
    if isinstance(value, float):
        return '-' if math.isnan(value) else f'{value:.3f}'
    return '-' if value is None else str(value)
