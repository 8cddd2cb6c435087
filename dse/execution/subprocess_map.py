"""Map over local processes that start fast, while this process takes the first share.

They start in the time of an import, while Ray takes some seconds more. So they are for work of some seconds whose result no one
stores.
"""

import contextlib
import pickle
import subprocess
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from dse.terminal.child_python import build_child_environment, build_python_command

T = TypeVar("T")
R = TypeVar("R")

COMMAND = """
import pickle, sys
asked, answer, sys.stdout = sys.stdin.buffer.read(), sys.stdout.buffer, sys.stderr
work, share = pickle.loads(asked)
answer.write(pickle.dumps(work(share)))
"""
"""What they run: nobody waits for an import before what is asked is read, and what prints does not print into the answer."""


def subprocess_map(work: Callable[[T], R], shares: Sequence[T]) -> list[R]:
    """Map a function over shares: the first here, each other one in a process of its own.

    Args:
        work: found in a module by its name, or a `partial` of such a function; what fails elsewhere is done here.
        shares: may be pickled; one or more.
    """
    others = [_start_share(work, share) for share in shares[1:]]
    try:
        return [work(shares[0]), *(_take_share(work, share, child) for share, child in zip(shares[1:], others, strict=True))]
    finally:
        for child in others:
            child.kill()
            child.wait()


def _start_share(work: Callable[[T], R], share: T) -> "subprocess.Popen[bytes]":
    pipe = subprocess.PIPE
    words, nothing = build_python_command("-c", COMMAND), subprocess.DEVNULL
    process = subprocess.Popen(words, env=build_child_environment(), stdin=pipe, stdout=pipe, stderr=nothing)
    assert process.stdin is not None
    with contextlib.suppress(BrokenPipeError), process.stdin as into:
        into.write(pickle.dumps((work, share)))
    return process


def _take_share(work: Callable[[T], R], share: T, process: "subprocess.Popen[bytes]") -> R:
    assert process.stdout is not None
    with process.stdout as out:
        pickled: Any = out.read()
    return work(share) if process.wait() else pickle.loads(pickled)
