"""The error of a run that cannot begin or go on."""


class RunError(Exception):
    """A training that would not be the one of its config; the message says what to do."""
