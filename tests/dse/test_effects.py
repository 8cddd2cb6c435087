"""What is typed without effect is named, and nothing else: by brute force, of leaves of random chips and questions."""

import json
import shlex
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import dse
from dse.commands.run_study import run_study
from dse.config.compose import compose
from dse.config.question import Question
from dse.config.setting_effects import TypedSetting, find_effective_settings
from dse.evaluators import evaluate
from dse.evaluators.evaluation import limits
from dse.execution.study import build_study
from dse.space.design import Design, stack_designs
from dse.space.errors import DesignError
from dse.space.fields import check_leaf, field_at, iterate_leaves, leaf_at, replace_leaves
from dse.space.read_recorder import record_reads
from dse.space.workload import Workload
from dse.terminal.forked_answers import collect_answers_within
from tests.contract.draws import makes_sense, shaken
from tests.dse.test_answer import Typed
from tests.samples import asked

SMALL = ("workload.batch=[2]", "workload.prompt=60", "workload.output=4")
QUESTIONS = (
    ("chip=a100", "model=qwen3_1b7", *SMALL, "mapping.both.tp=1"),
    ("chip=npu64", "model=qwen3_1b7", "chip.mesh.rows=4", "mapping.both.pp=8", *SMALL),
    ("chip=tile_gh200", "model=qwen3_1b7", "mapping=flat", *SMALL),
    ("chip=tile32", "workload=gemm", "mapping=summa", "workload.shapes=[64x96x80]"),
    ("chip=tile32", "workload=attention", "workload.keys=[128]"),
    ("chip=tile32", "workload=collective", "workload.pattern=[reduce,allreduce]"),
    ("chip=npu_dse", "workload=gemm", "workload.shapes=[64x96x80]"),
    ("chip=wse2", "workload=gemv"),
)
DRAWS = 2
LEAVES = 25
"""Of each random chip."""


def told(design: Design, workload: Workload) -> Any:
    """All metrics and limits of a design by the closed form; None of what cannot be asked."""
    try:
        evaluation = evaluate(stack_designs([design]), workload)
    except DesignError:
        return None
    if evaluation.refused:
        return None
    each = [(limit.address, np.ravel(limit.need).tolist(), np.ravel(limit.have).tolist()) for limit in limits(design, workload)]
    return {name: repr(float(column[0])) for name, column in evaluation.columns.items()}, int(evaluation.limit[0]), each


