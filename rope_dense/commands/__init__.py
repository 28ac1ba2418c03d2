"""Code that the tools share: configs, early checks with advice, the recipe, the run."""

from ..utils.requirements import installation_advice, missing_packages

if missing := missing_packages():
    raise ImportError(installation_advice(missing))
