"""Evaluation at many sizes, scalings and windows. `import rope_dense` does not import it."""
