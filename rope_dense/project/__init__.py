"""Input of a command: a config with its options, weights, and the errors about them."""
