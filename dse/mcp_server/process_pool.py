"""Processes of the MCP server that answer tool calls, one call in a process at a time.

So a long call delays neither others nor the protocol, a cancelled call stops wherever it is, and nothing that a call prints or
breaks reaches the server.
"""

import asyncio
import json
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from dse.space.errors import DesignError
from dse.space.units import format_quantity
from dse.terminal.child_python import build_child_environment, build_python_command

MAX_PROCESSES = 4
"""Calls at a time; others wait."""

IDLE_PROCESSES = 2
"""Processes that are kept for later calls, as to start one takes seconds."""

TIME_LIMIT = {"run": 6 * 3600.0, "capacity": 3600.0, "validate": 3600.0}
"""How long a call of a tool may take, where it is not `USUAL_LIMIT`. [s]"""

USUAL_LIMIT = 600.0
"""How long a call of a tool may take. [s]"""

LONGEST = 1 << 30
"""Of an answer. [B]"""

ProgressCallback = Callable[[int, int, str], Awaitable[None]]
"""Takes how many designs are done, of how many, and what to say beside it."""


class ToolProcesses:
    """Pool of processes that answer calls; made in a running loop, and ended by `close`."""

    def __init__(self) -> None:
        self._turns = asyncio.Semaphore(MAX_PROCESSES)
        self._all: list[asyncio.subprocess.Process] = []
        self._idle: list[asyncio.subprocess.Process] = []

    async def answer(self, tool: str, arguments: Mapping[str, Any], heard: ProgressCallback) -> dict[str, Any]:
        """Answer of a tool: ``{"document": ...}``, or ``{"refused": LINE}``.

        A call that is cancelled is stopped.
        """
        async with self._turns:
            process = await self._take_process()
            try:
                limit = TIME_LIMIT.get(tool, USUAL_LIMIT)
                answer = await asyncio.wait_for(_send_call(process, tool, arguments, heard), limit)
            except TimeoutError:
                _dismiss_process(process)
                raise DesignError(
                    f"{tool}: took longer than {format_quantity(limit, 's')}, the limit of a call; request less"
                ) from None
            except BaseException:
                _dismiss_process(process)
                raise
            if len(self._idle) < IDLE_PROCESSES:
                self._idle.append(process)
            else:
                _dismiss_process(process)
            return answer

    async def close(self) -> None:
        """End all processes, and wait for them; a call in progress stops first."""
        left = [process for process in self._all if process.returncode is None]
        for process in left:
            _dismiss_process(process)
        await asyncio.gather(*(process.communicate() for process in left))

    async def _take_process(self) -> asyncio.subprocess.Process:
        """A process that waits for a call: one that answered before, or a new one."""
        self._all = [process for process in self._all if process.returncode is None]
        self._idle = [process for process in self._idle if process.returncode is None]
        if self._idle:
            return self._idle.pop()
        process = await _start_process()
        self._all.append(process)
        return process


async def _start_process() -> asyncio.subprocess.Process:
    """A process of a session of its own: what ends the server ends its input, and so lets it put things in order."""
    return await asyncio.create_subprocess_exec(
        *build_python_command("-m", "dse.mcp_server.worker_process"),
        env=build_child_environment(),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        limit=LONGEST,
        start_new_session=True,
    )


async def _send_call(
    process: asyncio.subprocess.Process, tool: str, arguments: Mapping[str, Any], heard: ProgressCallback
) -> dict[str, Any]:
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(json.dumps({"tool": tool, "arguments": arguments}).encode() + b"\n")
    while line := await process.stdout.readline():
        answer: dict[str, Any] = json.loads(line)
        if "done" not in answer:
            return answer
        await heard(answer["done"], answer["total"], answer["said"])
    code = await process.wait()
    raise DesignError(f"{tool}: its process ended with {code}, by a signal or for lack of memory; request less")


def _dismiss_process(process: asyncio.subprocess.Process) -> None:
    if process.stdin is not None:
        process.stdin.close()
