"""Attention dies and FFN dies apart: a layer's time against micro-batches that are played, work and weights that add up."""

from itertools import pairwise

import hypothesis.strategies as st
import pytest
from hypothesis import given, settings

from dse.analysis.capacity import find_capacity
from dse.evaluators.accounting.multi_die import pingpong_seconds
from dse.evaluators.accounting.multi_die_memory import ffn_weight_bytes, layers_of_units, unit_weight_bytes
from dse.evaluators.accounting.serving_instances import multi_die as many_dies
from dse.evaluators.accounting.serving_instances.multi_die_iterations import useful_operations_of
from dse.evaluators.accounting.shared_cache_dies import DIE_KIND
from dse.evaluators.evaluation import explain_infeasibility
from dse.evaluators.layouts.multi_die import DieSplit
from dse.space.errors import DesignError
from tests.samples import asked, load_of, metrics

BOXES = ("chip=h800_ep", "chip.dies.rows=4", "chip.dies.cols=4", "chip.nodes.size=4")
SERVED = ("workload=serving", "workload.requests=24", "workload.rate='30 Hz'", "workload.prompt=256", "workload.output=16")
FEW = ("mapping.serving.max_batch_size=64", "mapping.serving.max_batched_tokens=2048")
MODELS = {
    name: (f"model={name}", f"model.{name}.layers=3")
    for name in ("deepseek_v2_lite", "deepseek_v3", "qwen3_1b7", "qwen3_30b_a3b")
}


def words(model: str, attention: int, ep: int, tp: int = 1, pp: int = 1, **others: object) -> tuple[str, ...]:
    settings = {"attention_dies": attention, "ep": ep, "tp": tp, "pp": pp, **others}
    return (*BOXES, *MODELS[model], *(f"mapping.both.{name}={value}" for name, value in settings.items()), *SERVED, *FEW)


