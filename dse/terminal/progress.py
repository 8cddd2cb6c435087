"""Progress on the terminal: lines, and a bar with rate, front size and time left."""

import sys
import threading
import time
from collections.abc import Callable, Sequence
from functools import cache
from types import TracebackType
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from dse.space.safe_text import mask_passwords, strip_control_codes
from dse.terminal.screen_lines import SCREEN_WIDTH
from dse.terminal.table_width import fit_table


class SafeConsole(Console):
    """Console for all printed text: it masks passwords and escapes terminal commands.

    Args:
        width: of the lines where they do not go to a terminal.
        how: as `rich.console.Console` takes it.
    """

    def __init__(self, width: int | None = None, **how: Any) -> None:
        super().__init__(highlight=False, **how)
        if width is not None and not self.is_terminal:
            self.width = width

    def print(self, *objects: Any, **how: Any) -> None:
        """Print objects, with tables in the width of the terminal."""
        super().print(*(fit_table(table, self) if isinstance(table, Table) else table for table in objects), **how)

    def on_broken_pipe(self) -> None:
        """End the command with status 141 when the pipe's other end has closed."""
        raise BrokenPipeError

    def render_str(self, text: str, **how: Any) -> Text:
        """Text as it is shown: passwords masked, control characters escaped."""
        return super().render_str(strip_control_codes(mask_passwords(text)), **how)


WIDEST = 120
"""Characters of a line of a first screen at most, on a wide terminal."""


def screen_width() -> int:
    """Characters of a line of a first screen: the terminal's, from 40 to 120; 80 if there is none."""
    console = SafeConsole(SCREEN_WIDTH)
    return min(max(console.width, SCREEN_WIDTH // 2), WIDEST)


def print_lines(lines: Sequence[str]) -> None:
    """Print the lines of a first screen as they are, the first one bold."""
    console = SafeConsole(WIDEST, soft_wrap=True)
    for place, line in enumerate(lines):
        console.print(Text(strip_control_codes(mask_passwords(line)), style="" if place else "bold"))


def say(text: str) -> None:
    """Print a line on standard error, with rich's markup."""
    SafeConsole(stderr=True, soft_wrap=True).print(text)


@cache
def say_once(text: str) -> None:
    """Print a line on standard error, once per process."""
    say(text)


ProgressCallback = Callable[[str, int, int, str], None]
"""Takes what is under way, how many designs of it are done, of how many, and what to say beside it."""


def skip_progress(what: str, done: int, total: int, note: str) -> None:
    """Ignore progress: show nothing."""


LINE_PERIOD_S = 10.0
"""Time after which there is a line more where there is no bar. [s]"""

PATIENCE, OFTEN = 3.0, 0.2
"""Time after which whoever waits for an answer hears why, and between two looks at whether there is a reason. [s]"""

COMPILES = "the first run on a machine compiles its loops"


class CompileNotice:
    """Notice on standard error while loops are compiled, after `PATIENCE` and each doubling of the time.

    Silent if all loops come from a cache. It ends when a `ProgressBar` begins, which has lines of its own.

    Args:
        what: is asked for.
        compiled: how many loops this process has begun to compile.
    """

    _now: "CompileNotice | None" = None

    def __init__(self, what: str, compiled: Callable[[], int]) -> None:
        self._what = what
        self._compiled = compiled
        self._before = compiled()
        self._start_worker = time.monotonic()
        self._over = threading.Event()

    def __enter__(self) -> "CompileNotice":
        CompileNotice._now = self
        threading.Thread(target=self._wait_long, daemon=True).start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.end()

    def end(self) -> None:
        """Stop the notice, which prints nothing more."""
        self._over.set()
        CompileNotice._now = None

    @classmethod
    def hand_over(cls) -> None:
        """Stop the notice, since another display shows progress from now on."""
        if cls._now is not None:
            cls._now.end()

    def _wait_long(self) -> None:
        wait = PATIENCE
        while not self._over.wait(OFTEN):
            seconds = time.monotonic() - self._start_worker
            if seconds > wait and self._compiled() > self._before:
                say(f"  {self._what}: no answer yet, {seconds:.0f} s; {COMPILES}")
                self._before, wait = self._compiled(), 2 * seconds


class ProgressBar:
    """A bar on a terminal; elsewhere a line every ten seconds.

    Before the first design is done, as while its loops are compiled, nobody calls `update`: then a line says how long that has
    been, after ten seconds and each time that it is twice as long.

    Args:
        what: is under way.
        told: takes each update as well.
        unit: what is done, in the plural.
    """

    def __init__(self, what: str, report_progress: ProgressCallback = skip_progress, *, unit: str = "designs") -> None:
        self._what, self._unit = what, unit
        self._told = report_progress
        self._bar: Any = None
        self._task: Any = None
        self._start_worker = self._said = time.monotonic()
        self._begun = threading.Event()

    def __enter__(self) -> "ProgressBar":
        CompileNotice.hand_over()
        if sys.stderr is not None and sys.stderr.isatty():  # a closed one is None
            from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
            from rich.progress import Progress as Bar

            self._bar = Bar(
                TextColumn(f"  {self._what}"),
                BarColumn(bar_width=30),
                MofNCompleteColumn(),
                TextColumn("{task.fields[rate]}"),
                TextColumn("{task.fields[note]}"),
                TimeRemainingColumn(),
                console=SafeConsole(stderr=True),
                transient=True,
            )
            self._task = self._bar.add_task("", total=None, rate="", note="")
            self._bar.start()
        else:
            threading.Thread(target=self._wait_long, daemon=True).start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._begun.set()
        if self._bar is not None:
            self._bar.stop()

    def update(self, done: int, total: int, note: str) -> None:
        """Show how many designs are done, of how many, with a text beside it."""
        if done:
            self._begun.set()
        self._told(self._what, done, total, note)
        seconds = time.monotonic() - self._start_worker
        rate = f"{_pace_text(done / seconds, self._unit)}, " if done and seconds > 0.2 else ""
        if self._bar is not None:
            self._bar.update(self._task, completed=done, total=total, rate=rate.rstrip(", "), note=note)
        elif time.monotonic() - self._said > LINE_PERIOD_S:
            left = f", {(total - done) * seconds / done:.0f} s left" if done else ""
            say(f"  {self._what}: {done:,} of {total:,}, {rate}{note}{left}")
            self._said = time.monotonic()

    def _wait_long(self) -> None:
        """Say that nothing is done yet, until something is."""
        wait = LINE_PERIOD_S
        while not self._begun.wait(wait):
            seconds = time.monotonic() - self._start_worker
            say(f"  {self._what}: none done yet, {seconds:.0f} s; {COMPILES}")
            wait = seconds


def _pace_text(rate: float, unit: str) -> str:
    return f"{rate:,.0f} {unit}/s" if rate > 5 else f"{rate:.2g} {unit}/s" if rate >= 1 else f"{1 / rate:.3g} s a design"
