"""A search asks among designs that keep the limits which are known before anything is played."""

from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dse.commands.notebook_api import find_study
from dse.commands.run_study import choose_sampler
from dse.config.compose import compose
from dse.evaluators.evaluation import early_limits, find_worst_violation, is_simulated
from dse.execution.ask_tell import base_design_key
from dse.execution.limit_filter import EarlyLimits, is_ruled_out, make_early_limits
from dse.execution.study import Study, build_study
from dse.execution.time_budget import affordable_designs
from dse.execution.workers import Batch, SerialWorkers
from dse.search.optuna_samplers import make_sampler
from dse.search.samplers import Feedback, RandomSampler, allow_all
from dse.space.errors import DesignError
from dse.space.limits import Infeasibility, Limit
from dse.store.store import DesignResult, Store
from dse.studies.search_quality.replay import SPACES
from tests.dse.toy import OVERRIDES, searched, toy

CORES = (
    "chip=npu64",
    "model=qwen3_4b",
    "workload=serving",
    "workload.requests=5",
    "space=empty",
    "+space.mapping.both.tp=choice(1,2,3,4,6,8,12,16,32,64)",
    "+space.mapping.both.pp=choice(1,2,3,4,6,8,12,16,32,36)",
    "+space.mapping.serving.prefill_cores=choice(4,8,16,24,60,64,100)",
)


def divided(folder: Path, *overrides: str) -> Study:
    """A service whose cores are divided at random: one in ten ways can be."""
    usual = [override for override in OVERRIDES if not override.startswith(("workload.", "space="))]
    return build_study(compose([*usual, *CORES, f"run_dir={folder}", *overrides]), folder)


def fake(batch: Batch) -> list[DesignResult]:
    """Metrics from nowhere, at once."""
    number = [float(int(key[:6], 16)) for key, _, _ in batch]
    names = ("throughput_per_system_mm2", "tpot", "ttft")
    return [
        DesignResult(key, values, dict.fromkeys(names, 1.0 + place % 97), seconds=0.01)
        for place, (key, values, _) in zip(number, batch, strict=True)
    ]


class Seen(SerialWorkers):
    """Workers that remember what they were given."""

    def __init__(self) -> None:
        super().__init__(fake)
        self.keys: list[str] = []

    def submit(self, batch: Batch) -> None:
        self.keys += [key for key, _, _ in batch]
        super().submit(batch)


@pytest.fixture(scope="module")
def known(tmp_path_factory: pytest.TempPathFactory) -> tuple[Study, EarlyLimits]:
    study = divided(tmp_path_factory.mktemp("known"))
    limits = make_early_limits(study.question.space, study.question.workload, study.fidelity)
    assert limits is not None
    return study, limits


ATTENTION = (
    *SPACES["attention"],
    "space.mapping.queries='range(16,129,16)'",
    "space.mapping.keys='range(16,129,16)'",
    "+space.chip.tile.sram='tag(KiB, choice(96,192,384))'",
)
"""Attention on tiles, whose limits many designs have together."""


@pytest.mark.parametrize("words", [("npu_serving",), ("mesh_llm",), ATTENTION, ("deepseek_wafer",)], ids=lambda words: words[0])
def test_limits_of_several_designs_are_those_of_each(words: tuple[str, ...]) -> None:
    study = find_study(*words)
    question, space = study.question, study.question.space
    draws = RandomSampler(space, 3)
    several = [draws.ask(number, None).values for number in range(48)]
    soon = not is_simulated(space.base, question.workload, study.fidelity)
    limit_of = (
        (lambda design: worst(early_limits(design, question.workload)))
        if soon
        else (lambda design: find_worst_violation(design, question.workload))
    )
    alone = [limit_of(space.design_at(values)) for values in several]
    together = make_early_limits(space, question.workload, study.fidelity)
    assert together is not None
    assert together.find_possible(several) == [worst_limit is None for worst_limit in alone]
    assert 0 < sum(worst_limit is None for worst_limit in alone) < len(alone)
    for values, worst_limit in zip(several, alone, strict=True):
        result = together.ruled_out("key", values)
        if result is None:
            assert worst_limit is None
        else:
            assert (result.key, result.limit, result.values) == ("key", worst_limit.limit, values)
            assert (result.need, result.have) == pytest.approx((worst_limit.need, worst_limit.have), rel=1e-12)


def worst(limits: list[Limit]) -> Infeasibility | None:
    """What is exceeded most, of one design."""
    found_limits = [
        Infeasibility(limit.address, float(np.max(limit.need)), float(np.max(limit.have)), limit.unit) for limit in limits
    ]
    return max(
        (infeasibility for infeasibility in found_limits if infeasibility.excess > 0),
        key=lambda limit: limit.excess,
        default=None,
    )


@pytest.mark.sampled
@pytest.mark.parametrize("name", ["random", "qmc", "nsga2", "nsga3", "tpe", "local"])
def test_nine_of_ten_designs_that_a_sampler_asks_are_possible(name: str, known: tuple[Study, EarlyLimits]) -> None:
    study, limits = known
    source = make_sampler(name, study.question.space, study.directions, seed=1, population=10, possible=limits.find_possible)
    possible = 0
    for number in range(40):
        ask = source.ask(number, None)
        (can,) = limits.find_possible([ask.values])
        possible += can
        source.tell(
            ask, Feedback((float(number % 7), float(number % 5)), {"limit": 0.0}) if can else Feedback(None, {"limit": 1.0})
        )
    assert possible >= 36


