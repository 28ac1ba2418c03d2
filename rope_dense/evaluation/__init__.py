"""Evaluation beyond one pass at one size. Import its modules: `import rope_dense` leaves them."""
