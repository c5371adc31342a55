"""Finding one's way: which models, tasks and recipes there are, and what this machine can do."""
