"""Ways to other libraries and runtimes."""
