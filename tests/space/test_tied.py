"""Leaves that follow knobs: one value at a time, in columns and by their keys; and what cannot be tied."""

import subprocess
import sys
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from ray import cloudpickle

from dse.config.question import Question
from dse.evaluators import evaluate
from dse.space.design import design_key
from dse.space.errors import DesignError
from dse.space.fields import leaf_at
from dse.space.knobs import Space
from dse.space.neighbourhood import list_base_neighbours
from tests.samples import asked

SIDES = "choice(4, 8, 16)"
WORDS = (
    "chip=npu64", "model=qwen3_4b", "mapping=npu", "workload.batch=[4]", f"+space.chip.mesh.rows='{SIDES}'",
    "+space.chip.mesh.cols.tied=chip.mesh.rows", "+space.chip.hbm.channels.tied='chip.mesh.rows * chip.mesh.cols'",
)  # fmt: skip


def question(*more: str) -> Question:
    return asked(*WORDS, *more)


def test_what_is_tied_follows() -> None:
    space = question().space
    for rows in (4, 8, 16):
        design = space.design_at({"chip.mesh.rows": rows})
        assert (design.chip.mesh.cols, design.chip.hbm.channels) == (rows, rows * rows)
        assert space.key_at({"chip.mesh.rows": rows}) == design_key(design)
    assert [knob.address for knob in space.knobs] == ["chip.mesh.rows"]
    assert space.combinations == 3


@pytest.mark.parametrize(("text", "gib"), [("6 GiB", 6.0), ("6144 MiB", 6.0), ("3.221225472 GB", 3.0)])
def test_what_is_tied_follows_in_its_own_unit(text: str, gib: float) -> None:
    space = question(f"+space.chip.tile.sram.tied=\"'{text}' / (chip.mesh.rows * chip.mesh.cols)\"").space
    for rows in (4, 16):
        assert space.design_at({"chip.mesh.rows": rows}).chip.tile.sram == pytest.approx(gib * 2**30 / rows**2)


@pytest.mark.slow
@settings(max_examples=30, deadline=None)
@given(st.integers(0, 2**31), st.floats(0.5, 8), st.floats(1, 64))
def test_columns_are_designs_one_by_one(seed: int, memory: float, per_row: float) -> None:
    space = question(
        f"+space.chip.tile.sram.tied=\"'{memory} GiB' / (chip.mesh.rows * chip.mesh.cols)\"",
        "+space.chip.tile.sram_bandwidth.tied="
        f"\"'{per_row} B/cycle' * chip.tile.matrix.rows + chip.noc.word_bytes / '1 cycle'\"",
        "+space.chip.tile.matrix.rows='choice(32, 64, 128)'",
        "+space.chip.noc.word_bytes='tag(B, interval(16, 512))'",
        "+space.mapping.both.partition='choice(k, mn)'",
    ).space
    columns = space.sample(np.random.default_rng(seed).random((40, len(space.knobs))))
    leaves = ("chip.mesh.cols", "chip.hbm.channels", "chip.tile.sram", "chip.tile.sram_bandwidth", "mapping.decode.partition")
    found_columns = {leaf: np.empty(40, dtype=object) for leaf in leaves}
    for rows, design in space.stack(columns).groups:
        for leaf in leaves:
            found_columns[leaf][rows] = leaf_at(design, leaf)
    for place in range(40):
        values = space.row(columns, place)
        alone = space.design_at(values)
        for leaf in leaves:
            assert (
                found_columns[leaf][place] == pytest.approx(leaf_at(alone, leaf), rel=1e-15)
                if leaf.startswith("chip")
                else (found_columns[leaf][place] == leaf_at(alone, leaf))
            )
        assert alone.chip.tile.sram == pytest.approx(memory * 2**30 / alone.chip.mesh.rows**2)
        assert alone.chip.tile.sram_bandwidth == pytest.approx(
            per_row * alone.chip.tile.matrix.rows + alone.chip.noc.word_bytes
        )
        assert space.key_at(values) == design_key(alone)


def test_a_screen_of_tied_leaves_is_its_designs() -> None:
    given_question = question()
    together = evaluate(given_question.space.stack(given_question.space.grid(0, 3)), given_question.workload).columns["tpot"]
    for place, rows in enumerate((4, 8, 16)):
        alone = asked("chip=npu64", "model=qwen3_4b", "mapping=npu", "workload.batch=[4]", f"chip.mesh.rows={rows}",
                      f"chip.mesh.cols={rows}", f"chip.hbm.channels={rows * rows}")  # fmt: skip
        (once,) = evaluate(alone.space.stack({}), alone.workload).columns["tpot"]
        assert together[place] == pytest.approx(once, rel=1e-12, nan_ok=True)


