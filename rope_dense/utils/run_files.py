"""Names of what a training writes into its folder."""

TRAINING = 'training'  # of its record, see ``Results``
LAST, BEST = 'last_checkpoint', 'best_checkpoint.json'
