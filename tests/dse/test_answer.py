"""What is told of one design, and of a study in which nothing is feasible: at the terminal, in JSON and in a notebook alike."""

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import dse
from dse.analysis.evaluation import evaluate_config
from dse.analysis.load_notes import LoadNotes, format_notes
from dse.analysis.overload_advice import overload_advice
from dse.commands.evaluate_output import _bound_text, _model_text, evaluation_record
from dse.config.compose import compose
from dse.documents.records import plain_values
from dse.evaluators import METRICS, evaluate
from dse.evaluators.accounting.serving_instances import tensor_parallel as devices
from dse.evaluators.evaluation import explain_infeasibility, kv_memory_by_pool
from dse.evaluators.workloads.serving import deploy_load
from dse.execution.result_frame import knob_values
from dse.explanations.advice import count_rejections, find_smallest_relaxation
from dse.space.design import stack_designs
from dse.space.errors import DesignError
from dse.space.units import format_quantity
from tests.dse.toy import searched, toy
from tests.samples import load_of

Typed = Callable[..., tuple[int, str, str]]

DESIGNS = [
    ["chip=npu_dse", "workload.batch=[1,8]"],
    ["chip=a100", "mapping.both.tp=4", "workload.batch=[2]"],
    ["chip=wse2", "workload=gemm"],
    ["chip=tile32", "workload=collective", "workload.bytes=[1KiB,4KiB]"],
    ["chip=hbm3", "workload=stream", "workload.requests=50", "workload.patterns=[random]", "fidelity=events"],
]


@pytest.mark.parametrize("line", DESIGNS, ids=" ".join)
def test_an_answer_has_the_metrics_that_there_are_and_no_others(line: list[str]) -> None:
    evaluation = dse.evaluate(line)
    columns = evaluate(stack_designs([evaluation.design]), evaluation.workload, fidelity=evaluation.fidelity).columns
    assert evaluation.metrics == {name: column[0] for name, column in columns.items() if not np.isnan(column[0])}


@pytest.mark.parametrize("line", DESIGNS, ids=" ".join)
def test_the_terminal_names_what_was_evaluated_and_every_metric(line: list[str], typed: Typed) -> None:
    evaluation = dse.evaluate(line)
    _, out, _ = typed("evaluate", "--full", *line)
    shown = " ".join(out.split())
    assert f"chip {line[0].removeprefix('chip=')} " in shown
    assert f"mapping {evaluation.names['mapping']} " in shown
    assert all(" ".join(text.split()) in shown for _, text in evaluation.facts())
    assert all(re.search(rf"^ {name} ", out, re.MULTILINE) for name in evaluation.metrics)


def test_a_long_name_of_a_fact_is_apart_from_its_text(typed: Typed) -> None:
    words = ["chip=h100", "+part@chip.tiers=tier_host", "model=llama3_8b", "+mapping.memory_placement.kv=second"]
    words += ["workload.batch=[2]", "workload.prompt=64", "workload.output=4"]
    _, out, _ = typed("evaluate", "--full", *words)
    assert "memory_placement weights auto, kv second" in out


def test_layers_that_stand_for_others_are_said_to() -> None:
    abouts = [dict(dse.evaluate("chip=wse2", f"mapping.simulated_layers={layers}").facts()) for layers in (0, 4, 32)]
    assert "4 of 32 layers of Llama-3-8B" in abouts[1]["on the chip"]
    assert all("on the chip" not in about for about in (abouts[0], abouts[2]))


def test_the_parallelism_and_number_formats_are_named() -> None:
    about = dict(dse.evaluate("chip=a100", "mapping.prefill.tp=4", "mapping.decode.tp=8").facts())
    assert about["prefill"].startswith("tp 4, ")
    assert about["decode"].startswith("tp 8, ")
    assert about["formats"] == "weights fp16, activations fp16, kv fp16"
    assert "tp 4, " in dict(dse.evaluate("chip=a100", "mapping.both.tp=4").facts())["both phases"]


@pytest.mark.parametrize(
    ("model", "formats"),
    [("deepseek_v32", ()), ("deepseek_v32", ("+mapping.precision.index=mxfp4",)), ("qwen3_1b7", ("mapping.precision.kv=fp8",))],
)
def test_a_model_is_said_to_cache_what_memory_has_of_a_token(model: str, formats: tuple[str, ...]) -> None:
    design, load = load_of(
        "chip=h200", "workload=serving", "workload.speculation=none", "mapping.both.tp=1", f"model={model}", *formats
    )
    cached = devices.TensorParallelServing().instances(design, load, "analytical")[0].room.growing
    model_text = _model_text(load.model, design.mapping.precision, {})
    assert f" {format_quantity(cached, 'B')} of KV cache a token in {design.mapping.precision.kv}" in model_text
    assert ("mxfp4 for keys of the index" in model_text) == (model == "deepseek_v32" and "mxfp4" in str(formats))


