"""A model on a mesh of tiles: batch = one by one, breakdown = total, readers agree, limits as values with what would do."""

import re
from itertools import product
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dse.commands.evaluate_output import print_evaluation_of
from dse.config.compose import compose
from dse.evaluators import METRICS, evaluate, explain
from dse.evaluators.evaluation import explain_infeasibility
from dse.evaluators.silicon.area import area_by_block
from dse.space.chip import channel_count, main_memory_bytes, memory_bytes_per_core
from dse.space.design import Design, stack_designs
from dse.space.fields import replace_leaves
from dse.space.mapping import EXPERT_PARTITIONS, PARTITIONS, PLACEMENTS
from dse.space.parameter_counts import cached_values_at
from dse.space.workload import Workload
from tests.marks import slow_if
from tests.samples import asked

CHIPS = Path(__file__).resolve().parents[2] / "conf" / "chip"
NPUS = sorted(path.stem for path in CHIPS.glob("npu*.yaml") if "tile:" in path.read_text())
TILES = sorted(path.stem for path in CHIPS.glob("tile*.yaml"))
MODELS = ("qwen3_4b", "qwen3_30b_a3b", "deepseek_v2_lite")
ONE = ("chip=npu64", "model=qwen3_4b", "workload.batch=[1]", "workload.prompt=1280", "workload.output=256")


def both(**knobs: object) -> dict[str, object]:
    return {f"mapping.{phase}.{name}": value for phase in ("prefill", "decode") for name, value in knobs.items()}


def columns(design: Design, workload: Workload, **options: str) -> dict[str, float]:
    return {name: float(column[0]) for name, column in evaluate(stack_designs([design]), workload, **options).columns.items()}


def varied(base: Design) -> list[Design]:
    rng = np.random.default_rng(7)
    designs = []
    for _ in range(12):
        knobs = both(
            tp=int(rng.choice([1, 2, 4, 8])),
            pp=int(rng.choice([1, 4, 16])),
            partition=str(rng.choice(PARTITIONS)),
            placement=str(rng.choice(PLACEMENTS)),
            experts=str(rng.choice(EXPERT_PARTITIONS)),
        )
        knobs |= {"chip.tile.sram": float(rng.choice([8e6, 128e6])), "chip.noc.word_bytes": float(rng.choice([32, 512]))}
        knobs |= {
            "chip.tile.matrix.rows": int(rng.choice([32, 64, 128])),
            "mapping.sram_kv_share": float(rng.choice([0.1, 0.9])),
        }
        designs.append(replace_leaves(base, knobs))
    return designs


@slow_if(lambda fidelity: fidelity == "cycles")
@pytest.mark.sampled
@pytest.mark.parametrize(("model", "fidelity"), [*product(MODELS, ("analytical", "events")), (MODELS[0], "cycles")])
@pytest.mark.parametrize("batch", ["[1]", "[3,8]"])
def test_a_batch_is_its_singles(model: str, batch: str, fidelity: str) -> None:
    asked_ = asked(*ONE, f"model={model}", f"workload.batch={batch}", "workload.prompt=96", "workload.output=8")
    designs = varied(asked_.base)
    many = evaluate(stack_designs(designs), asked_.workload, fidelity=fidelity)
    for row, design in enumerate(designs):
        evaluation = evaluate(stack_designs([design]), asked_.workload, fidelity=fidelity)
        for name in METRICS:
            assert many.columns[name][row] == pytest.approx(evaluation.columns[name][0], rel=1e-12, nan_ok=True), name
        assert many.limit[row] == evaluation.limit[0]
        assert many.need[row] == pytest.approx(evaluation.need[0])


