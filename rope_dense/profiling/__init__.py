"""Speed, memory and products of a model, and what fits a GPU."""
