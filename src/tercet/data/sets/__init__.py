"""Evaluation sets: which files a task needs, where they come from, where they are."""
