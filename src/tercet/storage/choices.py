"""Names to choose from, and the models that are chosen where none is named.

They are here, apart from what they choose, so that the command line can offer them without importing it.
"""

from typing import Any, Literal, get_args

from tercet.errors import SettingError

DEFAULT_MODEL = "mini"
DEFAULT_SYNTHESIZER = "mini-synth"
DEFAULT_PLAN: "AdaptPlan" = "auto"

Precision = Literal["exact", "fast", "int8", "auto", "fp16"]
"""fp32, bf16 with fp32 between layers, 8 bits on a CPU, the best of the first two here, and fp16 (never for T5)."""

OnTruncate = Literal["count", "error"]
"""Texts that are too long are counted, or refused."""

TextFormat = Literal["lines", "jsonl", "csv", "tsv", "parquet"]
"""How a file of texts is written."""

Dtype = Literal["float32", "float16", "int8", "binary"]
"""How the numbers of vectors are written: 8 bits have a scale for each vector, one bit is the sign."""

Logger = Literal["tensorboard", "wandb", "mlflow"]
"""Where else the log of a training goes."""

Classifier = Literal["batched", "sklearn"]
"""All folds as one problem as SentEval trains, or scikit-learn's LogisticRegression as a cross-check."""

EngineName = Literal["local", "ray"]
"""Work is done by this process, or by the workers of a cluster."""

Strategy = Literal["generate", "no-negatives", "retrieval", "backtranslation", "title"]
"""Where hypotheses come from."""

View = Literal["span", "words", "lead", "sentence"]
"""What of a text asks for the rest of it: some words in a row, its most telling words, its first or any sentence."""

AdaptPlan = Literal["auto", "titles-reweight", "titles", "reweight", "spans", "mixture", "gense"]
"""How `adapt` learns: `auto` is whichever of the next two suits the texts. It trains on written titles and weights
directions by parts of the texts, or does one of the two; or it trains on parts of the texts, on all of these and
triplets, or on triplets alone, as in GenSE."""

GraphFormat = Literal["onnx", "openvino"]
"""What runs an exported graph."""


Mined = Literal["paraphrases", "negatives", "translations"]
"""Near texts of one corpus, texts that are near an anchor and not its positives, or pairs of two languages."""


def check_choice(setting: str, value: object, choices: Any) -> None:
    """Raise SettingError if a value is none of the names to choose from."""
    names = get_args(choices)
    if value not in names:
        raise SettingError(f"{setting} {value!r}: there is none of that name. Known: {', '.join(names)}.")
