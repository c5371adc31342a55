"""The table of all kinds of stages."""

from tercet.stages import classify, contrast
from tercet.stages.stage import Kind

KINDS: dict[str, Kind] = {"contrast": contrast.KIND, "classify": classify.KIND}
"""A kind by its name in a recipe."""
