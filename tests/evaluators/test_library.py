"""Kernels that a library prices: in parts that add up, for one design as for many, and never slower on more silicon."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dse.evaluators import evaluate, explain
from dse.evaluators.kernels.library import LIBRARY
from dse.evaluators.kernels.library import decode_attention as generation
from dse.evaluators.kernels.library import mla_decode_attention as latent_generation
from dse.evaluators.kernels.library.elementwise import ELEMENTWISE_KINDS, ElementwiseKernel
from dse.evaluators.kernels.library.gemm import Gemm
from dse.evaluators.kernels.library.grouped_gemm import GroupedGemm
from dse.evaluators.kernels.library.kernel_time import LibraryKernelTime
from dse.evaluators.kernels.library.prefill_attention import PrefillAttention
from dse.evaluators.machine.library_die import LibraryDie, die_libraries
from dse.space.design import stack_designs
from dse.space.errors import DesignError
from dse.space.fields import replace_leaves
from dse.space.libraries.decode_attention import DecodeAttentionConstants
from dse.space.libraries.elementwise import ElementwiseConstants, ElementwisePass
from dse.space.libraries.gemm import EightBitGemm, GemmConstants, QuantisedGemm
from dse.space.libraries.grouped_gemm import GroupedGemmConstants
from dse.space.libraries.mla_decode_attention import MlaDecodeConstants
from dse.space.libraries.prefill_attention import PrefillAttentionConstants
from tests.samples import asked, metrics

pytestmark = pytest.mark.usefixtures("flat_stack")

A_DIE = LibraryDie(cores=132.0, peak=7.5e12, bandwidth=3.35e12, cache_bandwidth=9e12, cache=50e6, vector=9e11, clock=1.8e9)
BITS = ("mapping.precision.weights=bf16", "mapping.precision.activations=bf16", "mapping.precision.kv=bf16")
FEW = ("model=qwen3_1b7", "workload.batch=[2]", "workload.prompt=96", "workload.output=4", *BITS)
PRODUCTS = "+mapping.stack.gemm={start: 4 us, achieved: 0.8, hbm: 0.83, sharpness: 4, waves: 0.5, tile: 0.5 us, splits: 16}"

share = st.floats(0.1, 1.0)
microseconds = st.floats(0.0, 2e-5)
splits = st.sampled_from([1, 2, 4, 8, 16])
quantised = st.builds(QuantisedGemm, start=microseconds, achieved=share, splits=splits, waves=st.none() | st.floats(0.0, 1.0))
constants = {
    "gemm": st.builds(
        GemmConstants,
        start=microseconds,
        achieved=share,
        hbm=share,
        sharpness=st.floats(1.0, 20.0),
        waves=st.floats(0.0, 1.0),
        tile=st.floats(0.0, 1e-5),
        splits=splits,
        join=st.none() | microseconds,
        eight=st.none() | st.builds(EightBitGemm, traffic=share, tensor=st.none() | quantised, block=st.none() | quantised),
    ),
}
constants["grouped_gemm"] = st.builds(
    GroupedGemmConstants,
    start=microseconds,
    achieved=share,
    hbm=share,
    traffic=share,
    sharpness=st.floats(1.0, 20.0),
    tensor=st.none() | share,
    block=st.none() | share,
    group=st.none() | microseconds,
    tile=st.none() | microseconds,
    tensor_start=st.none() | microseconds,
    quantised=st.none() | share,
)
a_pass = st.builds(
    ElementwisePass, start=microseconds, share=share, cached=st.none() | share, core=st.none() | st.floats(1e9, 1e12)
)
constants["elementwise"] = st.builds(
    ElementwiseConstants,
    row=st.none() | st.floats(1e9, 1e12),
    walked=st.none(),
    sharpness=st.floats(1.0, 20.0),
    **dict.fromkeys(ELEMENTWISE_KINDS, a_pass),
)
context = st.builds(
    PrefillAttentionConstants,
    start=microseconds,
    achieved=share,
    hbm=share,
    unit=microseconds,
    tail=st.floats(0.0, 1.0),
    sharpness=st.floats(1.0, 20.0),
    idle=microseconds,
    convert=share,
    rows=st.sampled_from([64, 128]),
    usual=st.sampled_from([None, 128, 256]),
    other_start=st.none() | microseconds,
    other_unit=st.none() | microseconds,
    wide_achieved=st.none() | share,
)
constants["prefill_attention"] = constants["mla_prefill_attention"] = context
constants["decode_attention"] = st.builds(
    DecodeAttentionConstants,
    start=microseconds,
    hbm=share,
    ramp=microseconds,
    kept=st.floats(0.1, 10.0),
    knee=st.floats(0.5, 8.0),
    length=st.floats(0.0, 0.9),
    merge=microseconds,
    unit=microseconds,
    walk=st.floats(0.0, 1e-7),
    join=microseconds,
    cached=share,
    sharpness=st.floats(1.0, 20.0),
    shared=st.sampled_from([8, 64]),
    wider=st.sampled_from(["alone", "tiles"]),
    fewest=st.sampled_from([1, 2]),
    part=st.sampled_from([64, 128]),
    waves=st.floats(0.5, 8.0),
    full=st.none() | st.floats(1.0, 20.0),
    most=st.sampled_from([4, 128]),
    block=st.sampled_from([128, 512]),
    single=st.none() | microseconds,
    lead=st.none() | st.floats(0.0, 1e-7),
    cut=st.none() | microseconds,
    wide_start=st.none() | microseconds,
    wide_hbm=st.none() | share,
)
constants["mla_decode_attention"] = st.builds(
    MlaDecodeConstants,
    start=microseconds,
    merge=microseconds,
    achieved=share,
    hbm=share,
    ramp=microseconds,
    cached=share,
    convert=st.floats(0.1, 3.0),
    sharpness=st.floats(1.0, 20.0),
)
size = st.integers(1, 20000).map(float)
problems = {
    "gemm": st.builds(
        lambda m, k, n, scaling: Gemm(m, k, n, k * n * (1.0 if scaling else 2.0), 2.0, scaling, 0.5 if scaling else 1.0),
        size,
        size,
        size,
        st.sampled_from(["", "tensor", "block"]),
    ),
    "grouped_gemm": st.builds(
        lambda m, k, n, touched, scaling, tokens, unequal: GroupedGemm(
            m * touched, k, n, touched, 2 * touched, touched * k * n, n, k, scaling, tokens=tokens, unequal=unequal
        ),
        size,
        size,
        size,
        st.integers(1, 256).map(float),
        st.sampled_from(["", "tensor", "block"]),
        st.none() | size,
        st.booleans(),
    ),
    "elementwise": st.builds(ElementwiseKernel, size, size, st.sampled_from(ELEMENTWISE_KINDS)),
}
few, head = st.integers(1, 64).map(float), st.sampled_from([1.0, 8.0, 32.0, 64.0])
attends = st.builds(
    lambda m, requests, past, decodes, cached, heads, latent: PrefillAttention(
        m, requests, past + (m + 1) / 2, past + m, decodes, cached, heads, 256.0, requests * heads * m * 512, m * 256, latent
    ),
    size,
    few,
    st.integers(0, 20000).map(float),
    st.sampled_from([0.0, 1.0, 4.0, 256.0]),
    size,
    head,
    st.booleans(),
)
problems["prefill_attention"] = attends.map(lambda attention: attention._replace(latent=False))
problems["mla_prefill_attention"] = attends.map(lambda attention: attention._replace(latent=True))
problems["decode_attention"] = st.builds(
    lambda m, keys, heads, group, queries: generation.DecodeAttention(
        m, keys, heads * group, heads, queries, 256.0, m * keys * heads * 512, m
    ),
    few,
    size,
    head,
    few,
    st.sampled_from([1.0, 2.0]),
)
problems["mla_decode_attention"] = st.builds(
    lambda m, keys, heads: latent_generation.MlaDecodeAttention(
        m, keys, heads, 1.0, 1088.0, 512.0, m * keys * 1152, m * heads * 2176
    ),
    few,
    size,
    head,
)


def took(kind: str, problem: Any, constants: Any, die: LibraryDie = A_DIE) -> LibraryKernelTime:
    result: LibraryKernelTime = LIBRARY[kind].kernel_time(problem, constants, die)
    return result


def test_every_kind_is_drawn() -> None:
    assert set(constants) == set(problems) == set(LIBRARY)


@pytest.mark.slow
@pytest.mark.parametrize("kind", LIBRARY)
@given(data=st.data())
def test_more_cores_and_more_bandwidth_make_no_kernel_slower(kind: str, data: st.DataObject) -> None:
    problem, draw = data.draw(problems[kind]), data.draw(constants[kind])
    more = {name: data.draw(st.floats(1.0, 4.0)) for name in ("bandwidth", "cache_bandwidth", "cores", "peak")}
    better = A_DIE._replace(**{name: getattr(A_DIE, name) * factor for name, factor in more.items()})
    assert took(kind, problem, draw, better).seconds() <= took(kind, problem, draw).seconds() * (1 + 1e-12)


@pytest.mark.sampled
@pytest.mark.parametrize("kind", LIBRARY)
@given(data=st.data())
def test_more_of_a_problem_is_never_faster(kind: str, data: st.DataObject) -> None:
    problem, draw = data.draw(problems[kind]), data.draw(constants[kind])
    more = problem._replace(m=problem.m * data.draw(st.floats(1.0, 3.0)))
    assert took(kind, more, draw).seconds() >= took(kind, problem, draw).seconds() * (1 - 1e-12)


@pytest.mark.sampled
@pytest.mark.parametrize("kind", LIBRARY)
@given(data=st.data())
def test_arrays_are_answered_as_numbers_are(kind: str, data: st.DataObject) -> None:
    draw = data.draw(constants[kind])
    single_draw = data.draw(problems[kind])
    rows = np.array(data.draw(st.lists(size, min_size=2, max_size=4)))
    together = took(kind, single_draw._replace(m=rows[:, None]), draw, A_DIE._replace(cores=np.array([64.0, 132.0]))).seconds()
    alone = [
        [took(kind, single_draw._replace(m=m), draw, A_DIE._replace(cores=cores)).seconds() for cores in (64.0, 132.0)]
        for m in rows
    ]
    np.testing.assert_allclose(np.broadcast_to(together, (len(rows), 2)), alone, rtol=1e-12)


@pytest.mark.sampled
@pytest.mark.parametrize("kind", LIBRARY)
@given(data=st.data())
def test_what_is_in_the_cache_never_costs_more_than_from_memory(kind: str, data: st.DataObject) -> None:
    result = took(kind, data.draw(problems[kind]), data.draw(constants[kind]))
    resident = data.draw(st.floats(0.0, 1.0)) * result.memory / result.byte
    rounded = 1 + 1e-12  # of roots of powers
    assert result.start + result.beside <= result.seconds(resident) * rounded <= result.seconds() * rounded**2


def test_a_product_of_few_rows_takes_what_its_weights_take() -> None:
    constants = GemmConstants(start=4e-6, achieved=0.8, hbm=0.83, sharpness=4.0, waves=0.0, tile=0.0, splits=16)
    seconds = [took("gemm", Gemm(m, 8192.0, 8192.0, 2 * 8192.0**2, 2.0), constants).seconds() for m in (1.0, 64.0, 128.0)]
    assert seconds[-1] < 1.1 * seconds[0]


@given(st.floats(1e-12, 1e-10), st.integers(33, 5000), st.integers(0, 400), size, size)
def test_rows_that_a_tile_lacks_cost_no_more_than_they_would(padding: float, m: int, more: int, k: float, n: float) -> None:
    """More rows are quicker by no more than the rows that the last tile lacked; full tiles fill none."""
    block = QuantisedGemm(start=1e-6, achieved=0.6, splits=1, waves=1.0, padding=padding)
    constants = GemmConstants(
        start=3e-6, achieved=0.8, hbm=0.8, sharpness=1.0, waves=0.0, tile=0.0, splits=16,
        eight=EightBitGemm(traffic=0.4, tensor=None, block=block),
    )  # fmt: skip
    fewer, many = (took("gemm", Gemm(rows, k, n, k * n, 1.0, "block", 0.5), constants) for rows in (1.0 * m, 1.0 * m + more))
    assert many.seconds() >= fewer.seconds() * (1 - 1e-12) - padding * k * 127
    full = Gemm(128.0 * m, k, n, k * n, 1.0, "block", 0.5)
    unpadded = replace_leaves(constants, {"eight.block.padding": 0.0})
    assert took("gemm", full, constants).seconds() == took("gemm", full, unpadded).seconds()


@given(st.integers(1, 200), st.integers(1, 16).map(float), st.sampled_from([2.0, 16.0, 32.0]))
def test_tiles_with_few_parts_are_computed_as_single_queries(keys: int, requests: float, group: float) -> None:
    """A quarter of the cores has parts, or each query is by itself, as where no query shares a tile."""
    fixed = {"start": 0.0, "hbm": 0.9, "ramp": 0.0, "kept": 1.0, "knee": 4.0, "length": 0.0, "merge": 1e-7, "unit": 4e-6}
    fixed |= {"walk": 1e-8, "join": 1e-5, "cached": 0.7, "sharpness": 2.0, "waves": 8.0, "full": 8.0}
    rule = {"wider": "alone", "fewest": 2, "part": 128, "most": 128, "block": 512, "shared": 32, "few": 0.25}
    constants = DecodeAttentionConstants(**fixed, **rule, single=1e-6)  # type: ignore[arg-type]
    problem = generation.DecodeAttention(requests, 128.0 * keys, group, 1.0, 1.0, 256.0, requests * keys * 65536.0, 0.0)
    parts = min(keys, np.ceil(np.sqrt(8 * keys)))
    same = replace_leaves(constants, {"shared": 1} if requests * parts < 33 else {"few": 0.0})
    assert took("decode_attention", problem, constants).seconds() == took("decode_attention", problem, same).seconds()


@given(constants["grouped_gemm"], problems["grouped_gemm"], st.floats(1.0, 16.0))
def test_experts_of_a_die_that_no_token_goes_to_are_looked_through_in_blocks_alone(
    constants: GroupedGemmConstants, problem: GroupedGemm, more: float
) -> None:
    beside = took("grouped_gemm", problem._replace(held=problem.held * more), constants).seconds()
    each = constants.group if problem.scaling == "block" and constants.group is not None else 0.0
    expected = took("grouped_gemm", problem, constants).seconds() + each * problem.held * (more - 1)
    assert beside == pytest.approx(expected, rel=1e-9)


def test_a_die_with_more_experts_takes_longer_for_one_token() -> None:
    """One token goes to one of 8 experts of a die, or to one of 16."""
    overrides = ("chip=h100", "stack=trtllm_h100", "workload=experts", "mapping.decode.tp=1", "workload.tokens=[1]")
    overrides = (
        *overrides,
        "mapping.precision.weights=fp8_128x128",
        "mapping.precision.activations=fp8_1x128",
        "workload.ep=32",
    )
    first, second = (float(metrics(*overrides, f"workload.experts={count}")["latency"]) for count in (256, 512))
    group = asked(*overrides).base.mapping.stack.grouped_gemm.group
    assert second - first == pytest.approx(2 * 8 * group, rel=1e-6)  # two kernels, eight experts more a die


@given(constants["decode_attention"], problems["decode_attention"], st.floats(1.0, 8.0))
def test_longer_caches_are_never_read_faster(
    constants: DecodeAttentionConstants, problem: generation.DecodeAttention, factor: float
) -> None:
    longer = problem._replace(keys=problem.keys * factor, nbytes=problem.nbytes * factor)
    assert took("decode_attention", longer, constants).seconds() >= took("decode_attention", problem, constants).seconds() * (
        1 - 1e-12
    )


@given(constants["decode_attention"], problems["decode_attention"], st.integers(1, 64))
def test_parts_of_caches_are_those_of_the_library(
    constants: DecodeAttentionConstants, problem: generation.DecodeAttention, many: int
) -> None:
    """A tile that has the die is cut in full, up to a root and to the most; of so many that cores are full none is cut."""
    constants = replace_leaves(constants, {"shared": 10**6, "fewest": 1, "waves": 1e9, "sharpness": 1.0, "merge": 0.0})
    single_problem = problem._replace(m=1.0, heads=2.0, kv_heads=1.0, nbytes=1e-9, near=0.0)
    parts = max(single_problem.keys / constants.part, 1.0)
    parts = min(parts, max((constants.full * parts) ** 0.5, 1.0) if constants.full is not None else np.inf, constants.most)
    assert took("decode_attention", single_problem, constants).compute == pytest.approx(
        constants.unit * parts / A_DIE.cores, rel=1e-9
    )
    crowd = single_problem._replace(m=many * A_DIE.cores)
    assert took("decode_attention", crowd, replace_leaves(constants, {"waves": 1e-9})).compute == pytest.approx(
        constants.unit * many, rel=1e-9
    )


@given(constants["decode_attention"], problems["decode_attention"], st.integers(1, 4), st.integers(0, 63))
def test_queries_beyond_a_tile_are_further_tiles(
    constants: DecodeAttentionConstants, problem: generation.DecodeAttention, more: int, rest: int
) -> None:
    """Sixty-five of a KV head on tiles of 64 take what 128 do, and engines what as many KV heads of 64 each would."""
    constants = replace_leaves(constants, {"shared": 64, "fewest": 1, "wider": "tiles"})
    single_problem = problem._replace(kv_heads=1.0, queries=1.0, heads=64.0)
    wide = single_problem._replace(heads=64.0 * more + rest + 1)
    assert took("decode_attention", wide, constants).seconds() == pytest.approx(
        took("decode_attention", wide._replace(heads=64.0 * (more + 1)), constants).seconds(), rel=1e-12
    )
    assert took("decode_attention", wide, constants).compute == pytest.approx(
        took("decode_attention", single_problem._replace(m=single_problem.m * (more + 1)), constants).compute, rel=1e-9
    )
    assert took("decode_attention", single_problem, constants).memory < took("decode_attention", wide, constants).memory


@given(st.floats(1e-7, 1e-5), st.integers(1, 40).map(float))
def test_few_rows_of_a_table_are_picked_one_after_the_other(walked: float, rows: float) -> None:
    constants = ElementwiseConstants(
        row=None,
        walked=walked,
        sharpness=1.0,
        **dict.fromkeys(ELEMENTWISE_KINDS, ElementwisePass(start=1e-6, share=0.5, cached=None)),
    )
    for sort in ELEMENTWISE_KINDS:
        problem = ElementwiseKernel(rows, 8192.0, sort)
        more = (
            took("elementwise", problem, constants).seconds()
            - took("elementwise", problem, replace_leaves(constants, {"walked": 0.0})).seconds()
        )
        assert more == pytest.approx(walked * rows if sort == "gather" and rows <= 16 else 0.0, abs=1e-15)


@given(st.floats(1e9, 1e12), st.integers(1, 40), st.integers(1, int(A_DIE.cores)))
def test_rows_in_the_cache_come_in_waves_over_the_cores(core: float, full: int, more: int) -> None:
    sort = ElementwisePass(start=0.0, share=0.5, cached=1.0, core=core)
    constants = ElementwiseConstants(row=None, walked=None, sharpness=1.0, **dict.fromkeys(ELEMENTWISE_KINDS, sort))
    for rows in (full * A_DIE.cores + 1, full * A_DIE.cores + more):
        seconds = took("elementwise", ElementwiseKernel(rows, 1e-3, "gate"), constants).seconds()
        assert seconds == pytest.approx((full + 1) * 1e-3 / core, rel=1e-6)


@given(constants["decode_attention"], problems["decode_attention"])
def test_caches_come_from_the_die_and_from_memory(
    constants: DecodeAttentionConstants, problem: generation.DecodeAttention
) -> None:
    """Far below what the cache keeps they are read from there, far above it from memory, and then the ramp is paid whole."""
    constants = replace_leaves(constants, {"wider": "alone"})  # further tiles read it all again
    quick = max(constants.cached * A_DIE.cache_bandwidth, constants.hbm * A_DIE.bandwidth)
    ends = ((1e9, quick, 0.0), (1e-9, constants.hbm * A_DIE.bandwidth, constants.ramp))
    for kept, rate, ramp in ends:
        result = took(
            "decode_attention",
            problem._replace(near=0.0),
            replace_leaves(constants, {"kept": kept, "knee": 8.0, "length": 0.0}),
        )
        assert result.memory == pytest.approx(problem.nbytes / rate + ramp, rel=1e-6)


def asked_of(chip: str, *words: str) -> tuple[Any, Any]:
    question = asked(f"chip={chip}", *FEW, PRODUCTS, *words)
    return question.base, question.workload


@pytest.mark.parametrize("words", [("mapping.both.tp=1",), ("mapping.both.tp=2", "mapping.both.prefetch=partial")], ids=str)
def test_a_breakdown_with_a_library_adds_up(words: tuple[str, ...]) -> None:
    design, workload = asked_of("h100", *words)
    latency = evaluate(stack_designs([design]), workload).columns["latency"][0]
    explanation = explain(design, workload.cases[0])
    assert sum(row.seconds for row in explanation.rows) == pytest.approx(latency, rel=1e-9)
    for row in explanation.rows:
        assert sum(row.parts.values()) == pytest.approx(row.seconds, rel=1e-9)


def test_designs_with_a_library_are_answered_alike_alone_and_together() -> None:
    design, workload = asked_of("h100", "mapping.both.tp=2", "mapping.both.prefetch=whole")
    random = np.random.default_rng(3)
    drawn = [
        replace_leaves(
            design,
            {
                "mapping.stack.gemm.start": float(random.uniform(0, 1e-5)),
                "mapping.stack.gemm.achieved": float(random.uniform(0.3, 1)),
                "chip.hbm.bandwidth": float(random.uniform(1e12, 4e12)),
            },
        )
        for _ in range(5)
    ]
    together = evaluate(stack_designs(drawn), workload).columns["latency"]
    alone = [evaluate(stack_designs([design]), workload).columns["latency"][0] for design in drawn]
    np.testing.assert_allclose(together, alone, rtol=1e-12)


def test_prefetching_helps_products_of_a_library() -> None:
    none, whole = (asked_of("h100", "mapping.both.tp=2", f"mapping.both.prefetch={policy}") for policy in ("none", "whole"))
    before, after = (evaluate(stack_designs([design]), workload).columns["latency"][0] for design, workload in (none, whole))
    assert after < before


def test_products_of_the_same_rows_are_one_kernel() -> None:
    design, workload = asked_of("h100", "mapping.both.tp=1")
    model, steps = workload.cases[0].model, 3
    found_rows = explain(design, workload.cases[0]).rows
    rows = {row.operator: row.seconds for row in found_rows if row.phase == "decode" and row.segment == "ffn"}
    assert rows["gate"] == pytest.approx(rows["up"])
    columns = 2.0 * model.ffn_intermediate
    gemm = Gemm(2.0, model.hidden, columns, model.hidden * columns * 2, 2.0)
    priced = die_libraries(design.chip, design.mapping.stack)
    assert priced is not None
    seconds = took("gemm", gemm, design.mapping.stack.gemm, priced.die).seconds()
    assert rows["gate"] + rows["up"] == pytest.approx(seconds * model.layers * steps, rel=1e-9)


KNOB = "space.mapping.stack.{}=choice(0.1,0.2)"


@pytest.mark.parametrize(
    ("words", "leaf"),
    [
        (("chip=h100", "stack=trtllm_h100", "workload=gemm", "mapping=tensor_parallel"), "matrix_achieved"),
        (("chip=h100", "stack=trtllm_h100", "workload=gemm", "mapping=tensor_parallel"), "experts.hbm"),
        (("chip=h100", "stack=trtllm_h100", "workload=experts"), "hbm_achieved"),
        (("chip=a100", "stack=vllm_a100", "workload=elementwise"), "hbm_achieved"),
        (("chip=h100", "stack=trtllm_h100", "model=llama3_8b"), "experts.hbm"),
    ],
    ids=str,
)
def test_a_knob_that_no_kernel_reads_is_refused(words: tuple[str, ...], leaf: str) -> None:
    with pytest.raises(DesignError, match=r"space\.mapping\.stack\..*: has no effect"):
        asked(*words, "+" + KNOB.format(leaf))


@pytest.mark.parametrize(
    ("words", "leaf"),
    [
        (("chip=h100", "workload=gemm", "mapping=tensor_parallel"), "matrix_achieved"),
        (("chip=h100", "stack=flash3_h100", "model=llama3_8b"), "hbm_achieved"),
        (("chip=h100", "stack=trtllm_h100", "model=mixtral_8x7b", "mapping.both.allreduce=library"), "experts.hbm"),
        (("chip=a100", "stack=eager_a100", "workload=elementwise", "workload.operator=rotate"), "hbm_achieved"),
    ],
    ids=str,
)
def test_a_knob_that_some_kernel_reads_moves_it(words: tuple[str, ...], leaf: str) -> None:
    question = asked(*words, "+" + KNOB.format(leaf), "workload.rows=[500000]" if "workload=elementwise" in words else "seed=0")
    designs = question.space.stack(question.space.grid(0, 2))
    slow, fast = evaluate(designs, question.workload).columns["latency"]
    assert slow > fast


MANY = (
    "chip=h800_ep",
    "stack=trtllm_h100",
    "chip.dies.rows=2",
    "chip.dies.cols=4",
    "chip.nodes.size=4",
    "model=deepseek_v2_lite",
    "workload.batch=[16]",
    "workload.prompt=512",
    "workload.output=4",
    "mapping.both.ep=4",
)


def test_many_dies_ask_the_library_too() -> None:
    question = asked(*MANY)
    explanation = explain(question.base, question.workload.cases[0])
    tuned = {
        (row.phase, row.segment, row.operator): row.seconds
        for row in explain(asked(*MANY, "stack=tuned").base, question.workload.cases[0]).rows
    }
    moved = {
        row.operator for row in explanation.rows if abs(row.seconds / tuned[row.phase, row.segment, row.operator] - 1) > 1e-9
    }
    assert {"experts_gate", "experts_down", "experts_activation", "shared_up", "o_proj", "head", "attention"} <= moved
    assert not moved & {"attention_norm", "rope"}
    latency = evaluate(stack_designs([question.base]), question.workload).columns["latency"][0]
    assert sum(row.seconds for row in explanation.rows) == pytest.approx(latency, rel=1e-9)


def test_requests_that_are_served_take_what_the_library_says() -> None:
    words = (
        "chip=h100",
        "model=qwen3_1b7",
        "workload=serving",
        "workload.requests=6",
        "workload.prompt=300",
        "workload.output=8",
        *BITS,
    )
    none, slow = (metrics(*words, PRODUCTS.replace("start: 4 us", f"start: {start} us"))["tpot"] for start in (0, 40))
    layers, kernels = 28, 4  # of a layer: q, k and v; o; gate and up; down
    assert slow - none == pytest.approx(40e-6 * (layers * kernels + 1), rel=0.02)
