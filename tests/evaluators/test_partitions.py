"""Partitions that operators of pipelines choose by themselves: no worse than one for all, and what enumeration finds."""

from collections.abc import Iterator
from dataclasses import replace
from itertools import product
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dse.config.question import Question
from dse.evaluators import METRICS, evaluate, explain
from dse.evaluators.accounting import pipelines
from dse.evaluators.accounting.decode_segments import arrays_by_model
from dse.evaluators.accounting.partition_search import (
    PartitionedPhase,
    TriedPlan,
    _choice_cost,
    _copied_weights,
    _entry_blocks,
    _fastest_words,
    _gather_seconds,
    _least_seconds,
    _operator_seconds,
    _product_weights,
    _ration_copies,
    _try_plans,
    counting_plans,
)
from dse.evaluators.accounting.pipelines import _lay_phases, _left_open, _pass_phase
from dse.evaluators.accounting.settled_partitions import forget_settled_partitions
from dse.evaluators.accounting.weight_copies import COPIED
from dse.evaluators.cost_models import READERS
from dse.evaluators.evaluation import explain_infeasibility, limits, limits_by_design, settle_open_choices
from dse.evaluators.layouts.operator_partitions import (
    ACCEPTED_LAYOUTS,
    DATA_LAYOUTS,
    PRODUCTS,
    RESIDUAL_LAYOUTS,
    SLICE_LAYOUTS,
    PartitionChoice,
    cut_index,
    gather_exchange,
    offered_partitions,
    partitioned_blocks,
    uniform_partition,
)
from dse.evaluators.tuning.variable_elimination import CostFactor, minimise_factors
from dse.space.design import Design, stack_designs
from dse.space.fields import replace_leaves
from dse.space.mapping import AUTO, DIVISIONS, PLACEMENTS
from tests.samples import asked

MODELS = ("qwen3_1b7", "mixtral_8x7b", "deepseek_v2_lite", "gemma3_12b", "qwen3_next_80b_a3b")
MAPPINGS = ("npu", "npu", "npu_prefetch", "npu_ktree")
FEW = settings(max_examples=6, deadline=None)


def both(**settings: Any) -> dict[str, Any]:
    return {
        f"mapping.{phase}.{name.replace('__', '.')}": value
        for phase in ("prefill", "decode")
        for name, value in settings.items()
    }


def questions(seed: int) -> tuple[Question, Design]:
    """A model on pipelines of random sides, with memories and links of any size."""
    rng = np.random.default_rng(seed)
    words = (
        "chip=npu64", f"mapping={rng.choice(MAPPINGS)}", f"model={rng.choice(MODELS)}", "workload.output=12",
        f"workload.batch=[{rng.choice([1, 8])},24]", f"workload.prompt={rng.choice([30, 400])}",
    )  # fmt: skip
    question = asked(*words)
    return question, shaken(question.base, rng)


def shaken(base: Design, rng: np.random.Generator) -> Design:
    sides = {"tp": int(rng.choice([1, 2, 4, 8])), "pp": int(rng.choice([1, 4, 8])), "placement": str(rng.choice(PLACEMENTS))}
    chip = {
        "tile.sram": base.chip.tile.sram,
        "hbm.capacity": base.chip.hbm.capacity,
        "noc.word_bytes": base.chip.noc.word_bytes,
    }
    sizes = {f"chip.{name}": float(value) * float(rng.choice([0.25, 1.0, 4.0])) for name, value in chip.items()}
    return replace_leaves(base, both(**sides) | sizes)


def with_word(design: Design, word: str) -> Design:
    return replace_leaves(design, both(partition=word))


@pytest.mark.sampled
@given(st.integers(0, 9999))
@FEW
def test_no_partition_for_all_is_quicker_and_what_one_has_room_for_has_room(seed: int) -> None:
    question, design = questions(seed)
    for case in question.workload.cases:
        asked_ = replace(question.workload, cases=(case,))
        latencies = {}
        for word in (*offered_partitions(design.mapping.prefill), AUTO):
            if word in ("k", AUTO) or design.mapping.decode.allreduce is None:  # no other has sums of its own
                single_word = with_word(design, word)
                latencies[word] = (
                    explain_infeasibility(single_word, asked_) is None,
                    float(evaluate(stack_designs([single_word]), asked_).columns["latency"][0]),
                )
        able = [latency for word, (fits, latency) in latencies.items() if fits and word != AUTO]
        assert latencies[AUTO][0] == bool(able) or design.mapping.decode.allreduce is not None
        assert not able or latencies[AUTO][1] <= min(able) * (1 + 1e-12)


