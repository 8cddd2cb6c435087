"""Inputs of a kind, and how each is answered in this process."""

import os
import tempfile
from pathlib import Path
from random import Random

from tests.fuzz.kinds import KINDS
from tests.fuzz.play import LIMIT, Ended, played


def warm(kind: str) -> list[Ended]:
    """Plays the sound samples of a kind.

    Again what took long or had a fault, so that loops which are compiled, or read from where they are kept, count to no input.
    """

    def played(data: bytes) -> Ended:
        ended = _answered(kind, data, Random(0), 60 * LIMIT)[0]
        return ended if ended.seconds < LIMIT and not ended.fault else _answered(kind, data, Random(0), 6 * LIMIT)[0]

    return [played(data) for data in KINDS[kind].samples()]


def answer(kind: str, seed: int) -> tuple[Ended, list[str], bytes]:
    """How the input of a kind and a seed is answered; the command; the input."""
    rng = Random(f"{kind} {seed}")
    samples = KINDS[kind].samples()
    data = KINDS[kind].change(rng.choice(samples), samples, rng)
    return (*_answered(kind, data, rng), data)


def _answered(kind: str, data: bytes, rng: Random, seconds: float = LIMIT) -> tuple[Ended, list[str]]:
    current_folder = Path.cwd()
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        try:
            line = KINDS[kind].put(Path(folder), data, rng)
            return played(line, seconds), line
        finally:
            os.chdir(current_folder)
