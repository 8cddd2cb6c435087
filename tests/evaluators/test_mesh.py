"""A model on a mesh of cores: batch = one by one, breakdown = total, limits as values, regions that fill with requests."""

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dse.evaluators import METRICS, evaluate, explain
from dse.evaluators.evaluation import explain_infeasibility
from dse.evaluators.silicon.energy import static_power
from dse.space.design import Design, stack_designs
from dse.space.errors import DesignError
from dse.space.fields import replace_leaves
from dse.space.workload import Workload
from tests.samples import asked

CHIPS = Path(__file__).resolve().parents[2] / "conf" / "chip"
MESHES = sorted(path.stem for path in CHIPS.glob("*.yaml") if "noc:" in path.read_text() and "tile:" not in path.read_text())
ONE = ("chip=wse2", "workload.batch=[1]", "workload.prompt=2048", "workload.output=128")


def columns(design: Design, workload: Workload, **options: str) -> dict[str, float]:
    return {name: float(column[0]) for name, column in evaluate(stack_designs([design]), workload, **options).columns.items()}


def varied(*overrides: str) -> list[Design]:
    base = asked(*ONE, *overrides).base
    rng = np.random.default_rng(3)
    designs = []
    for _ in range(12):
        changes: dict[str, object] = {
            "mapping.prefill.rows": int(rng.integers(3, 751)),
            "mapping.decode.rows": int(rng.integers(3, 751)),
            "mapping.decode.cols": int(rng.choice([0, 120, 360])),
            "mapping.decode.ktree_k": int(rng.integers(1, 4)),
            "mapping.decode.regions": int(rng.choice([0, 1, 3])),
            "chip.core.sram": float(rng.choice([49152, 262144])),
            "mapping.prefill.gemm": str(rng.choice(["meshgemm", "cannon", "summa"])),
        }
        designs.append(replace_leaves(base, changes))
    return designs


@pytest.mark.sampled
@pytest.mark.parametrize("model", ["llama3_8b", "mixtral_8x7b", "qwen3_30b_a3b"])
@pytest.mark.parametrize("batch", ["[1]", "[3,8]"])
def test_a_batch_is_its_singles(model: str, batch: str) -> None:
    asked_ = asked(*ONE, f"model={model}", f"workload.batch={batch}")
    designs = varied(f"model={model}", f"workload.batch={batch}")
    many = evaluate(stack_designs(designs), asked_.workload)
    for row, design in enumerate(designs):
        evaluation = evaluate(stack_designs([design]), asked_.workload)
        for name in METRICS:
            assert many.columns[name][row] == pytest.approx(evaluation.columns[name][0], rel=1e-12, nan_ok=True), name
        assert many.limit[row] == evaluation.limit[0]
        assert many.need[row] == pytest.approx(evaluation.need[0])


@pytest.mark.parametrize("batch", [1, 4, 16])
@pytest.mark.parametrize("mapping", ["waferllm", "t10", "ladder"])
def test_the_breakdown_sums_to_the_total(mapping: str, batch: int) -> None:
    asked_ = asked(*ONE, f"mapping={mapping}", f"workload.batch=[{batch}]")
    parts = explain(asked_.base, asked_.workload.cases[0])
    assert parts.seconds == pytest.approx(columns(asked_.base, asked_.workload)["latency"], rel=1e-9)
    assert sum(parts.by_bound().values()) == pytest.approx(parts.seconds, rel=1e-9)
    assert all(value >= -1e-12 for row in parts.rows for name, value in row.parts.items() if name != "overlap")


@pytest.mark.parametrize("chip", MESHES)
def test_every_mesh_that_ships_serves_a_model(chip: str) -> None:
    asked_ = asked(f"chip={chip}", *ONE[1:])
    assert explain_infeasibility(asked_.base, asked_.workload) is None
    found_columns = columns(asked_.base, asked_.workload)
    assert all(value > 0 for name, value in found_columns.items() if value == value and name != "relayout_time")
    parts = explain(asked_.base, asked_.workload.cases[0])
    assert parts.seconds == pytest.approx(found_columns["latency"], rel=1e-9)
    for name, kernel in (("gemm", "1024x1024x1024"), ("gemv", "1x4096x4096")):
        alone = asked(f"chip={chip}", f"workload={name}", f"workload.shapes=[{kernel}]", "mapping.rows=150")
        assert explain_infeasibility(alone.base, alone.workload) is None
        assert 0 < columns(alone.base, alone.workload)["compute_share"] < 1


