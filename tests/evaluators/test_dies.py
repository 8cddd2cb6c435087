"""Models on many dies: what one die alone does, parts that add up, and what is refused."""

from typing import Any

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given, settings

from dse.evaluators import evaluate, explain
from dse.evaluators.accounting import multi_die_limits as dies_limits
from dse.evaluators.accounting.layout import layout_of
from dse.evaluators.evaluation import explain_infeasibility
from dse.evaluators.layouts.legal_splits import split_advice_text, split_bounds
from dse.evaluators.layouts.multi_die import largest_replica_share
from dse.evaluators.layouts.stage_balance import cut_stages
from dse.space.design import Design, stack_designs
from dse.space.fields import replace_leaves
from tests.samples import asked

SMALL = ("chip=wafer64", "chip.dies.rows=2", "chip.dies.cols=4", "chip.mesh.rows=8", "chip.mesh.cols=8", "chip.hbm.channels=8")
MOE = ("model=deepseek_v2_lite", "workload.batch=[64]", "workload.prompt=128", "workload.output=8")
DENSE = ("model=qwen3_1b7", "workload.batch=[64]", "workload.prompt=128", "workload.output=8")


def metrics(*words: str, fidelity: str = "analytical") -> dict[str, float]:
    question = asked(*words)
    evaluation = evaluate(stack_designs([question.base]), question.workload, fidelity=fidelity)
    return {name: float(column[0]) for name, column in evaluation.columns.items()}


def split(tp: int = 1, pp: int = 1, ep: int = 1) -> tuple[str, ...]:
    return (f"mapping.both.tp={tp}", f"mapping.both.pp={pp}", f"mapping.both.ep={ep}")


@pytest.mark.parametrize("model", [MOE, DENSE])
def test_one_die_is_a_chip_by_itself(model: tuple[str, ...]) -> None:
    """One stage, one rank and one micro-batch: the same seconds; links that nobody uses take area and power all the same."""
    single_die = ("chip.dies.rows=1", "chip.dies.cols=1", "mapping.prefill.microbatches=1")
    dies = metrics(*SMALL, *model, *split(), *single_die)
    bytes_ = [f"mapping.precision.{name}=fp8" for name in ("weights", "activations", "kv")]
    bytes_ += [f"+mapping.precision.{name}=as_weights" for name in ("embedding", "head")]
    alone = ("chip=tile_gh200", "chip.clock=1.9 GHz", "chip.die.max_power_density=1.5 W/mm2", *SMALL[3:])
    chip = metrics(*alone, *model, *bytes_)
    for name in ("ttft", "tpot", "throughput", "hbm_bytes", "sram_used", "mfu"):
        assert dies[name] == pytest.approx(chip[name], rel=1e-12), name
    assert dies["energy"] > chip["energy"]
    assert dies["system_mm2"] > chip["system_mm2"]


@pytest.mark.sampled
@pytest.mark.parametrize("fidelity", ["analytical", "events"])
@pytest.mark.parametrize(
    ("model", "split_words"),
    [
        (MOE, (*split(pp=2, ep=4), "mapping.both.overlap=two_batch")),
        (MOE, split(pp=2, ep=4)),
        (MOE, split(tp=2, ep=8)),
        (DENSE, split(tp=2, pp=4)),
        (MOE, split(pp=8)),
        (DENSE, split()),
    ],
)
def test_operators_and_waits_add_up_to_the_time(model: tuple[str, ...], split_words: tuple[str, ...], fidelity: str) -> None:
    question = asked(*SMALL, *model, *split_words)
    explanation = explain(question.base, question.workload.cases[0], fidelity=fidelity)
    each = metrics(*SMALL, *model, *split_words, fidelity=fidelity)
    assert sum(row.seconds for row in explanation.rows) == pytest.approx(each["latency"], rel=1e-9)
    assert explanation.seconds == pytest.approx(each["latency"], rel=1e-9)
    assert all(sum(row.parts.values()) == pytest.approx(row.seconds) for row in explanation.rows)
    waits = sum(row.seconds for row in explanation.rows if row.operator == "waits for the slowest stage")
    assert 0 <= waits < 0.6 * each["latency"]
    if "mapping.both.pp=1" in split_words:
        assert waits == 0


