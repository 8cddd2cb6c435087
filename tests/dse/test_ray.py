"""Searches with Ray give what serial ones give; what a design does to its worker costs that design and nothing else."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from dse.execution.pool import dispatch, ray_cluster
from dse.execution.pool.choice import make_worker_kind, map_on_workers
from dse.execution.pool.worker_settings import WorkerSettings
from dse.execution.workers import Batch, Evaluate, SerialWorkers, StudyWorkers, make_evaluator
from dse.space.design import design_key
from dse.space.errors import DesignError
from dse.store.store import DesignResult, Store
from tests.dse.faulty import FAULTS, Faulty, Slow
from tests.dse.toy import searched, toy
from tests.marks import slow_if


@pytest.fixture(scope="module")
def cluster() -> Iterator[str]:
    """Ray with two CPUs, started once for these tests; its address."""
    import ray

    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    restore = ray_cluster._isolate_cluster()
    usual, dispatch.START_LIMIT_S = dispatch.START_LIMIT_S, PATIENCE
    context = ray.init(address="local", num_cpus=2, include_dashboard=False, log_to_driver=False, configure_logging=False)
    yield context.address_info["gcs_address"]
    ray.shutdown()
    dispatch.START_LIMIT_S = usual
    restore()


PATIENCE = 300.0
"""What a worker may take to start where many other tests run; what is not about that waits for it. [s]"""


def hired(study: Any, evaluate: Evaluate | None = None, **crew: Any) -> StudyWorkers:
    """Workers for a study."""
    limits = {"kind": "ray", "count": 2, "time_limit": 60.0, "memory_limit": 2.0**29, **crew}
    base = study.question.base
    settings = WorkerSettings(**limits)
    return StudyWorkers(
        make_worker_kind(settings),
        evaluate or make_evaluator(study.question.workload, study.fidelity),
        settings,
        window=study.search.window,
        example=[(design_key(base), {}, base)],
        say=lambda text: None,
    )


def usual(study: Any) -> Evaluate:
    return make_evaluator(study.question.workload, study.fidelity)


def errors(study: Any) -> list[str]:
    return [result.error for result in Store(study.store).results(study.context).values() if result.error]


class Unreadable:
    """Cannot be brought to another process, as a design of code that is older there."""

    def __reduce__(self) -> Any:
        return getattr, (int, "field_of_a_newer_version")


def test_what_a_worker_cannot_read_is_named_by_the_worker_s_own_words(cluster: str, tmp_path: Path) -> None:
    study = toy(tmp_path)
    workers = hired(study, count=1)
    workers.submit([("k" * 32, {"": Unreadable()}, study.question.base)])
    (result,) = workers.collect()
    workers.close()
    assert "AttributeError: type object 'int' has no attribute 'field_of_a_newer_version'" in result.error


@slow_if(lambda count, kind: count > 1 and kind == "ray")
@pytest.mark.parametrize(("name", "count", "kind"), [("nsga2", 2, "ray"), ("tpe", 1, "ray"), ("nsga2", 2, "processes")])
def test_workers_in_other_processes_find_what_serial_ones_find(
    cluster: str, tmp_path: Path, count: int, name: str, kind: str
) -> None:
    options = (f"search={name}", "search.budget=96")
    serial = searched(toy(tmp_path / "serial", *options))
    study = toy(tmp_path / "ray", *options)
    workers = hired(study, count=count, kind=kind)
    results = searched(study, workers=workers)
    workers.close()
    assert results == serial


REASONS = {
    "raise": "ZeroDivisionError: a fault of this design (tried 2 times)",
    "hang": "hung: no answer in 5 s (workers.time_limit) (tried 2 times)",
    "eat": "MemoryError",
    "die": "died: the process that evaluated it ended (tried 2 times)",
}


LIMITS = {"hang": 5.0}
"""Only what hangs is waited for so shortly: on a busy machine a sound design or Ray's word of a death takes seconds too. [s]"""


