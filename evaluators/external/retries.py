"""Questions that are asked again after a failure that may pass, with longer and longer pauses."""

import time
from collections.abc import Callable
from typing import TypeVar

from dse.space.errors import DesignError

T = TypeVar("T")

MAX_PAUSE_S = 30.0
"""Longest pause between two tries. [s]"""


class TransientError(Exception):
    """A failure after which the same question may be answered."""


def retry_question(name: str, tries: int, pause: float, ask: Callable[[], T]) -> T:
    """Answer to a question, asked again while it fails in a way that may pass.

    Args:
        name: of whom is asked, for messages.
        tries: at most, 1 or more.
        pause: before the second try, and twice as long before each further one. [s]
        ask: returns the answer.

    Raises:
        DesignError: the last failure, with the number of tries, or one that does not pass.
    """
    if tries < 1:
        raise DesignError(f"{name}: tries: expected 1 or more, got {tries}")
    for number in range(1, tries + 1):
        try:
            return ask()
        except DesignError as error:
            raise DesignError(f"{name}: {error}") from None
        except TransientError as failure:
            if number == tries:
                raise DesignError(f"{name}: {failure}" + (f" (after {tries} tries)" if tries > 1 else "")) from None
        time.sleep(min(MAX_PAUSE_S, pause * 2 ** (number - 1)))
    raise AssertionError("unreachable")
