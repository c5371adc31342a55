"""Results beside the papers' tables, with figures."""
