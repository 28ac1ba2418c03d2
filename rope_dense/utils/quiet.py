"""What mmdet prints when it is imported, which no user needs to read."""

import functools
import logging
import warnings
from typing import Any


def leave_out_import_noise() -> None:
    """Filter two messages, before mmdet is imported.

    A warning says of ``FasterCocoMetric`` that it has no faster-coco-eval; ``CocoMetric`` needs
    none. And mmengine prints messages for debugging, such as that OneDL is absent, if they name no
    logger.
    """
    import mmengine.logging

    warnings.filterwarnings('ignore', 'faster_coco_eval is not installed', UserWarning)
    given = mmengine.logging.print_log

    @functools.wraps(given)
    def print_log(msg: str, logger: Any = None, level: int = logging.INFO) -> None:
        if logger is not None or level > logging.DEBUG:
            given(msg, logger, level)

    mmengine.logging.print_log = print_log
