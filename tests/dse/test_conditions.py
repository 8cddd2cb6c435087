"""When a knob counts, as a space's file says it: by words, numbers and quantities of other knobs."""

import math

import pandas as pd
import pytest

from dse.commands.notebook_api import find_study
from dse.commands.study_output import format_knob
from dse.config.compose import compose, find_study_folder
from dse.config.question import build_question
from dse.space.errors import DesignError
from dse.space.knobs import Space

SIZES = "+space.chip.l2.size='tag(MB,choice(16,32.1,64))'"


def space(*words: str) -> Space:
    config = compose(["chip=npu_dse", *words])
    space = build_question(config, find_study_folder(config)).space
    assert isinstance(space, Space)
    return space


def counts(value: str) -> list[bool]:
    """Whether the clock is a knob at each size of the cache, where it is said to be at one."""
    sweep = "sweep: 'tag(GHz,choice(1,2))'"
    found_space = space(SIZES, f"+space.chip.clock={{{sweep}, when: {{chip.l2.size: {value}}}}}")
    return [found_space.active("chip.clock", {"chip.l2.size": size}) for size in found_space.knob("chip.l2.size").values]


@pytest.mark.parametrize("value", ["[32.1 MB]", "32100 kB", "['32.1e6 B', 1 GB]"])
def test_a_knob_counts_at_a_quantity_however_it_is_written(value: str) -> None:
    assert counts(value) == [False, True, False]


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ("[32]", "has no unit"),
        ("[32 W]", "expected one of B"),
        ("[-1 MB]", "below the minimum"),
    ],
)
def test_what_another_knob_cannot_be_is_refused(value: str, message: str) -> None:
    with pytest.raises(DesignError, match=f"'when' of chip.l2.size.*{message}"):
        counts(value)


def test_a_word_that_another_knob_cannot_have_is_refused() -> None:
    caps = "+space.mapping.both.prefetch_share={sweep: 'choice(0.5,1)', when: {mapping.both.prefetch: [partiall]}}"
    with pytest.raises(DesignError, match=r"when.*prefetch: no option 'partiall'; did you mean 'partial'\?"):
        space("+space.mapping.both.prefetch=choice(none,partial)", caps)


def test_an_interval_is_no_condition() -> None:
    clock = "+space.chip.clock={sweep: 'tag(GHz,choice(1,2))', when: {chip.l2.size: [16 MB]}}"
    with pytest.raises(DesignError, match=r"an interval, of which no design has one value; write chip\.l2\.size as choice"):
        space("+space.chip.l2.size='tag(MB,interval(16,64))'", clock)


def test_what_is_no_knob_is_refused_with_the_knobs_that_there_are() -> None:
    with pytest.raises(DesignError, match=r"no knob of this space; did you mean 'chip.l2.size'\?"):
        space(SIZES, "+space.chip.clock={sweep: 'tag(GHz,choice(1,2))', when: {chip.l2.sise: [16 MB]}}")


def test_a_knob_that_is_there_is_put_in_the_place_of_another_as_a_refusal_says() -> None:
    ways = "{sweep: 'choice(0.5,1)', when: {mapping.both.tp: [8]}}"
    words = ["study=mesh_llm", "space.mapping.both.tp.when.chip=[npu64]"]
    with pytest.raises(DesignError, match="a knob already") as error:
        compose(words)
    assert "'~space.mapping.both.tp' and '+space.mapping.both.tp=...'" in str(error.value)
    config = compose(["study=quickstart", "~space.mapping.both.prefetch", f"+space.mapping.both.prefetch_share={ways}"])
    assert config["space"]["mapping.both.prefetch_share"]["when"] == {"mapping.both.tp": [8]}


@pytest.mark.parametrize("value", [None, math.nan, pd.NA])
def test_a_knob_that_does_not_count_is_a_dash_in_tables(value: object) -> None:
    study = find_study("quickstart")
    address = study.question.space.knobs[0].address
    assert format_knob(study, address, value) == "-"