def same_as_singles(designs: list[Design], question: Question, fidelity: str) -> None:
    many = evaluate(stack_designs(designs), question.workload, fidelity=fidelity)
    for row, design in enumerate(designs):
        forget_settled_partitions()
        evaluation = evaluate(stack_designs([design]), question.workload, fidelity=fidelity)
        assert many.limit[row] == evaluation.limit[0]
        for name in METRICS:
            assert many.columns[name][row] == pytest.approx(evaluation.columns[name][0], rel=1e-12, nan_ok=True), name


@pytest.mark.sampled
@given(st.integers(0, 9999))
@settings(max_examples=4, deadline=None)
def test_a_batch_that_chooses_is_its_singles(seed: int) -> None:
    question, _ = questions(seed)
    rng = np.random.default_rng(seed)
    same_as_singles(
        [with_word(replace_leaves(shaken(question.base, rng), both(placement="mesh")), AUTO) for _ in range(2)],
        question,
        "analytical",
    )


def test_a_batch_whose_choices_are_played_is_its_singles() -> None:
    question = asked("chip=npu64", "model=qwen3_1b7", "workload.batch=[6]", "workload.prompt=40", "workload.output=4")
    designs = [with_word(replace_leaves(question.base, both(tp=tp, pp=4, placement="mesh")), AUTO) for tp in (2, 4, 8)]
    same_as_singles(designs, question, "events")


def phase_of(design: Design, question: Question, name: str) -> PartitionedPhase:
    return _left_open(design, arrays_by_model(question.workload)[0], name)


def drawn_phase(seed: int, *, free: bool, name: str) -> PartitionedPhase:
    """A phase of a small dense model, all of whose weights come from memory, on a group whose messages may take no time."""
    rng = np.random.default_rng(seed)
    question = asked(
        "chip=npu64", "model=qwen3_1b7", f"workload.batch=[{rng.choice([1, 4, 40])}]",
        f"workload.prompt={rng.choice([20, 300])}", "workload.output=8",
    )  # fmt: skip
    design = shaken(question.base, rng)
    noc = {"chip.noc.hop_cycles": 0.0, "chip.noc.ramp_cycles": 0.0, "chip.noc.word_cycles": 0.0} if free else {}
    sizes = {"chip.tile.sram": 4e6, "mapping.sram_kv_share": 0.0} | both(tp=int(rng.choice([2, 4, 8])))
    design = with_word(replace_leaves(design, noc | sizes), AUTO)
    return phase_of(design, question, name)


@pytest.mark.parametrize("name", ["prefill", "decode"])
@given(st.integers(0, 9999))
@settings(max_examples=3, deadline=None)
def test_where_layouts_are_free_each_operator_has_its_own_quickest(name: str, seed: int) -> None:
    """A sum of the least of each, with attention of heads or of rows."""
    phase = drawn_phase(seed, free=True, name=name)
    for frame in counting_plans(tuple(phase.by_word))[:2]:
        seconds = _operator_seconds(phase, phase.held(frame.counted, 0.0), tuple(phase.by_word))
        cost = cost_of(phase, _fastest_words(phase, frame, seconds, _gather_seconds(phase)), frame.counted)
        attention = DIVISIONS.index("k" if frame.heads else "mn")
        each = [
            by[attention]
            if where == ("attention", "attention")
            else min(float(by[DIVISIONS.index(word)]) for word in frame.words)
            for where, by in seconds.items()
        ]
        assert cost == pytest.approx(float(np.sum(each)), rel=1e-9)


def cost_of(phase: PartitionedPhase, choice: PartitionChoice, counted: str) -> float:
    blocks = partitioned_blocks(phase.parts, phase.by_word, choice, phase.plan, 2.0)
    staged, _ = phase.passed(blocks, phase.held(counted, 0.0))
    return float(sum(np.sum(timed_block.seconds * timed_block.block.times * phase.runs) for timed_block in staged.timed))


