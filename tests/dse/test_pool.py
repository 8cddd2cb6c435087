"""The contract of the pool, for every kind of workers: each item is answered once, whatever happens to who is at it."""

import os
import pickle
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

import pytest

from dse.commands.notebook_api import find_study
from dse.execution.pool import dispatch, local_processes, worker_settings
from dse.execution.pool.affinity import Item
from dse.execution.pool.choice import make_worker_kind
from dse.execution.pool.dispatch import ItemAnswer, Pool, PoolRules
from dse.execution.pool.local_processes import LocalProcesses
from dse.execution.pool.local_worker import pickle_value
from dse.execution.pool.ray_actors import RayActors
from dse.execution.pool.ray_cluster import RayCluster, _isolate_cluster
from dse.execution.pool.this_process import ThisProcess
from dse.execution.pool.threads import Threads
from dse.execution.pool.worker_kind import PoolNotStartedError
from dse.execution.pool.worker_settings import WorkerSettings
from dse.execution.workers import SerialWorkers, make_workers
from dse.space.errors import DesignError
from dse.terminal.orphan_processes import list_child_processes
from tests.dse.pool_work import (
    Unreadable,
    die_at_three,
    fork_and_die,
    fragile,
    refuse_three,
    square,
    squares,
    types,
    unreadable,
    where,
    who,
)

MakePool = Callable[..., Pool]

PATIENCE = 300.0
"""What a worker may take to start where many other tests run. [s]"""


@pytest.fixture(scope="module")
def cluster() -> Iterator[None]:
    """Ray with two CPUs, started once for these tests."""
    import ray

    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    restore = _isolate_cluster()
    ray.init(address="local", num_cpus=2, include_dashboard=False, log_to_driver=False, configure_logging=False)
    yield
    ray.shutdown()
    restore()


