"""A sample of what `python -m tests.fuzz` plays: FUZZ=10000 plays as many in all."""

import os

import pytest

from tests.fuzz.answers import answer, warm
from tests.fuzz.kinds import KINDS
from tests.marks import slow_if

EACH = -(-int(os.environ.get("FUZZ", "280" if os.environ.get("SLOW") == "all" else "140")) // len(KINDS))


@slow_if(lambda kind: kind in ("overrides", "yaml", "hf", "url", "csv"))
@pytest.mark.parametrize("kind", KINDS)
def test_sound_samples_are_answered(kind: str) -> None:
    faults = [(ended.error[-300:], ended.fault) for ended in warm(kind) if ended.fault or (ended.refused and kind != "url")]
    assert not faults


@slow_if(lambda kind: kind in ("store", "url"))
@pytest.mark.parametrize("kind", KINDS)
def test_a_mutated_input_is_answered_or_refused_in_one_line(kind: str) -> None:
    answers = {seed: answer(kind, seed)[0] for seed in range(EACH)}
    assert not {seed: ended.fault for seed, ended in answers.items() if ended.fault}
    assert sum(ended.refused for ended in answers.values()) >= 0.3 * len(answers)
