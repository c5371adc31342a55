"""The forward pass on a CPU: packed tokens, products at three precisions, T5 and BERT."""
