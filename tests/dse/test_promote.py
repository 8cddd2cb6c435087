"""Search by two fidelities: what is asked, what is stored of whom, and that it goes on as it was."""

from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest

from dse.commands.notebook_api import find_study
from dse.commands.run_study import run_study
from dse.execution.study import Study
from dse.search.acquisition import (
    HypervolumeAcquisition,
    KnownResults,
    LowFidelityPredictions,
    LowFidelityResults,
    _volume_corners,
)
from dse.search.design_encoding import DesignEncoder
from dse.search.multi_fidelity import MultiFidelitySearch
from dse.search.pareto import convert_to_minimisation, front_mask, hypervolume, select_hypervolume_subset
from dse.search.samplers import Feedback, Values
from dse.space.errors import DesignError
from dse.space.knobs import ChoiceKnob, IntervalKnob, Space
from dse.store.store import Store
from tests.marks import slow_if
from tests.samples import asked

PRODUCT = (
    "fidelity=events",
    "workload.shapes=[64x96x64]",
    "space.mapping.rows='range(4,17,4)'",
    "+space.mapping.cols='range(4,17,4)'",
    "+space.chip.core.sram='tag(KiB, choice(8,16,32))'",
    "+objectives.die_mm2=min",
    "search=auto",
    "search.promote=analytical",
    "search.window=4",
    "verify=none",
    "workers=serial",
)


def product(folder: Path, *overrides: str) -> Study:
    """Products on small meshes by events, promoted from the closed form."""
    return find_study("waferllm_gemm", *PRODUCT, f"run_dir={folder}", *overrides)


def asks(study: Study) -> list[dict[str, object]]:
    """What a study asked at its fidelity, in order."""
    with closing(Store(study.store)) as store:
        name = store.search(study.name, study.identity())
        return [ask.values for ask, _ in store.asks(name, study.context.physics)]


@slow_if(lambda screened: screened == "screen.run=true")
@pytest.mark.parametrize("screened", ["screen.run=true", "screen.run=false"])
def test_a_search_that_goes_on_promotes_what_it_would_have_at_once(tmp_path: Path, screened: str) -> None:
    whole, parts = (product(tmp_path / name, screened, "search.budget=24") for name in ("whole", "parts"))
    run_study(whole)
    for budget in (7, 15):
        run_study(product(tmp_path / "parts", screened, f"search.budget={budget}"))
    run_study(parts)
    assert asks(parts) == asks(whole)
    assert len(asks(whole)) == 24


def test_every_row_says_at_which_fidelity_it_was_evaluated(tmp_path: Path) -> None:
    study = product(tmp_path, "screen.run=false", "search.budget=10")
    run_study(study)
    with closing(Store(study.store)) as store:
        dear, cheap = store.results(study.context), store.results(study.context_at("analytical"))
    assert len(dear) == 10
    assert dear.keys() < cheap.keys()  # the lower fidelity prices designs before they are promoted
    assert all("latency" in result.metrics for result in dear.values())


def test_the_first_to_be_promoted_are_of_the_lower_fidelitys_front(tmp_path: Path) -> None:
    study = product(tmp_path, "search.budget=4")
    run_study(study)
    closed = find_study("waferllm_gemm", *PRODUCT[1:6], "verify=none", f"run_dir={tmp_path / 'analytical'}")
    run_study(closed)
    from dse.execution.screen import run_screen

    front = run_screen(closed, lambda done, total, size: None).front
    names = [knob.address for knob in closed.question.space.knobs]
    members = {tuple(row[name] for name in names) for row in front.to_dict("records")}
    assert {tuple(values[name] for name in names) for values in asks(study)} <= members


def test_the_first_holds_more_of_the_lower_fidelitys_volume_than_any_other() -> None:
    rng = np.random.default_rng(0)
    values = rng.random((300, 3)) ** 2
    held = convert_to_minimisation(values[front_mask(values, ["min"] * 3)], ["min"] * 3)
    low, high = held.min(axis=0), held.max(axis=0)
    reach = high + 0.1 * (high - low)

    def volume(rows: list[int]) -> float:
        return hypervolume(held[rows], ["min"] * 3, low, reach)

    plainly: list[int] = []
    for _ in range(12):
        plainly.append(max((row for row in range(len(held)) if row not in plainly), key=lambda row: volume([*plainly, row])))
    assert select_hypervolume_subset(held, 12).tolist() == plainly


def test_more_are_asked_at_once_than_the_lower_fidelity_puts_first(tmp_path: Path) -> None:
    study = product(tmp_path, "search.window=40", "search.budget=42")
    run_study(study)
    assert len(asks(study)) == 42


