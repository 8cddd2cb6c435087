"""Leaves of a chip that nothing reads for what is asked are refused where somebody says them, and change nothing."""

import pytest

import dse
from dse.answers.answer import answered
from dse.config.compose import compose
from dse.config.idle_chip import unread_of_chip
from dse.config.unplayed import BANKS, PLAYED
from dse.space.errors import DesignError
from dse.space.fields import leaves, replaced
from tests.contract.draws import makes_sense
from tests.contract.idle import idle, others, outcome, passes
from tests.samples import asked

SMALL = ("workload.batch=[2]", "workload.prompt=60", "workload.output=4")
POOLED = ("model=deepseek_v2_lite", "mapping.both.ep=8", "chip.dies.rows=1", "workload.batch=[32]", *SMALL[1:])
QUESTIONS = (
    ("chip=a100", "model=qwen3_1b7", *SMALL, "mapping.both.tp=1"),
    ("chip=h800_ep", *POOLED),
    ("chip=npu64", "model=qwen3_1b7", "chip.mesh.rows=4", "mapping.both.pp=8", *SMALL),
    ("chip=npu64", "model=qwen3_1b7", "mapping=npu", *SMALL),
    ("chip=npu64", "model=qwen3_1b7", "mapping=npu_flat_attention", *SMALL),
    ("chip=tile_gh200", "model=qwen3_1b7", "mapping=flat", *SMALL),
    ("chip=tile32", "workload=gemm", "mapping=summa", "workload.shapes=[64x96x80]"),
    ("chip=tile32", "workload=gemm", "mapping=product", "mapping.rows=4", "workload.shapes=[64x96x80]"),
    ("chip=tile32", "workload=attention", "workload.keys=[128]"),
    ("chip=tile32", "workload=collective", "workload.pattern=[reduce,allreduce]"),
    ("chip=npu_dse", "workload=gemm", "workload.shapes=[64x96x80]"),
)
REFUSED = {
    ("chip=npu64", "model=qwen3_1b7", *SMALL): (
        "chip.tile.sync='9 cycle'",
        "chip.decode.rows=4",
        "chip.hbm.channels=32",
    ),
    ("chip=tile32", "workload=gemm"): ("chip.tile.control='9 cycle'", "chip.tile.matrix.reload=hidden"),
    ("chip=tile32", "workload=attention"): ("chip.tile.sync='9 cycle'", "+space.chip.tile.sync='tag(cycle, choice(1,2))'"),
    ("chip=npu_dse", "workload=gemm"): ("chip.hbm.gap='1 ns'", "chip.hbm.waste=0.5"),
    ("chip=a100", "model=qwen3_1b7", *SMALL, "mapping.both.tp=1"): (
        "mapping.stack.network_achieved=0.5",
        "mapping.stack.collective_call='1 us'",
        "mapping.both.allreduce=full_mesh",
        "+space.mapping.both.prefetch='choice(none,whole)'",
        "chip.network.latency='1 us'",
        "chip.network.nodes.latency='1 us'",
    ),
    ("chip=a100", "model=qwen3_1b7", *SMALL, "mapping.both.tp=4"): ("chip.network.nodes.latency='1 us'",),
    ("chip=h800_ep", *POOLED): ("chip.boxes.latency='1 s'", "chip.boxes.start='1 s'", "mapping.stack.collective_call='1 s'"),
    ("chip=npu_dse", "workload=serving"): ("mapping.serving.reuse=pool", "mapping.serving.routing=round_robin"),
}


@pytest.mark.parametrize(("question", "word"), [(question, word) for question, words in REFUSED.items() for word in words])
def test_what_nothing_reads_is_refused(question: tuple[str, ...], word: str) -> None:
    asked(*question)
    address = word.lstrip("+").partition("=")[0]
    with pytest.raises(DesignError, match=rf"^{address}: nothing reads it"):
        asked(*question, word)


@pytest.mark.parametrize("question", QUESTIONS, ids=" ".join)
def test_what_is_refused_changes_nothing(question: tuple[str, ...]) -> None:
    of = asked(*question)
    found = unread_of_chip(of.base, of.workload)
    assert found
    before = outcome(of.base, of.workload, "closed")
    assert before is not None
    for address in found:
        some = [replaced(of.base, {address: value}) for value in others(of.base, address)[:2]]
        assert all(outcome(one, of.workload, "closed") == before for one in some if makes_sense(one)), address


@pytest.mark.parametrize("question", QUESTIONS[3:5], ids=" ".join)
def test_banks_that_only_players_read_change_no_closed_form(question: tuple[str, ...]) -> None:
    of = asked(*question)
    before = outcome(of.base, of.workload, "closed")
    for address, _, _ in leaves(of.base.chip, "chip."):
        if address.startswith(BANKS) and address.removeprefix(BANKS) in PLAYED:
            some = [replaced(of.base, {address: value}) for value in others(of.base, address)]
            assert all(outcome(one, of.workload, "closed") == before for one in some if makes_sense(one)), address


@pytest.mark.parametrize(
    "words",
    [
        ("chip=tile32", "workload=attention", "workload.keys=[128]", "chip.hbm.banks.timing.rfc='400 cycle'"),
        ("chip=mesh8", "workload=traffic", "workload.packets=50"),
    ],
    ids=" ".join,
)
def test_what_only_players_read_is_refused_where_nothing_is_played(words: tuple[str, ...]) -> None:
    with pytest.raises(DesignError, match=r"nothing reads it, for .*; say fidelity=(events|cycles), or leave it out$"):
        answered(compose(words))


@pytest.mark.parametrize("question", QUESTIONS[3:], ids=" ".join)
def test_no_number_of_tiles_is_idle_that_may_be_typed(question: tuple[str, ...]) -> None:
    of = asked(*question)
    assert not [leaf for leaf in idle(of, "closed", 2, 0, "chip.tile.") if passes(question, of.base, leaf)]


@pytest.mark.parametrize("address", ["chip.noc.vcs", "chip.noc.depth"])
def test_buffers_of_routers_take_area_where_no_flits_are_played(address: str) -> None:
    words = ("chip=wse2", "workload=gemm", "workload.shapes=[64x64x64]", "mapping.rows=4")
    few, many = (dse.evaluate(*words, f"{address}={number}").metrics for number in (2, 8))
    assert few["die_mm2"] < many["die_mm2"]
    assert few["latency"] == many["latency"]


def test_a_knob_of_sums_counts_where_devices_share_layers() -> None:
    of = asked("chip=a100", "+space.mapping.both.tp=choice(1,2)", "+space.mapping.both.allreduce=choice(ring,full_mesh)")
    columns = of.space.grid(0, of.space.combinations or 0)
    assert len(columns["mapping.both.tp"]) == 1 + 2
