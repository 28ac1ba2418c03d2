"""What mmdet prints while it is imported, and what no user needs to read."""

from __future__ import annotations

import functools
import logging
import warnings
from typing import Any


def leave_out_import_noise() -> None:
    """Filter two messages of mmdet; call it before mmdet is imported.

    The one is a warning about mmdet's ``FasterCocoMetric`` where faster-coco-eval is absent; the
    figures of ``CocoMetric`` do not need it. The other, that OneDL is absent, is for debugging, and
    mmengine prints such messages whatever their level is if they name no logger.
    """
    import mmengine.logging

    warnings.filterwarnings('ignore', 'faster_coco_eval is not installed', UserWarning)
    given = mmengine.logging.print_log

    @functools.wraps(given)
    def print_log(msg: str, logger: Any = None, level: int = logging.INFO) -> None:
        if logger is not None or level > logging.DEBUG:
            given(msg, logger, level)

    mmengine.logging.print_log = print_log
