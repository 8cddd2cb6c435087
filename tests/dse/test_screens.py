"""What a screen stores: metrics of each row beside its knobs, however rows were evaluated together."""

import contextlib
import os
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dse.commands.notebook_api import find_study
from dse.config import metric_expressions as expressions
from dse.evaluators import evaluate
from dse.evaluators.accounting.outcomes import Outcomes
from dse.evaluators.accounting.power import PHASE_POWER_METRICS
from dse.execution import screen_block as block
from dse.execution.pool.choice import make_worker_kind, map_on_workers
from dse.execution.pool.dispatch import Pool
from dse.execution.pool.worker_settings import WorkerSettings
from dse.execution.result_frame import combine_with_front, knob_values
from dse.execution.screen import ScreenResult, encode_rows, list_stored_block_files, load_stored_screen, run_screen
from dse.execution.screen_block import CACHE_ROWS, EVEN_SAMPLE
from dse.explanations.stored_design import find_stored_design
from dse.report.caveats import find_discarded_rows_caveats
from dse.report.payload import report_payload
from dse.report.reported_study import ReportedStudy
from dse.space.design import Designs, design_key, stack_designs
from dse.space.errors import DesignError
from tests.dse.toy import toy
from tests.samples import AT_ONE_RATE


def rows_of(result: ScreenResult) -> pd.DataFrame:
    """What is in the files of a screen."""
    return pd.concat([file.read_table().to_pandas() for file in result.blocks])


def test_rows_that_are_evaluated_in_another_order_keep_their_metrics(tmp_path: Path) -> None:
    study = toy(tmp_path, "screen.run=true", f"screen.limit={2 * CACHE_ROWS}")
    screen = run_screen(study, lambda done, total, size: None)
    rows = rows_of(screen)
    space, workload = study.question.space, study.question.workload
    assert len(rows) == 2 * CACHE_ROWS
    for _, row in rows.iloc[::400].iterrows():
        design = space.design_at({knob.address: row[knob.address] for knob in space.knobs})
        alone = evaluate(stack_designs([design]), workload)
        for name in ("latency", "tpot", "throughput_per_system_mm2"):
            assert row[name] == pytest.approx(alone.columns[name][0], rel=1e-12)


def test_a_front_without_designs_has_its_objectives(tmp_path: Path) -> None:
    words = ("chip=h100", "+part@chip=node_nvlink4", "stack=ideal", "model=mixtral_8x7b", "space=empty", "mapping.both.tp=2")
    memory = "+space.chip.hbm.bandwidth='tag(TB/s, choice(2, 3))'"
    study = toy(tmp_path, "screen.run=true", *words, "mapping.both.ep=128", memory)
    screen = run_screen(study, lambda done, total, size: None)
    assert screen.refused == {"mapping.prefill.ep": 2}
    assert screen.front.empty
    assert set(study.objectives) <= set(screen.front)
    assert report_payload([ReportedStudy(study, combine_with_front(study, pd.DataFrame(), screen), screen, [])])


