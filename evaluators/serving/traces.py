"""Request traces from files, read row by row into arrays; the first line gives the format.

Rows are numbered as in an editor. All bad rows of a file are reported in one message.
"""

import json
from pathlib import Path
from typing import Any

from dse.evaluators.serving.request_logs import CREATED, OUTPUT, PROMPT, is_request_log, read_logged_request
from dse.evaluators.serving.trace_parsing import (
    find_first_undecodable_row,
    parse_json_line,
    read_csv_rows,
    read_header,
    read_json_lines,
)
from dse.evaluators.serving.trace_rows import NO_KINDS, RequestKinds, TraceFormat, TraceRows
from dse.space.errors import DesignError, choose_option
from dse.space.requests import Requests
from dse.space.safe_text import count_text

TRACE_FORMATS = {
    "mooncake": TraceFormat("jsonl", "timestamp", "input_length", "output_length", 1e-3, "hash_ids", True),
    "llmservingsim": TraceFormat(
        "jsonl",
        "arrival_time_ns",
        "input_toks",
        "output_toks",
        1e-9,
        "",
        True,
        ("input_tok_ids", "output_tok_ids"),
        ("sub_requests", "tool_duration_ns"),
    ),
    "openai": TraceFormat("jsonl", CREATED, PROMPT, OUTPUT, 1.0, ticks=True, unordered=True),
    "azure": TraceFormat("csv", "TIMESTAMP", "ContextTokens", "GeneratedTokens", 0.0, ticks=True),
    "burstgpt": TraceFormat("csv", "Timestamp", "Request tokens", "Response tokens", ticks=True),
    "vidur": TraceFormat("csv", "arrived_at", "num_prefill_tokens", "num_decode_tokens"),
    "plain": TraceFormat("csv", "arrival", "prompt", "output"),
    "vidur_lengths": TraceFormat("csv", "", "num_prefill_tokens", "num_decode_tokens"),
    "lengths": TraceFormat("csv", "", "prompt", "output"),
}
"""The first whose columns are all there is taken. Mooncake's clock ticks every 3 s, BurstGPT's every second, that of Azure's
second trace finely, but not as finely as requests come; LLMServingSim's bursts come at once."""

MOST_BYTES, MOST_TEXTS = 400_000_000, 150_000_000
"""Largest size of a file, and of one whose conversations are read at once, to stay below a gigabyte of memory. [B]"""

SKIP_RULES = {"none": (), "zero_output": ("output",), "zero_prompt": ("prompt",), "zero": ("prompt", "output")}
"""Rules for rows that are passed over: those of no output, as of requests that failed, of no prompt, or of either."""


def read_trace(
    path: Path, kind: str = "", *, ticks: bool | None = None, skip: str = "none", most: int = 0, characters: float = 0.0,
    sorts: RequestKinds = NO_KINDS,
) -> Requests:  # fmt: skip
    """Requests of a trace file, the first at 0 s.

    Args:
        path: of the file.
        kind: a name of `TRACE_FORMATS`; empty to see from the first line.
        ticks: whether requests may arrive at the same time; None for the format's default.
        skip: which rows are skipped, of `SKIP_RULES`; they are counted in `Requests.skipped`.
        most: requests to read; 0 for all. Of what comes after them only whether there is any is looked at
            (`Requests.truncated`).
        characters: a token stands for, of a file of conversations, which has texts and no counts of tokens; 0 refuses it.
        sorts: column with the kind of each request.

    Raises:
        DesignError: no file, a column that is missing or stands twice, or rows that are no request or come before the one
            above them: the message gives file, row and column, of up to ten rows, and how many more.
    """
    try:
        _check_size(path, MOST_BYTES, "cut it, as with head -n 1000000")
        with path.open(newline="", encoding="utf-8-sig") as file:
            rows = _requests(path, file, kind, ticks, choose_option(SKIP_RULES, skip, "workload.skip"), most, characters, sorts)
            return rows.build_requests()
    except OSError as error:
        raise DesignError(f"{path}: cannot be read: {error.strerror}") from None
    except UnicodeDecodeError:
        with path.open("rb") as packed:
            if packed.read(2) == b"\x1f\x8b":
                raise DesignError(f"{path}: compressed by gzip; unpack it first: gunzip -k FILE.gz") from None
        raise DesignError(
            f"{path}: row {find_first_undecodable_row(path)}: no UTF-8 text; a trace must be CSV or JSONL"
        ) from None


def _check_size(path: Path, most: int, do: str) -> None:
    """Refuses a file that is too large, before it is read.

    Raises:
        DesignError: its size, and what to do.
    """
    if (size := path.stat().st_size) > most:
        raise DesignError(f"{path}: the file has {size / 1000000.0:,.0f} MB; at most {most / 1000000.0:,.0f} MB are read: {do}")


