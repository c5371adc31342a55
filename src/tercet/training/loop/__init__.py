"""The one training loop; it knows nothing of what is trained or evaluated."""
