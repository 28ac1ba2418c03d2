"""Checks of data, model and schedule before a run: what would fail late or be silently wrong."""
