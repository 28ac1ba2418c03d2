"""The folders of the configs and the guides of this package."""

from pathlib import Path

PACKAGE = Path(__file__).parents[1]
CONFIGS = PACKAGE / '.mim' / 'configs'  # of an installed package
if not CONFIGS.is_dir():
    CONFIGS = PACKAGE.parent / 'configs'  # of a clone
DOCS = CONFIGS.parent / 'docs'  # messages name its pages
