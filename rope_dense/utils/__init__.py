"""Sizes, checks of arguments, caches, atomic writes: what every other room may import."""