@pytest.mark.slow
def test_what_files_leave_out_the_front_and_the_report_have(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    study = toy(tmp_path, "screen.run=true", "workers=serial")
    screen = run_screen(study, lambda done, total, size: None)
    stored = screen.blocks[0].read_table().to_pandas()
    assert screen.left
    assert "energy" not in stored
    shown = combine_with_front(study, pd.DataFrame(), screen)
    assert {"energy", "price_per_mtoken"} <= set(screen.front)
    assert shown["energy"].notna().all()
    monkeypatch.setattr("dse.execution.screen_block.requested_metrics", lambda study: PHASE_POWER_METRICS)
    whole = toy(tmp_path / "whole", "screen.run=true", "workers=serial")
    everything = run_screen(whole, lambda done, total, size: None)
    assert not everything.left
    # what is whole is not evaluated again
    monkeypatch.setattr("dse.execution.screen.evaluate_with_derived", None)
    assert "energy" in combine_with_front(whole, pd.DataFrame(), everything)


@pytest.mark.sampled
@pytest.mark.parametrize("stage", ["fidelity", "screen.fidelity"])
def test_a_study_is_screened_by_the_steady_state(tmp_path: Path, stage: str) -> None:
    """Each row is what an evaluation in the steady state says, and not what the loop does."""
    words = ("screen.run=true", "screen.limit=16", f"run_dir={tmp_path}")
    study = find_study("npu_serving", *words, f"{stage}=steady")
    screen = run_screen(study, lambda done, total, size: None)
    rows = rows_of(screen)
    space = study.question.space
    steady = evaluate(space.stack(encode_rows(space, rows)), study.question.workload, fidelity="steady_state").columns
    assert rows["ttft"].to_numpy() == pytest.approx(steady["ttft"], rel=1e-12, nan_ok=True)
    assert rows["tbt_p99"].notna().any()
    assert "tbt_p50" not in rows
    assert rows["ttft"].notna().any()


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (("study=npu_serving", "screen.fidelity=loop"), "no option 'loop'; valid: analytical, steady_state; or set null"),
        (("study=quickstart", "screen.fidelity=steady_state"), "has no steady_state for this workload; it has analytical"),
        (
            ("study=npu_serving", "fidelity=steady_state", "screen.fidelity=analytical"),
            "analytical is above the search's steady",
        ),
    ],
)
def test_a_screen_at_a_fidelity_that_cannot_be_is_refused(words: tuple[str, ...], why: str) -> None:
    with pytest.raises(DesignError, match=why):
        find_study(words[0].partition("=")[2], *words[1:])


def test_designs_that_a_sample_has_twice_are_evaluated_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And each row has what it has where all rows are evaluated."""
    words = (
        *AT_ONE_RATE,
        "screen.limit=64",
        "workload.requests=10",
        "workload.rate_scale=0.05",
        "workers.kind=serial",
        "chips=[npu_dse, wse2]",
    )
    design_counts, tables, counts = list[int](), list[pd.DataFrame](), list[int]()

    def counted(designs: Designs, *given: Any, **options: Any) -> Outcomes:
        design_counts.append(len(designs))
        return expressions.evaluate_with_derived(designs, *given, **options)

    monkeypatch.setattr(block, "evaluate_with_derived", counted)
    for name, firsts in (("once", block.first_equal_rows), ("each", lambda columns: np.arange(64))):
        monkeypatch.setattr(block, "first_equal_rows", firsts)
        screen = run_screen(find_study("mesh_llm", *words, f"run_dir={tmp_path / name}"), lambda done, total, size: None)
        assert (screen.rows, screen.evaluated) == (64, 64)
        tables.append(rows_of(screen))
        counts.append(sum(design_counts))
        design_counts.clear()
    pd.testing.assert_frame_equal(*tables, check_exact=True)
    knobs = [knob.address for knob in find_study("mesh_llm", *words).question.space.knobs]
    assert counts == [len(tables[0][knobs].drop_duplicates()), 64]
    assert counts[0] < 64


@pytest.mark.slow
def test_workers_screen_as_one_does(tmp_path: Path) -> None:
    """Row by row the same, whoever is done first; and what is on disk is not evaluated again."""
    words = ("screen.run=true", "screen.limit=64", "screen.fidelity=steady_state", "workload.requests=40")
    tables = {}
    for kind in ("serial", "processes", "ray"):
        study = find_study("npu_serving", *words, f"workers={kind}", "workers.count=2", f"run_dir={tmp_path / kind}")
        done: list[int] = []
        screen = run_screen(study, lambda now, total, size, done=done: done.append(now))  # type: ignore[misc]
        assert (screen.rows, screen.evaluated, done[-1]) == (64, 64, 64)
        assert run_screen(study, lambda now, total, size: None).evaluated == 0
        tables[kind] = rows_of(screen)
    pd.testing.assert_frame_equal(tables["serial"], tables["processes"], check_exact=True)
    pd.testing.assert_frame_equal(tables["serial"], tables["ray"], check_exact=True)


def fragile(folder: Path) -> Callable[[int], int]:
    """The square of a number; the first worker that is asked for a fifth one dies of it."""

    def work(item: int) -> int:
        mark = folder / str(item)
        if item % 5 == 0 and not mark.exists():
            mark.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return item * item

    return work


def test_a_worker_that_dies_costs_what_it_was_at(tmp_path: Path) -> None:
    work = fragile(tmp_path)
    squares = dict(map_on_workers(WorkerSettings("ray", count=2), work, range(20)))
    assert squares == {place: place * place for place in range(20)}


def test_a_worker_that_stays_and_dies_costs_what_it_was_at(tmp_path: Path) -> None:
    """Then its kinds are another's; and what is asked after that goes on with whoever is there."""

    work = fragile(tmp_path)

    def fatal(item: int) -> None:
        os.kill(os.getpid(), signal.SIGKILL)

    bench = Pool(make_worker_kind(WorkerSettings("ray", count=2)))
    try:
        for times in range(2):
            made = [(place, square) for place, square, _, _ in bench.map(work, range(20), [0, 1] * 10, [1.0] * 20)]
            assert sorted(made) == [(place, place * place) for place in range(20)], times
        with pytest.raises(DesignError, match="again and again"):
            list(bench.map(fatal, [1], [0], [1.0]))
    finally:
        bench.close()


