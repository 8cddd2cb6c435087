"""Logs of requests to APIs of OpenAI's kind, an object a line, as rows of a trace.

A line is a response, a request with its response, or a result of a batch. Counts are those of ``usage``; names of the chat,
completions and responses interfaces are known. Texts are not read.
"""

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

CREATED, PROMPT, OUTPUT, FAILURE = "created", "prompt_tokens", "completion_tokens", "failure"
"""Columns of a row: time, tokens of the prompt and of the output, and how it failed, which others have not."""

USAGE = "usage"
PROMPT_NAMES, OUTPUT_NAMES = (PROMPT, "input_tokens"), (OUTPUT, "output_tokens")
TIME_NAMES = ("timestamp", "start_time", "created_at", CREATED, "time")
"""Where a line has its time, the time of arrival before that of the answer."""
MILLISECONDS_FROM, NANOSECONDS_FROM = 1e11, 1e17
"""Numbers of seconds since 1970 from which on a clock is one of milliseconds, and of nanoseconds."""
MAX_DEPTH = 4
"""Levels of a line on which an answer stands: response, body, and what a log puts around them."""


def is_request_log(row: Mapping[str, Any]) -> bool:
    """Whether a line is of such a log: it has a usage, or is a result of a batch."""
    return _find_answer(row) is not None or ("custom_id" in row and "response" in row)


def read_logged_request(row: Mapping[str, Any]) -> dict[str, Any]:
    """Columns of a request of a log; one that failed has an output of 0 tokens, and how it failed.

    >>> line = {"created": 1700000000, "usage": {"prompt_tokens": 9, "completion_tokens": 4}}
    >>> read_logged_request(line), read_logged_request({"custom_id": "a", "response": None, "error": {"code": "x"}})[OUTPUT]
    ({'created': 1700000000.0, 'prompt_tokens': 9, 'completion_tokens': 4}, 0)
    """
    answer = _find_answer(row)
    usage: Mapping[str, Any] = answer[USAGE] if answer is not None else {}
    failure = _describe_failure(row)
    failed = answer is None or bool(failure)
    columns = {
        CREATED: _seconds(row, answer),
        PROMPT: _first(usage, PROMPT_NAMES, 0 if failed else None),
        OUTPUT: 0 if failed else _first(usage, OUTPUT_NAMES, None),
    }
    return columns | {FAILURE: failure} if failure else columns


def _find_answer(row: Any, depth: int = 0) -> Mapping[str, Any] | None:
    """The object of a line that has a usage; None where none has."""
    if not isinstance(row, Mapping) or depth > MAX_DEPTH:
        return None
    if isinstance(row.get(USAGE), Mapping):
        return row
    parts = (row.get(name) for name in ("response", "body", "result", "output", "answer"))
    answers = (_find_answer(part, depth + 1) for part in parts)
    return next((answer for answer in answers if answer is not None), None)


def _describe_failure(row: Mapping[str, Any]) -> str:
    """A status of a line that is none of success, or that it says an error; empty string if it has neither."""
    response = row.get("response")
    states = [row, response] if isinstance(response, Mapping) else [row]
    codes = [code for state in states if isinstance(code := state.get("status_code"), int) and not 200 <= code < 300]
    if codes:
        return f"status {codes[0]}"
    return "error" if any(state.get("error") for state in states) else ""


def _seconds(row: Mapping[str, Any], answer: Mapping[str, Any] | None) -> Any:
    """Time of a request since 1970, or what stands there if it is none. [s]"""
    places = [row, *(each for name in ("request", "response") if isinstance(each := row.get(name), Mapping)), answer or {}]
    value = next((place[name] for place in places for name in TIME_NAMES if place.get(name) is not None), None)
    if isinstance(value, str):
        try:
            moment = datetime.fromisoformat(value)
        except ValueError:
            return value
        return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()
    if isinstance(value, bool) or not isinstance(value, int | float):
        return value
    return value / (1e9 if value >= NANOSECONDS_FROM else 1e3 if value >= MILLISECONDS_FROM else 1.0)


def _first(usage: Mapping[str, Any], names: tuple[str, ...], missing: Any) -> Any:
    return next((usage[name] for name in names if usage.get(name) is not None), missing)
