"""Lines of a log and of the screen that people can read."""

import math
import re
from collections.abc import Mapping
from numbers import Real

from mmengine.runner import LogProcessor, Runner

# Losses of one layer, of denoising queries or of the encoder, such as d0.loss_cls, dn_loss_bbox,
# decode.d3.loss_mask and dn_pre.loss_giou.
OF_LAYERS = re.compile(r'(?:^|[._])(?:d\d+|dn|pre|enc)[._]')

KINDS = dict(bbox='boxes', segm='masks')
SHORT = dict(mAP_50='AP50', mAP_75='AP75', mAP_s='small', mAP_m='medium', mAP_l='large')


class ShortLogProcessor(LogProcessor):
    """mmengine's log line without the losses of single layers, which scalars.json has.

    A line of the real-time detector has some sixty of them.
    """

    def get_log_after_iter(self, runner: Runner, batch_idx: int, mode: str) -> tuple[dict, str]:
        """All values of an iteration, and the line of the log."""
        tag, line = super().get_log_after_iter(runner, batch_idx, mode)
        items = line.split('  ')
        kept = [item for item in items if not OF_LAYERS.search(item.partition(':')[0])]
        left = len(items) - len(kept)
        return tag, '  '.join(kept) + (f'  (and {left} losses in scalars.json)' if left else '')


def figures_of(metrics: Mapping[str, object]) -> dict[str, dict[str, str]]:
    """Short names and texts of metrics, of boxes, of masks or of neither; those of classes not."""
    rows: dict[str, dict[str, str]] = {}
    for key, value in metrics.items():
        name = key.rpartition('/')[2]
        if isinstance(value, Real) and not name.endswith('_precision'):
            kind = KINDS.get(name.partition('_')[0], '')
            name = name.partition('_')[2] if kind else name
            is_absent = math.isnan(value) or value == -1
            text = '-' if is_absent else f'{value:.3f}' if value < 10 else f'{value:.2f}'
            rows.setdefault(kind, {})[SHORT.get(name, name)] = text
    return rows or {'': {'no figures': '(the log file says why)'}}


def figures_line_text(title: str, metrics: Mapping[str, object], is_best: bool) -> str:
    """The figures of an evaluation, in one line for boxes and one for masks."""
    rows = figures_of(metrics).items()
    lines = ['  '.join([kind, *map(' '.join, row.items())]).strip() for kind, row in rows]
    return f'{title}: ' + f'\n{title}: '.join(lines) + '  (best so far)' * is_best


def figures_table_text(metrics: Mapping[str, object]) -> str:
    """The figures of a test, in a column each."""
    rows = figures_of(metrics)
    names = dict.fromkeys(name for row in rows.values() for name in row)
    lines = [['', *names]]
    lines += [[kind, *(row.get(name, '') for name in names)] for kind, row in rows.items()]
    return '\n'.join(''.join(f'{cell:>10}' for cell in line).rstrip() for line in lines)
