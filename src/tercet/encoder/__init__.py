"""Text to vector: backbones, readouts, the one-step decoder, loading and saving."""

from tercet.encoder.encoder import Encoder
from tercet.encoder.settings import Embedded, EmbedOptions, EmbedStats, EncoderSettings, Vectors

__all__ = ["EmbedOptions", "EmbedStats", "Embedded", "Encoder", "EncoderSettings", "Vectors"]