def _requests(
    path: Path,
    file: Any,
    kind: str,
    ticks: bool | None,
    skip: tuple[str, ...],
    most: int,
    characters: float,
    sorts: RequestKinds,
) -> TraceRows:
    before, first = next(((place, line) for place, line in enumerate(file) if line.strip()), (0, ""))
    if first.lstrip().startswith("[") and not kind:
        _check_size(path, MOST_TEXTS, "keep its first conversations, as with jq '.[:20000]'")
        return _conversations(path, first + file.read(), skip, most, characters, sorts)
    if characters:
        raise DesignError(
            f"{path}: workload.chars_per_token: for conversations in JSON only; this file has token counts; remove it"
        )
    lines = "jsonl" if first.lstrip().startswith("{") else "csv"
    columns: Any = parse_json_line(first) if lines == "jsonl" else read_header(path, before, first)
    logged = lines == "jsonl" and columns is not None and is_request_log(columns) and kind in ("", "openai")
    columns = read_logged_request(columns) if logged else columns
    option = choose_option(TRACE_FORMATS, kind, "trace format") if kind else _seen(path, lines, columns)
    wanted = (
        (option.arrival,)
        if option.turns and option.turns[0] in (columns or ())
        else (option.arrival, option.prompt, option.output)
    )
    missing = [name for name in wanted if name and name not in (columns or ())]
    if lines != option.lines or missing:
        raise DesignError(
            f"{path}: row 1: no column {', '.join(missing) or 'names'}, which format {kind} has, but {_others(columns)}"
        )
    twice = [name for name in (option.arrival, option.prompt, option.output) if name and list(columns or ()).count(name) > 1]
    if twice:
        raise DesignError(f"{path}: row {before + 1}: column {twice[0]} occurs twice; remove one of them")
    rows = TraceRows(path, option, option.ticks if ticks is None else ticks, skip, sorts=sorts)
    rows.before = before
    for number, row in (read_json_lines if lines == "jsonl" else read_csv_rows)(file, first, rows.add_fault):
        rows.add(number, read_logged_request(row) if logged else row)
        if most and len(rows.prompt) >= most and not option.unordered:
            rows.truncated = any(line.strip() for line in file)
            break
    if option.unordered:
        rows.put_in_order(most)
    return rows


def _conversations(
    path: Path, text: str, skip: tuple[str, ...], most: int, characters: float, sorts: RequestKinds
) -> TraceRows:
    """ShareGPT's JSON: of each conversation the first text is a prompt and the second its output, as in vLLM's benchmark.

    Rows are conversations, counted from 1.
    """
    if not characters:
        raise DesignError(
            f"{path}: conversations have texts and no token counts; set workload.chars_per_token=4, characters per token"
        )
    if not 0 < characters < float("inf"):
        raise DesignError(f"workload.chars_per_token: {characters:g} is not a number of characters above 0")
    try:
        document = json.loads(text)
    except (ValueError, RecursionError):
        raise DesignError(f"{path}: row 1: not a JSON array of conversations") from None
    rows = TraceRows(path, TraceFormat("json", "", "first text", "second text"), ticks=False, skip=skip, sorts=sorts)
    for number, conversation in enumerate(document, start=1):
        turns = conversation.get("conversations") if isinstance(conversation, dict) else None
        texts = [turn.get("value") for turn in turns if isinstance(turn, dict)] if isinstance(turns, list) else []
        if len(texts) < 2 or not all(isinstance(value, str) for value in texts[:2]):
            if skip and len(texts) < 2:
                rows.skipped += 1
            else:
                rows.add_fault(
                    number,
                    "column conversations: no two texts, a question and an answer (workload.skip skips such rows)",
                )
            continue
        prompt_tokens, output_tokens = (int(-(-len(str(value)) // characters)) for value in texts[:2])
        rows.add(
            number, {"first text": prompt_tokens, "second text": output_tokens, sorts.column: conversation.get(sorts.column)}
        )
        if most and len(rows.prompt) >= most:
            rows.truncated = number < len(document)
            break
    return rows


def _seen(path: Path, lines: str, columns: Any) -> TraceFormat:
    formats = [trace_format for trace_format in TRACE_FORMATS.values() if trace_format.lines == lines]
    names = {
        name: {trace_format.arrival, trace_format.prompt, trace_format.output} - {""}
        for name, trace_format in TRACE_FORMATS.items()
        if trace_format.lines == lines
    }
    for (_, wanted), trace_format in zip(names.items(), formats, strict=True):
        sessions = {trace_format.arrival, trace_format.turns[0]} if trace_format.turns else wanted
        if columns is not None and (wanted <= set(columns) or sessions <= set(columns)):
            return trace_format
    alone = next(iter(columns)) if columns is not None and len(columns) == 1 else ""
    for mark, called in ((";", ";"), ("\t", "tabs")):
        if any(wanted <= set(alone.split(mark)) for wanted in names.values()):
            raise DesignError(f"{path}: row 1: columns are separated by {called}, not by commas")
    for wanted in names.values():
        meant = {name: column for column in map(str, columns or ()) for name in wanted if _plain(column) == _plain(name)}
        if set(meant) == wanted:
            others = ", ".join(f"{column!r} to {name!r}" for name, column in sorted(meant.items()) if column != name)
            raise DesignError(f"{path}: row 1: columns differ by spaces or capitals from known ones; rename {others}")
    known = "; ".join(f"{name}: {', '.join(sorted(wanted))}" for name, wanted in names.items())
    raise DesignError(f"{path}: row 1: no known columns; the file has {_others(columns)}; known formats are {known}")


def _plain(name: str) -> str:
    """A name without spaces around it, in small letters."""
    return name.strip().casefold()


def _others(columns: Any) -> str:
    """How many columns a file has that no format knows; they are not named, as any file may be given for a trace."""
    return count_text(len(columns or ()), "other column")
