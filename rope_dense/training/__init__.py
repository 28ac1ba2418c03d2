"""Train by a config: its options, the checks before the run, the run and its report."""