@pytest.mark.parametrize("apart", [0, 1])
def test_blocks_that_are_given_stand_beside_what_memory_has_room_for(apart: int) -> None:
    words = ("chip=h200", "workload=serving", "model=qwen3_8b", f"mapping.serving.prefill_instances={apart}")
    design, load = load_of(*words, "mapping.serving.kv_blocks=2588")
    assert kv_memory_by_pool(*load_of(*words)) == ()
    room = [pool.memory.blocks for pool in deploy_load(*load_of(*words), "analytical")[0].pools]
    kv_memory = kv_memory_by_pool(design, load)
    assert [(memory.blocks, memory.tokens, memory.room, memory.room_tokens) for memory in kv_memory] == [
        (2588, 2588 * 32, blocks, blocks * 32) for blocks in room
    ]
    assert f"82,816 tokens of each {kv_memory[0].pool}" in format_notes([load], [LoadNotes(kv_memory)])[0][1]


def test_where_no_rate_keeps_the_bounds_an_answer_says_what_requests_take_alone() -> None:
    words = ("chip=h200", "workload=serving", "model=qwen3_1b7", "workload.requests=30")
    evaluation = dse.evaluate(*words, "workload.rate=max", "workload.ttft='1 ms'")
    alone = dse.evaluate(*words, "workload.rate='0.001 Hz'").metrics
    worst = evaluation.infeasible
    assert worst is not None
    assert (worst.limit, worst.have) == ("workload.ttft", 1e-3)
    assert worst.need == pytest.approx(alone["ttft_p90"], rel=1e-2)
    assert "a request alone takes that long" in str(worst)


def test_what_is_set_of_a_chip_stands_beside_its_name() -> None:
    about = dict(dse.evaluate("chip=a100", "chip.l2.size='64 MB'").facts())
    assert about["chip"].startswith("a100, chip.l2.size=")


@pytest.mark.parametrize("line", [line for line in DESIGNS if "," in line[-1]], ids=" ".join)
def test_each_case_is_answered_as_if_it_were_asked_alone(line: list[str], typed: Typed) -> None:
    evaluation = dse.evaluate(line)
    key, values = re.fullmatch(r"(.*)=\[(.*)\]", line[-1]).groups()  # type: ignore[union-attr]
    alone = [dse.evaluate([*line[:-1], f"{key}=[{value}]"]).metrics for value in values.split(",")]
    assert [case.metrics for case in evaluation.cases] == [pytest.approx(metrics) for metrics in alone]
    _, out, _ = typed("evaluate", "--json", *line)
    cases = json.loads(out)["cases"]
    assert [{name: metric["value"] for name, metric in case["metrics"].items()} for case in cases] == [
        case.metrics for case in evaluation.cases
    ]
    _, out, _ = typed("evaluate", "--full", *line)
    assert all(re.search(f"^ *{re.escape(case.label)} ", out, re.MULTILINE) for case in evaluation.cases)
    assert list(evaluation.by_case()["case"]) == [case.label for case in evaluation.cases]


@pytest.mark.parametrize("tp", [1, 4])
def test_parts_of_a_chip_add_up_to_the_metrics_beside_them(tp: int) -> None:
    record = plain_values(
        evaluation_record(evaluate_config(compose(["chip=npu_dse", "model=qwen3_1b7", f"mapping.both.tp={tp}"])))
    )
    metrics = {name: metric["value"] for name, metric in record["metrics"].items()}
    totals = {name: sum(record[name].values()) for name in ("area_mm2", "power_w", "price_usd")}
    assert totals["area_mm2"] == pytest.approx(metrics["die_mm2"])
    assert totals["power_w"] == pytest.approx(metrics["tdp"])
    assert totals["price_usd"] * tp == pytest.approx(metrics["system_price"])
    assert {name: record["metrics"][name]["unit"] for name in ("die_mm2", "tdp", "system_price")} == {
        "die_mm2": "mm2", "tdp": "W", "system_price": "USD"
    }  # fmt: skip


def test_a_notebook_shows_the_first_screen() -> None:
    words = ("workload.batch=[1,8]", "mapping.both.tp=8")
    for evaluation, fits in ((dse.evaluate(*words), True), (dse.evaluate(*words, "chip.hbm.capacity='1 GB'"), False)):
        for text in (repr(evaluation), evaluation._repr_html_()):
            assert "npu_dse" in text
            assert ("TPOT" in text) == fits
            assert ("infeasible" in text) == (not fits)
        assert evaluation._repr_html_().startswith("<pre>")
        assert len(repr(evaluation).splitlines()) <= 25