def test_kinds_go_to_who_knows_them_and_else_to_who_is_idle() -> None:
    def work(item: float) -> int:
        time.sleep(item)
        return os.getpid()

    bench = Pool(make_worker_kind(WorkerSettings("ray", count=2)))
    try:
        bench.wait()
        first = {place: who for place, who, _, _ in bench.map(work, [0.5] * 4, [0, 0, 1, 1], [1.0] * 4)}
        assert first[0] == first[1] != first[2] == first[3]
        # a kind that is asked for apart is its own's, however idle others are
        again = {place: who for place, who, _, _ in bench.map(work, [0.2] * 5, [0, 0, 0, 0, 1], [1.0] * 5, apart=True)}
        assert again == dict.fromkeys(range(4), first[0]) | {4: first[2]}
        shared = {place: who for place, who, _, _ in bench.map(work, [0.5] * 4, [0] * 4, [1.0] * 4)}
        assert set(shared.values()) == set(first.values())
    finally:
        bench.close()


def test_a_block_whose_worker_died_unheard_was_evaluated(unbroken: ScreenResult, tmp_path: Path, monkeypatch: Any) -> None:
    """A worker stores each block and is lost, and the next one finds it there: the run evaluated it, and it is there once."""

    def twice(crew: WorkerSettings, work: Any, items: Any) -> Iterator[tuple[int, Any]]:
        for place, item in enumerate(items):
            work(item)
            yield place, work(item)

    monkeypatch.setattr("dse.execution.screen.BLOCK_ROWS", 256)
    monkeypatch.setattr("dse.execution.screen.map_on_workers", twice)
    study = toy(tmp_path, *SMALL, "workers=ray", "workers.start_time='1 us'", "workers.count=2")
    screen = run_screen(study, lambda done, total, size: None)
    assert (screen.rows, screen.evaluated, len(list_stored_block_files(study))) == (
        unbroken.rows,
        unbroken.rows,
        unbroken.rows / 256,
    )
    assert run_screen(study, lambda done, total, size: None).evaluated == 0


