"""The folder of the configs of this package."""

from pathlib import Path

PACKAGE = Path(__file__).parents[1]
CONFIGS = PACKAGE / '.mim' / 'configs'  # of an installed package
if not CONFIGS.is_dir():
    CONFIGS = PACKAGE.parent / 'configs'  # of a clone
