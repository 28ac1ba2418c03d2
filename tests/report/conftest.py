"""Fixtures of commands."""

from helpers.command_fixtures import *  # noqa: F403
