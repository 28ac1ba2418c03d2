"""The packages that each registered class needs, and an import without noise."""

import logging
import sys
import warnings
from functools import cache
from importlib.util import find_spec
from typing import Any


def missing_packages() -> list[str]:
    """Names of the packages every registered class needs that are not installed.

    They are looked for and not imported: one that is there but fails says so when it is imported.
    """
    needed = ('mmengine', 'mmcv')
    absent = [name for name in needed if sys.modules.get(name) is None]
    return [name for name in absent if find_spec(name) is None]


def installation_advice(missing: list[str]) -> str:
    """Instructions to install what `missing_packages()` named."""
    return (
        f'rope_dense registers nothing without {" and ".join(missing)}; '
        'only rope_dense.rope works.\n'
        'Install one of the two OpenMMLab families from the folder that holds setup.py:\n'
        "    pip install torch -e '.[onedl]'        for the onedl-* packages, or\n"
        '    pip install -r requirements/build.txt &&\n'
        "    pip install --no-build-isolation torch -e '.[openmmlab]'    for the upstream ones\n"
        'or let `make setup` make a complete environment.'
    )


@cache
def leave_out_import_noise() -> None:
    """Filter two messages, once, before mmdet is imported.

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
