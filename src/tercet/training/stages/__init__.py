"""What a stage of a recipe can be, one kind a file; `kinds` has the table."""
