"""Evaluation beyond one pass at one size. `import rope_dense` does not import its modules."""
