"""Benchmarks run and write what they promise; what they measure is not judged here."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


@pytest.fixture(scope="module")
def embedding(tmp_path_factory):
    """The result of the embedding benchmark with a tiny shape, few made-up sentences and no rival to install."""
    file = tmp_path_factory.mktemp("benchmark") / "result.json"
    options = ["--shapes", "t5-tiny", "--sentences", "24", "--rounds", "2", "--json", file]
    contestants = ["--contestants", "st_fp32,exact,encdec_exact"]
    run = [sys.executable, BENCHMARKS / "embed.py", *options, *contestants]
    ended = subprocess.run(run, capture_output=True, text=True, timeout=600)
    assert ended.returncode == 0, ended.stderr
    return json.loads(file.read_text()), ended.stdout


def test_the_embedding_benchmark_writes_ratios_with_their_spread(embedding):
    result, _ = embedding
    assert set(result["ratios"]) == {"t5-tiny/exact", "t5-tiny/encdec_exact", "t5-tiny/encdec_over_enc_exact"}
    for spread in result["ratios"].values():
        assert set(spread) == {"median", "min", "max", "rounds"}
        assert 0 < spread["min"] <= spread["median"] <= spread["max"]
        assert spread["rounds"] == 2


def test_the_embedding_benchmark_compares_vectors_and_counts_padding_and_shares_of_the_peak(embedding):
    result, printed = embedding
    assert result["cosines"]["t5-tiny/exact"]["min"] > 0.99999
    assert result["padding"]["t5-tiny/st_fp32"] > 1
    assert result["peaks_gflops"]["t5-tiny/fp32"]["median"] > 0
    assert result["shares_of_peak"]["t5-tiny/exact"]["median"] > 0
    assert result["machine"]["threads"] == 2
    assert result["sentences"]["num"] == 24
    assert "encdec_over_enc_exact" in printed


def test_the_synthesis_benchmark_writes_ratios_and_the_error_of_probabilities(tmp_path):
    options = [
        "--shape",
        "t5-tiny",
        "--sentences",
        "6",
        "--rounds",
        "2",
        "--tokens",
        "4",
        "--json",
        tmp_path / "a.json",
    ]
    run = [sys.executable, BENCHMARKS / "synthesize.py", *options]
    ended = subprocess.run(run, capture_output=True, text=True, timeout=600)
    assert ended.returncode == 0, ended.stderr
    result = json.loads((tmp_path / "a.json").read_text())
    assert set(result["ratios"]) == {"t5-tiny/pipeline", "t5-tiny/discriminator", "t5-tiny/discriminator_int8"}
    for spread in result["ratios"].values():
        assert 0 < spread["min"] <= spread["median"] <= spread["max"]
        assert spread["rounds"] == 2
    assert result["largest_error"]["auto"] < 0.05
    assert result["new_tokens"] == 4


def test_the_mining_benchmark_compares_results_and_writes_ratios(monkeypatch, capsys):
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    import mining

    ratios = mining.measure([600], rounds=2)
    assert set(ratios) == {"600/paraphrases", "600/negatives", "600/communities"}
    assert all(0 < spread["min"] <= spread["median"] <= spread["max"] for spread in ratios.values())
    assert "times as fast" in capsys.readouterr().out


def test_the_benchmark_of_scale_counts_what_the_driver_gives_out(tmp_path, monkeypatch, capsys):
    pytest.importorskip("ray")
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    import scale

    (found,) = scale.surveys(tmp_path, [9_000])
    assert found["lines"] == 9_000
    own = scale.cpu_seconds(os.getpid())
    assert 0 < own <= sum(os.times()[:4]) + 1
    options = ["--only", "driver", "--descriptors", "300", "--json", tmp_path / "a.json"]
    ended = subprocess.run([sys.executable, BENCHMARKS / "scale.py", *options], capture_output=True, text=True)
    assert ended.returncode == 0, ended.stderr
    result = json.loads((tmp_path / "a.json").read_text())["drivers"]["300"]
    assert result["shards"] == 200
    assert result["peak_rss_gb"] > 0


def test_the_benchmark_of_adaptation_writes_gains_with_their_intervals(tmp_path):
    domain = tmp_path / "work" / "made-up"
    domain.mkdir(parents=True)
    texts = [
        f"The {what} of part {number} is turned by hand. Do not turn it further than mark {number * 7}."
        for what in ("wheel", "screw", "crank")
        for number in range(30)
    ]
    (domain / "corpus.txt").write_text("".join(f"{text}\n" for text in texts))
    rows = [f"mark {n * 7}\t{texts[n]}\t1\nmark {n * 7}\t{texts[-1 - n]}\t0" for n in range(10)]
    (domain / "rerank.tsv").write_text("\n".join(["query\tcandidate\tlabel", *rows]) + "\n")
    options = ["--packages", "made-up", "--plan", "reweight", "--work", domain.parent, "--json", tmp_path / "a.json"]
    run = [sys.executable, BENCHMARKS / "adapt.py", *options]
    ended = subprocess.run(run, capture_output=True, text=True, timeout=600)
    assert ended.returncode == 0, ended.stderr
    found = json.loads((tmp_path / "a.json").read_text())["domains"]["made-up/reweight/0"]
    gain = found["headings"]
    assert gain["low"] <= gain["gain"] <= gain["high"] and gain["num"] == 10
    assert gain["gain"] == pytest.approx(gain["after"] - gain["before"], abs=0.011)
    assert f"made-up/reweight/0: {gain['before']:.2f} {gain['gain']:+.2f}" in ended.stdout


def test_the_benchmark_of_the_server_measures_and_its_long_checks_hold_what_they_promise(tmp_path):
    file = tmp_path / "result.json"
    run = [sys.executable, BENCHMARKS / "serve.py", "--json", file]
    for more in (
        ["--quick", "--sentences", "32", "--rounds", "2", "--asked", "2"],
        ["--fuzz", "160", "--restarts", "1"],
    ):
        ended = subprocess.run(run + more, capture_output=True, text=True, timeout=600)
        assert ended.returncode == 0, ended.stderr
        result = json.loads(file.read_text())
        if "--quick" in more:
            assert set(result["ratios"]) == {"throughput/serve_over_embed", "cpu_time/embed_over_serve"}
            assert result["ratios"]["throughput/serve_over_embed"]["rounds"] == 2
            assert result["latency_ms"]["serve/loaded"]["p99"] > 0
        else:
            assert result["checks"]["fuzz"]["num"] == 160
            assert result["checks"]["restarts"]["num"] == 1
