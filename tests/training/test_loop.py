"""The training loop on a toy: exact resume, damaged checkpoints, scores, and numbers that are not finite."""

import itertools
import json
import logging
import math
from datetime import timedelta

import pytest
import torch
from accelerate import PartialState
from torch import nn

from tercet import DivergedError, SettingError
from tercet.training.loop.loop import StepResult, train
from tercet.training.loop.processes import Processes
from tercet.training.loop.settings import LoopSettings, ScoreSettings

NUM_STEPS = 12


class Toy(nn.Module):
    """A network with dropout and a tied weight."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.inner = nn.Linear(6, 6)
        self.tied = self.inner
        self.norm = nn.LayerNorm(6)
        self.outer = nn.Linear(6, 1)

    def forward(self, x):
        x = torch.dropout(torch.relu(self.inner(x)), 0.3, train=self.training)
        return self.outer(self.norm(self.tied(x)))


class ToyBatches:
    """Batches whose position is a number."""

    def __init__(self, state, num_batches=NUM_STEPS):
        self.next = 0 if state is None else state["next"]
        self.num_batches = num_batches

    def __next__(self):
        self.next += 1
        return torch.randn(8, 6, generator=torch.Generator().manual_seed(self.next))

    def state(self):
        return {"next": self.next}


class Queue:
    """A state besides the module: sums of batches, as a queue would hold old vectors."""

    def __init__(self):
        self.sums = torch.zeros(4)

    def push(self, x):
        self.sums = torch.cat([x.sum().reshape(1), self.sums[:-1]])

    def state_dict(self):
        return {"sums": self.sums}

    def load_state_dict(self, state):
        self.sums = state["sums"]


class Stopped(Exception):
    """What stands for a kill in these tests."""


def run(folder, *, stop_at=None, spoil=None, settings=None, scores=None, num_batches=NUM_STEPS, **changes):
    """Train the toy, and return it with the result; stop in a step, or spoil its gradients, where that is asked for."""
    toy, queue = Toy(), Queue()
    given = {"steps": NUM_STEPS, "learning_rate": 1e-2, "checkpoint_every": 2, "log_every": 1, **changes}
    settings = settings or LoopSettings(**given)
    num_computed = [0]

    def step(batch):
        num_computed[0] += 1
        if num_computed[0] == stop_at:
            raise Stopped
        loss = (toy(batch) - 0.1 * queue.sums.sum()).square().mean()
        loss.backward()
        queue.push(batch)
        if spoil is not None:
            loss = spoil(num_computed[0], toy, loss)
        return StepResult(loss.item(), {"temperature": 0.05})

    def score():
        line = next(lines)
        return {"dev": line, "set": "toy"}

    lines = iter(scores or [])
    result = train(
        toy,
        lambda state: ToyBatches(state, num_batches),
        step,
        settings=settings,
        folder=folder,
        seed=3,
        evaluate=None if scores is None else score,
        extra_state={"queue": queue},
    )
    return toy, result


def assert_same(toy, other):
    for (name, a), (_, b) in zip(toy.state_dict().items(), other.state_dict().items(), strict=True):
        assert torch.equal(a, b), name


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """Return the toy of an uninterrupted run, and its folder."""
    folder = tmp_path_factory.mktemp("whole")
    return run(folder)[0], folder


def test_dropout_and_data_matter_here(whole, tmp_path):
    other, _ = run(tmp_path, steps=NUM_STEPS - 1)
    assert not torch.equal(other.outer.weight, whole[0].outer.weight)


@pytest.mark.parametrize("optimizer", ["adafactor", "adamw", "rmsprop"])
@pytest.mark.parametrize("stop_at", [1, 2, 3, 7, 8, 12])
def test_a_stopped_run_goes_on_and_ends_with_the_same_bits(tmp_path, optimizer, stop_at):
    expected, _ = run(tmp_path / "whole", optimizer=optimizer)
    with pytest.raises(Stopped):
        run(tmp_path / "stopped", optimizer=optimizer, stop_at=stop_at)
    found, _ = run(tmp_path / "stopped", optimizer=optimizer)
    assert_same(found, expected)
    logs = [(tmp_path / name / "metrics.jsonl").read_bytes() for name in ("whole", "stopped")]
    assert logs[0] == logs[1]


def test_a_run_that_is_stopped_again_and_again_ends_with_the_same_bits(tmp_path, whole):
    for _ in range(5):
        with pytest.raises(Stopped):
            run(tmp_path, stop_at=4)
        if len(list((tmp_path / "checkpoints").glob("step-00000012"))):
            break
    found, _ = run(tmp_path)
    assert_same(found, whole[0])


def test_a_finished_run_computes_nothing_again(whole):
    found, result = run(whole[1], stop_at=1)
    assert_same(found, whole[0])
    assert result.num_steps == NUM_STEPS


def test_the_last_two_checkpoints_are_kept(whole):
    assert sorted(path.name for path in (whole[1] / "checkpoints").iterdir()) == ["step-00000010", "step-00000012"]


def test_a_checkpoint_has_no_pickle(whole):
    files = {path.name for path in (whole[1] / "checkpoints" / "step-00000012").iterdir()}
    tensors = {"weights.safetensors", "optimizer.safetensors", "extra-queue.safetensors"}
    assert files == {*tensors, "state.json", "SHA256SUMS"}
    json.loads((whole[1] / "checkpoints" / "step-00000012" / "state.json").read_text())
    assert len((whole[1] / "checkpoints" / "step-00000012" / "SHA256SUMS").read_text().splitlines()) == 4


DAMAGES = {
    "missing": lambda content: None,
    "truncated": lambda content: content[:-3],
    "empty": lambda content: b"",
    "flipped": lambda content: content[:-2] + bytes([content[-2] ^ 16]) + content[-1:],
}
FILES = ["weights.safetensors", "optimizer.safetensors", "extra-queue.safetensors", "state.json", "SHA256SUMS"]


@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.parametrize("name", FILES)
def test_a_damaged_checkpoint_is_named_and_the_one_before_it_is_used(tmp_path, whole, caplog, name, damage):
    with pytest.raises(Stopped):
        run(tmp_path, stop_at=9)
    file = tmp_path / "checkpoints" / "step-00000008" / name
    content = DAMAGES[damage](file.read_bytes())
    file.unlink()
    if content is not None:
        file.write_bytes(content)
    with caplog.at_level(logging.WARNING, logger="tercet"), pytest.raises(Stopped):
        run(tmp_path, stop_at=2)  # goes on behind step 6, and is stopped in step 8
    [said] = (record.getMessage() for record in caplog.records)
    named = f"{file.parent}/" if name == "SHA256SUMS" else f"{file}:"  # a damaged name in it is that of no file
    assert said.startswith(named) and said.endswith(": is missing or damaged, so this checkpoint is not used")
    assert [path.name for path in (tmp_path / "checkpoints").iterdir()] == ["step-00000006"]
    found, _ = run(tmp_path)
    assert_same(found, whole[0])


def test_where_all_checkpoints_are_damaged_the_run_starts_again(tmp_path, whole, caplog):
    with pytest.raises(Stopped):
        run(tmp_path, stop_at=9)
    for folder in (tmp_path / "checkpoints").iterdir():
        (folder / "weights.safetensors").write_bytes(b"")
    with caplog.at_level(logging.WARNING, logger="tercet"):
        found, _ = run(tmp_path)
    assert len(caplog.records) == 2
    assert_same(found, whole[0])


def test_what_a_kill_left_half_written_is_removed(tmp_path, whole):
    with pytest.raises(Stopped):
        run(tmp_path, stop_at=6)
    (tmp_path / "checkpoints" / ".step-00000006.abcdefgh").mkdir()
    (tmp_path / "checkpoints" / ".step-00000006.abcdefgh" / "weights.safetensors").write_bytes(b"half")
    found, _ = run(tmp_path)
    assert_same(found, whole[0])
    assert not list((tmp_path / "checkpoints").glob(".*"))


@pytest.mark.parametrize("optimizer", ["adafactor", "adamw", "rmsprop"])
def test_every_update_is_seen_by_who_watches_the_weights(tmp_path, optimizer):
    versions = []

    def spoil(step, toy, loss):
        versions.append([parameter._version for parameter in toy.parameters()])
        return loss

    run(tmp_path, spoil=spoil, optimizer=optimizer, steps=3)
    for earlier, later in itertools.pairwise(versions):
        assert all(a < b for a, b in zip(earlier, later, strict=True))


# Scores: the first is the start's.

SCORES = [90.0, 10.0, 30.0, 20.0, 25.0]


def dev(**changes):
    return {"evaluate": ScoreSettings(every=3, **changes), "checkpoint_every": 5}


def test_the_best_weights_come_out_and_the_start_is_not_a_candidate(tmp_path):
    found, result = run(tmp_path, scores=SCORES, schedule="constant", **dev())
    assert result.best == {"step": 6, "score": 30.0}
    expected, _ = run(tmp_path / "six", schedule="constant", steps=6)
    assert_same(found, expected)
    lines = [json.loads(line) for line in (tmp_path / "metrics.jsonl").read_text().splitlines()]
    assert [(line["step"], line["dev"]) for line in lines if "dev" in line] == list(
        zip(range(0, 13, 3), SCORES, strict=True)
    )
    steps = sorted(path.name for path in (tmp_path / "checkpoints").iterdir())
    assert steps == ["step-00000006", "step-00000010", "step-00000012"]


@pytest.mark.parametrize(("times", "steps"), [(1, [12]), (4, [3, 6, 9, 12]), (5, [3, 6, 9, 12]), (100, range(1, 13))])
def test_scores_may_lie_evenly_over_all_steps_however_many_there_are(tmp_path, times, steps):
    for length in ({"steps": NUM_STEPS}, {"steps": None, "epochs": 1}):  # of epochs the number is known later
        run(tmp_path / str(length), scores=range(20), evaluate=ScoreSettings(every={"times": times}), **length)
        lines = [json.loads(line) for line in (tmp_path / str(length) / "metrics.jsonl").read_text().splitlines()]
        assert [line["step"] for line in lines if "dev" in line] == [0, *steps]


@pytest.mark.parametrize(
    ("rule", "num_rows", "steps"),
    [
        ({"epochs": 3, "least": 40, "most": 1_000}, 200, 40),
        ({"epochs": 3, "least": 40, "most": 1_000}, 1_801, 84),
        ({"epochs": 3, "least": 40, "most": 1_000}, 100_000, 1_000),
        ({"epochs": 1}, 10, 1),
        ({"epochs": 1}, 96, 2),
        ({"epochs": 2}, 6_400_000, 200_000),
        ({"epochs": 2, "least": 9, "most": 5}, 64, 5),
    ],
)
def test_steps_may_follow_from_the_number_of_rows(rule, num_rows, steps):
    assert LoopSettings(steps=rule, learning_rate=1).steps.steps(num_rows, batch=64) == steps


def test_the_last_weights_come_out_where_they_are_asked_for(tmp_path, whole):
    found, result = run(tmp_path, scores=SCORES, **dev(keep="last"))
    assert result.best is None
    assert_same(found, whole[0])


def test_a_stopped_run_remembers_the_best(tmp_path):
    expected, _ = run(tmp_path / "whole", scores=SCORES, **dev())
    with pytest.raises(Stopped):
        run(tmp_path / "stopped", scores=SCORES, stop_at=11, **dev())
    found, result = run(tmp_path / "stopped", scores=SCORES[4:], **dev())  # goes on behind step 10
    assert result.best == {"step": 6, "score": 30.0}
    assert_same(found, expected)
    logs = [(tmp_path / name / "metrics.jsonl").read_bytes() for name in ("whole", "stopped")]
    assert logs[0] == logs[1]


def test_the_checkpoint_before_a_damaged_best_one_still_has_its_own_best(tmp_path, caplog):
    expected, _ = run(tmp_path / "whole", scores=SCORES, **dev())
    with pytest.raises(Stopped):
        run(tmp_path / "stopped", scores=SCORES, stop_at=8, **dev())
    bad = tmp_path / "stopped" / "checkpoints" / "step-00000006" / "weights.safetensors"
    bad.write_bytes(b"")
    with caplog.at_level(logging.WARNING, logger="tercet"):
        found, result = run(tmp_path / "stopped", scores=SCORES[2:], **dev())  # goes on behind step 5
    assert [record.getMessage() for record in caplog.records] == [
        f"{bad}: is missing or damaged, so this checkpoint is not used"
    ]
    assert result.best == {"step": 6, "score": 30.0}
    assert_same(found, expected)


def test_where_only_the_best_is_lost_the_run_goes_on_without_it(tmp_path, caplog):
    with pytest.raises(Stopped):
        run(tmp_path, scores=SCORES, stop_at=11, **dev())
    bad = tmp_path / "checkpoints" / "step-00000006" / "weights.safetensors"
    bad.write_bytes(b"")
    with caplog.at_level(logging.WARNING, logger="tercet"):
        _, result = run(tmp_path, scores=SCORES[4:], **dev())  # goes on behind step 10
    assert [str(bad) in caplog.text, "the best of what follows is kept" in caplog.text] == [True, True]
    assert result.best == {"step": 12, "score": 25.0}


# Numbers that are not finite.


def spoil_loss(step, toy, loss):
    return loss * math.nan if step == 5 else loss


def spoil_gradient(step, toy, loss):
    if step == 5:
        toy.norm.weight.grad[2] = math.inf
    return loss


@pytest.mark.parametrize(
    ("spoil", "what"), [(spoil_loss, "the loss is nan"), (spoil_gradient, r"the gradient of norm\.weight")]
)
def test_a_number_that_is_not_finite_stops_before_the_update(tmp_path, whole, spoil, what):
    with pytest.raises(DivergedError, match=rf"step 5: {what}.*The checkpoint of step 4 is good"):
        run(tmp_path, spoil=spoil)
    assert [path.name for path in sorted((tmp_path / "checkpoints").iterdir())] == ["step-00000002", "step-00000004"]
    found, _ = run(tmp_path)
    assert_same(found, whole[0])


def test_a_first_step_that_is_not_finite_leaves_the_weights_as_they_were(tmp_path):
    seen = []

    def spoil(step, toy, loss):
        seen.append(toy)
        return loss * math.inf

    with pytest.raises(DivergedError, match=r"step 1: the loss is inf.*There is no checkpoint yet"):
        run(tmp_path, spoil=spoil)
    assert_same(seen[0], Toy())


# The log, clipping and lengths.


def test_the_log_has_rate_norm_and_what_the_step_measured(whole):
    lines = [json.loads(line) for line in (whole[1] / "metrics.jsonl").read_text().splitlines()]
    assert [line["step"] for line in lines] == list(range(1, NUM_STEPS + 1))
    assert lines[0].keys() == {"stage", "step", "loss", "learning_rate", "gradient_norm", "temperature"}
    assert lines[0]["learning_rate"] == 1e-2
    assert lines[-1]["learning_rate"] == pytest.approx(1e-2 / 11)


@pytest.mark.parametrize("limit", [1e-3, 1e3, None])
def test_the_gradient_is_clipped_as_torch_does_it(tmp_path, limit):
    seen = {}

    def spoil(step, toy, loss):
        if step == 1:
            seen["norm"] = torch.nn.utils.get_total_norm([p.grad for p in toy.parameters()]).item()
            seen["grads"] = {name: p.grad for name, p in toy.named_parameters()}
            seen["before"] = {name: p.grad.clone() for name, p in toy.named_parameters()}
        elif step == 2:
            raise Stopped
        return loss

    with pytest.raises(Stopped):
        run(tmp_path, spoil=spoil, clip=limit)
    line = json.loads((tmp_path / "metrics.jsonl").read_text().splitlines()[0])
    assert line["gradient_norm"] == pytest.approx(seen["norm"])
    scale = min(1.0, (limit or math.inf) / seen["norm"])
    for name, gradient in seen["grads"].items():
        torch.testing.assert_close(gradient, seen["before"][name] * scale)


def test_processes_wait_for_one_another_as_long_as_one_may_work_alone(monkeypatch):
    alone = {"RANK": 0, "LOCAL_RANK": 0, "WORLD_SIZE": 1, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": 0}
    threads = {"OMP_NUM_THREADS": torch.get_num_threads()}  # else accelerate sets them, for all tests behind this one
    for name, value in {**alone, **threads}.items():
        monkeypatch.setenv(name, str(value))
    monkeypatch.setattr(PartialState, "_shared_state", {})
    try:
        Processes.start()
        group = torch.distributed.group.WORLD._get_backend(torch.device("cpu"))
        assert group.options._timeout > timedelta(days=7)
        torch.distributed.barrier()
    finally:
        torch.distributed.destroy_process_group()


def test_epochs_take_as_many_steps_as_there_are_batches(tmp_path, whole):
    found, result = run(tmp_path, steps=None, epochs=2)
    assert result.num_steps == NUM_STEPS
    assert_same(found, whole[0])


def test_epochs_of_rows_that_are_not_counted_are_refused(tmp_path):
    with pytest.raises(SettingError, match="Give steps"):
        run(tmp_path, steps=None, epochs=1, num_batches=None)


@pytest.mark.parametrize("lengths", [{}, {"steps": 3, "epochs": 1}])
def test_exactly_one_length_is_wanted(lengths):
    with pytest.raises(ValueError, match="exactly one of steps and epochs"):
        LoopSettings(learning_rate=1e-3, **lengths)


@pytest.mark.parametrize("optimizer", ["adafactor", "adamw", "rmsprop"])
@pytest.mark.parametrize("steps", [1, 3])
def test_weights_that_the_last_update_made_not_finite_are_an_error_and_no_checkpoint(tmp_path, optimizer, steps):
    settings = {"optimizer": optimizer, "clip": None, "learning_rate": 1e38, "steps": steps, "checkpoint_every": 1}
    with pytest.raises(DivergedError, match=r"training, step 1: the update made .* not finite, .* no checkpoint yet"):
        run(tmp_path, **settings)
    assert not [*tmp_path.glob("checkpoints/step-*")]


def test_a_checkpoint_of_an_earlier_version_has_a_manifest_in_json_and_is_used(tmp_path, whole):
    with pytest.raises(Stopped):
        run(tmp_path, stop_at=8)
    for folder in (tmp_path / "checkpoints").glob("step-*"):
        lines = (folder / "SHA256SUMS").read_text().splitlines()
        (folder / "manifest.json").write_text(json.dumps({line[66:]: line[:64] for line in lines}))
        (folder / "SHA256SUMS").unlink()
    found, _ = run(tmp_path)
    assert_same(found, whole[0])
