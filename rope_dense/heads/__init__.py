"""Heads that mmseg and mmdet lack, each in a module of its own: these need different packages."""
