"""Checks of data, model and schedule before a run, for what would fail late or be silently wrong."""
