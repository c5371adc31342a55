"""The one training loop. It knows nothing of what is trained or evaluated: it gets a step function and callbacks."""