def test_few_designs_of_this_space_are_possible(known: tuple[Study, EarlyLimits]) -> None:
    study, limits = known
    source = make_sampler("random", study.question.space, study.directions, seed=1, population=10, possible=allow_all)
    assert sum(limits.find_possible([source.ask(number, None).values for number in range(40)])) < 10


def at(study: Study, folder: Path, sampler: str) -> Study:
    """The same study in another place, by another sampler."""
    folder.mkdir(exist_ok=True)
    search = replace(study.search, sampler=sampler, window=4, population=6)
    return replace(study, run_dir=folder, store=str(folder / "results.sqlite"), search=search)


@pytest.mark.sampled
@pytest.mark.parametrize("name", ["random", "nsga2", "local"])
def test_what_a_limit_rules_out_goes_to_no_worker_and_is_not_of_the_budget(
    name: str, tmp_path: Path, known: tuple[Study, EarlyLimits]
) -> None:
    study, limits = at(known[0], tmp_path, name), known[1]
    workers = Seen()
    asks = searched(study, budget=12, workers=workers, ruled_out=limits.ruled_out)  # a sampler that knows nothing of limits
    assert len(set(workers.keys)) == 12
    assert len({key for _, _, key, _ in asks}) > 12
    with closing(Store(study.store)) as store:
        results = store.results(study.context)
    assert all(limits.find_possible([results[key].values for key in workers.keys]))
    assert sum(is_ruled_out(result) for result in results.values()) == len(results) - 12


@pytest.mark.sampled
@pytest.mark.parametrize("seen", [True, False])
@pytest.mark.parametrize("name", ["random", "qmc", "nsga2", "local"])
def test_a_resumed_search_asks_what_a_whole_one_does(
    name: str, seen: bool, tmp_path: Path, known: tuple[Study, EarlyLimits]
) -> None:
    """Whether the sampler passes over what is impossible, or is told."""
    possible = known[1].find_possible if seen else allow_all

    def run(folder: str, budget: int) -> tuple[Any, ...]:
        study = at(known[0], tmp_path / folder, name)
        source = make_sampler(name, study.question.space, study.directions, seed=0, population=6, possible=possible)
        return searched(study, budget=budget, workers=SerialWorkers(fake), source=source, ruled_out=known[1].ruled_out)

    run("parts", 7)
    assert run("parts", 14) == run("whole", 14)


def test_a_search_of_nothing_possible_ends(tmp_path: Path, known: tuple[Study, EarlyLimits]) -> None:
    workers = Seen()
    study = at(known[0], tmp_path, "random")
    searched(
        study,
        budget=5,
        workers=workers,
        ruled_out=lambda key, values: DesignResult(key, values, {}, "chip.tile.sram", 2.0, 1.0),
    )
    assert not workers.keys


def test_the_closed_form_of_batches_is_not_looked_at_twice(tmp_path: Path) -> None:
    study = toy(tmp_path)
    assert make_early_limits(study.question.space, study.question.workload, "analytical") is None


def test_auto_chooses_by_the_designs_that_there_is_time_for(tmp_path: Path) -> None:
    study = divided(tmp_path, "search=auto", "search.budget=100000", "search.stop.time='5 min'", "workers.kind=serial")
    with closing(Store(study.store)) as store:
        results = [DesignResult(f"{number:032x}", {}, {"tpot": 1.0}, seconds=20.0) for number in range(3)]
        store.append(study.name, study.context, base_design_key(study), [], results)
        designs, why = affordable_designs(study, store, allow_all)
    assert designs == 15
    assert "300 s at 20 s a design are some 15 designs" in why
    assert choose_sampler(study, None, None, lambda: (designs, why))[0] == "local"
    assert choose_sampler(study, None, None, lambda: (study.search.budget, ""))[0] == "exhaustive"


def test_auto_times_a_few_designs_where_none_is_stored_and_keeps_their_results(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from dse.execution import time_budget as afford

    monkeypatch.setattr(afford, "make_evaluator", lambda workload, fidelity: fake)
    study = divided(tmp_path, "search=auto", "search.budget=100000", "search.stop.time='1 s'", "workers.kind=serial")
    with closing(Store(study.store)) as store:
        designs, _ = affordable_designs(study, store, allow_all)
        assert designs == 100
        assert len(store.results(study.context)) == afford.TIMED_DESIGNS


def test_a_search_that_was_begun_keeps_its_sampler_whatever_a_design_costs_now(tmp_path: Path) -> None:
    study = divided(tmp_path, "search=auto", "search.stop.time='5 min'")

    def never() -> tuple[int, str]:
        raise AssertionError

    assert choose_sampler(study, None, {"sampler": "qmc"}, never)[0] == "qmc"


def test_a_trace_with_rows_that_are_too_long_names_file_and_row(tmp_path: Path) -> None:
    path = tmp_path / "trace.csv"
    path.write_text("arrival,prompt,output\n0,5,5\n\n1,5,1000000000\n2,50000,3\n")
    with pytest.raises(DesignError, match=r"trace\.csv, row 4: 5 prompt and 1,000,000,000 output tokens, and 1 more rows"):
        divided(tmp_path, f"workload.trace={path}", "workload.arrivals=trace")
    assert divided(tmp_path, f"workload.trace={path}", "workload.arrivals=trace", "workload.max_length=40960")