def test_a_batch_whose_memories_differ_in_their_banks_is_its_singles() -> None:
    """Banks are played, one memory after the other."""
    asked_ = asked("chip=npu64", "model=qwen3_4b", "workload.batch=[1,3]", "workload.sequence=[256]")
    slow = {"chip.hbm.banks.clock": 3e8, "chip.hbm.latency": 2e-7}
    designs = [asked_.base, replace_leaves(asked_.base, slow)]
    together = evaluate(stack_designs(designs), asked_.workload, fidelity="events").columns["latency"]
    singles = [
        evaluate(stack_designs([design]), asked_.workload, fidelity="events").columns["latency"][0] for design in designs
    ]
    assert together == pytest.approx(singles, rel=1e-12)
    assert singles[1] > singles[0]


@slow_if(lambda prompt, model: (prompt, model) == (1000, "qwen3_4b"))
@pytest.mark.parametrize("model", ["mistral_7b", "qwen3_4b"])  # the first looks back 4096 tokens
@pytest.mark.parametrize("prompt", [1000, 6000])
def test_tiles_and_dies_have_the_same_products_to_do(model: str, prompt: int) -> None:
    work = (f"model={model}", "workload.batch=[3]", f"workload.prompt={prompt}", "workload.output=8")
    tiles = asked("chip=npu64", "mapping.prefill.tp=1", "mapping.decode.tp=1", *work)
    dies = asked("chip=npu_dse", "mapping.prefill.tp=4", "mapping.decode.tp=4", *work)
    flop = [
        sum(row.flop for row in explain(each.base, each.workload.cases[0], fidelity="analytical").rows)
        for each in (tiles, dies)
    ]
    assert flop[0] == pytest.approx(flop[1], rel=1e-9)  # of all devices


@pytest.mark.sampled
@pytest.mark.parametrize("fidelity", ["analytical", "events"])
@pytest.mark.parametrize("batch", [1, 40])
@pytest.mark.parametrize("partition", PARTITIONS)
def test_the_breakdown_sums_to_the_total(partition: str, batch: int, fidelity: str) -> None:
    asked_ = asked(*ONE, f"workload.batch=[{batch}]", "workload.prompt=64", f"mapping.prefill.partition={partition}")
    parts = explain(asked_.base, asked_.workload.cases[0], fidelity=fidelity)
    assert parts.seconds == pytest.approx(columns(asked_.base, asked_.workload, fidelity=fidelity)["latency"], rel=1e-9)
    assert sum(parts.by_bound().values()) == pytest.approx(parts.seconds, rel=1e-9)
    assert all(value >= -1e-12 for row in parts.rows for name, value in row.parts.items() if name != "overlap")


@pytest.mark.parametrize("partition", ["input_only", "mn", "k"])
@pytest.mark.parametrize("placement", PLACEMENTS)
def test_readers_agree(partition: str, placement: str) -> None:
    asked_ = asked(*ONE)
    design = replace_leaves(asked_.base, both(partition=partition, placement=placement))
    closed, events = (columns(design, asked_.workload, fidelity=name)["latency"] for name in ("analytical", "events"))
    apart = partition == "k" and placement == "linear_interleave"  # sums in turns get out of step there
    assert events == pytest.approx(closed, rel=0.02 if apart else 0.01)


@pytest.mark.parametrize("chip", NPUS)
def test_every_npu_that_ships_serves_a_model(chip: str) -> None:
    asked_ = asked(f"chip={chip}", *ONE[1:])
    assert explain_infeasibility(asked_.base, asked_.workload) is None
    found_columns = columns(asked_.base, asked_.workload)
    assert all(value > 0 for value in found_columns.values() if value == value)