@pytest.mark.parametrize("name", ["prefill", "decode"])
@given(st.integers(0, 9999))
@settings(max_examples=3, deadline=None)
def test_words_with_their_layouts_are_what_enumeration_finds(name: str, seed: int) -> None:
    """Every word of every product of an FFN and every layout of the stream, by rules that are written down here."""
    phase = drawn_phase(seed, free=False, name=name)
    words = tuple(phase.by_word)
    frame = counting_plans(words)[int(np.random.default_rng(seed).integers(2))]
    chosen = _fastest_words(
        phase, frame, _operator_seconds(phase, phase.held(frame.counted, 0.0), words), _gather_seconds(phase)
    )
    found_cost = cost_of(phase, chosen, frame.counted)
    (ffn,) = (part for part in phase.parts if part.name == "ffn")
    operators = {operator.name: operator for operator in ffn.operators}
    attention = next(part for part in phase.parts if part.name == "attention")

    seconds, best = _operator_seconds(phase, phase.held(frame.counted, 0.0), words), np.inf
    enter, leave = entering(phase, chosen, "ffn", attention), entering(phase, chosen, "attention", ffn)
    both_ways = {
        (operator, which): ffn.times
        * float(
            np.sum(
                READERS["analytical"].exchange(gather_exchange(ffn, operators[operator], phase.plan, 2.0, which), phase.machine)
                * phase.runs
            )
        )
        for operator in operators
        for which in range(len(SLICE_LAYOUTS))
    }
    rest = found_cost - sum(
        float(seconds["ffn", operator][int(chosen.words["ffn", operator])])
        + bool(chosen.gathered["ffn", operator]) * both_ways[operator, int(chosen.cuts["ffn", operator])]
        for operator in operators
    )
    for gate, up, down in product(frame.words, repeat=3):
        for norm, activation in product([state for state in DATA_LAYOUTS if state != "dealt"], repeat=2):
            if enter not in ACCEPTED_LAYOUTS[norm]:
                continue
            leaves = {product_name: PRODUCTS[word][1] for product_name, word in (("gate", gate), ("up", up), ("down", down))}
            leaves |= {"ffn_norm": norm, "activation": activation}
            wanted = {
                "ffn_norm": [PRODUCTS[gate][0], PRODUCTS[up][0]], "gate": [activation], "up": [activation],
                "activation": [PRODUCTS[down][0]], "down": [leave],
            }  # fmt: skip
            words_of_part = {"gate": gate, "up": up, "down": down, "ffn_norm": "mn", "activation": "mn"}
            cost = sum(
                float(seconds["ffn", product_name][DIVISIONS.index(word)]) for product_name, word in words_of_part.items()
            )
            for tensor, needs in wanted.items():
                if not all(leaves[tensor] in ACCEPTED_LAYOUTS[need] for need in needs):
                    cost += both_ways[tensor, cut_index(leaves[tensor])]
            best = min(best, cost)
    assert found_cost == pytest.approx(rest + best, rel=1e-9)


def entering(phase: PartitionedPhase, choice: PartitionChoice, kind: str, before: Any) -> str:
    """The layout of the stream that a part of a layer is given: the least that what stands before it leaves."""
    last = before.operators[-1].name
    if bool(np.any(choice.gathered[before.name, last])):
        return "all"
    return PRODUCTS[DIVISIONS[int(choice.words[before.name, last])]][1]


def tight(seed: int) -> tuple[Question, list[Design]]:
    """A model of random shape on pipelines of random sides, with room for no copies to room for all."""
    rng = np.random.default_rng(seed)
    question = asked(
        "chip=npu64", "model=qwen3_1b7", f"workload.batch=[{rng.choice([1, 16, 40])}]", "workload.output=4",
        f"workload.prompt={rng.choice([200, 900])}", f"model.qwen3_1b7.hidden={rng.choice([1024, 2048, 2560])}",
        f"model.qwen3_1b7.ffn_intermediate={rng.choice([2048, 6144, 9728])}",
    )  # fmt: skip
    sides = {
        "tp": int(rng.choice([4, 8, 16])),
        "pp": int(rng.choice([1, 2, 4])),
        "placement": str(rng.choice(["ring", "mesh"])),
    }
    base = with_word(replace_leaves(question.base, both(**sides)), AUTO)
    held = phase_of(base, question, "prefill").held
    bare, every = (float(np.squeeze(held(word, 0.0).hbm)) for word in ("mn", "input_only"))
    rooms = np.sort(bare + rng.random(4) * (every - bare))
    return question, [replace_leaves(base, {"chip.hbm.capacity": float(room)}) for room in rooms]


