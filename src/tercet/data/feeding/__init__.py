"""Rows in batches: shuffled, mixed, and resumable anywhere."""
