"""The commands of `rope-dense`: a module each, and what several of them share.

A command has ``parse_args``, which imports nothing that takes time, and ``main``. Its module is
imported before this package is executed, see rope_dense_command.py.
"""

from ..utils.requirements import installation_advice, missing_packages

if missing := missing_packages():
    raise ImportError(installation_advice(missing))