@given(st.integers(0, 9999))
@settings(max_examples=5, deadline=None)
def test_copies_that_have_room_are_those_of_enumeration(seed: int) -> None:
    """Every set of products that may be copied, each with words of least time: of those that have room, the least."""
    question, designs = tight(seed)
    phase = phase_of(designs[2], question, ("prefill", "decode")[seed % 2])
    frame = counting_plans(tuple(phase.by_word))[2 + seed % 3]
    seconds, weights, gather = (
        _operator_seconds(phase, phase.held(frame.counted, 0.0), frame.words),
        _product_weights(phase),
        _gather_seconds(phase),
    )
    sets = np.array(list(product((False, True), repeat=len(weights))))
    among = {name: dict(by) for name, by in seconds.items()}
    for name, copied_sets in zip(weights, sets.T, strict=True):
        among[name][COPIED] = np.where(copied_sets[:, None, None], seconds[name][COPIED], np.inf)
    words = _fastest_words(phase, frame, among, gather)
    room = phase.fits(frame.counted, phase.held(frame.counted, _copied_weights(weights, words)))
    least_of = np.where(room, _choice_cost(words, seconds, gather), np.inf).min()
    if np.all(room) or not np.any(room):  # copies are for nothing, or what there is without them has no room
        return
    plan = next(
        _ration_copies(phase, frame, seconds, gather, _fastest_words(phase, frame, seconds, gather), np.ones((1, 1), bool))
    )
    assert np.all(np.isfinite(plan.seconds))
    assert np.squeeze(_choice_cost(plan.of, seconds, gather)) == pytest.approx(least_of, rel=1e-12)


@pytest.mark.sampled
@given(st.integers(0, 9999))
@settings(max_examples=2, deadline=None)
def test_more_memory_is_never_slower_and_a_batch_of_memories_is_its_singles(seed: int) -> None:
    question, designs = tight(seed)
    latency = evaluate(stack_designs(designs), question.workload).columns["latency"]
    assert np.all(np.diff(latency) <= 1e-12 * latency[1:])
    assert latency[1] == pytest.approx(
        evaluate(stack_designs(designs[1:2]), question.workload).columns["latency"][0], rel=1e-12
    )


def test_where_copies_of_all_have_no_room_some_are_copied() -> None:
    """Prefill with some copies takes two thirds of the time of any partition for all that has room, at most."""
    words = ("chip=npu64", "model=qwen3_4b", "workload.prompt=1024", "workload.output=8", "workload.batch=[100]")
    question = asked(*words, "mapping.both.tp=16", "mapping.both.pp=4")
    by = {word: explain(with_word(question.base, word), question.workload.cases[0]) for word in ("k", "mn_k", AUTO)}
    seconds = {word: sum(row.seconds for row in shown.rows) for word, shown in by.items()}
    assert explain_infeasibility(with_word(question.base, "input_only"), question.workload) is not None
    assert 1.5 * seconds[AUTO] < min(seconds["k"], seconds["mn_k"])
    partitions = {row.shape.rpartition(" by ")[2] for row in by[AUTO].rows if row.phase == "prefill" and " by " in row.shape}
    assert {"input_only"} < partitions


@pytest.mark.parametrize("seed", range(40))
def test_elimination_finds_the_least_sum(seed: int) -> None:
    rng = np.random.default_rng(seed)
    count = int(rng.integers(1, 6))
    words = rng.integers(1, 4, count)
    factors = [CostFactor((f"v{index}",), np.zeros(words[index])) for index in range(count)]
    for _ in range(int(rng.integers(1, 2 * count + 2))):
        permutation = rng.permutation(count)[: int(rng.integers(1, min(4, count + 1)))]
        cost = rng.random((*words[permutation], int(rng.choice([1, 3])), 2))
        factors.append(
            CostFactor(tuple(f"v{axis}" for axis in permutation), np.where(rng.random(cost.shape) < 0.1, np.inf, cost))
        )
    entries = np.broadcast_shapes(*(cost.shape[len(names) :] for names, cost, _ in factors))
    places = np.indices(entries, sparse=True)

    def total(choices: dict[str, Any]) -> Any:
        total = np.zeros(entries)
        for names, cost, _ in factors:
            wide = cost if cost.ndim > len(names) else cost[..., None, None]
            total = (
                total
                + np.broadcast_to(wide, (*wide.shape[: len(names)], *entries))[(*(choices[name] for name in names), *places)]
            )
        return total

    every = [
        total({f"v{index}": np.full(entries, word[index]) for index in range(count)}) for word in product(*map(range, words))
    ]
    assert np.allclose(total(minimise_factors(factors)), np.min(every, axis=0))


