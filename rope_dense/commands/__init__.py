"""The commands of `rope-dense`, one module each, and shared modules.

A command has ``parse_args``, which must not import slow packages, and ``main``, which may. One that
takes settings of own data also has ``prepare``, which looks at the data in between.

Others import::

    arguments: ToolParser, add_cfg_options, add_sweep_arguments, at_least,
        image_size_text, values
"""
