"""Corners of `dse capacity`: how requests are routed where instances are looked for, and answers of one token."""

import json
from collections.abc import Sequence
from pathlib import Path

import jsonschema  # type: ignore[import-untyped]
import pytest

from dse.analysis.capacity import ChipCapacity, find_capacity
from dse.analysis.evaluation import evaluate_config
from dse.commands.capacity_output import capacity_record, explain_too_few_requests, write_capacity
from dse.commands.evaluate_output import evaluation_record as sheet_record
from dse.commands.evaluate_output import print_evaluation
from dse.config.compose import compose
from dse.documents import build_schema
from dse.space.errors import DesignError
from dse.terminal.json_text import format_json

pytestmark = pytest.mark.usefixtures("flat_stack")

SMALL = [
    "chip=h200", "model=llama3_8b", "workload.requests=100", "workload.ttft='300 ms'", "workload.prompt=2000",
    "disaggregated=false", "mapping.both.tp=1", "mapping.serving.policy=prefill_first", "mapping.serving.max_batch_size=32",
]  # fmt: skip
ROUTED = "mapping.serving.routing=round_robin"


def left_out_of(side: ChipCapacity) -> Sequence[str]:
    """Overrides without effect on the best deployment, as the document has them."""
    best = capacity_record([side]).chips[0].best
    assert best is not None
    return best.left_out


def test_routing_is_asked_of_as_many_instances_as_are_looked_for() -> None:
    (side,) = find_capacity([*SMALL, "devices=3", "workload.output=20", ROUTED])
    assert side.candidates
    for candidate in side.candidates:
        assert (candidate.values["mapping.serving.instances"], candidate.make_deployment(side.load.requests).routing) == (
            3,
            "round_robin",
        )
    assert left_out_of(side) == []


def test_one_device_has_nothing_to_route_and_says_so() -> None:
    (side,) = find_capacity([*SMALL, "devices=1", "workload.output=20", ROUTED])
    assert left_out_of(side) == [ROUTED]
    with pytest.raises(DesignError, match=r"mapping\.serving\.routing: has no effect"):
        find_capacity([*SMALL, "devices=1", "mapping.serving.instances=1", ROUTED])


def test_answers_of_one_token_have_no_pace(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    sides = find_capacity([*SMALL, "devices=2", "workload.output=1"])
    write_capacity(sides, tmp_path / "page.html", as_json=True)
    data = json.loads(capsys.readouterr().out)
    jsonschema.validate(data, build_schema("capacity"))
    best = data["chips"][0]["best"]
    assert (best["tokens_per_s_user"], best["tpot_s"], data["chips"][0]["front"]) == (None, None, [])
    write_capacity(sides, tmp_path / "page.html", as_json=False)
    assert "nan" not in capsys.readouterr().out


@pytest.mark.parametrize("more", [["workload.requests=300"], ["workload.prompt=300", "workload.output=20"]])
def test_a_largest_rate_says_what_a_capacity_says(more: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    """The same rate, its range over seeds, its number of requests and whether it lasts, in the first lines and as values."""
    words = ["chip=h200", "model=qwen3_8b", "workload.ttft='300 ms'", "workload.tpot='20 ms'", "mapping=serving", *more]
    words += [
        "mapping.both.tp=1",
        "mapping.serving.policy=chunked_prefill",
        "mapping.serving.max_batched_tokens=2048",
        "mapping.serving.max_batch_size=64",
    ]
    (side,) = find_capacity([*words, "devices=1", "disaggregated=false"])
    best = json.loads(format_json(capacity_record([side]).chips[0].best))
    config = compose([*words, "workload=serving", "workload.rate=max", "mapping.serving.instances=1"])
    found_config = evaluate_config(config)
    document = json.loads(format_json(sheet_record(found_config)))
    jsonschema.validate(document, build_schema("evaluate"))
    (case,) = document["cases"]
    assert {name: case["max_rate"][name] for name in case["max_rate"] if name != "note"} == {
        name: best[name] for name in case["max_rate"] if name != "note"
    }
    assert bool(case["max_rate"]["note"]) == (not best["lasts"]) == ("300" in more[0] and "requests" in more[0])
    print_evaluation(found_config, config)
    for text in (capsys.readouterr().out, repr(found_config)):
        shown = " ".join(" ".join(text.splitlines()[:20]).split())
        assert f"{best['max_rate_hz']:.4g} requests/s (" in shown
        assert f"{best['requests']:,} requests each; seed {best['seed']} confirms it)" in shown


def test_few_requests_are_no_faster_than_what_lasts_and_say_so(tmp_path: Path) -> None:
    """A burst is answered at many times the rate that lasts, which no answer has; a trace that is replayed says so."""
    words = [
        "chip=h200",
        "model=qwen3_8b",
        "devices=1",
        "disaggregated=false",
        "workload.ttft='1.3 s'",
        "workload.tpot='64 ms'",
    ]
    (side,) = find_capacity([*words, "workload.prompt=367", "workload.output=17", "workload.requests=300"])
    assert side.best is not None
    assert side.best.rate <= 1.01 * side.best.candidate.estimate.rate
    assert explain_too_few_requests(side).startswith("300 requests are too few to show whether this rate lasts")
    trace = tmp_path / "trace.csv"
    trace.write_text("arrival,prompt,output\n" + "".join(f"{number / 10},367,17\n" for number in range(300)))
    (side,) = find_capacity([*words, f"workload.trace={trace}", "workload.arrivals=trace"])
    assert "these 300 requests, replayed once in" in explain_too_few_requests(side)


@pytest.mark.parametrize(("typed", "routings"), [([], {"least_loaded", "cache_aware"}), ([ROUTED], {"round_robin"})])
def test_routing_is_looked_through_where_instances_keep_prefixes(typed: list[str], routings: set[str]) -> None:
    talks = [
        "workload.sessions={turns: 4, think: 1 s}",
        "workload.prompt=200",
        "workload.output=20",
        "workload.max_length=4000",
    ]
    words = [
        "chip=h200",
        "model=qwen3_8b",
        "devices=2",
        "mapping.both.tp=1",
        "disaggregated=false",
        *talks,
        "workload.requests=200",
    ]
    knobs = ["space=empty", "+space.mapping.serving.max_batch_size=choice(32, 64)", "mapping.serving.max_batched_tokens=2048"]
    for reuse, several in (
        (["mapping.serving.prefix_cache=shared"], routings),
        ([], {"round_robin"} if typed else {"least_loaded"}),
    ):
        (side,) = find_capacity([*words, *knobs, *reuse, *typed])
        assert {candidate.design.mapping.serving.routing for candidate in side.candidates} == several
        assert len(side.candidates) == 2 * len(several)
