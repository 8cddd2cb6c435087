"""Signals of a command: Ctrl-C, SIGTERM or SIGHUP end it cleanly; a second one ends it at once.

Nothing heavy is imported here, since both may come while libraries are still being imported.
"""

import atexit
import contextlib
import os
import signal
import sys
import threading
from collections.abc import Iterator
from types import FrameType
from typing import Any

from dse.terminal.orphan_processes import end_all

SIGNALS = tuple(signal.Signals[name] for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name))
"""Ctrl-C, the end that a scheduler sends, and a terminal or connection that is closed."""

AGAIN_S = 0.02
"""Time until a signal comes again whose exception was lost in a library's callback, as while loops are compiled. [s]"""

TWICE = "ends_at_the_second"
"""Of a handler: the process is the command's own, so it may be ended at once."""


class StopRequested(KeyboardInterrupt):
    """A signal told the command to end.

    Attributes:
        status: to exit with: 130 after Ctrl-C, 143 after SIGTERM, 129 after SIGHUP, as shells have it.
    """

    def __init__(self, number: int) -> None:
        super().__init__(signal.Signals(number).name)
        self.status = 128 + number


def exit_status(error: KeyboardInterrupt) -> int:
    """Exit status for an interrupt: that of its signal."""
    return error.status if isinstance(error, StopRequested) else 130


@contextlib.contextmanager
def handle_signals() -> Iterator[None]:
    """Context in which the first signal raises `StopRequested` and the second ends the process at once.

    Where a callback of a library loses that exception, as a compiler's may, the signal comes again.
    Ray's processes end with it. Signals that the parent process set to be ignored stay ignored.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    came: list[int] = []

    def raise_stop(number: int, frame: FrameType | None) -> None:
        if came:
            _end_by_signal(number)
        came.append(number)
        raise StopRequested(number)

    def send_again(lost: "sys.UnraisableHookArgs") -> None:
        if not isinstance(lost.exc_value, StopRequested):
            hook(lost)
            return
        came.clear()
        timer = threading.Timer(AGAIN_S, os.kill, (os.getpid(), lost.exc_value.status - 128))
        timer.daemon = True
        timer.start()

    setattr(raise_stop, TWICE, True)
    hook, sys.unraisablehook = sys.unraisablehook, send_again
    before: dict[signal.Signals, Any] = {}
    for signal_number in SIGNALS:
        if signal.getsignal(signal_number) not in (signal.SIG_IGN, None):
            before[signal_number] = signal.signal(signal_number, raise_stop)
    try:
        yield
    except (Exception, SystemExit) as error:
        # a library that is interrupted while it is imported may say something else
        if came and getattr(error, "code", 1) not in (0, None, 128 + came[0]):
            raise StopRequested(came[0]) from None
        raise
    finally:
        sys.unraisablehook = hook
        for signal_number, handler in before.items():
            signal.signal(signal_number, handler)
        if before:
            atexit.register(_ignore_signals)


@contextlib.contextmanager
def defer_signals() -> Iterator[None]:
    """Context that holds back signals until its end; a second signal still ends the process at once."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    came: list[int] = []

    def record_signal(number: int, frame: FrameType | None) -> None:
        if came and hasattr(before[signal.Signals(number)], TWICE):
            _end_by_signal(number)
        came.append(number)

    before = {
        signal_number: signal.signal(signal_number, record_signal)
        for signal_number in SIGNALS
        if signal.getsignal(signal_number) not in (signal.SIG_IGN, None)
    }
    try:
        yield
    finally:
        for signal_number, handler in before.items():
            signal.signal(signal_number, handler)
    if came:
        os.kill(os.getpid(), came[0])


def _end_by_signal(number: int, *_: Any) -> None:
    os.write(2, b"\ndse: ended at once; what was stored stays, and the same command goes on from there\n")
    end_all()
    os._exit(128 + number)


def _ignore_signals() -> None:
    """While the interpreter puts itself away, a signal says nothing."""
    sys.stderr.flush()
    for signal_number in SIGNALS:
        if signal.getsignal(signal_number) is not signal.SIG_IGN:
            signal.signal(signal_number, lambda number, frame: os._exit(128 + number))
