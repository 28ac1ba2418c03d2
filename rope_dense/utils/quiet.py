"""Messages of mmdet's import that no user needs to read."""

import logging
import warnings
from typing import Any


def leave_out_import_noise() -> None:
    """Filter two messages, before mmdet is imported.

    One warns that mmdet's ``FasterCocoMetric`` lacks a package; ``CocoMetric`` needs none. The
    other is for debugging, that OneDL is absent: mmengine prints any that names no logger.
    """
    import mmengine.logging

    warnings.filterwarnings('ignore', 'faster_coco_eval is not installed', UserWarning)
    given = mmengine.logging.print_log

    def print_log(msg: str, logger: Any = None, level: int = logging.INFO) -> None:
        if logger is not None or level > logging.DEBUG:
            given(msg, logger, level)

    mmengine.logging.print_log = print_log
