"""The content of report.json by name: it is written and read here alone."""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Self, TypedDict

import numpy as np

from ..measure.results import ResultFile, json_text

LOST, NUMBER = 'AP50 lost (any score)', 'number (best F1)'  # columns of ``errors``
REQUIRED = ('about', 'classes', 'names', 'settings')  # to compare

Row = dict[str, Any]  # of a table, by its columns
Line = tuple[list[float], list[float]]  # x and y of its points


class ScoreRange(TypedDict):
    """Predictions of similar scores: their number, mean score, and fraction of right ones."""

    number: int
    score: float
    right: float


@dataclass
class Promise:
    """The thresholds that keep a promise, see ``promise``.

    Attributes:
        miss, margin: shares of the objects or pixels that may be missed, and be found but not
            contained in their boxes, None for any.
        rows: of all, then of each class.
        thresholds: by class, of predictions that keep both promises; empty if there is none.
        without: the classes that have no threshold of their own.
    """

    miss: float
    margin: float | None
    rows: list[Row] = field(default_factory=list)
    thresholds: dict[str, float] = field(default_factory=dict)
    without: list[str] = field(default_factory=list)


@dataclass(kw_only=True)
class Record:
    """What each report has, of a model or of two runs.

    Attributes:
        about: the subject of the report, by name.
        advice: what to do next, in sentences.
        not_drawn: pictures that could not be drawn, and why.
        classes: the table of classes, or of distances, by 'class'.
        errors: the table of the kinds of error of a detector, by 'error'.
    """

    about: dict[str, Any]
    advice: list[str] = field(default_factory=list)
    not_drawn: list[str] | None = None
    classes: list[Row] | None = None
    errors: list[Row] | None = None

    def text(self) -> str:
        """The text of report.json; what is None is left out."""
        content = {name: x for name, x in asdict(self).items() if x is not None}
        return json_text(content)


@dataclass(kw_only=True)
class Comparison(Record):
    """The report of two runs: tables of what differs.

    Attributes:
        settings: key and both values of each setting that differs.
    """

    settings: list[Row] = field(default_factory=list)


@dataclass(kw_only=True)
class ReportRecord(Record):
    """The report of a model.

    Attributes:
        checkpoint_sha256: of its weights.
        source: the fields of the ``FigureSource`` of its figures.
        names: of its classes.
        settings: of its config, by their dotted keys.
        AP50: of a detector.
        precision_recall: for each class a line of (recall, precision).
        confusion: counts by true (rows) and predicted class.
        calibration: predictions by their scores.
        worst, best: images with their figures.
        suspects: the first suspect labels.
        promise: of a detector or segmentor, if one was asked for.
        losses, metrics: lines of (step, value) by name.
        image_sizes: what eval-resolutions has measured.
    """

    names: Sequence[str]
    settings: dict[str, Any]
    checkpoint_sha256: str | None = None
    source: dict[str, Any] | None = None
    AP50: float | None = None
    precision_recall: dict[str, Line] | None = None
    confusion: np.ndarray | list[list[int]] | None = None
    calibration: list[ScoreRange] | None = None
    worst: list[Row] | None = None
    best: list[Row] | None = None
    suspects: list[Row] | None = None
    promise: Promise | None = None
    losses: dict[str, Line] | None = None
    metrics: dict[str, Line] | None = None
    image_sizes: ResultFile | None = None

    @classmethod
    def parse(cls, text: str) -> Self:
        """The report of a text; KeyError if it lacks what is ``REQUIRED``.

        ValueError, AttributeError: it is none.
        """
        content = json.loads(text)
        known = cls.__dataclass_fields__.keys() & content.keys() | {*REQUIRED}
        return cls(**{name: content[name] for name in known})
