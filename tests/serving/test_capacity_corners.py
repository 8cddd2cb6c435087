"""Corners of `dse capacity`: how requests are routed where instances are looked for, and answers of one token."""

import json
from pathlib import Path

import jsonschema  # type: ignore[import-untyped]
import pytest

from dse.answers.capacity import capacity
from dse.commands.capacities import few, leave, record
from dse.schemas import published
from dse.space.errors import DesignError

SMALL = [
    "chip=h200", "model=llama3_8b", "workload.requests=100", "workload.ttft='300 ms'", "workload.prompt=2000", "apart=false",
    "mapping.both.tp=1", "mapping.serving.policy=prefill_first", "mapping.serving.batch=32",
]  # fmt: skip
ROUTED = "mapping.serving.routing=round_robin"


def test_routing_is_asked_of_as_many_instances_as_are_looked_for() -> None:
    (side,) = capacity([*SMALL, "devices=3", "workload.output=20", ROUTED])
    assert side.candidates
    for one in side.candidates:
        assert (one.values["mapping.serving.instances"], one.at(side.load.requests).routing) == (3, "round_robin")
    assert record([side])["chips"][0]["best"]["left_out"] == []


def test_one_device_has_nothing_to_route_and_says_so() -> None:
    (side,) = capacity([*SMALL, "devices=1", "workload.output=20", ROUTED])
    assert record([side])["chips"][0]["best"]["left_out"] == [ROUTED]
    with pytest.raises(DesignError, match=r"mapping\.serving\.routing: nothing reads it"):
        capacity([*SMALL, "devices=1", "mapping.serving.instances=1", ROUTED])


def test_answers_of_one_token_have_no_pace(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    sides = capacity([*SMALL, "devices=2", "workload.output=1"])
    leave(sides, tmp_path / "page.html", as_json=True)
    data = json.loads(capsys.readouterr().out)
    jsonschema.validate(data, published("capacity"))
    best = data["chips"][0]["best"]
    assert (best["tokens_per_s_user"], best["tpot_s"], data["chips"][0]["front"]) == (None, None, [])
    leave(sides, tmp_path / "page.html", as_json=False)
    assert "nan" not in capsys.readouterr().out


def test_few_requests_say_what_their_deployment_serves_for_long(tmp_path: Path) -> None:
    """A burst is answered at many times the rate that lasts: the note has that rate, and how to ask for it."""
    words = ["chip=h200", "model=qwen3_8b", "devices=1", "apart=false", "workload.ttft='1.3 s'", "workload.tpot='64 ms'"]
    (side,) = capacity([*words, "workload.prompt=367", "workload.output=17", "workload.requests=300"])
    assert side.best is not None
    lasts = side.best.candidate.estimate.rate
    assert side.best.rate > 1.2 * lasts
    assert few(side).endswith(f"tells what goes on for long, some {lasts:.4g} requests/s by the estimate")
    trace = tmp_path / "trace.csv"
    trace.write_text("arrival,prompt,output\n" + "".join(f"{number / 10},367,17\n" for number in range(300)))
    (side,) = capacity([*words, f"workload.trace={trace}"])
    assert "goes on for long (of a trace, a longer one), some " in few(side)