def brute(design: Design, workload: Workload, leaf: str) -> bool | None:
    """Whether some other value of a leaf changes what is told of a design; None where it can have no other."""
    spec, value = field_at(design, leaf), leaf_at(design, leaf)
    if isinstance(value, bool):
        words: list[Any] = [not value]
    elif isinstance(value, str):
        words = [word for word in spec.metadata["options"] if word != value]
    elif "whole" in spec.metadata:
        words = [value // 4, value // 2, 2 * value, 4 * value]
    else:
        words = [value / 4, value / 2, 2 * value, 4 * value]
    before, tried = told(design, workload), 0
    for word in words:
        try:
            other = replace_leaves(design, {leaf: check_leaf(word, spec, leaf)})
        except DesignError:
            continue
        if leaf_at(other, leaf) == value:
            continue
        tried += 1
        if told(other, workload) != before:
            return True
    return False if tried else None


@pytest.mark.parametrize("question", QUESTIONS, ids=lambda words: " ".join(words[:2]))
def test_a_note_says_exactly_what_changes_nothing(question: tuple[str, ...]) -> None:
    """Of every kind of leaf of random chips that keep their limits: the batch as each value by itself."""
    given_question = asked(*question)
    for draw in range(DRAWS):
        rng = np.random.default_rng([len(question[0]), draw])
        design = shaken(given_question.base, rng) if draw else given_question.base
        if (before := told(design, given_question.workload)) is None or before[1] >= 0 or not makes_sense(design):
            continue
        every = [leaf for leaf, value, _ in iterate_leaves(design) if value != 0]
        leaves = [every[place] for place in rng.permutation(len(every))[:LEAVES]]
        wanted = {leaf for leaf in leaves if brute(design, given_question.workload, leaf) is not False}
        own = Question(design, given_question.workload, given_question.space, (), given_question.defined)
        settings = find_effective_settings(own, [TypedSetting(leaf, (leaf,)) for leaf in leaves], "analytical")
        assert settings == wanted, settings ^ wanted


def test_settings_without_effect_are_noted_beside_the_answer(typed: Typed) -> None:
    line = [
        "chip=npu_dse",
        "workload=gemm",
        "workload.shapes=[64x96x80]",
        "chip.hbm.strided_row_overhead=1 ns",
        "chip.clock=1 GHz",
        "search.budget=-4 ms",
    ]
    code, out, err = typed("evaluate", "--full", *line)
    assert not code
    notes = [
        "search.budget has no effect on dse evaluate; dse run uses it",
        "chip.hbm.strided_row_overhead has no effect here",
    ]
    assert err.splitlines() == [f"dse: note: {note}" for note in notes]
    assert "has no effect" not in out
    code, out, err = typed("evaluate", "--json", *line)
    assert [note["text"] for note in json.loads(out)["without_effect"]] == notes
    code, _, err = typed("evaluate", "--full", *line[:3], line[4])
    assert (code, err) == (0, "")
    code, _, err = typed("explain", "--full", *line)
    assert err.splitlines() == [f"dse: note: {notes[0].replace('evaluate', 'explain')}", f"dse: note: {notes[1]}"]


@pytest.mark.parametrize(
    ("line", "reader"),
    [
        ("chip=mesh8 workload=traffic workload.period=1000", "fidelity=cycles"),
        ("chip=npu64 model=qwen3_1b7 workload.batch=[1] chip.noc.vcs=4", ""),
    ],
)
def test_a_note_says_which_fidelity_reads_a_setting(line: str, reader: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """With time enough: of a machine that has much to do."""
    monkeypatch.setattr("dse.config.setting_effects.READER_SECONDS", 100.0)
    *words, typed = shlex.split(line)
    if reader:  # which has its loops compiled as well
        assert not dse.evaluate(*words, typed, reader).without_effect
    (note,) = (note for note in dse.evaluate(*words, typed).without_effect if note.address == typed.partition("=")[0])
    assert note.reader == reader


def test_reads_are_recorded_by_leaf_and_of_copies() -> None:
    design = asked("chip=npu64", "model=qwen3_1b7", *SMALL).base
    leaves = ["chip.clock", "chip.mesh.rows", "mapping.prefill.tp", "mapping.decode.tp", "chip.noc.vcs"]
    before = [leaf_at(design, leaf) for leaf in leaves]
    with record_reads(design, leaves) as reads:
        assert not reads
        hash(design.chip)
        list(iterate_leaves(design))
        copy = replace_leaves(design, {"chip.mesh.rows": 2})
        assert not reads
        assert design.mapping.prefill.tp
        assert reads == {"mapping.prefill.tp"}
        assert copy.chip.mesh.rows == 2
        assert reads == {"mapping.prefill.tp", "chip.mesh.rows"}
    assert design.chip.clock
    assert reads == {"mapping.prefill.tp", "chip.mesh.rows"}
    assert [leaf_at(design, leaf) for leaf in leaves] == before


def test_questions_in_a_copy_are_ended_and_leave_nothing() -> None:
    seen: list[int] = []

    def asks(*ends: Any) -> list[bool]:
        return collect_answers_within(0.3, lambda: (bool(end()) for end in ends))

    def for_ever() -> None:
        while True:
            pass

    assert asks(lambda: True, lambda: seen.append(1)) == [True, False]
    assert not seen
    assert asks(lambda: 1, lambda: 1 / 0, lambda: 1) == [True]
    assert asks(lambda: 0, for_ever, lambda: 1) == [False]


def test_settings_of_what_is_asked_are_tried_too() -> None:
    """A bound that holds by far has an effect: a thousandth of it would not hold."""
    line = ["chip=h200", "workload=serving", "model=qwen3_1b7", "workload.requests=50", "workload.tpot=50 ms", "seed=1"]
    assert not dse.evaluate(*line, "fidelity=steady_state").without_effect
    line = ["chip=h200", "model=qwen3_1b7", "model.qwen3_1b7.layers=4", "workload.batch=[2]", "seed=3"]
    assert [str(note) for note in dse.evaluate(*line).without_effect] == ["seed has no effect here"]


@pytest.mark.parametrize("address", ["chip.noc.vcs", "chip.noc.vc_depth"])
def test_buffers_of_routers_take_area_where_no_flits_are_played(address: str) -> None:
    words = ("chip=wse2", "workload=gemm", "workload.shapes=[64x64x64]", "mapping.rows=4")
    few, many = (dse.evaluate(*words, f"{address}={number}").metrics for number in (2, 8))
    assert few["die_mm2"] < many["die_mm2"]
    assert few["latency"] == many["latency"]


def test_a_run_notes_knobs_without_effect(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Of a study that nothing refuses: its products of attention wait in software for no other tiles."""
    line = ["name=idle", "chip=tile32", "workload=attention", "workload.keys=[128]", "search=none", f"run_dir={tmp_path}"]
    line += ["+space.chip.tile.collective_sync='tag(cycle, choice(1,2))'", "+space.chip.clock='tag(GHz, choice(1,2))'"]
    run_study(build_study(compose([*line, "+objectives.latency=min", "verify=none"]), tmp_path))
    shown = " ".join("".join(capsys.readouterr()).split())
    assert "note chip.tile.collective_sync changes nothing: " in shown
    assert "chip.clock changes" not in shown
