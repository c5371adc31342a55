"""What a stage of a recipe can be, one kind a file; `kinds.py` has the table."""