def test_each_chip_has_its_own() -> None:
    question = asked(
        "chips=[npu64,npu_dse]", "model=qwen3_4b", "formats=own", "workload.batch=[4]", f"+space.chip.mesh.rows='{SIDES}'",
        "+space.chip.mesh.cols.tied=chip.mesh.rows", "+space.chip.hbm.channels.tied='chip.mesh.rows * chip.mesh.cols'",
    )  # fmt: skip
    design = question.space.design_at({"chip": "npu64", "chip.mesh.rows": 16})
    assert (design.chip.mesh.cols, design.chip.hbm.channels) == (16, 256)
    assert question.space.design_at({"chip": "npu_dse"}) == question.space.spaces["npu_dse"].base  # type: ignore[union-attr]
    other = asked("chip=npu64", "model=qwen3_4b", "workload.batch=[4]", *WORDS[4:]).space
    assert question.space.key_at({"chip": "npu64", "chip.mesh.rows": 16}) == other.key_at({"chip.mesh.rows": 16})


@pytest.mark.parametrize(
    ("more", "why"),
    [
        (("+space.chip.tile.matrix.cols.tied=chip.tile.matrix.rws",), "no field 'chip.tile.matrix.rws'; did you mean 'rows'"),
        (
            ("+space.chip.tile.sram.tied=chip.mesh.rows",),
            r"chip.mesh.rows is 1, and chip.tile.sram is in B; .* as in \(chip.mesh.rows\) \* '1 B'",
        ),
        (("+space.chip.tile.sram.tied='chip.mesh.rows + chip.noc.word_bytes'",), "units do not fit, 1 \\+ B"),
        (("+space.chip.tile.sram.tied=\"'4 GBs' / chip.mesh.rows\"",), "'4 GBs' is not a quantity"),
        (("+space.chip.tile.matrix.cols.tied=chip.tile.matrix.rows",), "depends on no knob of this space"),
        (
            ("+space.chip.tile.matrix.rows.tied='chip.mesh.rows / 3'",),
            "not a whole number; chip.mesh.rows / 3 gives this",
        ),
        (("+space.mapping.both.partition.tied=chip.mesh.rows",), "only a number can be tied"),
        (("+space.chip.tile.vector.lanes.tied=mapping.prefill.partition",), "mapping.prefill.partition is a word"),
        (("+space.chip.tile.matrix.cols.tied=open(1)",), "not allowed in an expression"),
        (
            (
                "+space.chip.tile.matrix.cols.tied='chip.tile.matrix.rows + chip.mesh.rows'",
                "+space.chip.tile.matrix.rows.tied=chip.tile.matrix.cols",
            ),
            "depends on itself by",
        ),
        (
            ("+space.chip.tile.matrix.cols={tied:chip.mesh.rows,sweep:1}",),
            "has tied and when; got sweep|a knob has sweep and when",
        ),
    ],
)
def test_what_cannot_be_tied_is_refused(more: tuple[str, ...], why: str) -> None:
    with pytest.raises(DesignError, match=why):
        question(*more)


def test_a_knob_and_a_tie_do_not_move_one_leaf() -> None:
    words: list[Any] = ["chip=npu64", "model=qwen3_4b", "mapping=npu", "+space.mapping.both.tp='choice(1, 2, 4)'"]
    with pytest.raises(DesignError, match=r"mapping\.decode\.tp is tied, and mapping\.both\.tp sets mapping\.decode\.tp too"):
        asked(*words, "+space.mapping.decode.tp.tied=mapping.prefill.tp")


def test_a_step_of_a_knob_moves_what_follows_it() -> None:
    space = question().space
    assert isinstance(space, Space)
    designs = {step.new: step.design for step in list_base_neighbours(space)}
    assert {rows: (design.chip.mesh.cols, design.chip.hbm.channels) for rows, design in designs.items()} == {
        4: (4, 16),
        16: (16, 256),
    }
    assert space.with_ties(space.base) == space.base


def test_what_is_tied_goes_to_other_processes() -> None:
    """They know neither the registry of units nor what has been read here."""
    wanted_question = question(
        "+space.chip.tile.vector.lanes.tied=\"'4 op/cycle' * chip.mesh.rows\"", "+metrics.mine='energy**2 / tpot'"
    )
    read = (
        "import pickle, sys; q = pickle.load(sys.stdin.buffer); d = q.space.design_at({'chip.mesh.rows': 8}); "
        "print(d.chip.tile.vector.lanes, d.chip.mesh.cols, q.defined['mine'].worth({'energy': 3.0, 'tpot': 2.0}))"
    )
    done = subprocess.run(
        [sys.executable, "-c", read], input=cloudpickle.dumps(wanted_question), capture_output=True, check=False
    )
    assert not done.returncode, done.stderr.decode()
    assert [float(word) for word in done.stdout.split()] == [32, 8, 4.5]