@pytest.mark.parametrize("seed", range(40))
def test_leaving_out_impossible_values_changes_no_choice(seed: int) -> None:
    """Where something is possible; of equal assignments the same one is chosen."""
    rng = np.random.default_rng(seed)
    count = int(rng.integers(2, 7))
    words, answer = rng.integers(1, 5, count), rng.integers(0, 100, count)
    factors, masked = [], []
    for _ in range(2 * count):
        axes = rng.permutation(count)[: int(rng.integers(1, min(4, count + 1)))]
        possible = rng.random(words[axes]) < 0.5
        possible[tuple(answer[axes] % words[axes])] = True
        cost = np.where(possible[..., None], rng.integers(0, 3, (*words[axes], 7)) * 1.0, np.inf)
        factors.append(CostFactor(tuple(f"v{axis}" for axis in axes), cost))
        masked.append(factors[-1]._replace(possible=possible))
    whole, pruned = minimise_factors(factors), minimise_factors(masked)
    assert whole.keys() == pruned.keys()
    assert all(np.array_equal(whole[name], pruned[name]) for name in whole)


@pytest.mark.sampled
@given(st.integers(0, 9999))
@settings(max_examples=2, deadline=None)
def test_events_play_what_the_closed_form_chooses(seed: int) -> None:
    question, design = questions(seed)
    design = with_word(replace_leaves(design, both(tp=4, pp=4)), AUTO)
    job = arrays_by_model(replace(question.workload, cases=question.workload.cases[:1]))[0]
    for name, (laid, held) in _lay_phases(design, job).items():
        by = {word: _pass_phase(design, job, name, laid, held, READERS[word])[0].timed for word in ("analytical", "events")}
        for closed, events in zip(by["analytical"], by["events"], strict=True):
            assert [call.group for call in closed.block.calls] == [call.group for call in events.block.calls]
            for call, cost in zip(closed.block.calls, events.costs, strict=True):
                if call.group is not None:
                    seconds, busy = READERS["events"].product(call.group, call.products[0], of_machine(design), call.width)
                    assert np.array_equal(cost.matrix, call.products[0].count * busy)
                    assert np.all(seconds > 0)


def of_machine(design: Design) -> Any:
    from dse.evaluators.machine.machine import tile_core_machine

    return tile_core_machine(design.chip)


@pytest.mark.sampled
@pytest.mark.parametrize("fidelity", ["analytical", "events"])
@pytest.mark.parametrize("model", MODELS[:3])
def test_the_breakdown_says_what_was_chosen_and_adds_up(model: str, fidelity: str) -> None:
    words = ("chip=npu64", f"model={model}", "workload.batch=[8]", "workload.prompt=200", "workload.output=8")
    question = asked(*words, "mapping.both.tp=16", "mapping.both.pp=4", "mapping.both.partition=auto")
    shown = explain(question.base, question.workload.cases[0], fidelity=fidelity)
    latency = float(evaluate(stack_designs([question.base]), question.workload, fidelity=fidelity).columns["latency"][0])
    assert sum(row.seconds for row in shown.rows) == pytest.approx(latency)
    products = [row for row in shown.rows if row.operator in ("q_proj", "o_proj", "q_up", "head")]
    assert products
    assert all(row.shape.rpartition(" by ")[2] in DIVISIONS for row in products)
    assert {row.bound for row in shown.rows if row.operator.endswith(" to all")} <= {"network"}