@slow_if(lambda fault: fault in ("hang", "die"))
@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_costs_only_its_own_design_and_nothing_where_it_does_not_come_again(
    cluster: str, tmp_path: Path, fault: str
) -> None:
    """The same search, with two designs that fail: as if they had raised in the driver's own process; a third fails once."""
    plain = searched(toy(tmp_path / "plain", "search.budget=96"))
    marked, once = frozenset((plain[7][2], plain[40][2])), frozenset((plain[20][2],))
    study = toy(tmp_path / "serial", "search.budget=96")
    serial = searched(study, workers=SerialWorkers(Faulty(usual(study), "raise", marked), retries=1))
    study = toy(tmp_path / "ray", "search.budget=96")
    does = Faulty(Faulty(usual(study), fault, marked), fault, once, tmp_path / "done")
    workers = hired(study, does, time_limit=LIMITS.get(fault, 60.0))
    results = searched(study, workers=workers)
    workers.close()
    assert (tmp_path / "done").exists()
    assert results == serial
    assert [row[2] for row in results if row[3] == (None, None)]
    assert len(errors(study)) == 2
    assert all(REASONS[fault] in error for error in errors(study))


def test_a_worker_that_dies_while_it_warms_up_is_replaced(cluster: str, tmp_path: Path) -> None:
    plain = searched(toy(tmp_path / "plain", "search.budget=32"))
    study = toy(tmp_path / "ray", "search.budget=32")
    workers = hired(study, Faulty(usual(study), "die", frozenset((design_key(study.question.base),))), count=1)
    results = searched(study, workers=workers)
    workers.close()
    assert results == plain