def test_a_machine_that_dies_costs_the_blocks_it_was_at(unbroken: ScreenResult, tmp_path: Path, monkeypatch: Any) -> None:
    """Of two raylets one is killed in a screen: the files and the front are those of one process, and no row is there twice."""
    import ray
    from ray.cluster_utils import Cluster

    monkeypatch.setattr("dse.execution.screen.BLOCK_ROWS", 256)
    machines = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False})
    second = machines.add_node(num_cpus=1)
    ray.init(address=machines.address, log_to_driver=False, configure_logging=False)
    killed: list[int] = []

    def until(done: int, total: int, size: int) -> None:
        if done >= 512 and not killed:  # the driver made one block, and workers another
            killed.append(done)
            second.kill_raylet()

    try:
        place = f"file://{tmp_path}/blocks"
        words = (*SMALL, "workers=ray", "workers.start_time='1 us'", "workers.count=2", f"screen.folder={place}")
        study = toy(tmp_path / "run", *words)
        screen = run_screen(study, until)
    finally:
        ray.shutdown()
        machines.shutdown()
    assert killed
    assert (screen.rows, screen.evaluated, len(screen.blocks)) == (unbroken.rows, unbroken.rows, unbroken.rows / 256)
    assert [file.name[:11] for file in list_stored_block_files(study)] == [
        f"block-{number:05d}" for number in range(unbroken.rows // 256)
    ]
    pd.testing.assert_frame_equal(screen.front, unbroken.front)
    pd.testing.assert_frame_equal(rows_of(screen).reset_index(drop=True), rows_of(unbroken), check_categorical=False)
    assert run_screen(study, until).evaluated == 0


@pytest.mark.parametrize("size", ["screen_block.CACHE_ROWS", "screen.BLOCK_ROWS"])
def test_a_screen_goes_on_alone_where_processes_end_as_they_start(
    unbroken: ScreenResult, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], size: str
) -> None:
    """Parts of a block and blocks, as long as nobody asked for processes: else it is an error."""
    monkeypatch.setattr(f"dse.execution.{size}", 256)
    monkeypatch.setattr("dse.execution.pool.local_processes.COMMAND", "raise SystemExit('no room')")
    words = (*SMALL, "workers.start_time='1 us'", "workers.count=2")
    screen = run_screen(toy(tmp_path / "auto", *words, "workers=auto"), lambda done, total, size: None)
    pd.testing.assert_frame_equal(screen.front, unbroken.front)
    assert "no room; workers=serial works without it, as now" in capsys.readouterr().err
    with pytest.raises(DesignError, match=r"ended during their start.*no room; workers=serial"):
        run_screen(toy(tmp_path / "asked", *words, "workers=processes"), lambda done, total, size: None)


@pytest.mark.parametrize("word", ["all", "front"])
def test_what_is_kept_of_a_screen_has_its_front(unbroken: ScreenResult, tmp_path: Path, word: str) -> None:
    """Counts and the front are those of all rows, also where the other rows are not kept, and when files are read again."""
    study = toy(tmp_path, *SMALL, f"screen.keep={word}")
    first = run_screen(study, lambda done, total, size: None)
    for result in (first, load_stored_screen(study), run_screen(study, lambda done, total, size: None)):
        assert result is not None
        assert (result.rows, result.feasible, result.exact) == (unbroken.rows, unbroken.feasible, unbroken.exact)
        pd.testing.assert_frame_equal(result.front, unbroken.front, check_like=True)
        assert result.kept == sum(file.read_table().num_rows for file in result.blocks)
    assert (first.kept < first.rows) == (word == "front")
    shown = combine_with_front(study, pd.DataFrame(), first)
    assert len(shown) >= min(first.kept, EVEN_SAMPLE)
    assert bool(find_discarded_rows_caveats(study, first)) == (word == "front")
    stricter = toy(tmp_path, *SMALL, f"screen.keep={word}", "constraints.ttft='<= 2 s'")
    assert (load_stored_screen(stricter) is None) == (word == "front")  # what is kept depends on what is wanted


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (("screen.keep=-1",), "screen.seeds: -1 is below the minimum, 0"),
        (("screen.keep=some",), "screen.keep: no option 'some'; valid: all, front"),
        (("screen.prune=1",), "screen.prune: 1 is not true or false"),
        (("screen.prune=true",), "screen.prune: pruned designs have no metrics to keep; set screen.keep=front"),
        (
            ("screen.prune=true", "screen.keep=front"),
            "screen.prune: bounds exist for .* screen.fidelity=steady_state",
        ),
        (("screen.folder=[a]",), r"screen.folder: \[.*\] is not a folder, as a path or s3://BUCKET/FOLDER; or set null"),
        (("screen.folder=ftp://host/folder",), "screen.folder: ftp://host/folder: Unrecognized filesystem .* URL of s3, gs"),
        (("screen.folder=s3://",), "screen.folder: s3:// names no folder; write SCHEME://BUCKET/FOLDER"),
    ],
)
def test_a_screen_that_cannot_be_stored_is_refused(tmp_path: Path, words: tuple[str, ...], why: str) -> None:
    with pytest.raises(DesignError, match=why):
        toy(tmp_path, *SMALL, *words)