def test_a_two_dimensional_product_behind_attention_waits_for_blocks() -> None:
    """Attention of rows leaves rows; its columns come from others. One exchange, which events play too."""
    question = asked(
        "chip=npu64", "model=qwen3_1b7", "workload.batch=[4]", "workload.prompt=64", "workload.output=4", "mapping.both.tp=4"
    )
    for word, bring in (("mn_k", {"attention to all"}), ("mn", set()), ("k", set())):
        shown = explain(with_word(question.base, word), question.workload.cases[0], fidelity="events")
        brought = [row for row in shown.rows if row.operator.endswith(" to all")]
        assert {row.operator for row in brought} == bring
        assert all(row.seconds > 0 for row in brought)


@pytest.mark.sampled
@pytest.mark.parametrize("placement", ["ring", "mesh"])
def test_experts_that_are_whole_are_left_open_too(placement: str) -> None:
    words = ("chip=npu64", "model=qwen3_30b_a3b", "workload.batch=[8]", "workload.prompt=100", "workload.output=8")
    question = asked(*words, "mapping.both.experts=whole", "mapping.both.tp=8", "mapping.both.pp=8")
    design, latencies = replace_leaves(question.base, both(placement=placement)), {}
    for word in (*offered_partitions(design.mapping.prefill), AUTO):
        single_word = with_word(design, word)
        if explain_infeasibility(single_word, question.workload) is None:
            latencies[word] = float(evaluate(stack_designs([single_word]), question.workload).columns["latency"][0])
    auto = latencies.pop(AUTO)
    assert auto <= min(latencies.values()) * (1 + 1e-12)
    shown = explain(with_word(design, AUTO), question.workload.cases[0])
    assert sum(row.seconds for row in shown.rows) == pytest.approx(auto)


def test_layouts_of_the_stream_are_layouts() -> None:
    assert set(RESIDUAL_LAYOUTS) <= set(ACCEPTED_LAYOUTS)
    assert all(needs in ACCEPTED_LAYOUTS and leaves in ACCEPTED_LAYOUTS for needs, leaves in PRODUCTS.values())


def tried_one_by_one(phase: PartitionedPhase) -> Iterator[TriedPlan]:
    """Every plan, none left out because it has no room or is like another: what `_try_plans` says in fewer passes."""
    words = tuple(phase.by_word)
    for word in sorted(words, key=lambda word: word != "k"):
        partition = uniform_partition(phase.parts, word, phase.plan)
        held = phase.held(word, 0.0)
        seconds = np.where(phase.fits(word, held), phase.passed(_entry_blocks(phase, partition), held)[1], np.inf)
        yield TriedPlan(partition, word, held, 0.0, seconds)
    gather = _gather_seconds(phase)
    for frame in counting_plans(words):
        first = seconds = _operator_seconds(phase, phase.held(frame.counted, 0.0), words)
        for _ in range(2 if "input_only" in frame.words else 1):
            partition = _fastest_words(phase, frame, seconds, gather)
            held = phase.held(frame.counted, everywhere := _copied_weights(_product_weights(phase), partition))
            fits = phase.fits(frame.counted, held)
            yield (
                plan := TriedPlan(
                    partition,
                    frame.counted,
                    held,
                    everywhere,
                    np.where(fits, phase.passed(_entry_blocks(phase, partition), held)[1], np.inf),
                )
            )
            seconds = _operator_seconds(phase, held, frame.words)
        if "input_only" in frame.words and np.any(np.isinf(plan.seconds)):
            rest = _fastest_words(phase, frame, first, gather)
            yield from _ration_copies(phase, frame, first, gather, rest, np.isinf(plan.seconds))


@pytest.mark.parametrize("seed", range(8))
def test_auto_is_the_best_of_all_plans_one_by_one_to_the_bit(seed: int) -> None:
    """Of random designs in one batch, memories from none that is enough to plenty: the least of heads, and of rows."""
    question, design = questions(seed)
    rng = np.random.default_rng(seed)
    sizes = [float(design.chip.tile.sram) * float(rng.choice([1e-3, 0.02, 0.1, 1.0])) for _ in range(3)]
    (_, many), *_ = stack_designs([with_word(replace_leaves(design, {"chip.tile.sram": size}), AUTO) for size in sizes]).groups
    phase = phase_of(many, question, ("prefill", "decode")[seed % 2])
    mine, every = list(_try_plans(phase)), list(tried_one_by_one(phase))
    assert len(mine) <= len(every)
    for heads in (True, False):
        (seconds, which), (expected, place) = (_least_seconds(plans, heads=heads) for plans in (mine, every))
        assert np.array_equal(*np.broadcast_arrays(seconds, expected))
        for entry in np.ndindex(expected.shape):
            chosen, other = (
                plans[int(np.broadcast_to(at, expected.shape)[entry])] for plans, at in ((mine, which), (every, place))
            )
            assert chosen.counted == other.counted
            for kind, as_kind in zip(chosen.of, other.of, strict=True):
                for name, value in kind.items():
                    values = (
                        np.broadcast_to(values_of_kind, expected.shape)[entry] for values_of_kind in (value, as_kind[name])
                    )
                    assert len(set(values)) == 1


