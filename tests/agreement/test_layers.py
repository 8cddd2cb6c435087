"""A decoder layer walked from the calls of a layout, in their order and shapes, is the layer as NumPy has it."""

import os
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from dse.evaluators.kernels.attention import ATTENTION
from dse.evaluators.kernels.collective import ALLREDUCE
from dse.evaluators.kernels.gemm import GEMM
from dse.evaluators.kernels.gemm.tiling import GemmShape
from dse.evaluators.kernels.gemv import GEMV
from dse.evaluators.kernels.kv import KV
from dse.evaluators.kernels.partition import PARTITION
from dse.space.mapping import AUTO, KV_HEADS, PARTITIONS, PLACEMENTS
from dse.space.model import ExpertLayers, SparseIndexer
from tests.agreement.latents import INDEXERS, LATENTS, PICKED, latents
from tests.agreement.latents import SIZES as LATENT_SIZES
from tests.agreement.layers import CAPPED, DENSE, EVEN, PARTLY, SPARSE, SUNK, Drawn, balanced, decoder_layer, drawn
from tests.agreement.walks import faulty, in_region, noticed, on_cores, on_devices, on_dies, on_mixed_cores, on_tiles, right

EXAMPLES = settings(max_examples=int(os.environ.get("LAYERS", "4")), deadline=None)


