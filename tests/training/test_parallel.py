"""Parallel contrast against sums and graphs written out here: the queue, the designs, the frozen source, going on."""

import math

import numpy as np
import pytest
import torch
from torch.nn import functional as F

from tercet import SettingError
from tercet.data.rows.kinds import ParallelPair
from tercet.training.loop.loop import train
from tercet.training.loop.optimizers import decays
from tercet.training.loop.settings import LoopSettings, MeasureSettings
from tercet.training.objectives.compute import ComputeSettings
from tercet.training.objectives.parallel import Parallel, ParallelSettings
from tercet.training.objectives.queue import Queue
from tercet.training.stages.parallel import ParallelStage, fit_width

WORDS = "a man is playing guitar on the stage two dogs run through deep snow stocks dropped monday".split()
CPU = torch.device("cpu")


def pairs(num, seed=0, sources=None):
    rng = np.random.default_rng(seed)

    def text():
        return " ".join(rng.choice(WORDS, rng.integers(1, 7)))

    return [ParallelPair(sources[i] if sources else text(), text()) for i in range(num)]


def table(texts, width):
    """Vectors that stand for those of a frozen source: equal for equal texts."""
    return torch.stack([torch.randn(width, generator=torch.Generator().manual_seed(sum(t.encode()))) for t in texts])


def cosine(x, y):
    return float(x @ y) / math.sqrt(float(x @ x) * float(y @ y))


def written_out(targets, sources, queued, temperature, texts, queued_texts, mask):
    """The loss, row by row and score by score."""
    total = 0.0
    for i, target in enumerate(targets):
        scores = [cosine(target, sources[i])]
        for vectors, names in ((sources, texts), (queued, queued_texts)):
            for j, (vector, name) in enumerate(zip(vectors, names, strict=True)):
                itself = vectors is sources and i == j
                if not itself and not (mask and name == texts[i]):
                    scores.append(cosine(target, vector))
        exps = [math.exp(score / temperature) for score in scores]
        total -= math.log(exps[0] / sum(exps))
    return total / len(targets)


@pytest.mark.parametrize("mask", [False, True])
def test_the_loss_with_a_queue_is_the_one_written_out(tiny, mask):
    encoder = tiny("bert", readout="mean")
    settings = ParallelSettings(queue=7, temperature=0.3, mask_duplicates=mask)
    objective = Parallel(encoder, lambda texts: table(texts, 128), settings, compute=ComputeSettings())
    queued, queued_texts = [], []
    for number in range(4):
        batch = pairs(4, seed=number, sources=["a man", "snow", "a man", f"dogs {number % 2}"])
        result = objective.step(batch)
        texts = [row.source for row in batch]
        sources = list(table(texts, 128).double())
        targets = list(torch.from_numpy(encoder.embed([row.target for row in batch])).double())
        wanted = written_out(targets, sources, queued, 0.3, texts, queued_texts, mask)
        assert result.loss == pytest.approx(wanted, rel=1e-4)
        assert result.metrics["queued"] == len(queued)
        # oldest out, newest in, behind the loss; the order does not matter to it
        queued, queued_texts = [*queued, *sources][-7:], [*queued_texts, *texts][-7:]


def test_a_queue_keeps_the_newest_and_wraps_around():
    queue, pushed = Queue(5, 2, device=CPU), []
    for num in (3, 3, 7, 2, 5):
        new = torch.arange(len(pushed), len(pushed) + num, dtype=torch.float32)
        queue.push(torch.stack([new, -new], dim=1), new.long())
        pushed += new.tolist()
        assert sorted(queue.vectors[:, 0].tolist()) == pushed[-5:]
        assert torch.equal(queue.vectors[:, 1], -queue.vectors[:, 0])
        assert torch.equal(queue.keys.float(), queue.vectors[:, 0])


def test_a_queue_of_size_0_stays_empty():
    queue = Queue(0, 2, device=CPU)
    queue.push(torch.ones(3, 2), torch.arange(3))
    assert len(queue) == 0


