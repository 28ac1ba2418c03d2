"""Checks of command line arguments that several tools share (tools/command_line.py reads them)."""

import argparse

import torch

from .errors import UsageError


def checked_device(name: str) -> torch.device:
    """The device of --device; UsageError if there is none."""
    try:
        device = torch.device(name)
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError) as error:  # the latter from a torch without CUDA
        raise UsageError(f'--device {name}: {str(error).splitlines()[0]}') from error
    return device


def check_at_least(args: argparse.Namespace, least: int, *names: str) -> None:
    """Raise UsageError for an option that is less than ``least``, unless it is None (not given)."""
    for name in names:
        if (given := getattr(args, name)) is not None and given < least:
            option = name.replace('_', '-')
            raise UsageError(f'--{option} must be {least} or more, got {given}')
