"""Answers from a forked copy of this process, which can be ended after some time and leaves no trace."""

import os
import select
import signal
import sys
import time
import warnings
from collections.abc import Callable, Iterable

CAN = sys.platform == "linux"
"""Whether a copy of a process with compiled libraries works."""


WAIT = 4.0
"""Times the CPU time of the copy for which it is waited for, as others may be on its cores."""


def collect_answers_within(seconds: float, answers: Callable[[], Iterable[bool]]) -> list[bool]:
    """First answers to questions, within a CPU time and before an error. [s]"""
    if not CAN:
        return []
    read, write = os.pipe()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of threads, which the copy has not: it is ended in time
        child = os.fork()
    if not child:
        _send_answers(seconds, answers, write)
    os.close(write)
    found_answers, end = b"", time.monotonic() + WAIT * seconds
    try:
        while select.select([read], [], [], max(0.0, end - time.monotonic()))[0] and (chunk := os.read(read, 1 << 12)):
            found_answers += chunk
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        os.close(read)
    return [answer == ord("1") for answer in found_answers]


def _send_answers(seconds: float, answers: Callable[[], Iterable[bool]], write: int) -> None:
    """What the copy does, which never returns."""
    try:
        quiet = os.open(os.devnull, os.O_WRONLY)
        os.dup2(quiet, 1)
        os.dup2(quiet, 2)
        signal.signal(signal.SIGPROF, signal.SIG_DFL)
        signal.setitimer(signal.ITIMER_PROF, seconds)
        for answer in answers():
            os.write(write, b"1" if answer else b"0")
    finally:
        os._exit(0)