@pytest.mark.parametrize("given", [3, None, [["chip=a100"]], {"chip": "a100"}, ["chip=a100", 3]])
def test_what_is_no_override_is_refused_in_a_line(given: Any) -> None:
    with pytest.raises(DesignError, match=r"overrides: .* write it as on the command line: 'chip=a100'"):
        dse.evaluate(given)


PARTS = [
    ["chip=wse2", "workload=gemm", "workload.shapes=[256x256x256]", "mapping.rows=64"],
    ["chip=tile32", "workload=collective", "workload.bytes=[1KiB]"],
]


@pytest.mark.parametrize("line", PARTS, ids=" ".join)
def test_figures_of_a_part_of_the_mesh_are_called_so(line: list[str], typed: Typed) -> None:
    """In a notebook, in JSON and at the terminal."""
    part = dse.evaluate([*line, "fidelity=cycles@4"])
    _, text, _ = typed("evaluate", "--json", *line, "fidelity=cycles@4")
    _, out, _ = typed("evaluate", "--full", *line, "fidelity=cycles@4")
    for names in (
        part.metrics,
        part.cases[0].metrics,
        json.loads(text)["metrics"],
        re.findall(r"^ (\S+)  ", out, re.MULTILINE),
    ):
        assert not set(names) & set(METRICS)
        assert "part.latency" in names
    assert re.search(r"^of 4 x 4 of the (64 x 64|32 x 32) cores: ", out, re.MULTILINE)


def test_nothing_is_idle_among_what_binds() -> None:
    evaluation = dse.evaluate(
        "workload=serving", "workload.rate='2 Hz'", "workload.requests=16", "mapping.serving.prefill_instances=1"
    )
    bound, _, idle = _bound_text(evaluation.breakdown).partition("\n")
    assert "idle" not in bound
    assert re.fullmatch(r"idle +prefill instance \d+% of the time, decode instance \d+% of the time", idle)


def test_an_overloaded_service_names_the_knob() -> None:
    base = ["chip=npu64", "model=qwen3_4b", "workload=serving", "workload.requests=200", "workload.rate='50 Hz'"]
    both = dse.evaluate(base)
    assert both.metrics["load_status"]
    assert re.search(r"mapping\.both\.microbatch_size|chip\.mesh", overload_advice(both.metrics, both.design))
    apart = dse.evaluate([*base, "mapping.serving.prefill_cores=16"])
    assert "prefill_cores" in overload_advice(apart.metrics, apart.design)
    calm = dse.evaluate([*base[:-2], "workload.requests=4", "workload.rate='0.1 Hz'"])
    assert not overload_advice(calm.metrics, calm.design)


def test_cores_that_are_set_apart_are_told_by_their_knob_and_it_would_do() -> None:
    """As many as a pipeline needs, not as many as the chip has."""
    line = ["chip=npu64", "model=qwen3_4b", "workload=serving", "workload.requests=4"]
    more = ["mapping.prefill.tp=4", "mapping.prefill.pp=8", "mapping.decode.tp=4", "mapping.decode.pp=2"]
    evaluation = dse.evaluate([*line, *more, "mapping.serving.prefill_cores=16"])
    assert "TP 4 x PP 8 = 32 cores for prefill, 16 of 64 are set aside by mapping.serving.prefill_cores" in str(
        evaluation.infeasible
    )
    (lever,) = re.findall(r"mapping\.serving\.prefill_cores=\d+", str(evaluation.infeasible))
    assert dse.evaluate([*line, *more, lever]).infeasible is None


@pytest.mark.parametrize("more", [[], ["chip.hbm.capacity=4 GB"], ["+constraints.tpot='<= 1 ms'"]])
def test_where_nothing_is_feasible_the_smallest_relaxation_admits_a_design(more: list[str], tmp_path: Path) -> None:
    study = toy(tmp_path, "search=random", "search.budget=24", "constraints.ttft='<= 10 ms'", *more)
    searched(study)
    frame = dse.commands.notebook_api.StoredStudy(study).frame()
    assert not frame["feasible"].any()
    counted = {rejection.what: rejection.designs for rejection in count_rejections(study, frame)}
    assert counted.get("ttft <= 10 ms") == int((frame["ttft"] > 0.01).sum())
    values, gives = find_smallest_relaxation(study, frame)
    design = study.question.space.design_at(values)
    loosest = {bound.metric: next(text for text in gives if text.startswith(bound.metric)) for bound in study.bounds}
    row = next(row for _, row in frame.iterrows() if knob_values(study, row.to_dict()) == values)
    for metric, text in loosest.items():
        number, unit = re.findall(r"<= ([\d.]+) (m?s) instead", text)[0]
        assert row[metric] <= float(number) * {"s": 1, "ms": 1e-3}[unit] <= row[metric] * 1.002
    verdict = explain_infeasibility(design, study.question.workload)
    assert (verdict is None) == (not any("chip.hbm.capacity" in text for text in gives))