def straddles(draw: Drawn, tp: int) -> bool:
    """Whether heads of queries of some device have more KV heads than the layout gives one."""
    model = draw.model
    heads_per_device = -(-model.heads // tp)
    spans = [range(start, min(start + heads_per_device, model.heads)) for start in range(0, model.heads, heads_per_device)]
    each = [len({head * model.kv_heads // model.heads for head in span}) for span in spans]
    return max(each) > -(-model.kv_heads // tp)


@given(DENSE | SPARSE, st.integers(1, 5), st.sampled_from(sorted(ALLREDUCE)), st.integers(1, 3))
@EXAMPLES
def test_devices_compute_the_layer(draw: Drawn, tp: int, algorithm: str, phases: int) -> None:
    assume(not straddles(draw, tp))
    assert right(on_devices(draw, tp, algorithm, phases), draw)


@st.composite
def regions(draw: Any, rope: float = 1.0) -> tuple[Drawn, Any]:
    """A layer whose heads lie evenly on the columns of a region, and the region."""
    phase, cols = draw(st.sampled_from(["prefill", "decode"])), draw(st.sampled_from([3, 4]))
    heads = draw(st.sampled_from([cols, 2 * cols] + [2] * (cols == 4)))
    shared = draw(st.sampled_from([count for count in (1, 2, 3) if heads % count == 0]))
    vectors = phase == "decode"
    experts = ExpertLayers(count=4, top_k=2, intermediate=7, shared=1, load="even") if draw(st.booleans()) else None
    sequences, tokens, seed = draw(st.integers(1, 2)) if vectors else 1, draw(st.integers(1, 7)), draw(st.integers(0, 99))
    projection = draw(st.sampled_from(KV_HEADS))
    # norms of keys whose heads lie across columns are padded, which the walk on numbers does not follow
    normed = draw(st.booleans()) and not (projection == "own" and heads // shared % cols)
    settings = {"experts": experts, "normed": normed, "gated": draw(st.booleans()), "rope": rope}
    given_draw = drawn(phase, heads // shared, shared, sequences, tokens, seed, **settings)
    words = {
        "prefill__gemm": draw(st.sampled_from(sorted({AUTO, *GEMM} - {"meshgemm_t", "meshgemm_v"}))),
        "prefill__gemv": draw(st.sampled_from(sorted({AUTO, *GEMV}))),
        "decode__gemv": draw(st.sampled_from(sorted({AUTO, *GEMV}))),
        "kv_placement": draw(st.sampled_from(sorted(KV))), "kv_heads": draw(st.sampled_from(KV_HEADS)),
        "kv_projection": projection,
        "precision__weights": draw(st.sampled_from(["fp16", "int8", "mxfp4"])),
        "precision__kv": draw(st.sampled_from(["fp16", "mxfp8", "int4_head"])),
    }  # fmt: skip
    return balanced(given_draw) if experts else given_draw, {
        "rows": draw(st.integers(2, 4)) if vectors else cols,
        "cols": cols,
        **words,
    }


@given(PARTLY, st.integers(1, 5))
@EXAMPLES
def test_devices_norm_whole_heads_and_turn_a_part_of_them(draw: Drawn, tp: int) -> None:
    assume(not straddles(draw, tp))
    assert right(on_devices(draw, tp), draw)
    assert right(on_cores(draw, tp=tp), draw)


@given(PARTLY, st.integers(1, 3), st.integers(1, 3))
@EXAMPLES
def test_tiles_norm_whole_heads_and_turn_a_part_of_them(draw: Drawn, rows: int, cols: int) -> None:
    assert right(on_tiles(draw, rows, cols), draw)


def test_a_norm_of_heads_that_is_left_out_before_a_rotation_is_noticed() -> None:
    draw = drawn("decode", 2, 2, 2, 1, 0, head_dim=8, rope=0.25)
    walk = on_tiles(draw)
    assert right(walk, draw)
    assert not [name for name, fault in faulty(walk) if not noticed(fault, draw)]


@given(regions(rope=0.5))
@EXAMPLES
def test_a_region_norms_whole_heads_and_turns_a_part_of_them(drawn_: tuple[Drawn, Any]) -> None:
    draw, place = drawn_
    assert right(in_region(draw, **place), draw)


def test_norms_of_heads_are_of_whole_heads_of_which_a_quarter_is_turned() -> None:
    """By hand, of three tokens with four heads of eight columns: four operations a column, and three of each that is turned."""
    draw = drawn("decode", 2, 2, 3, 5, 0, head_dim=8, rope=0.25)

    def calls(walk: Any) -> list[Any]:
        return [call for block in walk.steps for call in block.calls if call.name in ("heads_norm", "q_norm", "rope")]

    (device,), (core,) = calls(on_devices(draw, 1)), calls(on_cores(draw, tp=1))
    assert device.operations == core.operations == 3 * 4 * (8 * 4 + 2 * 3)
    assert device.local == 3 * 4 * 8 * (2 + 2)  # read and written in bf16
    normed, turned = calls(on_tiles(draw))
    assert (normed.job.rows, normed.job.block.width) == (3 * 4, 8)
    assert (turned.job.rows, turned.job.block.width) == (3 * 4, 1)  # of each half
    normed, turned = calls(in_region(draw, 2, 2))
    assert normed.kernel.shape == GemmShape(3 * 2, 8, 1)  # both rows of heads, on a column of cores each
    assert turned.kernel.shape == GemmShape(3, (4 + 4) * 2, 1)  # of keys too, one for each of queries


@given(DENSE | EVEN, st.integers(1, 3), st.integers(1, 3), st.sampled_from(sorted(ATTENTION)))
@EXAMPLES
def test_all_tiles_compute_the_layer(draw: Drawn, rows: int, cols: int, dataflow: str) -> None:
    assert right(on_tiles(draw, rows, cols, dataflow), draw)


WAYS = st.sampled_from(sorted(PARTITION)), st.sampled_from(PLACEMENTS), st.sampled_from([1, 2, 3, 4, 6])


@given(DENSE | SPARSE, *WAYS, st.sampled_from(["divided", "whole"]), st.booleans())
@EXAMPLES
def test_groups_of_a_pipeline_compute_the_layer(
    draw: Drawn, partition: str, placement: str, tp: int, experts: str, flat: bool
) -> None:
    assume(placement == "mesh" or partition in PARTITIONS)
    assert right(on_cores(draw, partition, placement, tp, experts, flat=flat), draw)


@given(DENSE | SPARSE, WAYS[1], WAYS[2], st.sampled_from(["divided", "whole"]), st.integers(0, 99))
@EXAMPLES
def test_groups_whose_operators_have_a_partition_each_compute_the_layer(
    draw: Drawn, placement: str, tp: int, experts: str, seed: int
) -> None:
    """With what goes to all cores between them, of which what the calls say is sent."""
    assert right(on_mixed_cores(draw, seed, placement, tp, experts), draw)


@given(
    st.sampled_from(["prefill", "decode"]),
    st.sampled_from([(1, 1), (1, 4), (2, 1), (2, 4), (4, 4)]),
    st.sampled_from(["tiles", "gather", ""]),
    st.integers(0, 99),
)
@EXAMPLES
def test_dies_compute_the_layer(phase: str, split: tuple[int, int], kind: str, seed: int) -> None:
    experts = ExpertLayers(count=8, top_k=2, intermediate=8, shared=seed % 2, load="even")
    draw = balanced(drawn(phase, 4, 2, 16, 1, seed, experts=experts, hidden=16))
    assert right(on_dies(draw, *split, tiled=kind == "tiles", gathers=kind == "gather"), draw)


@given(regions())
@EXAMPLES
def test_a_region_computes_the_layer(drawn_: tuple[Drawn, Any]) -> None:
    draw, place = drawn_
    assert right(in_region(draw, **place), draw)


@given(SUNK, st.integers(1, 3), st.sampled_from(["k", "mn", "mixed"]), st.integers(0, 99))
@EXAMPLES
def test_windows_caps_and_sinks_are_those_of_the_layer(draw: Drawn, tp: int, partition: str, seed: int) -> None:
    """As gpt-oss and Gemma 2 define them; decode has in its cache what the window shows."""
    if not straddles(draw, tp):
        assert right(on_devices(draw, tp), draw)
    placement = "ring" if partition == "k" else "mesh"
    assert right(on_mixed_cores(draw, seed) if partition == "mixed" else on_cores(draw, partition, placement, 2 * tp), draw)


@given(CAPPED, st.integers(1, 3), st.integers(1, 3), st.sampled_from(sorted(ATTENTION)))
@EXAMPLES
def test_tiles_attend_within_windows_and_cap(draw: Drawn, rows: int, cols: int, dataflow: str) -> None:
    assert right(on_tiles(draw, rows, cols, dataflow), draw)
    assert right(on_cores(draw, "k", "ring", 4, flat=True), draw)


@given(
    st.sampled_from(["prefill", "decode"]), st.sampled_from([3, 6]), st.integers(1, 2), st.integers(1, 7), st.integers(0, 5),
    st.sampled_from(sorted(KV)), st.integers(0, 99),
)  # fmt: skip
@EXAMPLES
def test_a_region_attends_within_windows_and_caps(
    phase: str, heads: int, sequences: int, tokens: int, window: int, word: str, seed: int
) -> None:
    vectors = phase == "decode"
    draw = drawn(phase, heads, 2, sequences if vectors else 1, tokens, seed, window=window, cap=0.5)
    assert right(in_region(draw, 2 if vectors else 3, 3, kv_placement=word), draw)


@given(LATENTS, st.integers(1, 4), st.integers(1, 3), st.integers(1, 3), st.sampled_from(sorted(ATTENTION)))
@EXAMPLES
def test_latent_attention_is_that_of_its_definition(draw: Drawn, tp: int, rows: int, cols: int, dataflow: str) -> None:
    """Naive in prefill and absorbed in decode; a group of a pipeline has no separate products of heads on numbers."""
    assert right(on_devices(draw, tp), draw)
    assert right(on_tiles(draw, rows, cols, dataflow), draw)
    if draw.phase == "prefill":
        assert right(on_cores(draw, "k", "ring", tp), draw)
        assert right(on_mixed_cores(draw, rows), draw)


@given(PICKED, st.integers(1, 4))
@EXAMPLES
def test_attention_to_what_an_indexer_picks_is_that_of_its_definition(draw: Drawn, tp: int) -> None:
    assert right(on_devices(draw, tp), draw)


@given(st.builds(latents, **LATENT_SIZES | {"phase": st.just("decode"), "tokens": st.integers(1, 9), "indexer": INDEXERS}),
       st.integers(1, 3), st.integers(1, 3))  # fmt: skip
@EXAMPLES
def test_tiles_pick_what_an_indexer_of_its_definition_picks(draw: Drawn, rows: int, cols: int) -> None:
    """Of a token of each sequence, by programs of scores and of the largest of them; those of a prompt are refused."""
    assert right(on_tiles(draw, rows, cols), draw)


def test_what_programs_have_not_is_refused() -> None:
    """Sinks on tiles and on a region, and there stretches of a prompt within a window; absorbed products on a group."""
    absorbed = latents("decode", 2, 1, 3, 0)
    with pytest.raises(ValueError, match=r"q_absorb.*separate products of heads"):
        right(on_cores(absorbed, "k", "ring", 2), absorbed)
    picked = latents("prefill", 2, 1, 3, 0, indexer=SparseIndexer(heads=2, dim=5, top=2))
    with pytest.raises(ValueError, match=r"'index': tokens of a prompt"):
        right(on_tiles(picked), picked)
    sunk, near = drawn("prefill", 3, 1, 1, 5, 0, sinks=True), drawn("prefill", 6, 1, 1, 5, 0, window=1)
    for walk, draw in ((on_tiles(sunk), sunk), (in_region(sunk, 3, 3), sunk), (in_region(near, 6, 6), near)):
        with pytest.raises(ValueError, match=r"no sinks|stretches of a prompt"):
            right(walk, draw)


def test_heads_that_straddle_are_refused() -> None:
    """Six heads of queries that share two of keys, on three devices: one of them needs both, and is given one."""
    draw = drawn("prefill", 2, 3, 1, 2, 0)
    with pytest.raises(ValueError, match="worker 1: has 1 KV heads from 0 on, not those of all its heads"):
        right(on_devices(draw, 3), draw)


SIZES = {
    "devices": (4, 1, 1, 2), "tiles": (2, 2, 2, 1), "cores by heads": (4, 1, 1, 2), "cores by rows": (2, 1, 2, 3),
    "cores by blocks": (2, 1, 2, 2), "cores by words": (4, 1, 4, 1),
    "dies": (4, 2, 4, 2), "gathering dies": (4, 2, 4, 2), "region": (3, 1, 1, 4),
}  # fmt: skip
"""KV heads, heads of queries of each, sequences and tokens; heads lie evenly on three columns of a region."""

LAYOUTS: dict[str, Any] = {
    "devices": on_devices,
    "tiles": on_tiles,
    "cores by heads": on_cores,
    "cores by rows": lambda draw: on_cores(draw, "mn", "mesh", 4),
    "cores by blocks": lambda draw: on_cores(draw, "mn_k", "mesh", 4),
    "cores by words": lambda draw: on_mixed_cores(draw, 1),
    "dies": on_dies,
    "gathering dies": lambda draw: on_dies(draw, gathers=True),
    "region": lambda draw: in_region(
        draw, 3 if draw.phase == "prefill" else 2, 3, precision__weights="mxfp4", precision__kv="mxfp8"
    ),
}


CELLS = [
    ("devices", "prefill"), ("tiles", "decode"), ("cores by heads", "decode"), ("cores by rows", "prefill"),
    ("cores by blocks", "prefill"), ("cores by words", "decode"), ("dies", "decode"), ("gathering dies", "decode"),
    ("region", "prefill"), ("region", "decode"),
]  # fmt: skip
"""Where faults are looked for: calls of both phases differ in regions alone, and rows exchange keys of prompts."""


@pytest.mark.sampled
@pytest.mark.parametrize(("layout", "phase"), CELLS)
def test_whatever_is_left_out_is_noticed(layout: str, phase: str) -> None:
    experts = ExpertLayers(count=8, top_k=2, intermediate=8, shared=1, load="even")
    draw = balanced(drawn(phase, *SIZES[layout], 0, experts=experts, hidden=16))
    walk = LAYOUTS[layout](draw)
    assert right(walk, draw)
    assert not [name for name, fault in faulty(walk) if not noticed(fault, draw)]


def test_experts_whose_tokens_no_exchange_brought_are_refused() -> None:
    experts = ExpertLayers(count=8, top_k=2, intermediate=8, shared=1, load="even")
    walk = on_dies(balanced(drawn("decode", *SIZES["dies"], 0, experts=experts, hidden=16)))
    kept = tuple(step for step in walk.steps if getattr(step, "pattern", "") != "all_to_all")
    assert len(kept) < len(walk.steps)
    with pytest.raises(ValueError, match="are not where their experts are"):
        walk.computed(kept, walk.layer)


@pytest.mark.parametrize(("layout", "phase"), [("devices", "prefill"), ("tiles", "decode")])
def test_whatever_of_latent_attention_is_left_out_is_noticed(layout: str, phase: str) -> None:
    draw = latents(phase, 4, 1, 3, 0, indexer=SparseIndexer(heads=2, dim=5, top=2))
    walk = LAYOUTS[layout](draw)
    assert right(walk, draw)
    assert not [name for name, fault in faulty(walk) if not noticed(fault, draw)]


@pytest.mark.parametrize(("layout", "phase"), [("devices", "prefill"), ("tiles", "prefill"), ("region", "decode")])
def test_a_window_or_a_cap_that_is_another_is_noticed(layout: str, phase: str) -> None:
    draw = drawn(phase, *SIZES[layout][:3], 6, 0, window=3, cap=0.5)
    walk = LAYOUTS[layout](draw)
    assert right(walk, draw)
    for scored in (draw.layer.scored._replace(window=2), draw.layer.scored._replace(cap=0.6)):
        other = draw._replace(
            expected=decoder_layer(draw.layer._replace(scored=scored), replace(draw.model, window=scored.window))
        )
        assert not right(walk, other)