def test_the_least_of_many_entries_is_that_of_every_combination() -> None:
    """Tables that are compared word by word, some of whose costs are equal: the first word of equal ones counts."""
    rng = np.random.default_rng(0)
    factors = [
        CostFactor(("x", "y"), rng.integers(0, 4, (3, 5, 2_000)) * 1.0),
        CostFactor(("y", "z"), rng.integers(0, 4, (5, 4, 2_000)) * 1.0),
        CostFactor(("z",), rng.integers(0, 4, (4, 1)) * 1.0),
    ]
    xy, yz, z = (factor.cost for factor in factors)
    every = xy[:, :, None] + yz[None] + z[None, None]
    choices = minimise_factors(factors)
    taken = every[choices["x"], choices["y"], choices["z"], np.arange(2_000)]
    assert np.array_equal(taken, every.min(axis=(0, 1, 2)))
    few = [
        minimise_factors([CostFactor(names, cost[..., i % cost.shape[-1]]) for names, cost, _ in factors]) for i in range(50)
    ]
    assert all(int(least_entry[name]) == choices[name][i] for i, least_entry in enumerate(few) for name in "xyz")


@pytest.mark.parametrize("seed", range(3))
def test_partitions_of_many_designs_are_chosen_once(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """In any order, together and by themselves; answers stay as they are."""
    of, first = questions(seed)
    rng = np.random.default_rng(seed)
    designs = [
        with_word(replace_leaves(first, {"chip.tile.sram": first.chip.tile.sram * size}), AUTO)
        for size in rng.uniform(0.2, 3.0, 6)
    ]
    forget_settled_partitions()
    known = evaluate(stack_designs(designs), of.workload).columns
    monkeypatch.setattr(pipelines, "choose_partitions", lambda phases: pytest.fail("chosen again"))
    backwards = evaluate(stack_designs(designs[::-1]), of.workload).columns
    alone = [evaluate(stack_designs([design]), of.workload).columns for design in designs]
    for name in ("latency", "ttft", "energy"):
        assert np.array_equal(known[name], backwards[name][::-1], equal_nan=True)
        assert np.allclose(known[name], [columns[name][0] for columns in alone], rtol=1e-12, atol=0, equal_nan=True)


@given(st.integers(0, 10_000))
@FEW
def test_designs_settled_together_come_out_as_by_themselves(seed: int) -> None:
    of, first = questions(seed)
    rng = np.random.default_rng(seed)
    memories = {"chip.tile.sram": first.chip.tile.sram, "chip.hbm.channel_bandwidth": first.chip.hbm.channel_bandwidth}
    scaled = ({name: value * rng.uniform(0.3, 3.0) for name, value in memories.items()} for _ in range(4))
    designs = [with_word(replace_leaves(first, sizes), AUTO) for sizes in scaled]
    case = of.workload.cases[-1]

    def answers() -> list[Any]:
        rows = [explain(design, case).rows for design in designs]
        return [*rows, *(limits(design, of.workload) for design in designs)]

    forget_settled_partitions()
    alone = answers()
    forget_settled_partitions()
    settle_open_choices(designs, case)
    evaluate(stack_designs(designs), of.workload)
    assert repr(answers()) == repr(alone)
    for one, design in zip(limits_by_design(designs, of.workload), designs, strict=True):
        expected = limits(design, of.workload)
        assert [limit.address for limit in one] == [limit.address for limit in expected]
        for mine, theirs in zip(one, expected, strict=True):
            assert np.ravel(mine.need) == pytest.approx(np.ravel(theirs.need), rel=1e-12)
            assert np.ravel(mine.have) == pytest.approx(np.ravel(theirs.have), rel=1e-12)
