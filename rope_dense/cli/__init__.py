"""What the tools share: arguments, configs, and checks that fail early with advice."""

from ..utils.requirements import installation_advice, missing_packages

if missing := missing_packages():
    raise ImportError(installation_advice(missing))
