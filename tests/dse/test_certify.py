"""Certified fronts: no design of a box beats its bound, and no design of a space beats its front by more than the gap."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import dse
from dse.config.metric_expressions import evaluate_with_derived
from dse.evaluators import evaluate
from dse.evaluators.accounting import tensor_parallel
from dse.evaluators.accounting.leaf_effects import EFFECTS, PROVED, SAMPLED
from dse.execution import certify
from dse.execution.certify import (
    BoxEvaluator,
    Certificate,
    Certifier,
    describe_certificate,
    find_box,
    format_share,
    make_box_space,
    read_certificate,
    single_space,
)
from dse.execution.study import Study
from dse.search.boxes import BoxSpace
from dse.search.branch_and_bound import ROUNDING, BoxSearch, IncumbentFront
from dse.search.pareto import front_mask
from dse.space.array_math import Array
from dse.space.design import stack_designs
from dse.space.errors import DesignError
from tests.dse.toy import toy
from tests.marks import slow_if

CERTIFY = ("search=certify", "model=llama3_70b")
GRID = (
    "space.chip.l2.size='tag(MB, range(8, 257, 24))'",
    "space.chip.network.bandwidth='tag(GB/s, choice(10, 25, 50, 100, 200))'",
    "space.chip.cores=range(100, 601, 50)",
)
ONLY = ("~objectives.tpot", "~objectives.throughput_per_system_mm2")
NUMBERS = (
    "+space.chip.core.matrix='tag(Top/s, interval(0.2, 2))'",
    "+space.chip.core.vector='tag(Top/s, log, interval(0.2, 2))'",
    "+space.chip.l2.bandwidth='tag(TB/s, choice(3, 6, 12))'",
    "+space.chip.network.latency='tag(us, interval(1, 30))'",
    "+space.chip.hbm.capacity='tag(GB, choice(16, 32, 64, 128))'",
)

QUESTIONS = {
    "quickstart": (),
    "energy": (
        *ONLY, "+objectives.energy_per_token=min", "+objectives.latency=min", "+objectives.electricity_per_mtoken=min",
        "+objectives.decode_throughput=max",
    ),
    "price": (
        *ONLY, "chip.die.dies=1", "+objectives.price_per_mtoken=min", "+objectives.throughput=max", "+objectives.die_mm2=min",
        "+objectives.system_price=min",
    ),
    "every number": (*NUMBERS, "model=mixtral_8x7b", "+objectives.prefill_throughput=max"),
    "latent attention": ("model=deepseek_v2_lite", "workload.batch=[4,64]", "workload.over_cases=worst"),
    "recurrent layers": ("model=qwen3_next_80b_a3b", "+mapping.prefill.pp=2", "+space.mapping.both.pp=choice(1,2)"),
    "paper's areas": (
        "+areas@chip.areas=preserve_table2", "chip.hbm.strided_overfetch=0.5", "chip.hbm.strided_row_overhead='2 ns'",
        "+objectives.die_mm2=min",
    ),
    "limits of silicon": ("chip.die.dies=1", "chip.die.reticle='400 mm2'", "chip.die.max_power_density='0.45 W/mm2'"),
    "pipelines of cores": (
        "space=npu_prefetch", "chip=npu64", "model=qwen3_8b", "mapping=npu_prefetch", "workload.batch=[16]",
        "+space.chip.tile.sram='tag(MB, log, interval(8,128))'",
        "+space.chip.tile.vector.lanes='tag(op/cycle, log, interval(512,8192))'",
        "+space.chip.hbm.channel_bandwidth='tag(GB/s, log, interval(30,480))'", "+objectives.energy_per_token=min",
    ),
    "regions of a wafer": (
        "space=wafer_autotune", "chip=wse2", "model=llama3_8b", "workload.batch=[1]",
        "+space.chip.core.sram='tag(KiB, log, interval(24, 1024))'", "+space.chip.core.mac='tag(cycle, log, interval(0.1, 2))'",
        "+space.chip.core.vector_operation='tag(cycle, log, interval(0.1, 2))'", "+objectives.energy_per_token=min",
        "+space.chip.core.launch='tag(cycle, interval(1, 200))'", "+space.chip.noc.word_bytes='tag(B, choice(2, 4, 8, 16))'",
    ),
}  # fmt: skip


def study_of(folder: Path, *words: str) -> Study:
    return toy(folder, *CERTIFY, *words)


def random_boxes(study: Study, count: int, seed: int) -> tuple[BoxSpace, BoxEvaluator, Any]:
    """Boxes with random options and ranges, of any size."""
    space, _ = make_box_space(study)
    rng, (low, _) = np.random.default_rng(seed), space.ends
    option = rng.integers(0, len(space.active), count).astype(np.int32)
    size = rng.choice([0.03, 0.3, 1.0], (count, 1))
    first = rng.random((count, space.numbers))
    second = np.clip(first + size * (rng.random(first.shape) - 0.5), 0.0, 1.0)
    places = [_places(space, unit) for unit in (np.minimum(first, second), np.maximum(first, second))]
    active = space.active[option]
    lows, highs = (np.where(active, side, low) for side in places)
    return space, BoxEvaluator(study, space), space.make(option, lows, np.maximum(lows, highs), np.full(lows.shape, np.nan))


def _places(space: BoxSpace, unit: Array) -> Array:
    low, high = space.ends
    places = np.empty_like(unit)
    for number, values in enumerate(space.values):
        if values is None:
            places[:, number] = np.clip(
                low[number] * (high[number] / low[number]) ** unit[:, number], low[number], high[number]
            )
        else:
            places[:, number] = np.minimum(np.floor(unit[:, number] * len(values)), len(values) - 1)
    return places


def count_violations(
    study: Study, count: int, seed: int, draws: int = 4, *, feasible_alone: bool = False
) -> tuple[int, int, float]:
    """Designs that beat the bound of their box, feasible ones in dropped boxes, and the median lead of bounds."""
    space, evaluator, boxes = random_boxes(study, count, seed)
    bound, dropped = evaluator.bound_boxes(boxes)
    rng, better, lost, lead = np.random.default_rng(seed + 1), 0, 0, np.full(count, np.inf)
    for _ in range(draws):
        unit = rng.random(boxes.low.shape)
        unit = np.where(rng.random(unit.shape) < 0.4, np.round(unit), unit)  # ends of ranges often
        places = boxes.low + (boxes.high - boxes.low) * unit
        for number, values in enumerate(space.values):
            if values is not None:
                places[:, number] = np.round(places[:, number])
        values, feasible = evaluator.evaluate_designs(boxes.option, np.clip(places, boxes.low, boxes.high))
        counted = feasible if feasible_alone else np.ones(count, bool)
        better += int(((values < bound).any(axis=1) & counted).sum())
        lost += int((feasible & (dropped > 0)).sum())
        known = np.isfinite(values).all(axis=1) & np.isfinite(bound).all(axis=1)
        lead[known] = np.minimum(lead[known], (values[known] - bound[known]).max(axis=1))
    return better, lost, float(np.median(lead))


@slow_if(lambda count: count == 10_000)
@pytest.mark.parametrize("question", QUESTIONS)
@pytest.mark.parametrize("count", [400, 10_000])
def test_no_design_of_a_random_box_beats_its_bound(question: str, count: int, tmp_path: Path) -> None:
    study = study_of(tmp_path, *QUESTIONS[question])
    better, lost, lead = count_violations(study, count, seed=count)
    assert (better, lost) == (0, 0)
    assert 0 < lead < 0.5


def test_a_bound_that_is_too_tight_by_one_percent_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    usual = BoxEvaluator.bound_boxes

    def too_tight(self: BoxEvaluator, boxes: Any) -> Any:
        bound, dropped = usual(self, boxes)
        return bound + 0.01, dropped

    monkeypatch.setattr(BoxEvaluator, "bound_boxes", too_tight)
    assert count_violations(study_of(tmp_path), 400, seed=1)[0] > 0


def test_a_corner_with_one_prefetch_budget_is_no_bound(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """More cache can make calls wait longer for what is prefetched."""
    monkeypatch.setattr(tensor_parallel, "with_cache_range", lambda chip, smallest: chip)
    better, _, _ = count_violations(study_of(tmp_path, "space.mapping.both.prefetch=choice(partial)"), 4000, seed=1)
    assert better > 0


def test_the_bound_of_one_design_is_its_own_value(tmp_path: Path) -> None:
    study = study_of(tmp_path)
    _, evaluator, boxes = random_boxes(study, 300, 5)
    boxes.high = boxes.low
    bound, dropped = evaluator.bound_boxes(boxes)
    values, feasible = evaluator.evaluate_designs(boxes.option, boxes.low)
    np.testing.assert_allclose(bound[dropped == 0], values[dropped == 0], rtol=0, atol=3e-9)
    np.testing.assert_array_equal(dropped == 0, feasible)  # nothing but monotone limits binds here


@pytest.mark.parametrize("words", [(), ("+objectives.ttft=min", "space.chip.cores=range(100, 601, 100)")])
@pytest.mark.parametrize("gap", ["0", "1%"])
def test_a_certified_front_is_that_of_the_whole_grid(gap: str, words: tuple[str, ...], tmp_path: Path) -> None:
    study = study_of(tmp_path, *GRID, *words, f"search.gap={gap}")
    certificate = _certify(study)
    assert certificate.is_reached
    columns = study.question.space.grid(0, study.question.space.combinations)
    outcomes = evaluate_with_derived(study.question.space.stack(columns), study.question.workload, {})
    feasible = outcomes.limit < 0
    for bound in study.bounds:
        feasible &= bound.excess(outcomes.columns[bound.metric]) <= 0
    values = np.column_stack([outcomes.columns[name] for name in study.objectives])[feasible]
    exact = values[front_mask(values, study.directions)]
    members = np.array([[row["metrics"][name] for name in study.objectives] for row in certificate.record["front"]])
    if gap == "0":
        np.testing.assert_allclose(members[np.lexsort(members.T)], exact[np.lexsort(exact.T)], rtol=1e-12)
        assert describe_certificate(certificate.record)[0].endswith("beats this front, which is exact")
    signs = np.array([-1.0 if way == "max" else 1.0 for way in study.directions])
    front = np.log(members) * signs
    worst = max(float((front - design).max(axis=1).min()) for design in np.log(exact) * signs)
    assert worst <= np.log1p(study.search.gap) + ROUNDING
    assert certificate.record["boxes"] < len(columns["chip.cores"])
    assert certificate.record["designs"] == len(columns["chip.cores"])


def _certify(study: Study) -> Certificate:
    return Certifier(study).run(lambda gap, boxes, open_boxes: None)


def test_intervals_are_certified_although_times_jump(tmp_path: Path) -> None:
    """Boxes are split where an operand begins to fit: no box over a jump would close."""
    study = study_of(
        tmp_path, "space.mapping.both.prefetch=choice(whole)", "space.mapping.both.tp=choice(4,8)", "search.gap=2%"
    )
    certificate = _certify(study)
    assert certificate.is_reached
    assert certificate.record["intervals"] == ["chip.l2.size", "chip.network.bandwidth"]
    space, _ = make_box_space(study)
    evaluator = BoxEvaluator(study, space)
    place = [knob.address for knob in space.ranged].index("chip.l2.size")
    _, high = space.ends
    jumped = 0
    for option in range(len(space.active)):
        jumps = space.thresholds[option][place]
        jumps = jumps[(jumps > space.ends[0][place]) & (jumps <= high[place])]
        assert len(jumps) > 5
        places = np.tile(high, (len(jumps), 1))
        places[:, place] = jumps
        options = np.full(len(jumps), option, np.int32)
        after, _ = evaluator.evaluate_designs(options, places)
        places[:, place] = np.nextafter(jumps, 0.0)
        before, _ = evaluator.evaluate_designs(options, places)
        jumped += int((abs(after - before).max(axis=1) > 1e-6).sum())
    assert jumped > 5


def test_a_certificate_goes_on_from_stored_boxes(tmp_path: Path) -> None:
    study = study_of(tmp_path, *GRID, "search.gap=5%", "search.boxes=300")
    first = _certify(study)
    assert first.left == "boxes"
    assert first.record["gap"] > 0.05
    assert "not proved yet" in describe_certificate(first.record)[0]
    resumed = Certifier(replace(study, search=replace(study.search, boxes=10**6)))
    assert resumed.resumed_boxes == first.record["boxes"]
    last = resumed.run(lambda gap, boxes, open_boxes: None)
    assert last.is_reached
    finer = Certifier(replace(study, search=replace(study.search, boxes=10**6, gap=0.01)))  # closed boxes are open again
    assert len(finer.search.open)
    assert finer.run(lambda gap, boxes, open_boxes: None).record["gap"] == pytest.approx(0.01)
    assert read_certificate(study) is not None
    assert read_certificate(study_of(tmp_path, *GRID, "+constraints.tpot='<= 5 ms'")) is None


@pytest.mark.filterwarnings("error")
def test_a_box_of_one_design_is_not_split_when_a_search_goes_on(tmp_path: Path) -> None:
    exact = Certifier(study_of(tmp_path, *GRID, "search.gap=0"))
    exact.run(lambda gap, boxes, open_boxes: None)
    boxes, evaluator, front = exact.boxes, exact.evaluator, exact.search.front
    empty = IncumbentFront(0.0, front.values[:0], front.option[:0], front.places[:0])
    resumed = BoxSearch(boxes, evaluator.bound_boxes, evaluator.evaluate_designs, empty, 0.0)
    resumed.resume(exact.search.leaves)
    assert resumed.run(lambda: None) == ""
    assert (resumed.leaves.low <= resumed.leaves.high).all()
    np.testing.assert_allclose(np.unique(resumed.front.values, axis=0), np.unique(front.values, axis=0), rtol=1e-12)


def test_what_is_proved_is_stored_when_a_run_is_stopped(tmp_path: Path) -> None:
    study = study_of(tmp_path, *GRID, "search.gap=0")
    certifier = Certifier(study)
    usual, calls = certifier.search.step, []

    def step() -> None:
        calls.append(1)
        if len(calls) == 3:
            raise KeyboardInterrupt
        usual()

    certifier.search.step = step  # type: ignore[method-assign]
    with pytest.raises(KeyboardInterrupt):
        certifier.run(lambda gap, boxes, open_boxes: None)
    record = read_certificate(study)
    assert record is not None
    assert record["ended_by"] == "interrupted"
    assert not record["reached"]
    assert Certifier(study).resumed_boxes == record["boxes"]


def test_boxes_cover_the_space_and_say_of_each_design_what_is_proved(tmp_path: Path) -> None:
    study = study_of(tmp_path, *GRID, "search.gap=3%")
    _certify(study)
    space, columns = study.question.space, study.question.space.grid(0, study.question.space.combinations)
    rng, reasons = np.random.default_rng(0), set()
    for row in rng.choice(len(columns["chip.cores"]), 40, replace=False):
        values = space.row(columns, int(row))
        verdict = find_box(study, values)
        assert verdict is not None
        outcome = evaluate(stack_designs([space.design_at(values)]), study.question.workload).row_outcome(0)
        metrics = outcome if isinstance(outcome, dict) else {}
        reasons.add(verdict.reason)
        if verdict.reason:
            assert not metrics or metrics["ttft"] > 4
            assert verdict.reason in verdict.describe("A")
            continue
        assert verdict.lead <= 0.03 + ROUNDING
        assert metrics["tpot"] >= verdict.bound["tpot"] * (1 - 1e-8)
        assert metrics["tpot"] >= verdict.metrics["tpot"] / (1 + verdict.lead + 1e-8) or verdict.lead < 0
        for address, (low, high) in verdict.ranges.items():
            assert low <= values[address] <= high
    assert len(reasons) > 1
    assert find_box(study, {**values, "chip.cores": 123}) is None


def test_a_study_runs_to_its_certificate_and_whynot_reads_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, typed: Any
) -> None:
    monkeypatch.chdir(tmp_path)
    words = ["study=quickstart", "name=proof", "screen.run=false", "workers=serial", "space.mapping.both.tp=choice(4,8)", *GRID]
    code, _, progress = typed("run", *words, "search=certify", "search.gap=5%", "search.window=64")
    assert code == 0
    assert "beats this front by more than 5 %" in progress
    assert "rests on proved directions of chip.cores" in progress
    record = json.loads(Path("runs/proof/certificate.json").read_text())
    front = dse.load("proof").front()
    assert len(front) == len(record["front"])
    assert "Certificate: " in Path("runs/proof/report.html").read_text()
    code, shown, _ = typed("show", "--full", "proof")
    assert "certificate  no design among" in shown
    code, shown, _ = typed("whynot", "--json", "proof", "chip.cores=300", "mapping.both.tp=4", "chip.l2.size='80 MB'")
    document = json.loads(shown)["certified"]
    assert document["lead"] <= 0.05 + ROUNDING
    assert document["front_design"] in set(front["design"])


REFUSED = {
    "objectives.peak_power: has no lower bound over boxes; metrics that have one: ttft, tpot": ("+objectives.peak_power=min",),
    "objectives.die_mm2: has no bound where the number of dies is chosen": ("+objectives.die_mm2=min",),
    "objectives.die_mm2: has no bound where the number of dies is chosen (chip.die.dies=0)": (
        "chip.die.dies=1",
        "+objectives.die_mm2=min",
        "+space.chip.die.dies=choice(1,0)",
    ),
    "certify bounds the space of one chip, got npu_dse, ascend910b": ("chips=[npu_dse,ascend910b]",),
    "certify: contents move between memory tiers as sizes change": ("+part@chip.tiers=tier_lpddr5x",),
    "certify: no bounds over boxes are known of a model on many dies of tiles": ("chip=wafer64", "space=empty"),
    "space.mapping.both.prefetch_share: no bounds over an interval of it": (
        "+space.mapping.both.prefetch_share=interval(0.1, 1)",
    ),
    "certify: library kernels of mapping.stack": ("stack=trtllm_h100", "chip=h100", "space=l2_prefetch"),
    "one chip alone, so that area is not monotone; set chip.published=null": ("stack=ideal", "chip=h100", "space=l2_prefetch"),
    "search.gap: 0 needs a space without intervals; write a share above 0": ("search.gap='0'",),
    "search.gap: '30 s'": ("search.gap='30 s'",),
    "search.gap: 1%, but search.sampler=random proves nothing": ("search=random", "search.gap=1%"),
    "search.boxes: 0 is below the minimum, 1": ("search.boxes=0",),
}


@pytest.mark.parametrize("message", REFUSED)
def test_what_has_no_bounds_is_refused_in_one_line(message: str, tmp_path: Path) -> None:
    with pytest.raises(DesignError, match=r"\w") as caught:
        make_box_space(study_of(tmp_path, *REFUSED[message]))
    assert message.replace("'", "") in str(caught.value).replace("'", "")
    assert "\n" not in str(caught.value)


def test_cores_are_options_where_an_option_has_spare_ones(tmp_path: Path) -> None:
    words = ("space.chip.cores=range(100,601,100)", "+space.chip.die.built_cores=choice(0,700)")
    assert "chip.cores" in make_box_space(study_of(tmp_path, words[0]))[1]
    assert "chip.cores" not in make_box_space(study_of(tmp_path, *words))[1]


def test_a_cache_that_is_slower_than_memory_has_no_range(tmp_path: Path) -> None:
    """With it more cache may cost time, so that each size is an option."""
    study = study_of(tmp_path, *GRID, "chip.l2.bandwidth='1 TB/s'")
    space, effects = make_box_space(study)
    assert "chip.l2.size" not in effects
    assert "chip.l2.size" in space.options


def test_every_effect_has_a_basis_and_a_proof() -> None:
    for effects in EFFECTS.values():
        for effect in effects.values():
            assert effect.basis in (PROVED, SAMPLED)
            assert len(effect.proof.split()) > 8
            assert effect.time in (-1, 0, 1)
            assert effect.silicon in (-1, 0, 1)


def test_boxes_at_limits_of_silicon_close(tmp_path: Path) -> None:
    """Halves that a limit drops count as progress: else a number is never split that matters for a limit alone."""
    certificate = _certify(study_of(tmp_path, *QUESTIONS["limits of silicon"], "search.gap=5%", "search.boxes=40000"))
    assert certificate.is_reached
    assert certificate.record["dropped"][certify.LIMIT] > 10


def test_a_front_without_a_feasible_design_is_proved(tmp_path: Path) -> None:
    study = study_of(tmp_path, "+constraints.tpot='<= 1 us'")
    certificate = _certify(study)
    assert certificate.is_reached
    assert describe_certificate(certificate.record)[0].endswith("is feasible")
    assert certificate.record["dropped"]["tpot <= 1 us"] > 0


@pytest.mark.parametrize("objectives", [1, 2, 3])
def test_gaps_are_those_of_their_definition(objectives: int) -> None:
    rng = np.random.default_rng(objectives)
    front = IncumbentFront(0.0, np.zeros((0, objectives)), np.zeros(0, np.int32), np.zeros((0, 1)))
    values = rng.normal(size=(300, objectives))
    front.add(values, np.arange(300, dtype=np.int32), np.zeros((300, 1)))
    assert {tuple(row) for row in front.values} == {tuple(row) for row in values[front_mask(values, ["min"] * objectives)]}
    bounds = rng.normal(size=(200, objectives))
    plain = [min(max(member - bound) for member in front.values) for bound in bounds]
    np.testing.assert_allclose(front.gaps(bounds), plain)
    assert [float((front.values[front.nearest(bound)] - bound).max()) for bound in bounds] == pytest.approx(plain)


def test_a_cell_has_one_member_that_is_near_the_others() -> None:
    rng = np.random.default_rng(3)
    front = IncumbentFront(0.1, np.zeros((0, 2)), np.zeros(0, np.int32), np.zeros((0, 1)))
    every = []
    for _ in range(20):
        values = rng.normal(size=(100, 2))
        values = values / np.linalg.norm(values, axis=1)[:, None]
        every.append(values)
        front.add(values, np.zeros(100, np.int32), np.zeros((100, 1)))
    assert front.gaps(np.concatenate(every)).max() <= 0.1
    assert len(front.values) < 60


@pytest.mark.parametrize(("lead", "text"), [(0.01231, "1.3 %"), (-0.0129, "1.2 %"), (0.5, "50 %"), (0.0, "0 %")])
def test_shares_are_rounded_to_what_they_prove(lead: float, text: str) -> None:
    assert format_share(lead) == text


def test_the_study_is_refused_before_it_is_screened(tmp_path: Path) -> None:
    with pytest.raises(DesignError, match="certify bounds static batches by the analytical model"):
        single_space(replace(study_of(tmp_path), fidelity="events"))
    assert certify.STATE_FILE not in {path.name for path in tmp_path.iterdir()}