@pytest.mark.sampled
@given(
    st.sampled_from(
        [
            ("chip.noc.word_bytes", 256.0), ("chip.hbm.channel_bandwidth", 480e9), ("chip.tile.sram", 128e6),
            ("chip.clock", 1e9),
            ("chip.tile.vector.lanes", 8192.0), ("chip.tile.sram_per_row", 64.0), ("chip.hbm.latency", 0.0),
        ]
    ),
    st.sampled_from(PARTITIONS),
    st.sampled_from(PLACEMENTS),
    st.integers(1, 20),
)  # fmt: skip
@settings(max_examples=40, deadline=None)
def test_more_never_hurts(better: tuple[str, float], partition: str, placement: str, batch: int) -> None:
    asked_ = asked(*ONE, f"workload.batch=[{batch}]")
    design = replace_leaves(asked_.base, both(partition=partition, placement=placement))
    before = columns(design, asked_.workload)["latency"]
    assert columns(replace_leaves(design, {better[0]: better[1]}), asked_.workload)["latency"] <= before * (1 + 1e-9)


@pytest.mark.parametrize("chip", NPUS)
def test_a_larger_mesh_brings_the_memory_of_its_cores(chip: str) -> None:
    """Where channels are at cores, capacity and bandwidth are a core's too: a knob of the mesh leaves a core as it is."""
    asked_ = asked(f"chip={chip}", *ONE[1:])
    npu = asked_.base.chip
    assert npu.hbm.channel_side == "core"
    larger = replace_leaves(npu, {"mesh.rows": 2 * npu.mesh.rows})
    assert main_memory_bytes(larger) == 2 * main_memory_bytes(npu) == 2 * {"npu64": 128e9, "npu256": 256e9}[chip]
    assert channel_count(larger) == 2 * channel_count(npu)
    before, after = (area_by_block(chip)["hbm_phy"] / main_memory_bytes(chip) for chip in (npu, larger))
    assert after == pytest.approx(before)
    few = {"mapping.prefill.tp": 1, "mapping.prefill.pp": 1, "mapping.decode.tp": 1, "mapping.decode.pp": 1}
    tight = replace_leaves(asked("model=qwen3_32b", f"chip={chip}", "workload.batch=[1]").base, few)
    worst, still = (explain_infeasibility(replace_leaves(tight, {"chip.mesh.rows": rows}), asked_.workload) for rows in (8, 32))
    assert worst is not None
    assert still is not None
    assert (worst.limit, worst.have) == ("chip.hbm.capacity", still.have)


@pytest.mark.parametrize("chip", [name for name in TILES if name not in NPUS])
def test_memory_at_an_edge_is_the_whole_chip_s(chip: str) -> None:
    tiles = asked(f"chip={chip}", "workload=attention").base.chip
    larger = replace_leaves(tiles, {"mesh.rows": 2 * tiles.mesh.rows})
    assert main_memory_bytes(larger) == main_memory_bytes(tiles)
    assert memory_bytes_per_core(larger) == memory_bytes_per_core(tiles) / 2


def test_what_does_not_fit_says_what_would() -> None:
    asked_ = asked(*ONE, "model=qwen3_32b", "mapping.prefill.tp=1", "mapping.prefill.pp=1")
    worst = explain_infeasibility(asked_.base, asked_.workload)
    assert worst is not None
    assert worst.limit == "chip.hbm.capacity"
    assert "TP" in worst.remedy
    assert "PP" in worst.remedy
    tp, pp = worst.remedy.split("mapping.both.tp=")[1].split(" mapping.both.pp=")
    trial = replace_leaves(asked_.base, both(tp=int(tp), pp=int(pp)))
    assert explain_infeasibility(trial, asked_.workload) is None
    assert int(tp) * int(pp) > 1


def test_memory_is_that_of_the_model() -> None:
    """What stays and what is in HBM are all weights and all of the cache."""
    asked_ = asked(*ONE, "mapping.prefill.tp=4", "mapping.prefill.pp=1")
    found_columns = columns(asked_.base, asked_.workload)
    case = asked_.workload.cases[0]
    weights, cached = 4.022e9 * 2 / 4, cached_values_at(case.model, case.longest - 1) * 2 / 4
    assert found_columns["sram_used"] + found_columns["hbm_used"] == pytest.approx(weights + cached, rel=0.01)