def test_a_folder_that_cannot_be_written_is_named_with_the_word_for_another(
    tmp_path: Path, typed: Callable[..., tuple[int, str, str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file").touch()
    code, _, err = typed(
        "run", "study=quickstart", "screen.limit=16", "workers=serial", "search=none", "screen.folder=file/below"
    )
    assert code == 2
    assert "file/below" in err.splitlines()[-1]
    assert "screen.folder=FOLDER" in err.splitlines()[-1]


@pytest.mark.sampled
@settings(max_examples=8, deadline=None)
@given(stops=st.lists(st.integers(0, 2000), min_size=1, max_size=3), lost=st.lists(st.integers(0, 5), max_size=3))
def test_a_screen_that_is_stopped_midway_goes_on_from_what_is_done(
    unbroken: ScreenResult, tmp_path_factory: pytest.TempPathFactory, stops: list[int], lost: list[int]
) -> None:
    """Stopped anywhere, by a signal or by a kill that takes the last pieces along: no row twice, and the same file."""
    study = toy(tmp_path_factory.mktemp("stopped"), *SMALL)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("dse.execution.screen_block.SAVE_PERIOD_S", -1.0)
        for stop in stops:

            def until(done: int, total: int, size: int, stop: int = stop) -> None:
                if done >= stop:
                    raise KeyboardInterrupt

            with contextlib.suppress(KeyboardInterrupt):
                run_screen(study, until)
    kept = list_stored_block_files(study)
    for place in lost:
        if place < len(kept) and kept[place].name.startswith("piece"):
            kept[place].drop()
    before = load_stored_screen(study)
    rows = before.rows if before else 0
    screen = run_screen(study, lambda done, total, size: None)
    assert screen.evaluated == unbroken.rows - rows
    assert before is None or not before.exact or rows == unbroken.rows
    assert [file.read_content() for file in list_stored_block_files(study)] == [file.read_content() for file in unbroken.blocks]
    pd.testing.assert_frame_equal(screen.front, unbroken.front)
    assert (screen.rows, screen.feasible, screen.exact) == (unbroken.rows, unbroken.feasible, unbroken.exact)


SMALL = ("screen.run=true", "screen.limit=2048", "model=llama3_70b")
"""A screen of some parts, in some of which nothing is possible."""


@pytest.fixture(scope="module")
def unbroken(tmp_path_factory: pytest.TempPathFactory) -> ScreenResult:
    return run_screen(toy(tmp_path_factory.mktemp("unbroken"), *SMALL), lambda done, total, size: None)


def test_little_is_stored_of_a_block_that_is_done_soon(tmp_path: Path) -> None:
    """Pieces are for long work: with time between them there are none, and one that is damaged is evaluated again."""
    study = toy(tmp_path, *SMALL)
    with contextlib.suppress(KeyboardInterrupt):
        run_screen(study, _stopped)
    (piece,) = (file.local_path() for file in list_stored_block_files(study))
    assert piece is not None
    piece.write_bytes(piece.read_bytes()[:-9])
    screen = run_screen(study, lambda done, total, size: None)
    assert screen.evaluated == screen.rows
    assert [file.name[:5] for file in list_stored_block_files(study)] == ["block"]


def _stopped(done: int, total: int, size: int) -> None:
    raise KeyboardInterrupt


def test_every_screened_design_has_an_id_and_is_found_by_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """That of the design that is built of its knobs, also where a table has a sample of what was screened."""
    study = toy(tmp_path, "screen.run=true", "screen.limit=64")
    screen = run_screen(study, lambda done, total, size: None)
    whole = combine_with_front(study, pd.DataFrame(), screen)
    monkeypatch.setattr("dse.execution.result_frame.SCREEN_ROWS", 8)
    front = combine_with_front(study, pd.DataFrame(), screen)
    assert set(front["design"]) < set(whole["design"])
    for row in whole.to_dict("records")[::5]:
        values = knob_values(study, row)
        assert design_key(study.question.space.design_at(values)).startswith(row["design"])
        assert find_stored_design(study, front, screen, row["design"]).values == values
