"""Least scores of the boxes of each class, as --score gives them."""

import json
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from ..project.identity import hash_of
from ..utils.validation import did_you_mean

REPORT, DEFAULT = 'report', 0.3

Scores = float | str | Sequence[float | str]


def read_score(text: object) -> tuple[str, float]:
    """The class and the score of a text such as 'car=0.4'; a plain number has the class ''.

    ValueError unless the score is from 0 to 1.
    """
    name, _, number = str(text).rpartition('=')
    with suppress(ValueError):
        value = float(number)
        if 0 <= value <= 1:
            return name, value
    raise ValueError(f'{text}: give a score from 0 to 1, CLASS=SCORE, or {REPORT}')


def least_scores(
    given: Scores, run: Path, classes: Sequence[str], checkpoint: str
) -> dict[str, float]:
    """The least score of each class.

    Args:
        given: one or several of a number, a text for ``read_score``, and 'report': the scores that
            keep the promise of the report of a `run`, if it has one; else those with the best F1,
            where a prediction of the class is right.
        checkpoint: that predicts, of which the report has to be.

    Raises:
        ValueError: a text is none of these, or of another class; there is no report of a detector,
            it is of another checkpoint, or found no threshold that keeps its promise.
    """
    scores = {'': DEFAULT}
    for text in [given] if isinstance(given, (str, float, int)) else given:
        if text != REPORT:
            name, score = read_score(text)
            scores[name] = score
            continue
        content = read_report(run, checkpoint)
        promise = content.get('promise')
        if promise:
            scores |= promised_scores(promise, run)
            continue
        for row in content.get('classes', ())[1:]:  # the first is their mean
            if row.get('f1'):
                scores[row['class']] = row['threshold']
    other = scores.pop('')
    for name in {*scores} - {*classes}:
        near = did_you_mean(name, classes) or f'; the classes are {", ".join(classes)}'
        raise ValueError(f'--score: the model has no class {name}{near}')
    return dict.fromkeys(classes, other) | scores


def promised_scores(promise: dict[str, Any], run: Path) -> dict[str, float]:
    """The thresholds of a report with a promise, which is printed; ValueError if it has none."""
    option = f'report --miss {promise["miss"]:g}'
    if not promise['thresholds']:
        raise ValueError(
            f'--score {REPORT}: {option} found no threshold; write the thresholds of the best F1 '
            f'by rope-dense report {run}, or give scores'
        )
    print(f'--score {REPORT}: the promised thresholds of {option}')
    without = promise.get('without')  # not in an earlier version's report
    if without:
        print(f'no threshold of their own, but the one of all: {", ".join(without)}')
    return promise['thresholds']


def read_report(run: Path, checkpoint: str) -> dict[str, Any]:
    """The content of the report of a run.

    ValueError if it is of another checkpoint, of no detector, or missing.
    """
    file = run / 'report' / 'report.json'
    if not file.is_file():
        raise ValueError(
            f'--score {REPORT}: no {file}; write it by rope-dense report {run} (rotated boxes '
            'have none: give scores)'
        )
    content = json.loads(file.read_text(encoding='utf-8'))
    about = content.get('about', {})
    if 'kind' not in about:
        raise ValueError(
            f'--score {REPORT}: is of boxes, and {file} is not; compare thresholds of pixels with '
            'the files of --scores'
        )
    reported = about.get('checkpoint', 'an unknown checkpoint')
    digest = content.get('checkpoint_sha256')
    if digest:
        is_same = digest == hash_of(checkpoint)
    else:  # an earlier version's report
        is_same = Path(reported).name == Path(checkpoint).name
    if not is_same:
        raise ValueError(
            f'--score {REPORT}: {file} is of {reported}, not of {checkpoint}; write it anew by '
            f'rope-dense report {run} {checkpoint}'
        )
    return content