def test_workers_that_find_no_cpu_say_so(cluster: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Actors of somebody else hold all CPUs, then all but one."""
    import ray

    monkeypatch.setattr(dispatch, "START_LIMIT_S", 5.0)
    held = [ray.remote(num_cpus=1)(Holder).remote() for _ in range(2)]
    ray.get([actor.held.remote() for actor in held])
    study = toy(tmp_path, "search.budget=32")
    workers = hired(study)
    with pytest.raises(DesignError, match=r"none started in 5 s: the cluster has 2 CPUs, 0 of them free"):
        searched(study, workers=workers)
    workers.close()
    ray.kill(held[0])
    monkeypatch.undo()
    workers = hired(study, Slow(usual(study), 0.2))
    results = searched(study, workers=workers)
    workers.close()
    ray.kill(held[1])
    assert len(results) == 32


class Holder:
    """Holds a CPU."""

    def held(self) -> None:
        pass


def test_a_study_runs_on_a_cluster_by_address(cluster: str, tmp_path: Path) -> None:
    line = ["run", "study=quickstart", "screen.run=false", "search.budget=24", "workers=ray", f"ray.address={cluster}"]
    done = subprocess.run([sys.executable, "-m", "dse.main", *line], cwd=tmp_path, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert "24 designs proposed" in done.stderr
    facts = Store(str(tmp_path / "runs/quickstart/results.sqlite")).runs("quickstart")[-1]["facts"]
    assert facts["cpu_seconds"] > facts["worker_cpu_seconds"] > 0  # of two processes elsewhere, counted here


def test_an_address_where_nothing_listens_is_one_line(tmp_path: Path) -> None:
    line = ["run", "study=quickstart", "screen.run=false", "search.budget=24", "workers=ray", "ray.address=127.0.0.1:1"]
    done = subprocess.run([sys.executable, "-m", "dse.main", *line], cwd=tmp_path, capture_output=True, text=True, timeout=120)
    assert done.returncode == 2
    assert done.stderr.splitlines()[-1].startswith("dse: ray.address: no cluster at 127.0.0.1:1")


def test_a_cluster_that_asks_for_a_token_is_told_as_such(cluster: str, tmp_path: Path) -> None:
    line = ["run", "study=quickstart", "screen.run=false", "search.budget=24", "workers=ray", f"ray.address={cluster}"]
    without = {**os.environ, "RAY_AUTH_MODE": "disabled", "RAY_NUM_REDIS_GET_RETRIES": "1"}
    done = subprocess.run(
        [sys.executable, "-m", "dse.main", *line], cwd=tmp_path, env=without, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 2
    assert f"dse: ray.address: the cluster at {cluster} needs a token; write it to" in done.stderr.splitlines()[-1]
    assert "InvalidAuthToken" not in done.stderr


def test_a_cluster_that_is_lost_in_a_run_ends_it(cluster: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    study = toy(tmp_path, "search.budget=32")
    workers = hired(study, Slow(usual(study), 0.5), count=1)
    with monkeypatch.context() as patched:
        patched.setattr(ray_cluster, "START_TIMEOUT_S", 0.5)
        patched.setattr(workers._pool._kind._cluster, "_address", "127.0.0.1:1")
        with pytest.raises(DesignError, match="is lost: no answer"):
            searched(study, workers=workers)
    workers.close()


def test_a_raylet_that_is_killed_here_ends_a_run_in_a_line(monkeypatch: pytest.MonkeyPatch) -> None:
    """At the next look, and not when Ray notices; and Ray, which would wait for it, is not asked to end it."""
    raylet = subprocess.Popen(["sleep", "100"])
    messages: list[str] = []
    monkeypatch.setattr(ray_cluster, "_connect_cluster", lambda crew: lambda: messages.append("ended by Ray"))
    monkeypatch.setattr(ray_cluster, "_raylet_process", lambda ray: raylet)
    monkeypatch.setattr(ray_cluster.atexit, "register", lambda what, **_: messages.append(what.__name__))
    monkeypatch.setattr(ray_cluster.RayCluster, "sweep", lambda cluster: None)
    monkeypatch.setattr("ray.get_runtime_context", lambda: SimpleNamespace(gcs_address="127.0.0.1:1"))
    monkeypatch.setattr("ray._private.worker.shutdown", lambda: None)
    cluster = ray_cluster.RayCluster(WorkerSettings("ray", 1))
    cluster.check()
    raylet.kill()
    raylet.wait()
    with pytest.raises(DesignError, match="what is finished is stored; run the same command again"):
        cluster.check()
    cluster.close()
    assert messages[-1] == "_leave_process"
    assert "ended by Ray" not in messages


@dataclass(frozen=True)
class Leaving:
    """Starts a process in a session of its own, takes memory, and fails or hangs; for a marked design only."""

    evaluate: Evaluate
    marked: str
    note: Path
    hangs: bool

    def __call__(self, batch: Batch) -> list[DesignResult]:
        if any(key == self.marked for key, _, _ in batch):
            subprocess.run(["sh", "-c", f"setsid sleep 600 & echo $! >> {self.note}"], check=True)
            if self.hangs:
                time.sleep(600)
            HELD.append(b"x" * 200_000_000)
            raise ValueError("left behind")
        return self.evaluate(batch)


HELD: list[bytes] = []


@slow_if(lambda hangs: hangs)
@pytest.mark.parametrize("hangs", [False, True])
def test_processes_and_memory_that_a_failed_design_left_are_given_back(cluster: str, tmp_path: Path, hangs: bool) -> None:
    plain = searched(toy(tmp_path / "plain", "search.budget=24"))
    study = toy(tmp_path / "ray", "search.budget=24")
    does = Leaving(usual(study), plain[7][2], tmp_path / "left", hangs)
    workers = hired(study, does, count=1, retries=0, time_limit=5.0 if hangs else 60.0, memory_limit=2.0**32)
    before = workers._pool._workers[0].handle.actor
    searched(study, workers=workers)
    fresh = workers._pool._workers[0].handle.actor is not before
    workers.close()
    left = [int(line) for line in (tmp_path / "left").read_text().split()]
    for _ in range(50):
        if not any(map(runs, left)):
            break
        time.sleep(0.1)
    assert (len(errors(study)), fresh, [process_id for process_id in left if runs(process_id)]) == (1, True, [])


def runs(process: int) -> bool:
    """Whether a process has not ended: one that nobody has asked about yet has no command line any more."""
    try:
        return bool(Path(f"/proc/{process}/cmdline").read_bytes())
    except OSError:
        return False


def reachable(processes: Iterable[int]) -> list[str]:
    """Addresses at which some processes listen, and that other machines may reach."""
    sockets = set()
    for worker in processes:
        for path in Path(f"/proc/{worker}/fd").glob("*"):
            try:
                sockets.add(os.readlink(path).removeprefix("socket:[").removesuffix("]"))
            except OSError:
                continue
    workers = []
    for table in ("tcp", "tcp6"):
        for line in Path(f"/proc/net/{table}").read_text().splitlines()[1:]:
            fields = line.split()
            address = fields[1].partition(":")[0]
            if fields[3] == "0A" and fields[9] in sockets and not address.endswith("0100007F"):
                workers.append(fields[1])
    return workers


@pytest.mark.slow
def test_ctrl_c_leaves_a_store_to_go_on_from_and_no_process(tmp_path: Path) -> None:
    line = [sys.executable, "-m", "dse.main", "run", "study=quickstart", "screen.run=false", "workers=ray", "workers.count=2"]
    process = subprocess.Popen(
        [*line, "search.budget=1000000"], cwd=tmp_path, stderr=subprocess.PIPE, text=True, start_new_session=True
    )
    for _ in range(600):
        if stored(tmp_path) > 64 or process.poll() is not None:
            break
        time.sleep(0.1)
    before = descendants(process.pid)
    assert len(before) > 2
    assert reachable([process.pid, *before]) == []
    assert not [process_id for process_id in before if b"dashboard.py" in Path(f"/proc/{process_id}/cmdline").read_bytes()]
    os.killpg(process.pid, signal.SIGINT)  # as a terminal does
    _, err = process.communicate(timeout=60)
    assert not alive(before)
    assert process.returncode == 130
    assert "the same command goes on from here" in err
    done = stored(tmp_path)
    again = subprocess.run(
        [*line, f"search.budget={done + 16}", "workers=serial"], cwd=tmp_path, capture_output=True, text=True, timeout=120
    )
    assert again.returncode == 0, again.stderr
    assert f"going on from {done:,} proposed designs" in again.stderr


def test_ray_that_ends_with_its_agent_ends_a_run_in_a_line(tmp_path: Path) -> None:
    """Ray's own processes on a machine end together; the run is noted as failed, and can go on."""
    line = [sys.executable, "-m", "dse.main", "run", "study=quickstart", "screen.run=false", "workers=ray", "workers.count=1"]
    process = subprocess.Popen([*line, "search.budget=1000000"], cwd=tmp_path, stderr=subprocess.PIPE, text=True)
    agents: list[int] = []
    for _ in range(600):
        named = {descendant: Path(f"/proc/{descendant}/cmdline") for descendant in descendants(process.pid)}
        agents = [process_id for process_id, path in named.items() if path.exists() and b"DashboardAgent" in path.read_bytes()]
        if (agents and stored(tmp_path) > 64) or process.poll() is not None:
            break
        time.sleep(0.1)
    os.kill(agents[0], signal.SIGKILL)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 2
    assert err.splitlines()[-1].startswith("dse: workers: Ray on this machine has ended")
    with closing(Store(str(tmp_path / "runs/quickstart/results.sqlite"), create=False)) as store:
        assert [run["state"] for run in store.runs("quickstart")] == ["failed"]


def stored(folder: Path) -> int:
    import sqlite3

    path = folder / "runs/quickstart/results.sqlite"
    if not path.exists():
        return 0
    try:
        with sqlite3.connect(path) as connection:
            return int(connection.execute("SELECT count(*) FROM asks").fetchone()[0])
    except sqlite3.OperationalError:
        return 0


def descendants(pid: int) -> dict[int, str]:
    """Processes below one, with their start times, by which a number that is used again is told apart."""
    parents: dict[int, int] = {}
    born: dict[int, str] = {}
    for path in Path("/proc").glob("[0-9]*"):
        try:
            fields = (path / "stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue
        parents[int(path.name)], born[int(path.name)] = int(fields[1]), fields[19]
    process_ids = {pid}
    while True:
        more = {child for child, parent in parents.items() if parent in process_ids} - process_ids
        if not more:
            return {single_pid: born[single_pid] for single_pid in process_ids if single_pid != pid}
        process_ids |= more


def alive(processes: dict[int, str]) -> list[int]:
    process_ids = []
    for pid, born in processes.items():
        try:
            fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if fields[19] == born and fields[0] != "Z":
            process_ids.append(pid)
    return process_ids


@pytest.mark.slow
def test_what_a_part_raises_is_raised_here(cluster: str) -> None:
    def work(item: int) -> int:
        raise DesignError(f"part {item}: no")

    with pytest.raises(DesignError, match="part 3: no"):
        dict(map_on_workers(WorkerSettings("ray", count=1), work, [3]))
