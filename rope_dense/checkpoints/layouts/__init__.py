"""Key layouts of published checkpoints, one file for each publisher."""
