"""The table of all kinds of stages."""

from tercet.training.stages import (
    classify,
    contrast,
    denoise,
    distill,
    mine,
    parallel,
    reweight,
    shrink,
    stitch,
    synthesize,
    synthesizer,
    tension,
    tokenizer,
    tsdae,
    views,
)
from tercet.training.stages.stage import Kind

KINDS: dict[str, Kind] = {
    "tokenizer": tokenizer.KIND,
    "denoise": denoise.KIND,
    "stitch": stitch.KIND,
    "shrink": shrink.KIND,
    "mine": mine.KIND,
    "distill": distill.KIND,
    "tsdae": tsdae.KIND,
    "tension": tension.KIND,
    "contrast": contrast.KIND,
    "classify": classify.KIND,
    "parallel": parallel.KIND,
    "synthesizer": synthesizer.KIND,
    "synthesize": synthesize.KIND,
    "views": views.KIND,
    "reweight": reweight.KIND,
}
"""A kind by its name in a recipe."""