def test_whole_experts_are_those_that_are_divided_elsewhere() -> None:
    """All weights are somewhere; the work of all cores is the same; the core with most rows decides, and more so with skew."""
    moe = (*ONE, "model=qwen3_30b_a3b", "mapping.prefill.tp=8", "mapping.prefill.pp=8")
    questions = [asked(*moe, f"mapping.prefill.experts={experts}") for experts in EXPERT_PARTITIONS]
    divided, whole = (columns(question.base, question.workload) for question in questions)
    assert whole["sram_used"] + whole["hbm_used"] == pytest.approx(divided["sram_used"] + divided["hbm_used"])
    counts = [sum(row.flop for row in explain(question.base, question.workload.cases[0]).rows) for question in questions]
    assert counts[0] == pytest.approx(counts[1])
    skewed = asked(*moe, "mapping.prefill.experts=whole", "+model.qwen3_30b_a3b.experts.skew=1.0")
    assert columns(skewed.base, skewed.workload)["ttft"] > whole["ttft"]


def test_a_larger_batch_reads_weights_no_more_often() -> None:
    """Where HBM decides, requests that decode together share what is read."""
    small, large = (
        asked(*ONE, f"workload.batch=[{n}]", "chip.hbm.channel_bandwidth=60GB/s", "workload.prompt=64") for n in (16, 64)
    )
    steps = [columns(question.base, question.workload)["tpot"] for question in (small, large)]
    assert steps[0] <= steps[1] < 1.2 * steps[0]


@pytest.mark.parametrize("words", [(), ("mapping=npu_prefetch", "mapping.both.tp=16", "mapping.both.pp=4")])
def test_shares_of_work_that_overlaps_add_up_to_all_of_it(words: tuple[str, ...], capsys: pytest.CaptureFixture[str]) -> None:
    """Requests follow one another through stages, so that the time is less than the work: no share is above 100 %."""
    line = ("chip=npu64", "model=qwen3_8b", "workload.batch=[16]", "workload.sequence=[2048]", *words)
    question = asked(*line)
    parts = explain(question.base, question.workload.cases[0])
    assert parts.by_bound()["overlap"] < 0
    assert sum(parts.seconds_by_cause().values()) == pytest.approx(sum(row.seconds for row in parts.rows if row.seconds > 0))
    print_evaluation_of(compose(line), as_json=False)
    text = capsys.readouterr().out
    shares = [float(share) for share in re.findall(r"([\d.]+)%", text[text.index("bound by") :].splitlines()[0])]
    assert 97 < sum(shares) < 102  # whole percents
    assert " of work, partly in parallel" in " ".join(text.split())


def test_sequences_of_vector_instructions_start_on_pipelines_as_on_tiles() -> None:
    """One for each operator of elements, and for each KV head of attention; products start none."""
    words = ("chip=npu64", "model=qwen3_1b7", "workload.batch=[4]", "workload.prompt=60", "workload.output=4")
    spent = []
    for cycles in (0, 100):
        question = asked(*words, "mapping.both.tp=4", "mapping.both.pp=1", f"chip.tile.vector.start='{cycles} cycle'")
        rows = explain(
            question.base, question.workload.cases[0], decode_context=question.workload.decode_context, fidelity="analytical"
        ).rows
        spent.append({row.operator: row.seconds * question.base.chip.clock / 100 for row in rows if row.phase == "prefill"})
    starts = {name: after - spent[0].get(name, 0.0) for name, after in spent[1].items()}
    layers, requests, heads = 28, 4, 8 // 4
    for name in ("attention_norm", "rope", "ffn_norm", "activation"):
        assert starts[name] == pytest.approx(layers * requests)
    assert starts["attention"] == pytest.approx(layers * requests * heads)
    assert starts["final_norm"] == pytest.approx(requests)
    assert all(starts[name] == pytest.approx(0, abs=1e-6) for name in ("q_proj", "gate", "down", "head"))