def test_a_run_without_a_feasible_design_says_why(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, typed: Typed) -> None:
    monkeypatch.chdir(tmp_path)
    line = ("run", "study=quickstart", "screen.run=false", "search=random", "search.budget=8", "constraints.ttft=<= 1 us")
    code, out, err = typed(*line)
    assert code == 0, err
    assert "none of 8 designs is feasible" in out
    shown = " ".join(out.split())
    assert "ttft <= 1 us by 8 designs" in shown
    assert re.search(r"smallest relaxation that admits a design: (.* and )?ttft <= [\d.]+ m?s instead of 1 us", shown)


def test_a_trace_with_hashes_says_what_it_would_reuse(tmp_path: Path) -> None:
    """Half of each prompt after the first came before; an answer that reuses prefixes, or a trace that has none, is silent."""
    trace = tmp_path / "trace.jsonl"
    rows = [{"timestamp": 1000 * at, "input_length": 2048, "output_length": 2} for at in range(5)]
    hashed = [{**row, "hash_ids": [0, 1, 10 + 2 * at, 11 + 2 * at]} for at, row in enumerate(rows)]

    def reuse_note(rows: list[dict[str, Any]], *words: str) -> str:
        trace.write_text("".join(json.dumps(row) + "\n" for row in rows))
        evaluation = dse.evaluate(
            "workload=serving", "model=qwen3_1b7", f"workload.trace={trace}", "workload.arrivals=trace", *words
        )
        return dict(evaluation.facts()).get("prefixes", "")

    assert (
        reuse_note(hashed)
        == "up to 40.0% of the prompt tokens repeat earlier ones; none are reused, see mapping.serving.prefix_cache=shared"
    )
    assert (
        reuse_note(hashed, "mapping.serving.prefix_cache=shared")
        == reuse_note(hashed, "mapping.serving.prefix_cache_share=0.2")
        == ""
    )
    assert reuse_note([{**row, "hash_ids": [4 * at]} for at, row in enumerate(rows)]) == ""


@pytest.mark.parametrize(("bandwidth", "is_noted"), [(62.5, False), (70.0, True)])
def test_an_answer_says_where_banks_are_not_played(bandwidth: float, is_noted: bool) -> None:
    words = ("chip=tile32", "workload=gemm", "workload.shapes=[64x64x64]", "fidelity=cycles@2")
    evaluation = dse.evaluate(*words, f"chip.hbm.channel_bandwidth={bandwidth} GB/s")
    assert ("memory" in dict(evaluation.facts())) == is_noted


@pytest.mark.parametrize(
    "words",
    [
        ("chip=wse3", "model=llama3_70b"),
        ("chip=h100", "model=llama3_70b", "mapping.both.tp=1", "workload=serving", "workload.requests=20"),
        ("chip=a100", "model=llama3_8b", "mapping.both.tp=1", "workload.batch=[1,4096]"),
        ("chip=tile32", "workload=gemm", "mapping=summa", "mapping.rows=13"),
    ],
)
def test_what_breaks_a_limit_has_no_metrics(words: tuple[str, ...]) -> None:
    """The limit is said first, reading any metric raises it in one line, and tables of numbers have none; cases that fit keep
    theirs.
    """
    evaluation = dse.evaluate(*words)
    assert evaluation.infeasible is not None
    limit = str(evaluation.infeasible)
    assert limit.partition(" (")[0] in " ".join(repr(evaluation).split())
    assert "\ninfeasible  " in repr(evaluation)
    for name in (*evaluation.metrics, "tpot", "latency"):
        for read in (evaluation.metrics.__getitem__, evaluation.metrics.get):
            with pytest.raises(DesignError, match=re.escape(limit)) as refused:
                read(name)
            assert "\n" not in str(refused.value)
    if len(evaluation.metrics):  # a load that is not served has none
        for several in (evaluation.metrics.values, evaluation.metrics.items, lambda: dict(**evaluation.metrics)):
            with pytest.raises(DesignError, match="infeasible"):
                list(several())
    with pytest.raises(KeyError):
        evaluation.metrics["no_such_metric"]
    frame = evaluation.by_case()
    metrics = frame.drop(columns=["case", "feasible"])
    assert metrics[~frame["feasible"]].isna().all(axis=None)
    assert metrics[frame["feasible"]].notna().any(axis=1).all()
    assert [case.feasible for case in evaluation.cases] == frame["feasible"].tolist()
    assert all(not case.feasible or case.metrics["latency"] > 0 for case in evaluation.cases)
    assert evaluation.frame().select_dtypes("number").isna().all(axis=None)
