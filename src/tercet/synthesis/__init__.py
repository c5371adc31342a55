"""Triplets from unlabelled sentences: generate, discriminate, filter, audit."""
