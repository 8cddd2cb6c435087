"""Searches that model parts of evaluations: objectives follow from them, and a search goes on where there are none."""

from collections.abc import Mapping, Sequence
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest
import sqlalchemy as sql
from hypothesis import given
from hypothesis import strategies as st

from dse.commands.notebook_api import find_study
from dse.commands.run_study import run_study
from dse.execution import ask_tell, objective_structure
from dse.execution.study import Study
from dse.search import local_search
from dse.search.composed_objectives import PartResults, choose_parts, make_targets
from dse.search.design_encoding import DesignEncoder
from dse.search.gaussian_process import fit_scales, predict
from dse.search.local_search import LocalSearch
from dse.search.samplers import Ask, Feedback, Values
from dse.space.array_math import Array
from dse.space.knobs import ChoiceKnob, IntervalKnob, Space
from dse.space.metric_composition import MetricComposition
from dse.store.store import Store
from tests.samples import asked, base

SEEDS = st.integers(0, 2**32 - 1)
GRID = Space(
    base(),
    (
        ChoiceKnob("chip.cores", tuple(range(10, 50, 2))),
        ChoiceKnob("chip.l2.size", tuple(2.0**k for k in range(20, 32))),
        ChoiceKnob("chip.hbm.bandwidth", tuple(2.0**k for k in range(36, 44))),
    ),
)


class Toy:
    """Times that add up, over bandwidth and cores, and an area that is known."""

    compositions = (MetricComposition(("t: ",), -1, (("die_mm2", -1),)), MetricComposition(("t: ",)))

    def free_metrics(self, designs: Sequence[Values]) -> Mapping[str, Array]:
        """Area of designs."""
        return {"die_mm2": np.array([values["chip.cores"] + values["chip.l2.size"] / 2**26 for values in designs])}

    def feedback_on(self, ask: Ask, parts: Mapping[str, float] | None = None) -> Feedback:
        """A result; with other parts, where they are given."""
        values = ask.values
        spent = {"t: hbm": 1e13 / values["chip.hbm.bandwidth"], "t: matrix": 3e2 / values["chip.cores"], "t: l2": 0.0}
        area = float(self.free_metrics([values])["die_mm2"][0])
        total = sum(spent.values())
        return Feedback((1 / total / area, total), {"limit": area / 60 - 1}, spent if parts is None else parts)


@given(SEEDS)
def test_objectives_of_known_results_follow_from_their_own_parts(seed: int) -> None:
    """One part is 0 in places, one below 0, and some are small; one objective is a ratio that is to be large."""
    rng = np.random.default_rng(seed)
    parts = {f"a: {k}": 10 ** rng.uniform(-4 * (k > 1), 2, 30) for k in range(5)}
    parts["a: 0"] = parts["a: 0"] * (rng.random(30) < 0.5)
    parts["a: overlap"] = -0.3 * parts["a: 1"]
    total, area = sum(parts.values()), rng.uniform(10, 20, 30)
    y = np.column_stack([-7 / total / area, total, area])
    compositions = (
        MetricComposition(("a: ",), -1, (("area", -1),)),
        MetricComposition(("a: ",)),
        MetricComposition(factors=(("area", 1),)),
    )
    known = PartResults(compositions, parts, {"area": area}, {"area": area})
    shaped = [-np.log(-y[:, 0]), np.log(y[:, 1]), np.log(y[:, 2])]
    targets = make_targets(shaped, y, known, choose_parts(known))
    assert not any("overlap" in name or "objective" in name for name in targets.names)
    values = np.column_stack(targets.columns)
    means, spreads = targets.compose(values, np.zeros_like(values))
    np.testing.assert_allclose(means, np.column_stack(shaped), rtol=1e-12, atol=1e-12)
    assert not spreads.any()
    assert np.ptp(values[:, targets.names.index("rest 2")]) < 1e-12  # an area leaves nothing to learn


def test_the_spread_of_a_sum_is_that_of_draws_of_its_parts() -> None:
    rng = np.random.default_rng(0)
    parts = {f"a: {k}": 10 ** rng.uniform(-1, 1, 5) for k in range(3)}
    y = sum(parts.values())[:, None]
    known = PartResults((MetricComposition(("a: ",)),), parts, {}, {})
    targets = make_targets([np.log(y[:, 0])], y, known, choose_parts(known))
    means = np.column_stack(targets.columns)
    spreads = rng.uniform(0, 0.1, means.shape)
    drawn = (means + spreads * rng.normal(size=(4_000, *means.shape))).reshape(-1, means.shape[1])
    sums = targets.compose(drawn, np.zeros_like(drawn))[0].reshape(4_000, -1)
    np.testing.assert_allclose(targets.compose(means, spreads)[1][:, 0], sums.std(axis=0), rtol=0.1)


def test_a_power_law_is_known_after_few_results_and_far_away() -> None:
    rng = np.random.default_rng(0)
    x, far = rng.random((8, 3)) * 0.5, rng.random((40, 3))
    y = 2 * x[:, 0] - x[:, 1]
    centre, width = y.mean(), y.std()
    scales = fit_scales(x, np.arange(3), (y - centre) / width, np.ones(3, dtype=bool))
    mean, _ = predict(scales, x, np.arange(3), (y - centre) / width, far, np.ones(3, dtype=bool))
    plain = fit_scales(x, np.arange(3), (y - centre) / width)
    plain_mean, _ = predict(plain, x, np.arange(3), (y - centre) / width, far)
    missed, plainly = (np.abs(found * width + centre - 2 * far[:, 0] + far[:, 1]).max() for found in (mean, plain_mean))
    assert missed < 0.02
    assert missed < plainly / 4


