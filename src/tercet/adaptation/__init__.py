"""From a pile of sentences to an encoder that is better on them."""
