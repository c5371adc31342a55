"""Data in: reading formats, rows, feeding batches, evaluation sets."""
