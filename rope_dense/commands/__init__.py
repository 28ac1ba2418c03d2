"""The commands of `rope-dense`, one module each, and shared modules.

A command has ``parse_args``, which must not import slow packages, and ``main``, which may. One that
takes settings of own data also has ``prepare``, which looks at the data in between.
"""
