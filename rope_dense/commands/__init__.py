"""The commands of `rope-dense`, one module or package each, and shared modules.

A command has ``parse_args``, which must not import slow packages, and ``main``. The module of a
command is imported before this package is executed, see rope_dense_command.py.
"""

from ..utils.imports import installation_advice, missing_packages

if missing := missing_packages():
    raise ImportError(installation_advice(missing))
