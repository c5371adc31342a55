"""The model: tokens, transformer, readout, and the Encoder that joins them."""
