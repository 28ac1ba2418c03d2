"""Sizes, checks of arguments, remembered results, locks, atomic writes: for every other package."""