@pytest.mark.sampled
@settings(max_examples=12, deadline=None)
@given(st.data())
def test_designs_of_many_dies_in_batches_are_those_one_by_one(data: st.DataObject) -> None:
    def pick(name: str, *values: Any) -> str:
        return f"{name}={data.draw(st.sampled_from(values))}"

    words = []
    for _ in range(4):
        words.append(
            (
                *split(
                    *data.draw(st.sampled_from([(1, 2, 4), (1, 1, 8), (2, 1, 4), (1, 8, 1), (2, 2, 1), (4, 1, 64), (1, 64, 1)]))
                ),
                pick("chip.d2d.bandwidth", "100 GB/s", "1 TB/s"),
                pick("chip.d2d.latency", "10 ns", "1 us"),
                pick("chip.d2d.topology", "mesh", "torus", "ring", "full", "switch"),
                pick("mapping.both.placement", "linear", "snake", "blocks", "interleave"),
                pick("chip.tile.sram", "256 KiB", "384 KiB"),
                pick("chip.hbm.channel_bandwidth", "30 GB/s", "62.5 GB/s"),
                pick("mapping.both.experts.redundant", 0, 8),
            )
        )
    questions = [asked(*SMALL, *MOE, *word) for word in words]
    together = evaluate(stack_designs([question.base for question in questions]), questions[0].workload)
    for row, question in enumerate(questions):
        alone = evaluate(stack_designs([question.base]), question.workload)
        assert together.feasible[row] == alone.feasible[0]
        for name, column in together.columns.items():
            np.testing.assert_allclose(column[row], alone.columns[name][0], rtol=1e-12, err_msg=name)


@pytest.mark.sampled
@settings(max_examples=8, deadline=None)
@given(st.sampled_from([(1, 2, 4), (1, 1, 8), (2, 1, 8), (2, 4, 1)]), st.sampled_from(["mesh", "torus", "ring", "full"]))
def test_faster_or_shorter_links_never_take_longer(split_sizes: tuple[int, int, int], topology: str) -> None:
    words = (*SMALL, *MOE, *split(*split_sizes), f"chip.d2d.topology={topology}")
    usual = metrics(*words)
    for better in ("chip.d2d.bandwidth=2 TB/s", "chip.d2d.latency=100 ns"):
        assert metrics(*words, better)["latency"] <= usual["latency"]


def test_all_links_as_fast_as_can_be_leave_what_dies_do() -> None:
    """Without exchanges, dp copies take as long as one copy alone with its share of requests."""
    apart = metrics(*SMALL, *DENSE, *split())
    single_metrics = metrics(*SMALL, "chip.dies.rows=1", "chip.dies.cols=1", *DENSE, "workload.batch=[8]", *split())
    assert apart["latency"] == pytest.approx(single_metrics["latency"], rel=1e-12)
    assert apart["throughput"] == pytest.approx(8 * single_metrics["throughput"], rel=1e-12)


def test_experts_on_several_dies_take_two_barriers_a_layer_more_where_links_cost_nothing() -> None:
    """With one request a die, and experts that all have as many rows, every die has as much to do however many share them."""
    free = ("chip.d2d.bandwidth=1e9 GB/s", "chip.d2d.latency=0 s", "chip.d2d.barrier=5 us", "workload.expert_load=even")
    taken = {ep: metrics(*SMALL, *MOE, "workload.batch=[8]", *split(ep=ep), *free)["tpot"] for ep in (1, 2, 4, 8)}
    layers = 26
    assert [taken[ep] - taken[1] for ep in (2, 4, 8)] == pytest.approx([2 * layers * 5e-6] * 3, rel=1e-6)


def test_halves_take_as_long_as_what_they_compute_or_exchange_whichever_is_more() -> None:
    """One layer kind after the other: twice the larger of the two; with links as fast as can be, two halves by themselves."""
    words = (*SMALL, *MOE, *split(ep=8), "mapping.both.placement=linear")
    free = ("chip.d2d.bandwidth=1e9 TB/s", "chip.d2d.latency=0 s")
    half = metrics(*words, *free, "workload.batch=[32]")
    both = metrics(*words, *free, "mapping.both.overlap=two_batch")
    barriers = 26 * 2 * 2e-6  # of dispatch and combine of its layers, which are hidden too
    assert both["tpot"] == pytest.approx(2 * (half["tpot"] - barriers), rel=1e-9)
    slow = metrics(*words, "chip.d2d.bandwidth=10 MB/s")
    hidden = metrics(*words, "chip.d2d.bandwidth=10 MB/s", "mapping.both.overlap=two_batch")
    assert hidden["tpot"] < slow["tpot"]
    assert hidden["throughput"] > slow["throughput"]


def test_stages_are_cut_so_that_the_slowest_takes_least() -> None:
    rng = np.random.default_rng(1)
    counts, stages = [1, 2, 5, 1], 3
    seconds = [rng.random(6) for _ in counts]
    found_stages = cut_stages(seconds, counts, stages)
    assert (found_stages.sum(axis=0) == np.array(counts)[:, None]).all()
    slowest = (found_stages * np.stack(seconds)).sum(axis=1).max(axis=0)
    kinds, units = np.repeat(np.arange(4), counts), sum(counts)
    for design in range(6):
        each = np.stack(seconds)[kinds, design]
        ways = [max(each[:a].sum(), each[a:b].sum(), each[b:].sum()) for a in range(units) for b in range(a, units)]
        assert slowest[design] == pytest.approx(min(ways))


