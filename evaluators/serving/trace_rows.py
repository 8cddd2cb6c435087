"""Rows of a trace converted to requests: allowed values of each column, and error texts.

Files and formats are in `traces`; this module takes dictionaries, one per row.
"""

from array import array
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from dse.evaluators.serving.request_logs import FAILURE
from dse.space.errors import DesignError
from dse.space.requests import MAX_TOKENS, Requests

MAX_NAMED_ROWS = 10
"""Bad rows that a message names; the others are counted."""

MAX_ARRIVAL_S = 1e11
"""Of times, either way: what is beyond is in another unit. [s]"""

LONGEST_NAME = 40
"""Characters of a value or a name that a message shows."""

BLOCK = 16
"""Tokens of a block where a file has the tokens themselves, vLLM's usual block; blocks that are not full have no name."""


class TraceFormat(NamedTuple):
    """Columns, units and line type of a trace file format.

    Attributes:
        lines: "csv", with a header, or "jsonl", an object a line.
        arrival: column of the time of arrival; empty where there is none.
        prompt, output: columns of tokens.
        unit: seconds in one of the arrival's; 0 for dates.
        hashes: column of block hashes; empty where there is none.
        ticks: whether the clock is coarse, so that requests may arrive at the same time.
        tokens: columns of the tokens themselves, of the prompt and of the output; empty where there are none.
        turns: of lines that are sessions, the column with a list of their requests, and in these that of the time from the end
            of one to the next; empty where no line can be one.
        unordered: whether lines may stand in another order than requests arrived, as where they are written at the end.
    """

    lines: str
    arrival: str
    prompt: str
    output: str
    unit: float = 1.0
    hashes: str = ""
    ticks: bool = False
    tokens: tuple[str, ...] = ()
    turns: tuple[str, ...] = ()
    unordered: bool = False


class RequestKinds(NamedTuple):
    """Column and names of request kinds in a trace.

    Attributes:
        column: of their names; empty where there is none.
        names: `Requests.kinds` are places among them.
    """

    column: str = ""
    names: tuple[str, ...] = ()


NO_KINDS = RequestKinds()