def test_a_queue_is_put_back_bit_for_bit():
    queue, other = Queue(4, 3, device=CPU), Queue(4, 3, device=CPU)
    queue.push(torch.randn(6, 3), torch.arange(6))
    other.load_state_dict({name: tensor.clone() for name, tensor in queue.state_dict().items()})
    for each in (queue, other):
        each.push(torch.full((1, 3), 0.5), torch.tensor([9]))
    assert torch.equal(queue.vectors, other.vectors)
    assert torch.equal(queue.keys, other.keys)


def library_vectors(encoder, texts):
    inputs = encoder.tokens.tokenizer(texts, padding=True, return_tensors="pt")
    return encoder.tower.raw(inputs["input_ids"], inputs["attention_mask"])


@pytest.mark.parametrize("compute", [ComputeSettings(), ComputeSettings(max_activation_gb=1e-9, max_batch_tokens=30)])
@pytest.mark.parametrize("design", ["dual", "multilingual"])
def test_a_trained_source_has_the_gradients_of_one_graph(tiny, design, compute):
    target = tiny("t5", readout="enc-mean", projection=24)
    source = tiny("bert", readout="mean", projection=24) if design == "dual" else target
    settings = ParallelSettings(design=design, temperature=0.4)
    objective = Parallel(target, source, settings, compute=compute)
    batch = pairs(5, seed=3)
    result = objective.step(batch)
    ours = {name: p.grad.clone() for name, p in objective.module.named_parameters() if p.grad is not None}
    objective.module.zero_grad()

    anchors = library_vectors(target, [row.target for row in batch])
    positives = library_vectors(source, [row.source for row in batch])
    scores = F.normalize(anchors) @ F.normalize(positives).T / torch.exp(-objective.module.log_scale)
    loss = F.cross_entropy(scores, torch.arange(5))
    loss.backward()
    assert result.loss == pytest.approx(loss.item(), rel=1e-5)
    wanted = {name: p.grad for name, p in objective.module.named_parameters() if p.grad is not None}
    assert ours.keys() == wanted.keys()
    assert any(name.startswith("source.") for name in ours) == (design == "dual")
    for name, gradient in wanted.items():
        torch.testing.assert_close(ours[name], gradient, atol=1e-5, rtol=1e-4, msg=name)


def test_the_temperature_starts_at_1_is_trained_and_does_not_decay(tiny):
    objective = Parallel(
        tiny("bert", readout="mean"), lambda texts: table(texts, 128), ParallelSettings(), compute=ComputeSettings()
    )
    assert objective.step(pairs(4)).metrics["temperature"] == 1.0
    [(name, parameter)] = [(n, p) for n, p in objective.module.named_parameters() if "log_scale" in n]
    assert parameter.grad is not None
    assert not decays(name, parameter)


def test_an_mlp_maps_to_the_width_of_the_source_in_training_only(tiny, tmp_path):
    encoder = tiny("bert", readout="cls-mlp", mlp="training")
    fit_width(encoder, 40, seed=1)
    assert (encoder.dim, encoder.head.training_width) == (128, 40)
    objective = Parallel(encoder, lambda texts: table(texts, 40), ParallelSettings(), compute=ComputeSettings())
    objective.module.train()
    objective.step(pairs(4))
    assert encoder.head.mlp.linear.weight.grad.abs().sum() > 0
    with encoder.head.as_in_training():
        assert encoder.embed(["two dogs"]).shape == (1, 40)
    hidden = encoder.embed(["two dogs"], normalize=False)
    assert hidden.shape == (1, 128)
    encoder.save(tmp_path / "saved")
    loaded = type(encoder).load(tmp_path / "saved", device="cpu")
    np.testing.assert_allclose(loaded.embed(["two dogs"], normalize=False), hidden, atol=1e-6)
    always = type(encoder).load(tmp_path / "saved", device="cpu", mlp="always")
    wanted = torch.tanh(encoder.head.mlp.linear(torch.from_numpy(hidden))).detach()
    np.testing.assert_allclose(always.embed(["two dogs"], normalize=False), wanted, atol=1e-5)


def test_an_mlp_of_the_right_width_stays(tiny):
    encoder = tiny("bert", readout="cls-mlp")
    before = encoder.head.mlp
    fit_width(encoder, 128, seed=1)
    assert encoder.head.mlp is before


