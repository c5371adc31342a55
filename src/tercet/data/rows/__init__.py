"""Rows: what a record says, checked, cleaned and chosen."""
