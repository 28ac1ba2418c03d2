"""The old name of ``research``, which stands beside the package."""

raise ImportError(
    'rope_dense.research is now research, in a clone beside rope_dense: name that in custom_imports'
)