@dataclass
class TraceRows:
    """Growing columns of a trace's requests, with the faults found."""

    path: Path
    of: TraceFormat
    ticks: bool
    skip: tuple[str, ...] = ()
    skipped: int = 0
    sorts: RequestKinds = NO_KINDS
    kinds: Any = field(default_factory=lambda: array("i"))
    arrival: Any = field(default_factory=lambda: array("d"))
    prompt: Any = field(default_factory=lambda: array("i"))
    output: Any = field(default_factory=lambda: array("i"))
    counts: Any = field(default_factory=lambda: array("q", [0]))
    hashes: Any = field(default_factory=lambda: array("q"))
    lines: Any = field(default_factory=lambda: array("q"))
    blocks: dict[tuple[int, tuple[int, ...]], int] = field(default_factory=dict)
    bad: list[str] = field(default_factory=list)
    more: int = 0
    failed: int = 0
    before: int = 0
    start: tuple[int, float] | None = None
    last: float = float("-inf")
    waits: Any = field(default_factory=lambda: array("q"))
    thinks: Any = field(default_factory=lambda: array("d"))
    turns: Any = field(default_factory=lambda: array("i"))
    within: str = ""
    truncated: bool = False

    def add_fault(self, row: int, what: str) -> None:
        """Record a fault of a row, counted from the first line that was read."""
        if len(self.bad) < MAX_NAMED_ROWS:
            self.bad.append(f"row {row + self.before}, {self.within}{what}")
        else:
            self.more += 1

    def add(self, number: int, row: dict[str, Any]) -> None:
        """Add a line of the trace: a request, or a session of several."""
        if not self.of.turns:
            self._one(number, row)
            return
        if self.of.turns[0] not in row:
            if self._one(number, row):
                self._turn(-1, 0.0, 0)
            return
        column, pause = self.of.turns
        requests = row[column]
        if not isinstance(requests, list) or not requests or not all(isinstance(request, dict) for request in requests):
            self.add_fault(number, f"column {column}: {_shown(requests)} is not a list of requests")
            return
        before, think, turn = -1, 0.0, 0
        for place, request in enumerate(requests):
            self.within = f"request {place + 1} of its session, "
            if self._one(number, {**row, **request, self.of.arrival: row.get(self.of.arrival)}):
                self._turn(before, think, turn)
                before, think, turn = len(self.prompt) - 1, 0.0, turn + 1
            think += self._pause(number, request.get(pause, 0), pause) if place + 1 < len(requests) else 0.0
        self.within = ""

    def _turn(self, before: int, think: float, turn: int) -> None:
        self.waits.append(before)
        self.thinks.append(think)
        self.turns.append(turn)

    def _pause(self, number: int, value: Any, column: str) -> float:
        try:
            seconds = float("nan") if isinstance(value, bool) else float(value) * self.of.unit
        except (TypeError, ValueError, OverflowError):
            seconds = float("nan")
        if not 0 <= seconds <= MAX_ARRIVAL_S:
            self.add_fault(number, f"column {column}: {_shown(value)} is not a time of 0 or more")
            return 0.0
        return seconds

    def _one(self, number: int, row: dict[str, Any]) -> bool:
        """A request. Returns whether it was kept."""
        if any(_zero(row.get(getattr(self.of, name))) for name in self.skip):
            self.skipped += 1
            return False
        if self.of.unordered and (failure := row.get(FAILURE)):  # what else is wrong with it follows from that
            self.failed += 1
            self.add_fault(number, f"the request failed ({failure})")
            return False
        prompt = self._whole(number, row, self.of.prompt)
        output = self._whole(number, row, self.of.output)
        arrival = self._time(number, row) if self.of.arrival else float("nan")
        if self.of.hashes:
            self._hash(number, row)
        if self.of.tokens:
            self._tokens(number, row)
        sort = self._sort(number, row) if self.sorts.column else None
        if prompt is not None and output is not None and arrival is not None:
            if sort is not None:
                self.kinds.append(sort)
            self.prompt.append(prompt)
            self.output.append(output)
            self.arrival.append(arrival)
            self.lines.append(number + self.before)
            return True
        return False

    def _sort(self, number: int, row: dict[str, Any]) -> int | None:
        column, names = self.sorts
        if (value := row.get(column)) in names:
            return names.index(value)
        self.add_fault(number, f"column {column}: {_shown(value)} is none of {', '.join(names)}")
        return None

    def _whole(self, number: int, row: dict[str, Any], column: str) -> int | None:
        value = row.get(column)
        try:
            integer = int(value)  # type: ignore[arg-type]
            whole = not isinstance(value, float | bool) or (value == integer and not isinstance(value, bool))
        except (TypeError, ValueError, OverflowError):
            integer, whole = _decimal(value)
        if whole and 1 <= integer <= MAX_TOKENS:
            return integer
        most = f"above {MAX_TOKENS:,}" if whole and integer > MAX_TOKENS else "not a whole number of tokens above 0"
        self.add_fault(number, f"column {column}: {_shown(value)} is {most}")
        return None

    def _time(self, number: int, row: dict[str, Any]) -> float | None:
        value = row.get(self.of.arrival)
        try:
            if isinstance(value, bool):
                raise ValueError
            seconds = self._date(str(value)) if self.of.unit == 0 else float(value) * self.of.unit  # type: ignore[arg-type]
        except (TypeError, ValueError, OverflowError):
            seconds = float("nan")
        if not abs(seconds) <= MAX_ARRIVAL_S:
            most = f" of at most {MAX_ARRIVAL_S / (self.of.unit or 1.0):g}" if np.isfinite(seconds) else ""
            wanted = "a date and time" if self.of.unit == 0 else f"a number{most}"
            self.add_fault(number, f"column {self.of.arrival}: {_shown(value)} is not {wanted}")
            return None
        if not self.of.unordered and (seconds < self.last or (seconds == self.last and not self.ticks)):
            order = "the same time as" if seconds == self.last else "earlier than"
            self.add_fault(number, f"column {self.of.arrival}: {_shown(value)} is {order} the row above")
            return None
        self.last = seconds
        return seconds

    def _date(self, text: str) -> float:
        """Seconds since the first row's date, to the last digit given."""
        whole, _, fraction = text.partition(".")
        digits = fraction[: len(fraction) - len(fraction.lstrip("0123456789"))]
        moment = datetime.fromisoformat(whole + fraction[len(digits) :])
        if moment.tzinfo is None:
            moment = moment.replace(tzinfo=UTC)
        timestamp = (int(moment.timestamp()), float(f"0.{digits or 0}"))
        if self.start is None:
            self.start = timestamp
        return timestamp[0] - self.start[0] + (timestamp[1] - self.start[1])

    def _hash(self, number: int, row: dict[str, Any]) -> None:
        ids = row.get(self.of.hashes) or []
        if not isinstance(ids, list) or not all(type(entry) is int and -(2**63) <= entry < 2**63 for entry in ids):
            self.add_fault(number, f"column {self.of.hashes}: {_shown(ids)} is not a list of whole numbers of 64 bits")
            ids = []
        self.hashes.extend(ids)
        self.counts.append(len(self.hashes))

    def _tokens(self, number: int, row: dict[str, Any]) -> None:
        """Names blocks of tokens by what they are and by the block before them."""
        ids: list[int] = []
        for column, count in zip(self.of.tokens, (self.of.prompt, self.of.output), strict=True):
            entries = row.get(column) or []
            if not isinstance(entries, list) or not all(type(entry) is int for entry in entries):
                self.add_fault(number, f"column {column}: {_shown(entries)} is not a list of whole numbers")
                ids = []
                break
            hash_count = _decimal(row.get(count))[0]
            if len(entries) > hash_count:
                self.add_fault(number, f"column {column}: {len(entries):,} tokens, but {count} is {_shown(row.get(count))}")
            ids += entries
            if len(entries) < hash_count:  # what comes after the last that is said nobody knows
                break
        before, prompt = -1, int(_decimal(row.get(self.of.prompt))[0])
        if len(ids) // BLOCK == -(-prompt // BLOCK):  # so many would be the prompt's own, the last of them not whole
            ids = ids[:prompt]
        for start in range(0, len(ids) - BLOCK + 1, BLOCK):
            before = self.blocks.setdefault((before, tuple(ids[start : start + BLOCK])), len(self.blocks))
            self.hashes.append(before)
        self.counts.append(len(self.hashes))

    def put_in_order(self, most: int = 0) -> None:
        """Sort requests by arrival, those of one time as they stand in the file, and keep the first of them.

        Args:
            most: to keep; 0 for all.
        """
        order = np.argsort(np.frombuffer(self.arrival, float), kind="stable")
        self.truncated = self.truncated or 0 < most < len(order)
        kept = order[:most] if most else order
        for name in ("kinds", "arrival", "prompt", "output", "lines"):
            column = getattr(self, name)
            if len(column):
                setattr(self, name, array(column.typecode, np.frombuffer(column, column.typecode)[kept].tolist()))

    def build_requests(self) -> Requests:
        """Requests of all added rows; a `DesignError` lists the bad rows."""
        if self.bad:
            rest = f"; and {self.more} more" if self.more else ""
            hint = "; use workload.skip=zero_output to pass over failed requests" if self.failed else ""
            if any("the same time" in entry for entry in self.bad):
                hint += " (if the clock is coarse, set ticks)"
            if not self.skip and any("'0' is not" in entry or ": 0 is not" in entry for entry in self.bad):
                hint += " (workload.skip=zero_output, zero_prompt or zero skips such rows)"
            raise DesignError(f"{self.path}: {'; '.join(self.bad)}{rest}{hint}")
        if not self.prompt:
            rest = f"; {self.skipped:,} rows were skipped" if self.skipped else ""
            raise DesignError(f"{self.path}: no requests{rest}")
        arrival = np.frombuffer(self.arrival, float)
        prompt, output = (np.frombuffer(column, np.int32) for column in (self.prompt, self.output))
        lines = np.frombuffer(self.lines, np.int64)
        requests = Requests(arrival - arrival[0], prompt, output, rows=lines, skipped=self.skipped, truncated=self.truncated)
        if self.sorts.column:
            requests = replace(requests, kinds=np.frombuffer(self.kinds, np.int32))
        if not self.hashes:
            return self._in_turns(requests)
        numbers = np.unique(np.frombuffer(self.hashes, np.int64), return_inverse=True)[1].astype(np.int32)
        requests = replace(requests, starts=np.frombuffer(self.counts, np.int64), hashes=numbers)
        return self._in_turns(replace(requests, block=BLOCK) if self.of.tokens else requests)

    def _in_turns(self, found_turns: Requests) -> Requests:
        """Requests with the request whose answer they wait for, if there are sessions."""
        if not any(self.turns):
            return found_turns
        before, turns = np.frombuffer(self.waits, np.int64), np.frombuffer(self.turns, np.int32)
        selected_turns = replace(found_turns, before=before, think=np.frombuffer(self.thinks, float), turns=turns)
        return selected_turns.with_session_starts(selected_turns.begins)


def _zero(value: Any) -> bool:
    """Whether a count is there and is nothing."""
    return value is not None and value != "" and not isinstance(value, bool) and _decimal(value) == (0, True)


def _decimal(value: Any) -> tuple[int, bool]:
    """A whole number written with a decimal point, as some tools write it."""
    try:
        number = float(value)
        return (int(number), number == int(number)) if np.isfinite(number) else (0, False)
    except (TypeError, ValueError, OverflowError):
        return 0, False


def _shown(value: Any) -> str:
    return "nothing" if value is None or value == "" else repr(value)[:LONGEST_NAME]