def test_few_promoted_designs_hold_most_of_a_front_that_the_lower_fidelity_misjudges() -> None:
    """The dear fidelity is up to 1.6 times the lower one, by two knobs."""
    base = asked("chip=npu_dse").base
    knobs = tuple(ChoiceKnob(name, tuple(range(1, 13))) for name in ("chip.cores", "chip.l2.size", "chip.hbm.bandwidth"))
    space = Space(base, knobs)
    rows = np.stack(np.meshgrid(*[np.arange(12.0)] * 3, indexing="ij"), axis=-1).reshape(-1, 3)
    x = rows / 11
    low = np.stack([np.exp(4 * x[:, 0] ** 2) * (1 + x[:, 2] ** 2), np.exp(4 * (1 - x[:, 0]) ** 2) * (1 + x[:, 1] ** 2)], axis=1)
    high = low * (1 + 0.5 * np.stack([np.sin(3 * x[:, 0]), 1 - x[:, 0]], axis=1))
    places = DesignEncoder(space)
    where = {row.tobytes(): at for at, row in enumerate(rows)}

    class Lookup:
        fidelity, all = "analytical", True
        pool = [(places.decode_row(row), Feedback(tuple(values.tolist()), {})) for row, values in zip(rows, low, strict=True)]

        def feedback_on(self, designs: Sequence[Values]) -> list[Feedback]:
            return [self.pool[where[places.encode_design(values).tobytes()]][1] for values in designs]

    exact = high[front_mask(high, ["min", "min"])]
    best, worst = exact.min(axis=0), exact.max(axis=0)
    reach = worst + 0.1 * (worst - best)

    def share(values: np.ndarray) -> float:
        both = (hypervolume(objectives, ["min", "min"], best, reach) for objectives in (values, exact))
        return next(both) / next(both)

    fewest = next(many for many in range(1, 13) if share(exact[select_hypervolume_subset(exact, many)]) >= 0.97)
    counts = []
    for seed in range(5):
        source = MultiFidelitySearch(space, ["min", "min"], seed, 8, Lookup())
        promoted: list[int] = []
        while share(high[promoted]) < 0.97:
            ask = source.ask(len(promoted), None)
            promoted.append(where[places.encode_design(ask.values).tobytes()])
            source.tell(ask, Feedback(tuple(high[promoted[-1]].tolist()), {}))
        counts.append(len(promoted))
    assert max(counts) <= 1 + fewest


def test_an_end_of_the_expected_front_counts_though_it_lies_beyond_the_worst_of_few_results() -> None:
    """A design that is the best of all in one objective, and in the other worse than all that are known."""
    objectives = np.array([[2.0, 2.0], [3.0, 1.5]])
    known = KnownResults(np.array([[0.1, 0.2], [0.4, 0.3]]), objectives, np.zeros(2), [0, 1])
    low, reach = _volume_corners(known, np.array([[1.0, 9.0], [5.0, 5.0]]), 0.1)
    assert low.tolist() == [1.0, 1.5]
    assert np.allclose(reach, [3.0 + 0.1 * 2.0, 9.0 + 0.1 * 7.5])  # a tenth beyond; what others beat does not count


def test_a_discrepancy_that_is_known_leaves_nothing_to_doubt() -> None:
    """The dear fidelity takes 1.3 times the lower one's square root: a model of both learns it from few."""
    base = asked("chip=npu_dse").base
    space = Space(base, (IntervalKnob("chip.l2.size", 1.0, 2.0), IntervalKnob("chip.hbm.bandwidth", 1.0, 2.0)))
    rng = np.random.default_rng(0)

    def low(rows: np.ndarray) -> np.ndarray:
        return np.stack([np.exp(np.sin(9 * rows[:, 0]) + np.cos(7 * rows[:, 1])), 2 + rows[:, 1]], axis=1)

    def high(rows: np.ndarray) -> np.ndarray:
        return np.asarray(1.3 * np.sqrt(low(rows)))

    rows, others, none = rng.random((14, 2)), rng.random((200, 2)), np.zeros((0, 2))
    known = KnownResults(rows, high(rows), np.zeros(14), [0, 1], none, np.zeros(0))
    below = LowFidelityPredictions(LowFidelityResults(low(rows), np.zeros(14)), LowFidelityResults(low(others), np.zeros(200)))
    errors = []
    for predictions in (None, below):
        means, _ = HypervolumeAcquisition(DesignEncoder(space))._predict_targets(known, others, predictions)
        errors.append(float(np.abs(means - np.log(high(others))).mean()))
    assert errors[1] < errors[0] / 3


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (("search.promote=events",), "search.promote: no option 'events'; valid: analytical, steady_state; or set null"),
        (
            ("fidelity=analytical",),
            "search.promote: analytical is not below fidelity=analytical of this chip for this workload",
        ),
        (
            ("search.promote=steady_state",),
            "search.promote: steady_state is not below fidelity=events of this chip for this workload; set analytical",
        ),
        (("search=nsga2",), "search.promote: search.sampler=nsga2 uses one fidelity; set auto or local"),
    ],
)
def test_what_nobody_can_promote_is_refused(tmp_path: Path, overrides: tuple[str, ...], message: str) -> None:
    words = [word for word in PRODUCT if word.partition("=")[0] not in {override.partition("=")[0] for override in overrides}]
    with pytest.raises(DesignError) as refused:
        find_study("waferllm_gemm", *words, f"run_dir={tmp_path}", *overrides)
    assert str(refused.value).startswith(message)
