"""python -P -m dse.mcp_server.worker_process: process that answers tool calls until its input ends.

A call is a line of JSON on standard input; progress, and then the answer, are lines on standard output. All else that is
printed goes to standard error. If the input ends during a call, the call is stopped as by SIGTERM, and its stored results stay;
a call that does not stop is ended with its process.
"""

import json
import os
import queue
import signal
import threading
import time
import traceback
from typing import Any, TextIO

from dse.mcp_server.tool_calls import call_tool
from dse.space.units import format_quantity
from dse.terminal.error_line import format_error_line
from dse.terminal.json_text import format_json
from dse.terminal.orphan_processes import end_all, limit_memory
from dse.terminal.signals import handle_signals
from dse.terminal.text_encoding import make_output_printable

BETWEEN = 0.25
"""Two reports of progress. [s]"""

MEMORY_LIMIT = 6 << 30
"""What a call may take beyond what the process holds when it starts. [B]"""

GRACE = 20.0
"""Time that a call has to put things in order when it is stopped. [s]"""


class ProgressReports:
    """Writer of a call's progress: designs done in all its stages, so that it only grows.

    Args:
        out: a line of JSON a report.
    """

    def __init__(self, out: TextIO) -> None:
        self._out = out
        self._time = 0.0
        self._stage = ""
        self._before = self._written = 0

    def report_progress(self, what: str, done: int, total: int, note: str) -> None:
        """Take a progress update, and write it now and then if it is new."""
        if what != self._stage:
            self._stage, self._before = what, self._written
        now, so_far = time.monotonic(), self._before + done
        if so_far <= self._written or (done < total and now - self._time < BETWEEN):
            return
        self._time, self._written = now, so_far
        note_text = f"{what}: {done:,} of {total:,}" + (f", {note}" if note else "")
        _write_record(self._out, {"done": so_far, "total": self._before + total, "said": note_text})


def main() -> None:
    """Answer calls until the input ends."""
    out, calls = os.fdopen(os.dup(1), "w", encoding="utf-8"), os.fdopen(os.dup(0), encoding="utf-8")
    os.dup2(2, 1)  # what libraries and processes below print is no answer
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    make_output_printable()
    limit_memory(MEMORY_LIMIT)
    waiting: queue.SimpleQueue[str] = queue.SimpleQueue()
    busy = threading.Event()
    threading.Thread(target=_read_calls, args=(calls, waiting, busy), daemon=True).start()
    try:
        with handle_signals():
            while line := waiting.get():
                busy.set()
                _write_record(out, _answer_call(line, out))
                busy.clear()
    except (KeyboardInterrupt, BrokenPipeError):
        os._exit(1)


def _read_calls(calls: TextIO, waiting: "queue.SimpleQueue[str]", busy: threading.Event) -> None:
    for line in calls:
        waiting.put(line)
    waiting.put("")
    if busy.is_set() or not waiting.empty():
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(GRACE)
        end_all()
        os._exit(1)


def _answer_call(line: str, out: TextIO) -> dict[str, Any]:
    call = json.loads(line)
    try:
        return {"document": call_tool(call["tool"], call["arguments"], ProgressReports(out).report_progress)}
    except MemoryError:
        return {"refused": f"dse: {call['tool']}: needs more than {format_quantity(MEMORY_LIMIT, 'B')} of memory; request less"}
    except Exception as error:
        given_line = format_error_line(error)
        if not given_line:
            traceback.print_exc()
            given_line = f"dse: {call['tool']}: {type(error).__name__}: {' '.join(str(error).split())}; a fault of this program"
        return {"refused": given_line}


def _write_record(out: TextIO, data: dict[str, Any]) -> None:
    out.write(format_json(data) + "\n")
    out.flush()


if __name__ == "__main__":
    main()