def test_a_chip_of_twice_the_lanes_is_faster_by_less() -> None:
    wse2, wse3 = (columns(asked(f"chip={chip}", *ONE[1:]).base, asked(*ONE).workload) for chip in ("wse2", "wse3"))
    for metric in ("ttft", "tpot"):
        assert wse2[metric] / 2 < wse3[metric] < wse2[metric]


def test_systems_rank_as_the_paper_measured_them() -> None:
    """[he2025] tables 3 and 4: WaferLLM before T10 before Ladder, in both phases."""
    rates = {name: columns(asked(*ONE, f"mapping={name}").base, asked(*ONE).workload) for name in ("waferllm", "t10", "ladder")}
    for metric in ("prefill_throughput", "tokens_per_s_per_user"):
        assert rates["waferllm"][metric] > 4 * rates["t10"][metric] > 4 * rates["ladder"][metric]


def test_regions_fill_with_requests() -> None:
    """One request keeps one of six regions busy; six requests run six times as fast together, each as fast as alone."""
    question, six = (asked(*ONE, f"workload.batch=[{batch}]") for batch in (1, 6))
    alone, together = columns(question.base, question.workload), columns(six.base, six.workload)
    assert together["tpot"] == pytest.approx(alone["tpot"], rel=0.15)
    assert together["decode_throughput"] == pytest.approx(6 * alone["decode_throughput"], rel=0.15)


def test_shifting_holds_as_many_times_more_as_there_are_rows() -> None:
    held = {
        kv: columns(asked(*ONE, f"mapping.kv_placement={kv}").base, asked(*ONE).workload)["kv_capacity"]
        for kv in ("shift", "concat")
    }
    assert held["shift"] == 360 * held["concat"]


@given(
    st.sampled_from(
        [
            "chip.noc.hop_cycles",
            "chip.core.software_stage",
            "chip.core.word_copy",
            "chip.core.launch",
            "chip.core.message_start",
        ]
    )
)
@settings(max_examples=10, deadline=None)
def test_a_faster_part_never_hurts(address: str) -> None:
    asked_ = asked(*ONE)
    slow = columns(asked_.base, asked_.workload)
    fast = columns(replace_leaves(asked_.base, {address: 0.0}), asked_.workload)
    assert fast["ttft"] <= slow["ttft"]
    assert fast["tpot"] <= slow["tpot"]


@pytest.mark.sampled
@pytest.mark.parametrize(
    ("overrides", "limit", "message"),
    [
        (("mapping.decode.rows=100",), "chip.core.sram", "decode fits on"),
        (("model=codellama_34b",), "chip.core.sram", "no square mesh of this chip fits prefill, "),
        (("mapping.prefill.rows=900",), "chip.mesh.rows", "fits on"),
        (("mapping.prefill.rows=2", "chip.core.sram=1 GB"), "mapping.prefill.rows", "prefill fits on"),
        (("mapping.decode.ktree_k=500", "chip.noc.routing_paths=1000"), "mapping.decode.rows", "decode fits on"),
        (("mapping.decode.ktree_k=40",), "chip.noc.routing_paths", "decode fits with mapping.decode.ktree_k=23"),
        (("mapping.prefill.rows=661", "mapping.prefill.cols=660"), "mapping.prefill.cols", "prefill fits on"),
        (("mapping.decode.regions=9",), "mapping.decode.regions", "decode fits on"),
    ],
)
def test_what_cannot_be_is_a_value_that_says_what_would_do(overrides: tuple[str, ...], limit: str, message: str) -> None:
    asked_ = asked(*ONE, *overrides)
    verdict = explain_infeasibility(asked_.base, asked_.workload)
    assert verdict is not None
    assert verdict.limit == limit, verdict
    assert message in str(verdict)
    assert verdict.need > verdict.have
    if verdict.parts:
        assert sum(value for _, value in verdict.parts) == pytest.approx(verdict.need)


