"""Data in: files of rows, every error with its file and line."""
