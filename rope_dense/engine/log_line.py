"""A log line of a training that people can read."""

from __future__ import annotations

import re

from mmengine.runner import LogProcessor, Runner

# Losses of one layer, of denoising queries or of the encoder, such as d0.loss_cls, dn_loss_bbox,
# decode.d3.loss_mask and dn_pre.loss_giou.
OF_LAYERS = re.compile(r'(?:^|[._])(?:d\d+|dn|pre|enc)[._]')


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