def test_the_mesh_that_would_do_does() -> None:
    asked_ = asked(*ONE, "mapping.decode.rows=100")
    verdict = explain_infeasibility(asked_.base, asked_.workload)
    assert verdict is not None
    side = int(verdict.remedy.split("decode fits on ")[1].split()[0])
    better = replace_leaves(asked_.base, {"mapping.decode.rows": side})
    assert explain_infeasibility(better, asked_.workload) is None
    smaller = replace_leaves(asked_.base, {"mapping.decode.rows": side - 1})
    assert explain_infeasibility(smaller, asked_.workload) is not None


def test_a_format_without_kernels_is_refused_by_name() -> None:
    asked_ = asked(*ONE, "mapping.precision.activations=int8")
    with pytest.raises(DesignError, match="int8"):
        evaluate(stack_designs([asked_.base]), asked_.workload).require_compatible()


@pytest.mark.parametrize("window", [0, 40])
def test_kernels_played_are_near_their_closed_forms(window: int) -> None:
    """A small model on a small mesh, all kernels of both phases played; formulas let a message wait for all its way at once."""
    overrides = (
        "model=qwen3_1b7", "workload.prompt=96", "workload.output=8", "mapping.prefill.rows=24", "mapping.decode.rows=32",
        f"+model.qwen3_1b7.window={window}",
    )  # fmt: skip
    asked_ = asked(*ONE, *overrides)
    closed = columns(asked_.base, asked_.workload)
    played = columns(asked_.base, asked_.workload, fidelity="events")
    for name in ("ttft", "tpot", "energy"):
        assert closed[name] == pytest.approx(played[name], rel=0.07), name


@pytest.mark.parametrize("prompt", [4000, 9000, 30000])
def test_a_sliding_window_never_makes_a_model_slower_and_long_prompts_much_faster(prompt: int) -> None:
    words = ("model=mistral_7b", f"workload.prompt={prompt}", "model.max_position=65536")
    whole, near = asked(*ONE, *words, "model.mistral_7b.window=0"), asked(*ONE, *words)
    designs = stack_designs(varied("model=mistral_7b"))
    slow, fast = (evaluate(designs, question.workload).columns for question in (whole, near))
    for name in ("ttft", "tpot", "sram_used"):
        assert (fast[name] <= slow[name] * (1 + 1e-12)).all(), name
    shares = fast["ttft"] / slow["ttft"]
    assert (shares == 1).all() if prompt < 4096 else (shares < 1).any()
    assert prompt < 30000 or (shares < 0.8).all()


@pytest.mark.parametrize(("model", "normed"), [("qwen3_8b", 2), ("llama3_8b", 0)])
def test_queries_and_keys_of_each_head_are_normed_in_both_phases_before_they_are_rotated(model: str, normed: int) -> None:
    question = asked(*ONE, f"model={model}")
    rows = explain(question.base, question.workload.cases[0]).rows
    for phase in ("prefill", "decode"):
        names = [row.operator for row in rows if row.phase == phase and row.segment == "attention"]
        assert [name in ("q_norm", "k_norm") for name in names[: names.index("rope")]].count(True) == normed
        assert not {"q_norm", "k_norm"} & set(names[names.index("rope") :])


def test_energy_is_below_the_rated_power_whose_product_with_time_the_paper_divides() -> None:
    """[he2025] tables 6 to 8 divide power x time; ours is counted: a wafer that waits for words takes less than its rating."""
    asked_ = asked(*ONE)
    found_columns = columns(asked_.base, asked_.workload)
    assert (
        static_power(asked_.base.chip) * found_columns["latency"]
        < found_columns["energy"]
        < asked_.base.chip.power * found_columns["latency"]
    )
    assert found_columns["rated_energy"] == pytest.approx(asked_.base.chip.power * found_columns["latency"])