@settings(max_examples=100, deadline=None)
@given(st.integers(1, 5), st.lists(st.floats(0.01, 10), min_size=4, max_size=4))
def test_a_layer_takes_what_micro_batches_that_are_played_take(micro: int, each: list[float]) -> None:
    """Each of four stations has one at a time, in the order in which they come; layers follow one another."""
    layers, free, ready = 400, [0.0] * 4, [0.0] * micro
    ends = []
    for _ in range(layers):
        for place in range(micro):
            for station, taken in enumerate(each):
                free[station] = ready[place] = max(free[station], ready[place]) + taken
        ends.append(max(ready))
    assert (ends[-1] - ends[layers // 2 - 1]) / (layers // 2) == pytest.approx(pingpong_seconds(micro, each), rel=1e-3)


@pytest.mark.sampled
@pytest.mark.parametrize("model", MODELS)
@given(
    attention=st.sampled_from([2, 4, 8]), ep=st.sampled_from([1, 2, 4]), tp=st.sampled_from([1, 2]),
    pp=st.sampled_from([1, 2]), parts=st.sampled_from([1, 2, 3]), each=st.integers(1, 8), prompts=st.booleans(),
)  # fmt: skip
@settings(max_examples=6, deadline=None)
def test_what_the_model_asks_is_done_once(
    model: str, attention: int, ep: int, tp: int, pp: int, parts: int, each: int, prompts: bool
) -> None:
    """Useful operations of all dies of an instance are those of the model, and rows take the time of the iteration."""
    pp = pp if pp * (attention + ep) <= 16 else 1
    design, load = load_of(*words(model, attention, ep, tp, pp, pingpong=parts))
    (pool,) = many_dies.die_pools(design, load)
    count = each * pool.slots
    assert pool.slots == attention // tp * parts
    made_of = (count * 64.0, 32.5, 0.0, 0.0, 0.0) if prompts else (0.0, 0.0, float(count), 300.0, 0.0)
    run = many_dies._run_iteration(design, load, pool, made_of, "analytical")
    done = sum(unit.flop * unit.times for unit in run.played.units) * run.split.group * run.split.halves
    assert done == pytest.approx(useful_operations_of(many_dies.whole_iteration(load, made_of)), rel=1e-9)
    rows = many_dies.MultiDieServing().iteration_rows(design, load, 0, 1.0, made_of, "analytical")
    assert sum(row.seconds for row in rows) == pytest.approx(run.seconds, rel=1e-9)
    assert sum(row.flop for row in rows) == pytest.approx(done, rel=1e-9)
    fed = {row.operator for row in rows if row.operator.startswith(("experts_", "shared_", "gate", "up", "down"))}
    names = {name for unit in run.played.units for block in unit.timed for call in block.block.calls for name in call.operators}
    other_names = {
        name for unit in run.played.units for block in unit.beyond for call in block.block.calls for name in call.operators
    }
    assert fed
    assert not names & other_names
    assert {name for name in other_names if name.startswith(("router", "attention", "o_proj", "head"))} == set()


@pytest.mark.parametrize("model", MODELS)
def test_weights_of_both_kinds_of_dies_are_those_of_one_that_has_both(model: str) -> None:
    design, load = load_of(*words(model, 4, 4))
    sizes = DIE_KIND.sizes(design.mapping)
    experts = load.model.experts
    both, apart = DieSplit(1, 1, 4 if experts else 1, 1, 4, 0, 1), DieSplit(1, 1, 4, 1, 8, 0, 1, 3, 4)
    for name, names in layers_of_units(load.model).items():
        whole = unit_weight_bytes(name, names, load.model, both, sizes)
        parts = unit_weight_bytes(name, names, load.model, apart, sizes) + ffn_weight_bytes(names, load.model, apart, sizes)
        assert parts == pytest.approx(whole, rel=1e-12), name


def test_more_micro_batches_hide_exchanges_where_there_is_enough_to_do() -> None:
    """Of many requests; of few, weights are read as often as there are micro-batches."""
    taken = {}
    for parts in (1, 2, 3):
        design, load = load_of(*words("deepseek_v2_lite", 8, 8, pingpong=parts))
        (pool,) = many_dies.die_pools(design, load)
        for count in (24, 6144):
            made_of = (0.0, 0.0, float(count), 2000.0, 0.0)
            taken[parts, count] = many_dies._run_iteration(design, load, pool, made_of, "analytical").seconds
    assert taken[2, 6144] < taken[1, 6144]
    assert taken[3, 24] > taken[1, 24]


@pytest.mark.parametrize("prompts", [False, True])
@pytest.mark.parametrize(
    ("whole", "cut"), [({"attention_dies": 4, "ep": 4, "pingpong": 1}, {"pingpong": 3}), ({"ep": 4}, {"overlap": "two_batch"})]
)
def test_parts_of_a_micro_batch_that_have_no_request_take_nothing(
    whole: dict[str, object], cut: dict[str, object], prompts: bool
) -> None:
    """Four copies of attention: up to four requests are one part, and more of them never take less."""

    def run(settings: dict[str, object], count: int) -> many_dies.DieIteration:
        texts = (f"mapping.both.{name}={value}" for name, value in settings.items())
        design, load = load_of(
            *BOXES, *MODELS["qwen3_30b_a3b"], "mapping.both.tp=1", "mapping.both.pp=1", *texts, *SERVED, *FEW
        )
        (pool,) = many_dies.die_pools(design, load)
        made_of = (count * 64.0, 32.5, 0.0, 0.0, 0.0) if prompts else (0.0, 0.0, float(count), 300.0, 0.0)
        return many_dies._run_iteration(design, load, pool, made_of, "analytical")

    for count in (1, 3, 4):
        single_run, parts = run(whole, count), run(whole | cut, count)
        assert parts.seconds == single_run.seconds
        assert many_dies.run_activity(parts) == many_dies.run_activity(single_run)
    rising = [run(whole | cut, count).seconds for count in (1, 4, 5, 8, 9, 12, 24, 25)]
    assert all(a <= b * (1 + 1e-9) for a, b in pairwise(rising))


def test_tokens_cross_links_between_the_two() -> None:
    """Wider links between boxes take less, and more dies of experts read fewer weights each."""
    slow, fast = (metrics(*words("deepseek_v2_lite", 4, 4), f"chip.nodes.bandwidth='{gbs} GB/s'") for gbs in (1, 50))
    assert fast["tpot"] < slow["tpot"]
    design, load = load_of(*words("deepseek_v2_lite", 4, 4))
    (pool,) = many_dies.die_pools(design, load)
    stage = many_dies._tightest_stage(design, load, pool)
    less = many_dies._tightest_stage(
        *load_of(*words("deepseek_v2_lite", 4, 8)), many_dies.die_pools(*load_of(*words("deepseek_v2_lite", 4, 8)))[0]
    )
    assert dict(less.fed)["weights"] < dict(stage.fed)["weights"]
    assert less.weights == stage.weights
    limits = [limit for limit in many_dies.MultiDieServing().limits(design, load) if limit.address == "chip.hbm.capacity"]
    assert len(limits) == 2


def test_decode_alone_may_have_them_apart() -> None:
    given_words = [word for word in words("qwen3_30b_a3b", 4, 4) if "attention_dies" not in word]
    single_metrics = metrics(*given_words, "mapping.serving.prefill_instances=1", "mapping.decode.attention_dies=4")
    assert single_metrics["tpot"] > 0


REFUSED = {
    "mapping.both.all_to_all=hierarchical": "all_to_all=direct",
    "mapping.both.overlap=two_batch": "overlap=none",
    "mapping.both.tp=3": "a multiple of tp",
    "mapping.both.ep=5": "lower them",
}


@pytest.mark.parametrize("split_text", REFUSED)
def test_what_cannot_be_laid_out_says_what_can(split_text: str) -> None:
    question = asked(*words("deepseek_v2_lite", 4, 4), *split_text.split())
    worst = explain_infeasibility(question.base, question.workload)
    assert worst is not None
    assert REFUSED[split_text] in worst.remedy


def test_words_that_nothing_reads_are_refused() -> None:
    with pytest.raises(DesignError, match="needs a serving load"):
        asked(*BOXES, *MODELS["deepseek_v2_lite"], "mapping.both.attention_dies=4", "mapping.both.ep=4")
    with pytest.raises(DesignError, match="pingpong: has no effect"):
        asked(*BOXES, *MODELS["deepseek_v2_lite"], *SERVED, "mapping.both.pingpong=2")


def test_capacity_looks_at_them_where_it_is_asked() -> None:
    words = (
        *BOXES[:1], *MODELS["qwen3_30b_a3b"], "devices=16", "disaggregated=false", "workload.prompt=1000",
        "workload.output=100", "workload.ttft='50 ms'", "workload.tpot='50 ms'", "workload.requests=2000",
        "space=capacity_dies", "space.mapping.both.tp='choice(1)'",
        "space.mapping.both.ep='choice(8)'", "space.mapping.serving.max_batch_size='choice(512)'",
    )  # fmt: skip
    (beside,), (apart,) = find_capacity(words), find_capacity((*words, "ffn=disaggregated"))
    kinds = [
        {candidate.values.get("mapping.decode.attention_dies") for candidate in side.candidates} for side in (beside, apart)
    ]
    assert kinds == [{None}, {None, 4, 8}]
    # whatever wins, the answer says what the others serve
    rates = {
        bool(deployment.candidate.values.get("mapping.decode.attention_dies")): deployment.rate for deployment in apart.tried
    }
    assert min(rates[False], rates[True]) > 0
    with pytest.raises(DesignError, match="needs a chip with several dies per node"):
        find_capacity(("chip=h200", "model=llama3_8b", "devices=2", "ffn=disaggregated"))
    with pytest.raises(DesignError, match="valid: colocated, disaggregated"):
        find_capacity(("chip=h200", "model=llama3_8b", "devices=2", "ffn=yes"))
