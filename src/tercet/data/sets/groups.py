"""The groups of tasks that averages are taken over, by the papers."""

from collections.abc import Mapping

GROUPS: Mapping[str, tuple[str, ...]] = {
    "sts": ("STS12", "STS13", "STS14", "STS15", "STS16", "STSB", "SICK-R"),
    "transfer": ("MR", "CR", "SUBJ", "MPQA", "SST2", "TREC", "MRPC"),
    "sentglue": (
        "glue-CoLA",
        "glue-SST2",
        "glue-MRPC",
        "glue-STSB",
        "glue-QQP",
        "glue-MNLI-m",
        "glue-MNLI-mm",
        "glue-QNLI",
        "glue-RTE",
    ),
    "domain": ("AskUbuntu", "CQADupStack", "TwitterURL", "PIT", "BIOSSES"),
    "zh": ("ZH-STSB",),
}
"""Dev sets are for selection and in none of them."""

DEV_SETS: Mapping[str, tuple[str, ...]] = {"sts": ("STSB-dev",), "zh": ("ZH-STSB-dev",)}
"""The dev sets that belong to a group."""
