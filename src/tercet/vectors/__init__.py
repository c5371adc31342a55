"""Vectors of many texts: embedded once, kept on disk, searched."""
