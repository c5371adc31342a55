"""Text to vector: the forward pass, the model, the folder on disk."""
