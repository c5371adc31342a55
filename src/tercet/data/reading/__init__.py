"""Formats of files and datasets as records that can be read in order or by their place."""
