"""Model folders on disk: found by name, read, written, exported."""
