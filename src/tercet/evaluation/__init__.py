"""How good an encoder is: tasks, metrics, geometry, and the papers' published tables."""
