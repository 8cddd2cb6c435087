"""Logs of requests to APIs of OpenAI's kind are traces: usage, times in any order and unit, and requests that failed."""

import json
from pathlib import Path
from typing import Any

import pytest

import dse
from dse.evaluators.serving.traces import read_trace
from dse.space.errors import DesignError


def response(created: Any, prompt: Any, output: Any, **more: Any) -> dict[str, Any]:
    """A response of the chat interface."""
    usage = {"prompt_tokens": prompt, "completion_tokens": output, "total_tokens": 0}
    return {"id": "x", "object": "chat.completion", "created": created, "model": "m", "usage": usage} | more


def batch(created: int, prompt: int, output: int, status: int = 200) -> dict[str, Any]:
    """A result of a batch."""
    return {"id": "b", "custom_id": f"r{created}", "error": None} | {
        "response": {"status_code": status, "request_id": "q", "body": response(created, prompt, output)}
    }


def written(tmp_path: Path, *lines: dict[str, Any]) -> Path:
    path = tmp_path / "log.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


def test_responses_are_put_in_the_order_of_their_arrival(tmp_path: Path) -> None:
    path = written(tmp_path, response(1700000005, 30, 3), response(1700000000, 10, 1), response(1700000000, 20, 2))
    requests = read_trace(path)
    assert requests.arrival.tolist() == [0.0, 0.0, 5.0]
    assert (requests.prompt.tolist(), requests.output.tolist()) == ([10, 20, 30], [1, 2, 3])
    assert requests.rows.tolist() == [2, 3, 1]
    first = read_trace(path, most=2)
    assert (first.prompt.tolist(), first.truncated) == ([10, 20], True)


@pytest.mark.parametrize(
    ("stamp", "seconds"),
    [
        ({"timestamp": "2024-02-29T10:00:01.5+00:00"}, 1709200801.5),
        ({"timestamp": 1709200801500}, 1709200801.5),
        ({"start_time": 1709200801500000000}, 1709200801.5),
        ({"request": {"timestamp": 1709200801.5}}, 1709200801.5),
        ({}, 1709200810.0),
    ],
)
def test_the_time_of_the_request_goes_before_that_of_the_answer(stamp: dict[str, Any], seconds: float, tmp_path: Path) -> None:
    start = {"timestamp": 1709200800.0, "response": response(1, 5, 5)}
    path = written(tmp_path, start, stamp | {"response": response(1709200810, 10, 2)})
    assert read_trace(path).arrival[1] == pytest.approx(seconds - 1709200800.0)


def test_results_of_a_batch_and_of_the_responses_interface_are_known(tmp_path: Path) -> None:
    other = {"created_at": 1700000002, "usage": {"input_tokens": 7, "output_tokens": 8}}
    requests = read_trace(written(tmp_path, batch(1700000001, 5, 6), other))
    assert (requests.prompt.tolist(), requests.output.tolist()) == ([5, 7], [6, 8])


def test_failed_requests_are_named_or_skipped(tmp_path: Path) -> None:
    failed = {"custom_id": "b", "response": None, "error": {"code": "expired"}}
    path = written(tmp_path, batch(1700000000, 5, 6), failed, batch(1700000001, 5, 6, 429))
    with pytest.raises(DesignError) as error:
        read_trace(path)
    assert str(error.value).partition("log.jsonl: ")[2] == (
        "row 2, the request failed (error); row 3, the request failed (status 429); "
        "use workload.skip=zero_output to pass over failed requests"
    )
    requests = read_trace(path, skip="zero_output")
    assert (len(requests), requests.skipped) == (1, 2)


@pytest.mark.parametrize(
    ("line", "hint"),
    [
        (response(1700000000, -5, 6), "column prompt_tokens: -5 is not a whole number"),
        (response(1700000000, 5, None), "column completion_tokens: nothing is not a whole number"),
        (response(float("nan"), 5, 6), "column created: nan is not a number"),
        (response("noon", 5, 6), "column created: 'noon' is not a number"),
        (response(True, 5, 6), "column created: True is not a number"),
        ({"note": "no request"}, "row 2, column prompt_tokens: 0 is not"),
    ],
)
def test_a_bad_line_is_named(line: dict[str, Any], hint: str, tmp_path: Path) -> None:
    with pytest.raises(DesignError) as error:
        read_trace(written(tmp_path, response(1700000000, 1, 1), line))
    assert hint in str(error.value)
    assert "\n" not in str(error.value)


def test_a_log_of_one_request_has_no_rate(tmp_path: Path) -> None:
    """One request tells no rate, and the load names the row that was passed over."""
    failed = {"custom_id": "b", "error": None, "response": {"status_code": 500, "body": {"created": 1700000003}}}
    path = written(tmp_path, response(1700000000, 5, 6), failed)
    with pytest.raises(DesignError, match=r"log\.jsonl: row 2, the request failed \(status 500\); use workload"):
        read_trace(path)
    words = ["chip=h100", "model=qwen3_1b7", "workload=serving", f"workload.trace={path}", "workload.skip=zero_output"]
    evaluation = dse.evaluate(words)
    assert "offered_load" not in evaluation.metrics
    screen = " ".join(repr(evaluation).split())
    assert "load 1 request (1 row skipped), all others of log.jsonl, replayed, served in" in screen
    assert "load status" not in screen
    both = dse.evaluate(
        [*words[:-2], "workload.requests=2", "workload.prompt=8", "workload.output=4", "workload.arrivals=offline"]
    )
    assert "stable; offered load infinite" in " ".join(repr(both).split())
