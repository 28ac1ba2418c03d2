"""What reproduces tables changes with nothing that a detector needs: all of it is slow."""

import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent
# Where the plug-ins of the study of kinds are: the package ``kinds``.
sys.path.insert(0, str(HERE.parents[1] / 'docs' / 'research' / 'scaling_study'))


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.path.is_relative_to(HERE):
            item.add_marker(pytest.mark.slow)
