"""The error of a run."""


class RunError(Exception):
    """A training that would not be the one of its config; the message says what to do."""
