"""Mining in known vectors: Tercet against sentence-transformers, in turns; both find the same.

    python benchmarks/mining.py [--quick] [--json FILE]

Vectors are random ones of length 1 around centers, because embedding is measured by `embed.py`. Results are compared in
the first round: an equal share of pairs of at least 99.9% (ties in the last bit may fall either way).
"""

import argparse
import json
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from sentence_transformers.util import community_detection, mine_hard_negatives, pairwise_cos_sim
from sentence_transformers.util.retrieval import paraphrase_mining_embeddings

from tercet.evaluation.timing import ratio
from tercet.mining.communities import communities
from tercet.mining.negatives import NegativeRules, negatives_of
from tercet.mining.paraphrases import paraphrases

WIDTH = 384


def clouds(num: int, num_clouds: int) -> NDArray[np.float32]:
    """Vectors of length 1: half of them around centers, half anywhere."""
    rng = np.random.default_rng(0)
    centers = rng.standard_normal((num_clouds, WIDTH))
    found = rng.standard_normal((num, WIDTH))
    near = np.arange(num) % 2 == 0
    found[near] = centers[rng.integers(num_clouds, size=near.sum())] + 0.5 * found[near]
    return (found / np.linalg.norm(found, axis=1, keepdims=True)).astype(np.float32)


class Known:
    """A SentenceTransformer whose vectors are known."""

    device = torch.device("cpu")
    model_card_data = SimpleNamespace(base_model=None)

    def __init__(self, vectors: NDArray[np.float32]) -> None:
        self.vectors = vectors

    def encode_query(self, texts: list[str], **_options: Any) -> NDArray[np.float32]:
        """Return the vectors of texts, which are numbers."""
        return self.vectors[[int(text) for text in texts]]

    encode_document = encode_query

    def similarity(self, a: Any, b: Any) -> torch.Tensor:
        """Return inner products."""
        return torch.as_tensor(a) @ torch.as_tensor(b).T

    def similarity_pairwise(self, a: Any, b: Any) -> torch.Tensor:
        """Return the cosine of each with its other."""
        return pairwise_cos_sim(torch.as_tensor(a), torch.as_tensor(b))


def contestants(num: int) -> dict[str, tuple[Callable[[], set[Any]], Callable[[], set[Any]]]]:
    """Return ours and theirs of each kind; both return what they found, as a set."""
    from datasets import Dataset

    vectors = clouds(num, num_clouds=max(10, num // 100))
    half = num // 2
    anchors = clouds(half, num_clouds=max(10, half // 100))
    noise = np.random.default_rng(1).standard_normal(anchors.shape) / WIDTH**0.5
    answers = anchors + noise.astype(np.float32)
    pairs = np.concatenate([anchors, answers / np.linalg.norm(answers, axis=1, keepdims=True)])
    texts = [str(i) for i in range(num)]
    dataset = Dataset.from_dict({"anchor": texts[:half], "positive": texts[half : 2 * half]})
    positives = [[i] for i in range(half)]

    def our_pairs() -> set[Any]:
        _, first, second = paraphrases(vectors, k=100, max_pairs=500_000)
        return {*zip(first.tolist(), second.tolist(), strict=True)}

    def their_pairs() -> set[Any]:
        return {(i, j) for _, i, j in paraphrase_mining_embeddings(torch.from_numpy(vectors))}

    def our_negatives() -> set[Any]:
        found = negatives_of(pairs[:half], pairs[half:], positives, NegativeRules(relative_margin=0.05))
        return {(i, place) for i, (places, _) in enumerate(found) for place in places}

    def their_negatives() -> set[Any]:
        found = mine_hard_negatives(dataset, Known(pairs), relative_margin=0.05, verbose=False)
        return {(int(a), int(n) - half) for a, n in zip(found["anchor"], found["negative"], strict=True)}

    def our_groups() -> set[Any]:
        return {tuple(group) for group in communities(vectors, threshold=0.5, min_size=10)}

    def their_groups() -> set[Any]:
        return {tuple(group) for group in community_detection(vectors, threshold=0.5, min_community_size=10)}

    return {
        "paraphrases": (our_pairs, their_pairs),
        "negatives": (our_negatives, their_negatives),
        "communities": (our_groups, their_groups),
    }


def measure(sizes: list[int], rounds: int) -> dict[str, dict[str, float]]:
    """Return how many times faster ours are, by size and kind."""
    found = {}
    for num in sizes:
        for kind, (ours, theirs) in contestants(num).items():
            times: dict[str, list[float]] = {"ours": [], "theirs": []}
            results = {}
            for number in range(rounds):
                order = [("ours", ours), ("theirs", theirs)]
                for name, run in order if number % 2 == 0 else order[::-1]:
                    start = time.perf_counter()
                    results[name] = run()
                    times[name].append(time.perf_counter() - start)
            both = len(results["ours"] & results["theirs"]) / max(1, len(results["ours"] | results["theirs"]))
            if both < 0.999:
                raise SystemExit(f"{kind}: only {both:.2%} of the results are equal")
            found[f"{num}/{kind}"] = ratio(times["theirs"], times["ours"])
            print(
                f"{num:,} {kind}: {found[f'{num}/{kind}']['median']:.2f} times as fast, {len(results['ours']):,} found"
            )
    return found


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    ratios = measure([2_000] if arguments.quick else [5_000, 20_000], 3 if arguments.quick else 5)
    if arguments.json:
        arguments.json.write_text(json.dumps({"threads": torch.get_num_threads(), "ratios": ratios}, indent=2) + "\n")


if __name__ == "__main__":
    main()