@pytest.mark.parametrize("settings", [{"readout": "mean"}, {"readout": "cls-mlp", "projection": 16}])
def test_another_width_without_an_mlp_at_the_end_is_refused(tiny, settings):
    with pytest.raises(SettingError, match=r"those of the source 40\. Set encoder\.projection: 40"):
        fit_width(tiny("bert", **settings), 40, seed=1)


class Stopped(Exception):
    """What stands for a kill."""


class Batches:
    """Rows whose position is a number."""

    num_batches = None

    def __init__(self, state):
        self.next = state["next"] if state else 0

    def __next__(self):
        self.next += 1
        return pairs(4, seed=self.next)

    def state(self):
        return {"next": self.next}


def test_a_stopped_run_goes_on_with_the_queue_and_the_same_bits(tiny, tmp_path):
    def run(folder, stop_at=None):
        encoder = tiny("bert", readout="mean")
        settings = ParallelSettings(queue=10, temperature=0.2)
        objective = Parallel(encoder, lambda texts: table(texts, 128), settings, compute=ComputeSettings())
        measured = []

        def step(batch):
            measured.append(len(objective.queue))
            if len(measured) == stop_at:
                raise Stopped
            return objective.step(batch)

        loop = LoopSettings(steps=7, learning_rate=1e-3, schedule="cosine", optimizer="adamw", checkpoint_every=2)
        train(objective.module, Batches, step, settings=loop, folder=folder, extra_state={"queue": objective.queue})
        return objective, measured

    whole, _ = run(tmp_path / "whole")
    with pytest.raises(Stopped):
        run(tmp_path / "again", stop_at=6)
    again, measured = run(tmp_path / "again")
    assert measured == [10, 10, 10]  # from step 4 on
    for name, tensor in whole.queue.state_dict().items():
        assert torch.equal(tensor, again.queue.state_dict()[name]), name
    for (name, a), (_, b) in zip(whole.module.named_parameters(), again.module.named_parameters(), strict=True):
        assert torch.equal(a, b), name


def test_a_trajectory_is_measured_at_the_start_every_few_steps_and_at_the_end(tmp_path):
    module = torch.nn.Linear(2, 1)

    def step(batch):
        module(torch.ones(1, 2)).sum().backward()
        return type("Result", (), {"loss": 1.0, "metrics": {}})

    loop = LoopSettings(steps=5, learning_rate=1e-3, trajectory=MeasureSettings(every=2), log_every=100)
    lines = []
    shape = {"set": "dev", "alignment": 1.0}
    train(module, Batches, step, settings=loop, folder=tmp_path, measure=lambda: [shape, shape], on_log=lines.append)
    assert [line["step"] for line in lines if "alignment" in line] == [0, 0, 2, 2, 4, 4, 5, 5]
    with pytest.raises(SettingError, match="trajectory: settings and function"):
        train(module, Batches, step, settings=loop, folder=tmp_path)


@pytest.mark.parametrize(
    ("settings", "problem"),
    [
        ({}, "a source is given unless design is multilingual"),
        ({"design": "multilingual", "source": "minilm"}, "a source is given unless design is multilingual"),
        ({"source": "minilm", "queue": 300_001}, "less than or equal to 300000"),
        ({"source": "minilm", "design": "dual", "queue": 10}, "Set queue: 0"),
        ({"source": "minilm", "design": "dual", "cache": True}, "neither cache nor lora"),
        ({"source": "minilm", "design": "dual", "lora": {}}, "neither cache nor lora"),
        ({"source": {"modl": "minilm"}}, "modl"),
        ({"source": "minilm", "temperature": 0.001}, "below min_temperature"),
    ],
)
def test_settings_that_do_not_go_together_are_refused(settings, problem):
    given = {"start": "x", "rows": "a.tsv", "batch": 4, "learning_rate": 1e-3, "steps": 1}
    assert ParallelStage.model_validate({**given, "source": "minilm"}).source.model == "minilm"
    with pytest.raises(ValueError, match=problem):
        ParallelStage.model_validate({**given, **settings})