def test_an_inactive_knob_has_no_effect_and_is_not_in_the_middle() -> None:
    knobs = (
        ChoiceKnob("mapping.both.prefetch", ("none", "partial")),
        IntervalKnob("chip.l2.size", 0.0, 1.0, when=(("mapping.both.prefetch", ("partial",)),)),
    )
    places = DesignEncoder(Space(asked("chip=npu_dse").base, knobs))
    rows = places.clear_inactive(np.array([[0, 0.1], [0, 0.9], [1, 0.5], [1, 0.9]]))
    x = places.compute_features(rows)
    assert (x[0] == x[1]).all()
    size = x[:, places.groups == 1]
    gaps = ((size[:, None] - size) ** 2).sum(axis=2)
    assert gaps[0, 2] > gaps[2, 3]  # inactive and in the middle are farther apart than the middle and an end
    assert gaps[0, 2] == pytest.approx(0.5)
    assert places.numbers.sum() == 1


def searched(
    structure: Toy | None, results: int, *, restart: int = 0, parts: Mapping[str, float] | None = None
) -> list[Values]:
    """Values that a search with three asks under way proposes; from a number of asks on restored at every ask."""
    toy, asks = structure or Toy(), list[Ask]()
    source = LocalSearch(GRID, ["max", "min"], 5, 8, structure=structure)
    for number in range(results):
        if restart and number >= restart:
            source = LocalSearch(GRID, ["max", "min"], 5, 8, structure=structure)
            for ask in asks:
                source.restore(ask, toy.feedback_on(ask, parts) if ask.number <= number - 3 else None)
        asks.append(source.ask(number, None))
        if number >= 2 and not (restart and number + 1 >= restart):
            source.tell(asks[number - 2], toy.feedback_on(asks[number - 2], parts))
    return [ask.values for ask in asks]


def test_a_search_by_parts_that_is_restored_asks_what_it_would_have_asked() -> None:
    assert searched(Toy(), 40, restart=26) == searched(Toy(), 40)


def test_parts_change_what_is_asked() -> None:
    assert searched(Toy(), 40) != searched(None, 40)


@pytest.mark.parametrize("parts", [{"t: hbm": np.nan, "t: matrix": 1.0}, {}], ids=["no number", "none"])
def test_without_parts_the_objective_itself_is_modelled(parts: dict[str, float]) -> None:
    class AreaOnly(Toy):
        compositions = tuple(MetricComposition(factors=made.factors) if made.factors else None for made in Toy.compositions)

    assert searched(Toy(), 30, parts=parts) == searched(AreaOnly(), 30)


def test_a_search_goes_on_with_a_constant_objective_and_without_feasible_designs() -> None:
    for objectives, constraints in (((1.0, 2.0), {}), (None, {"limit": 0.3}), ((1.0, 2.0), {"limit": 0.3})):
        source, seen = LocalSearch(GRID, ["max", "min"], 5, 8, structure=Toy()), set()
        for number in range(30):
            ask = source.ask(number, None)
            seen.add(tuple(ask.values.items()))
            source.tell(ask, Feedback(objectives, constraints, {"t: hbm": 0.0}))
        assert len(seen) == 30


STUDY = (
    "search=local",
    "screen.run=false",
    "search.window=2",
    "verify=none",
    "workers=serial",
    "model=llama3_8b",
    "workload.batch=[4]",
    "workload.sequence=[512]",
)


def batches(folder: Path, budget: int) -> Study:
    """A study of batches whose objectives have compositions."""
    return find_study("preserve_l2", *STUDY, f"search.budget={budget}", f"run_dir={folder}")


def asks_of(study: Study) -> list[Values]:
    """What a study asked, in order."""
    with closing(Store(study.store)) as store:
        name = store.search(study.name, study.identity())
        return [ask.values for ask, _ in store.asks(name, study.context.physics)]


def test_a_study_goes_on_by_the_parts_that_its_store_has_or_lacks(tmp_path: Path) -> None:
    whole = batches(tmp_path / "whole", 24)
    run_study(whole)
    run_study(batches(tmp_path / "parts", 17))
    rest = batches(tmp_path / "parts", 24)
    with closing(Store(rest.store)) as store:
        keys = list(store.results(rest.context))
        held = store.find_explanations(rest.context, objective_structure.PARTS, keys)
    assert len(held) == len(keys)
    assert all(any(name.startswith("decode: ") for name in parts) for parts in held.values())
    engine = sql.create_engine(f"sqlite:///{rest.store}")
    with engine.begin() as connection:
        connection.execute(sql.text("DROP TABLE explanations"))
    engine.dispose()
    run_study(rest)
    assert asks_of(rest) == asks_of(whole)


def test_only_first_asks_have_parts_and_a_search_goes_on_beyond_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Breakdowns of all designs of a long search would take longer than their evaluations."""
    by_parts = batches(tmp_path / "parts", 24)
    run_study(by_parts)
    for module in (ask_tell, local_search):
        monkeypatch.setattr(module, "PART_ASKS", 12)
    whole = batches(tmp_path / "whole", 24)
    run_study(whole)
    run_study(batches(tmp_path / "again", 17))
    rest = batches(tmp_path / "again", 24)
    run_study(rest)
    assert asks_of(rest) == asks_of(whole)
    assert asks_of(whole)[:13] == asks_of(by_parts)[:13]
    with closing(Store(whole.store)) as store:
        held = store.find_explanations(whole.context, objective_structure.PARTS, list(store.results(whole.context)))
    assert 0 < len(held) <= 12


def test_a_part_that_is_no_number_is_said_once(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(objective_structure, "evaluation_parts", lambda *_: {"decode: hbm": float("nan")})
    run_study(batches(tmp_path, 16))
    said = capsys.readouterr().err
    assert said.count("the part 'decode: hbm' of an evaluation is no number; objectives are modelled as they are") == 1
