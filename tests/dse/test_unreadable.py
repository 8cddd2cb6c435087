"""Command lines that Hydra cannot read: the word that is wrong, and what is typed instead, which then runs."""

import pytest

import dse
from dse.config.compose import compose
from dse.space.errors import DesignError
from tests.samples import asked

DIE = ("chip=npu_dse", "model=llama3_8b", "workload.batch=[1]")


@pytest.mark.parametrize(
    ("word", "message"),
    [
        ("TB/s", "'TB/s' is no override; write ADDRESS=VALUE"),
        ("=2", "'=2' is no override"),
        ("chip.größe=2", "'chip.größe' is no address"),
        ('chip.l2.size="64 MB', "chip.l2.size: '\"64 MB' has a quote that is not closed"),
        ("workload.batch=[1", r"workload.batch: '\[1' has a bracket that is not closed"),
        ("workload.batch=1]", r"workload.batch: '1\]' has a bracket that is not open"),
        ("workload.shapes=[8\u00d78\u00d78]", "workload.shapes: .* cannot be read for '\u00d7' in it; .*\\[\"TEXT\"\\]'$"),
        ("chip.cores=1,2", r"chip.cores: one value, not 1,2; .*\+space.chip.cores=choice\(1,2\)$"),
        ("chip.cores=range(1,9)", r"\+space.chip.cores=range\(1,9\)$"),
        ("chip=a100,h100", r"dse compare chip=\[a100,h100\]"),
        ("chip.l2.size=1,5 MB", "has a comma; write a point, as in '1.5 MB'"),
    ],
)
def test_a_word_that_cannot_be_read_is_named_with_how_it_is_written(word: str, message: str) -> None:
    with pytest.raises(DesignError, match=message):
        compose((*DIE, word))


def test_a_range_that_does_not_step_says_so() -> None:
    with pytest.raises(DesignError, match=r"space\.chip\.cores: 'range\(1,9,0\)' has a step of 0"):
        asked(*DIE, "+space.chip.cores=range(1,9,0)")


def test_a_bare_value_with_other_letters_than_ascii_is_text() -> None:
    assert asked(*DIE, "chip.network.latency=2 µs").base == asked(*DIE, "chip.network.latency=2 us").base
    assert asked(*DIE, "chip.network.latency=2 \u03bcs").base == asked(*DIE, "chip.network.latency=2 us").base  # Greek mu
    assert compose((*DIE, "name=ö"))["name"] == "ö"


def test_names_that_differ_by_capitals_alone_are_what_was_meant() -> None:
    with pytest.raises(DesignError, match="did you mean 'a100'"):
        compose(("chip=A100",))


WAFER = ("chip=wse2", "model=llama3_8b", "workload.batch=[1]", "workload.prompt=64", "workload.output=4")


def test_a_part_that_lacks_something_says_the_words_and_with_them_it_runs() -> None:
    words = [*WAFER, "+part@chip.hbm=hbm3_stack"]
    for address in ("chip.hbm.banks", "chip.dram"):
        with pytest.raises(DesignError, match=rf"{address}\b.*: missing") as refused:
            dse.evaluate(words)
        (advice,) = [word for word in str(refused.value).split() if word.startswith("+")]
        assert advice.partition("=")[0].endswith(f"@{address}")
        words.append(advice)
    assert dse.evaluate(words).metrics["tpot"] > 0


@pytest.mark.parametrize(
    ("chip", "part"),
    [
        ("h200", "chip.hbm=hbm3_edge"),
        ("a100", "chip.hbm=hbm3_stack"),
        ("wse2", "chip=node_nvlink5"),
        ("wse2", "chip.l2=l2_256mb"),
    ],
)
def test_a_part_for_another_machine_is_named(chip: str, part: str) -> None:
    with pytest.raises(DesignError, match=f"; part@{part} adds it; remove that preset"):
        asked(f"chip={chip}", "model=llama3_8b", f"+part@{part}")
    with pytest.raises(DesignError) as refused:
        asked("chip=npu64", "model=qwen3_1b7", "+part@chip.l2=l2_256mb", "chip.l2.sze=3")
    assert "brings it" not in str(refused.value)