@settings(deadline=None)
@given(st.lists(st.tuples(st.integers(1, 9), st.integers(1, 99), st.integers(1, 9)), min_size=1, max_size=4), st.integers(1, 9))
def test_the_fullest_slot_has_the_longest_requests_and_its_share(requests: list[tuple[int, int, int]], slots: int) -> None:
    from dse.space.workload import BatchCase

    case = BatchCase("", asked(*DENSE).workload.cases[0].model, tuple(requests))
    mine = largest_replica_share(case, slots)
    assert mine.batch == -(-case.batch // slots)
    assert mine.longest == case.longest


@pytest.mark.sampled
@pytest.mark.parametrize(
    ("words", "message"),
    [
        (split(ep=5), "mapping.both.ep=4 or 8"),
        (split(pp=16), "16 stages of 1 die: mapping.both.pp=8"),
        (split(pp=2, ep=64), "2 stages of 64 dies: mapping.both.ep=4"),
        (split(tp=3, ep=4), "in groups of whole attention replicas on 3 dies: mapping.both.tp=2 or 4, or ep=1"),
        (split(tp=5), "fits: mapping.both.tp=4 or 6, or mapping.both.placement=linear"),
        (split(pp=40), "mapping.both.pp=8"),
        ((*split(pp=4), "workload.batch=[65]"), "64 or 72 requests"),
        (("chip.d2d.topology=full", *split()), "takes 7 links a die"),
        (("model=qwen3_1b7", *split(ep=8)), "no experts"),
        ((*split(tp=32), "chip.dies.rows=8"), "16 heads"),
    ],
)
def test_what_cannot_be_laid_out_says_what_would_do(words: tuple[str, ...], message: str) -> None:
    question = asked(*SMALL, *MOE, *words)
    verdict = explain_infeasibility(question.base, question.workload)
    assert verdict is not None
    assert message in str(verdict)


def test_splits_that_a_refusal_names_can_be_laid_out() -> None:
    question, rng, named = asked(*SMALL, *MOE), np.random.default_rng(1), 0
    (job,) = layout_of(question.base).batch_arrays(question.workload)

    def design_of(**values: int) -> Design:
        leaves = {f"mapping.{phase}.{name}": value for name, value in values.items() for phase in ("prefill", "decode")}
        return replace_leaves(question.base, leaves)

    for _ in range(60):
        integers = {name: int(rng.integers(1, 12)) for name in ("tp", "pp", "ep")} | {"dp": int(rng.choice([0, 0, 3]))}
        design = design_of(**integers)
        if not dies_limits.layout_limits(design, job):
            continue
        plan, dies = design.mapping.decode, design.chip.dies
        text = split_advice_text(
            dies_limits.phase_split(design, job.cases[0], "decode"), integers["dp"], split_bounds(plan, dies, job.cases[0])
        )
        for changes in text.removeprefix("mapping.both.").split(", or "):
            first = dict(pair.split("=") for pair in changes.split(" and "))
            for value in next(iter(first.values())).split(" or "):
                assert not dies_limits.layout_limits(
                    design_of(**integers | {n: int(v) for n, v in (first | {next(iter(first)): value}).items()}), job
                )
                named += 1
    assert named > 60


def test_experts_send_back_values_of_the_format_that_is_said() -> None:
    """Beside where exchanges start, combine takes time by its bytes, and dispatch none by those of combine."""

    def sent(*words: str) -> tuple[float, float]:
        question = asked(*SMALL, *MOE, *split(tp=2, ep=4), *words)
        rows = explain(question.base, question.workload.cases[0]).rows
        sent_seconds, back = (sum(row.seconds for row in rows if row.operator == name) for name in ("dispatch", "combine"))
        return sent_seconds, back

    usual, two, four = sent(), sent("+mapping.precision.combine=bf16"), sent("+mapping.precision.combine=fp32")
    assert usual[0] == two[0] == four[0]
    assert usual[1] < two[1]
    assert four[1] - usual[1] == pytest.approx(3 * (two[1] - usual[1]), rel=1e-9)


def test_guesses_have_rows_of_their_own_and_yield_more_tokens() -> None:
    """A module that predicts a token costs a layer and a head more, and twice the rows of queries; steps yield 1.7 tokens."""
    words = ("chip=wafer64", "model=deepseek_v3", "workload.prompt=4096", "workload.output=2", "workload.batch=[1024]")
    plain, guessed = metrics(*words, "workload.speculation=none"), metrics(*words)
    surely = metrics(*words, "workload.speculation={tokens: 1, acceptance: 1.0}")
    assert surely["tpot"] * 2 == pytest.approx(guessed["tpot"] * 1.7, rel=1e-12)
    assert plain["tpot"] < guessed["tpot"] * 1.7 < 2 * plain["tpot"]
    assert plain["hbm_used"] < guessed["hbm_used"]


def test_the_first_row_of_table_two_comes_out() -> None:
    """[zhang2026] table II: 6,940 tokens/s a die, 35.8 ms a token."""
    words = ("chip=wafer64", "model=deepseek_v3", "workload.prompt=4096", "workload.output=2", "workload.batch=[16384]")
    found_metrics = metrics(*words, "workload.expert_load=even")
    assert found_metrics["decode_throughput"] / 64 == pytest.approx(6940, rel=0.06)
    assert found_metrics["tpot"] == pytest.approx(35.8e-3, rel=0.06)
