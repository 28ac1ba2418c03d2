"""Fixtures of the pages."""

from helpers.page_sources import sources, workplace  # noqa: F401
