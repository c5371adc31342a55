"""Every task is done once, whatever happens to the workers; what cannot be done is named."""

import pytest
import ray
from works import Doing, Row, make_doing

from tercet.distributed.cluster import connected
from tercet.distributed.pool import Pool
from tercet.errors import InputError, OutputError


@pytest.fixture
def run(settings, tmp_path):
    """Return a function that does tasks, and the pool with what happened."""

    def do(tasks, *, full=None, **changes):
        with connected(settings.model_copy(update=changes)) as cluster:
            alive = [node["NodeID"] for node in ray.nodes() if node["Resources"].get("CPU")]
            doing = Doing(tmp_path, poison=37, full_node=alive[0] if full else "")
            with Pool(cluster, make_doing, doing, num_tasks=len(tasks)) as pool:
                results = {task.number: result for task, result in pool.run(tasks)}
                return results, pool

    return do


def test_workers_that_end_hang_or_stumble_lose_nothing(run, tmp_path):
    hows = {3: "dies once", 5: "hangs once", 8: "odd once", 11: "dies once"}
    tasks = [Row(number, how=hows.get(number, "well")) for number in range(20)]
    results, pool = run(tasks, timeout_s=3)
    assert results == {number: 2 * number for number in range(20)}
    assert not pool.failures
    assert pool.tally.num_done == 20
    assert pool.tally.num_lost == 3
    for number in range(20):
        num_tries = len((tmp_path / f"{number}.tries").read_text().splitlines())
        # a process that ends at once may take the answer about the task before with it, which is then done again
        assert num_tries in ((2, 3) if number in hows else (1, 2))


def test_a_poison_row_is_named_and_the_rest_is_done(run, tmp_path):
    tasks = [Row(number, how="poison" if number == 4 else "well") for number in range(10)]
    results, pool = run(tasks, tries=2)
    assert sorted(results) == [0, 1, 2, 3, 5, 6, 7, 8, 9]
    (failure,) = pool.failures
    assert (failure.task.number, failure.row) == (4, 37)
    # an answer that was lost makes the task before the cause, once
    assert len((tmp_path / "4.tries").read_text().splitlines()) in (2, 3)


def test_errors_that_stay_are_told_and_others_are_tried_again(run, tmp_path):
    hows = {2: "refused", 6: "odd"}
    results, pool = run([Row(number, how=hows.get(number, "well")) for number in range(8)])
    assert sorted(results) == [0, 1, 3, 4, 5, 7]
    errors = {failure.task.number: failure.error for failure in pool.failures}
    assert isinstance(errors[2], InputError)
    assert str(errors[2]) == "in.txt: row 2 is too long. Cut it."
    assert "KeyError" in str(errors[6])
    assert len((tmp_path / "2.tries").read_text().splitlines()) == 1
    assert len((tmp_path / "6.tries").read_text().splitlines()) == 3


def test_a_node_that_cannot_write_is_left_out(run):
    results, pool = run([Row(number) for number in range(12)], full="one")
    assert sorted(results) == [*range(12)]
    assert pool.tally.num_retries


def test_where_no_node_can_write_the_error_says_so(settings, tmp_path):
    class Full(Doing):
        def __call__(self, task):
            raise OutputError("cannot write: No space left on device")

    with connected(settings) as cluster, Pool(cluster, make_doing, Full(tmp_path), num_tasks=3) as pool:
        with pytest.raises(OutputError, match="No space left"):
            [*pool.run([Row(number) for number in range(3)])]
