"""Evaluation tasks: what an encoder is measured by."""