@pytest.fixture
def pool(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[MakePool]:
    """Makes pools of two workers of a kind, which are closed at the end."""
    monkeypatch.setattr(dispatch, "START_LIMIT_S", PATIENCE)
    if request.param == "ray":
        request.getfixturevalue("cluster")
    made: list[Pool] = []

    def make(**rules: Any) -> Pool:
        kind: Any = Threads(2) if request.param == "threads" else make_worker_kind(WorkerSettings(request.param, 2))
        made.append(Pool(kind, PoolRules(**rules)))
        return made[-1]

    yield make
    for each in made:
        each.close()


every_kind = pytest.mark.parametrize("pool", ["serial", "threads", "processes", "ray"], indirect=True)
several_workers = pytest.mark.parametrize("pool", ["threads", "processes", "ray"], indirect=True)
own_processes = pytest.mark.parametrize("pool", ["processes", "ray"], indirect=True)


def answers_of(pool: Pool, work: Callable[[Sequence[Any]], list[Any]], values: Sequence[Any]) -> dict[int, ItemAnswer]:
    """Answers to values, all submitted at once, by their places."""
    pool.submit(work, [Item(place, value) for place, value in enumerate(values)])
    answers: list[ItemAnswer] = []
    while len(answers) < len(values):
        answers += pool.collect()
    assert len({answer.key for answer in answers}) == len(answers)
    return {answer.key: answer for answer in answers}


@every_kind
@pytest.mark.parametrize("seed", [1, 2])
def test_every_item_is_answered_once_with_its_own_result(pool: MakePool, seed: int) -> None:
    """Of any number of items, with kinds and costs or without, one after the other or in batches, also of several maps."""
    random = Random(seed)
    made = pool(window=random.choice([0, 3]), batches=random.random() < 0.5)
    for _ in range(3):
        values = [random.randrange(1000) for _ in range(random.randrange(30))]
        kinds = [value % 3 for value in values] if random.random() < 0.5 else None
        costs = [random.random() for _ in values] if kinds else None
        found = list(made.map(square, values, kinds, costs))
        assert sorted(answer.key for answer in found) == list(range(len(values)))
        assert all(answer.value == values[answer.key] ** 2 for answer in found)
        assert made.map_in_order(square, values) == [value * value for value in values]


@every_kind
def test_an_item_that_raises_is_told_from_its_batch_and_its_tries_are_counted(pool: MakePool, tmp_path: Path) -> None:
    made = pool(batches=True, tries=3)
    assert len(answers_of(made, squares, range(40))) == 40  # from here on batches are large
    found = answers_of(made, partial(squares, marked=17, fault="raise", log=tmp_path / "log"), range(40))
    assert {place: answer.value for place, answer in found.items() if not answer.failure} == {
        place: place * place for place in range(40) if place != 17
    }
    failure = found[17].failure
    assert failure is not None
    assert (failure.reason, failure.tries, failure.died) == ("ZeroDivisionError: a fault of this item", 3, False)
    sizes = (tmp_path / "log").read_text().split()
    assert int(sizes[0]) > 1
    assert sizes[-3:] == ["1"] * 3


@every_kind
def test_what_an_item_of_a_map_raises_is_raised_here_and_the_pool_goes_on(pool: MakePool) -> None:
    made = pool()
    with pytest.raises(DesignError, match="part 3: no"):
        list(made.map(refuse_three, range(5)))
    answers = list(made.map(refuse_three, range(5), failures=True))
    assert {answer.key for answer in answers if answer.failure} == {3}
    assert len(answers) == 5


@own_processes
@pytest.mark.parametrize(("times", "failed"), [(1, False), (1000, True)])
def test_a_death_costs_only_the_item_that_kills_each_time(pool: MakePool, tmp_path: Path, times: int, failed: bool) -> None:
    made = pool(batches=True, retries=1)
    answers_of(made, squares, range(40))
    found = answers_of(made, partial(squares, marked=17, fault="die", log=tmp_path / "log", times=times), range(40))
    assert all(answer.value == place * place for place, answer in found.items() if place != 17)
    assert [place for place, answer in found.items() if answer.failure] == [17] * failed
    failure = found[17].failure
    if failure is not None:
        assert (failure.reason, failure.tries, failure.died) == ("died: the process that evaluated it ended", 2, True)
        assert (tmp_path / "log").read_text().split()[-2:] == ["1", "1"]


@own_processes
def test_an_item_of_a_map_at_which_workers_die_again_and_again_is_an_error(pool: MakePool, tmp_path: Path) -> None:
    made = pool(retries=1)
    with pytest.raises(DesignError, match="died at the same designs again and again; workers=serial shows"):
        list(made.map(die_at_three, range(5)))
    assert made.map_in_order(square, [7]) == [49]


@several_workers
def test_an_item_that_hangs_is_stopped_and_told(pool: MakePool) -> None:
    found = answers_of(pool(retries=0, time_limit=2.0), partial(squares, marked=2, fault="hang"), range(6))
    assert [place for place, answer in found.items() if answer.failure] == [2]
    assert found[2].failure.reason == "hung: no answer in 2 s (workers.time_limit)"  # type: ignore[union-attr]
    assert found[2].turn.end - found[2].turn.start >= 2.0


@own_processes
def test_memory_beyond_the_limit_is_refused(pool: MakePool) -> None:
    found = answers_of(pool(memory_limit=2.0**28), partial(squares, marked=2, fault="eat"), range(4))
    assert {place: "MemoryError" in answer.failure.reason for place, answer in found.items() if answer.failure} == {2: True}


@own_processes
def test_a_value_that_no_worker_can_read_fails_alone_and_in_the_worker_s_words(pool: MakePool) -> None:
    found = answers_of(pool(batches=True, retries=0), types, [1, Unreadable(), 2])
    assert [answer.failure is None for _, answer in sorted(found.items())] == [True, False, True]
    assert "type object 'int' has no attribute 'field_of_a_newer_version'" in found[1].failure.reason  # type: ignore[union-attr]


@own_processes
def test_a_result_that_cannot_be_read_here_fails_alone(pool: MakePool) -> None:
    found = answers_of(pool(batches=True, retries=0), partial(unreadable, marked=1), range(3))
    assert [answer.failure is None for _, answer in sorted(found.items())] == [True, False, True]
    assert "field_of_a_newer_version" in found[1].failure.reason  # type: ignore[union-attr]


@own_processes
def test_a_value_that_cannot_be_sent_fails_alone(pool: MakePool) -> None:
    found = answers_of(pool(batches=True), types, [1, threading.Lock(), 2])
    assert [answer.failure is None for _, answer in sorted(found.items())] == [True, False, True]


@several_workers
def test_kinds_stay_with_workers_that_know_them_and_idle_workers_help(pool: MakePool) -> None:
    made = pool()
    made.wait()
    first = {
        answer.key: answer.value for answer in made.map(who, [0.6] * 4, [0, 0, 1, 1], [1.0] * 4)
    }  # who is late by less is not helped
    assert first[0] == first[1] != first[2] == first[3]
    apart = {answer.key: answer.value for answer in made.map(who, [0.1] * 5, [0, 0, 0, 0, 1], [1.0] * 5, apart=True)}
    assert apart == dict.fromkeys(range(4), first[0]) | {4: first[2]}
    shared = {answer.value for answer in made.map(who, [0.3] * 4, [0] * 4, [1.0] * 4)}
    assert shared == set(first.values())


@every_kind
def test_values_are_taken_as_the_window_has_room(pool: MakePool) -> None:
    """However slowly answers are looked at."""
    made, taken, answered, most = pool(window=3), [0], 0, 0

    def values() -> Iterator[int]:
        for value in range(20):
            taken[0] += 1
            yield value

    for _ in made.map(square, values()):
        most = max(most, taken[0] - answered)
        answered += 1
    assert answered == 20
    assert 1 < most <= 3


@every_kind
def test_workers_never_have_more_items_than_the_window(pool: MakePool) -> None:
    made = pool(window=4, batches=True)
    made.submit(squares, [Item(number, number) for number in range(200)])
    left, most = 200, 0
    while left:
        left -= len(made.collect())
        most = max(most, sum(len(batch) for worker in made._workers for batch in worker.sent))
    assert most <= 4


def test_no_more_workers_start_than_the_window_has_items() -> None:
    """Of any number that is wanted; without a window all of them start."""
    with closing(Pool(Threads(5), PoolRules(window=3))) as few, closing(Pool(Threads(5))) as all_of_them:
        assert (few.count, len(few._workers)) == (3, 3)
        assert (all_of_them.count, len(all_of_them._workers)) == (5, 5)
        assert few.map_in_order(square, range(9)) == [value * value for value in range(9)]


def test_more_processes_than_a_machine_can_use_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where they would run here; a cluster may have as many."""
    monkeypatch.setattr(worker_settings, "cpu_count", lambda: 2)
    refusal = r"^workers\.count: 33 processes for 2 CPUs; at most 32 here; all takes one per CPU$"
    for kind in ("auto", "processes", "ray"):
        WorkerSettings(kind, 32).check_count()
        WorkerSettings(kind, 33, address="host:6379").check_count()
        with pytest.raises(DesignError, match=refusal):
            WorkerSettings(kind, 33).check_count()
    WorkerSettings("serial", 33).check_count()


def test_workers_with_nothing_to_do_start_no_process() -> None:
    for kind in ("auto", "processes", "ray"):
        workers = make_workers(WorkerSettings(kind), lambda batch: [], window=4, designs=0, example=[], say=lambda text: None)
        assert isinstance(workers, SerialWorkers)
        workers.close()


@own_processes
@pytest.mark.parametrize(("seed", "batches"), [(1, True), (2, False)])
def test_random_deaths_leave_each_item_answered_once(pool: MakePool, tmp_path: Path, seed: int, batches: bool) -> None:
    random = Random(seed)
    deaths = {value: random.randrange(1, 3) for value in random.sample(range(60), 5)}
    found = answers_of(pool(batches=batches, retries=3), partial(fragile, folder=tmp_path, deaths=deaths), range(60))
    assert {place: answer.value for place, answer in found.items()} == {place: place * place for place in range(60)}
    assert Counter(int(path.name.split()[0]) for path in tmp_path.iterdir()) == deaths


@own_processes
def test_a_map_that_is_left_in_the_middle_ends_its_workers_and_the_next_one_starts_others(pool: MakePool) -> None:
    made = pool()
    running = made.map(who, [0.05] * 50)
    before = next(running).value
    running.close()
    assert before not in {answer.value for answer in made.map(who, [0.05] * 4)}


@every_kind
def test_what_is_withdrawn_is_what_was_not_answered(pool: MakePool) -> None:
    made = pool()
    made.submit(squares, [Item(number, number) for number in range(30)])
    answered = made.collect()
    left = made.withdraw()
    assert sorted([answer.key for answer in answered] + [item.key for item in left]) == list(range(30))
    assert made.map_in_order(square, [3]) == [9]


@own_processes
def test_closing_ends_workers_whatever_they_do(pool: MakePool) -> None:
    made = pool()
    made.wait()
    pids = [made_pid for made_pid, _ in made.map_in_order(who, [0.05] * 8)]
    made.submit(partial(squares, marked=2, fault="hang"), [Item(2, 2), Item(3, 3)])
    made.close()
    wait_until(lambda: not any(map(runs, pids)))


def wait_until(holds: Callable[[], bool]) -> None:
    """Wait for a condition, not for long."""
    for _ in range(600):
        if holds():
            return
        time.sleep(0.1)
    raise AssertionError


def runs(process: int) -> bool:
    """Whether a process has not ended: one that nobody has asked about yet has no command line any more."""
    try:
        return bool(Path(f"/proc/{process}/cmdline").read_bytes())
    except OSError:
        return False


PROGRAM = """
from dse.execution.pool.choice import map_on_workers
from dse.execution.pool.worker_settings import WorkerSettings
from tests.dse.pool_work import note_and_sleep
for _ in map_on_workers(WorkerSettings("processes", 2), note_and_sleep, [{folder!r}] * 2): pass
"""


@pytest.mark.parametrize("signal_number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_workers_end_with_the_process_that_started_them(tmp_path: Path, signal_number: signal.Signals) -> None:
    """After Ctrl-C with all that they started; after a kill by themselves."""
    root = Path(__file__).parents[2]
    process = subprocess.Popen(
        [sys.executable, "-c", PROGRAM.format(folder=str(tmp_path))],
        cwd=root,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    wait_until(lambda: len(list(tmp_path.iterdir())) == 4)
    started = {int(path.name): Path(f"/proc/{path.name}/cmdline").read_bytes() for path in tmp_path.iterdir()}
    os.killpg(process.pid, signal_number)
    process.wait()
    ended = started if signal_number == signal.SIGINT else [pid for pid, command in started.items() if b"sleep" not in command]
    try:
        wait_until(lambda: not any(map(runs, ended)))
    finally:
        for pid in filter(runs, started):
            os.kill(pid, signal.SIGKILL)


def running_children() -> set[int]:
    """Child processes that have not ended; those that other tests left may end at any time, and wait for their parent."""
    stats = {child: Path(f"/proc/{child}/stat") for child in list_child_processes()}
    return {child for child, stat in stats.items() if stat.exists() and stat.read_text().rpartition(")")[2].split()[0] != "Z"}


def test_a_death_is_seen_although_a_process_that_the_worker_left_holds_its_socket(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dispatch, "POLL_S", 0.2)
    before = running_children()
    with closing(Pool(LocalProcesses(1), PoolRules(retries=0))) as made:
        failures = {answer.key: answer.failure for answer in made.map(fork_and_die, range(3), failures=True)}
    assert [place for place, failure in failures.items() if failure and failure.died] == [1]
    assert running_children() <= before


def test_a_pool_that_ends_leaves_the_workers_of_another_pool(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dispatch, "START_LIMIT_S", PATIENCE)
    with closing(Pool(LocalProcesses(1))) as first:
        before = first.map_in_order(who, [0.0])
        with closing(Pool(LocalProcesses(1))) as second, pytest.raises(DesignError, match="died at the same designs"):
            second.map_in_order(die_at_three, [3])
        assert first.map_in_order(who, [0.0]) == before


def test_a_pool_whose_example_cannot_be_sent_ends_what_its_kind_has_started() -> None:
    class Kind(ThisProcess):
        closed = 0

        def encode(self, value: Any) -> Any:
            raise pickle.PicklingError("it is of the script")

        def close(self) -> None:
            self.closed += 1

    kind = Kind()
    with pytest.raises(PoolNotStartedError, match="cannot be sent to another process: it is of the script"):
        Pool(kind, example=(squares, [1]))
    assert kind.closed == 1


def test_processes_for_which_there_is_no_room_are_an_error_in_a_line(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*_: Any, **__: Any) -> None:
        raise BlockingIOError(11, "Resource temporarily unavailable")

    monkeypatch.setattr(local_processes.subprocess, "Popen", refused)
    with pytest.raises(PoolNotStartedError, match=r"^workers: processes do not start on this machine: .*; workers=serial"):
        Pool(LocalProcesses(2))


def test_ray_that_is_not_installed_is_an_error_in_a_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(PoolNotStartedError, match=r"^workers: Ray does not start .*: import of ray .*; workers=serial"):
        make_worker_kind(WorkerSettings("ray"))


def test_processes_that_end_as_they_start_are_an_error_with_their_last_words(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(local_processes, "COMMAND", "raise SystemExit('MemoryError: no room')")
    with (
        closing(Pool(LocalProcesses(2))) as made,
        pytest.raises(PoolNotStartedError, match=r"in a row .* no room; workers=serial"),
    ):
        made.map_in_order(square, [1])


def test_a_function_that_other_processes_cannot_import_is_refused_in_a_line() -> None:
    with (
        closing(Pool(LocalProcesses(1))) as made,
        pytest.raises(PoolNotStartedError, match="cannot be sent"),
    ):
        made.map_in_order(lambda value: value, [1])


def test_a_function_of_the_script_that_runs_is_refused_in_a_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(square, "__module__", "__main__")
    monkeypatch.setattr("__main__.square", square, raising=False)
    with closing(Pool(LocalProcesses(1))) as made, pytest.raises(PoolNotStartedError, match="of the script that runs"):
        made.map_in_order(square, [1])


@pytest.mark.parametrize("name", ["mesh_llm", "npu_serving", "quickstart"])
def test_a_study_can_be_sent_to_another_process(name: str) -> None:
    """With ties, read-only mappings and expressions of metrics, which have their values there."""
    study = find_study(name, "+metrics.twice=\"-2 * power ** 2 / (power + '3 W')\"").sent_copy
    sent = pickle.loads(pickle_value(study))
    assert sent.question.space.key == study.question.space.key
    assert [each.question.defined["twice"].worth({"power": 3.0}) for each in (sent, study)] == [-3.0, -3.0]


def test_no_one_waits_for_a_kind_that_has_no_worker(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dispatch, "START_LIMIT_S", 0.2)
    monkeypatch.setattr(local_processes, "COMMAND", "import time; time.sleep(60)")
    with closing(Pool(LocalProcesses(2))) as made, pytest.raises(DesignError, match=r"none started in 200 ms: the machine has"):
        made.map_in_order(square, [1])


def test_this_process_does_all_that_there_is_in_one_batch() -> None:
    sizes: list[int] = []

    def evaluate(values: Sequence[int]) -> list[int]:
        sizes.append(len(values))
        return [value * value for value in values]

    with closing(Pool(ThisProcess(), PoolRules(window=16, batches=True))) as own:
        for first in range(0, 80, 16):
            for place in range(first, first + 16):
                own.submit(evaluate, [Item(place, place)])
            while own.collect():
                pass
    assert sizes == [1, 15, 16, 16, 16, 16]  # the first tells what one takes


def test_a_pool_of_this_process_has_one_worker_and_no_other_process() -> None:
    with closing(Pool(ThisProcess())) as made:
        assert {pid for pid, _ in made.map_in_order(who, [0.0] * 5)} == {os.getpid()}
        assert (made.count, made.cpu, made.children) == (1, 0.0, False)


def test_a_machine_that_joins_is_used_and_the_work_of_one_that_leaves_is_done_elsewhere(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each item is answered once all the same."""
    import ray
    from ray.cluster_utils import Cluster

    ray.shutdown()
    monkeypatch.setattr(dispatch, "START_LIMIT_S", PATIENCE)
    machines = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False})
    try:
        ray.init(address=machines.address, log_to_driver=False, configure_logging=False)
        with closing(Pool(RayActors(RayCluster(WorkerSettings("ray"))))) as made:
            made.wait()
            assert len({answer.value for answer in made.map(where, [0.1] * 4)}) == 1
            second = machines.add_node(num_cpus=1)
            answers: list[ItemAnswer] = []
            for answer in made.map(where, [0.2] * 120):
                answers.append(answer)
                if second and len({answer.value for answer in answers}) == 2:
                    machines.remove_node(second)
                    second, joined = None, len(answers)
            assert second is None, "the machine that joined was not used"
            assert sorted(answer.key for answer in answers) == list(range(120))
            assert len({answer.value for answer in answers[joined + 8 :]}) == 1
    finally:
        ray.shutdown()
        machines.shutdown()
