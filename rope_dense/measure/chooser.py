"""Tests of the settings of a size, a table of their differences, and the choice."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field

import numpy as np

from .bootstrap import Difference, choose_setting, compare_settings, draw_images
from .evaluator import Evaluator
from .per_image import Sample, score_images
from .results import columns_text, shown_settings
from .scores import Scores
from .settings import Setting


@dataclass
class Chooser:
    """Settings of one size after the other: tests, a printed line for each, a choice.

    Attributes:
        samples: that choose, and that judge; the second may be empty.
        draws: of the bootstrap.
        tests: number of all that choose, for the progress.
        metric: name of the metric, once it is known.
    """

    evaluator: Evaluator
    samples: tuple[Sample, Sample]
    draws: int
    tests: int
    metric: str = field(default='', init=False)
    done: int = field(default=0, init=False)

    def choose(self, settings: Sequence[Setting]) -> dict:
        """Choose one of the settings of a size, of which the config's is the first.

        Returns:
            size, rows (the settings with their metric, their difference to the first with its
            interval, and whether the chosen one is not clearly better: `tied`), chosen (index of a
            row), reason, judged (rows of the first and the chosen one, or None).
        """
        size = settings[0].size
        rows, scores = self.compare(settings, self.samples[0])
        chosen, reason = choose_setting([difference_of(row) for row in rows])
        weights = self.weights(scores[0], self.samples[0])
        for row, other in zip(rows, scores, strict=True):
            row['tied'] = not compare_settings(
                scores[chosen], other, weights, num_comparisons(settings)
            ).is_clear
        taken = f': {setting_text(rows[chosen])}' if chosen else ''
        print(f'{size}: {reason}{taken}', flush=True)
        if tied := [setting_text(row) for i, row in enumerate(rows) if row['tied'] and i != chosen]:
            print(f'{size}: within the spread of it: {"; ".join(tied)}')
        judged = None
        if chosen and self.samples[1].number:
            judged, _ = self.compare([settings[0], settings[chosen]], self.samples[1])
            verdict = 'confirmed' if difference_of(judged[1]).is_clear else 'not confirmed'
            print(f'{size}: {verdict} on {self.samples[1].number} other images', flush=True)
        return dict(size=size, rows=rows, chosen=chosen, reason=reason, judged=judged)

    def compare(
        self, settings: Sequence[Setting], sample: Sample
    ) -> tuple[list[dict], list[Scores]]:
        """A row for each setting, with its difference to the first, and its scores."""
        rows: list[dict] = []
        scores: list[Scores] = []
        for setting in settings:
            title = self.title(setting, sample)
            scores.append(score_images(self.evaluator, setting, sample, title))
            weights = self.weights(scores[0], sample)
            difference = compare_settings(scores[-1], scores[0], weights, num_comparisons(settings))
            rows.append(dict(asdict(setting), metric=scores[-1].value, **asdict(difference)))
            if not self.metric:
                self.metric = scores[0].name
                print(header_text(self.metric, rows[0]))
            print(choice_row_text(rows[-1]), flush=True)
        return rows, scores

    def weights(self, scores: Scores, sample: Sample) -> np.ndarray:
        """The draws of the images of a sample, which are the same for all settings."""
        return draw_images(scores.num_images, self.draws, sample.seed)

    def title(self, setting: Setting, sample: Sample) -> str:
        """The title of the progress of a test."""
        if sample is self.samples[1]:
            return f'on other images, {setting}'
        self.done += 1
        return f'test {self.done} of {self.tests}, {setting}'


def difference_of(row: dict) -> Difference:
    """The difference of a row of ``Chooser.choose``."""
    return Difference(row['value'], row['low'], row['high'], row['least'])


def num_comparisons(settings: Sequence[Setting]) -> int:
    """Comparisons of settings with one of them."""
    return max(len(settings) - 1, 1)


def setting_text(row: dict) -> str:
    """Scaling and window of a row, and its tile if there are several."""
    return ', '.join(f'{name} {x}' for name, x in shown_settings(row).items() if name != 'size')


def header_text(metric: str, row: dict) -> str:
    """The header of the table that begins with this row."""
    names = [metric.rpartition('/')[2], 'better by', '90 % from', 'to']
    return columns_text(shown_settings(row), names, 11)


def choice_row_text(row: dict) -> str:
    """A row of ``Chooser.choose`` as a line of the table."""
    figures = [f'{row["metric"]:.3f}']
    figures += [f'{row[name]:+.3f}' for name in ('value', 'low', 'high')]
    return columns_text(shown_settings(row).values(), figures, 11)
