"""A leaf of a mapping that nothing reads beside a word changes nothing there, is refused where it is said, and makes no design.

Those that are declared; `python -m tests.leaves` looks for others.
"""

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from dse.space.design import Design
from dse.space.errors import DesignError
from dse.space.fields import leaf_at, replace_leaves
from dse.space.knobs import ChoiceKnob, Space
from tests.contract.draws import words
from tests.leaves import declared, others, outcome
from tests.samples import asked

MODEL = ("model=qwen3_1b7", "workload.batch=[1]", "workload.prompt=300", "workload.output=20")
QUESTIONS = (
    ("chip=npu_dse", *MODEL),
    ("chip=wse2", *MODEL),
    ("chip=npu64", "mapping=npu_prefetch", *MODEL),
    ("chip=npu64", "mapping=npu_flat_attention", *MODEL),
    ("chip=wse2", "workload=gemv", "workload.shapes=[1x512x700]"),
    ("chip=tile32", "workload=attention", "workload.keys=[512]"),
    ("chip=npu_dse", "workload=serving", "mapping.serving.prefill_instances=1", "workload.requests=6", "workload.output=8"),
)
"""One for each record of a mapping that has such leaves."""


@pytest.mark.sampled
@pytest.mark.parametrize("question", QUESTIONS, ids=" ".join)
@given(st.data(), st.integers(0, 2**32 - 1))
@settings(max_examples=2, deadline=None)
def test_what_is_declared_to_be_unread_changes_nothing(question: tuple[str, ...], data: st.DataObject, seed: int) -> None:
    asked_, rng = asked(*question), np.random.default_rng(seed)
    address, beside = data.draw(st.sampled_from(declared(asked_.base)))
    draws = {chooser: data.draw(st.sampled_from(words)) for chooser, words in beside.items()}
    design = replace_leaves(asked_.base, draws)
    before = outcome(design, asked_.workload)
    assume(before is not None)  # a mesh's products need a group that is one
    for value in others(design, address, rng):
        assert outcome(replace_leaves(design, {address: value}), asked_.workload) in (before, None), (
            address,
            value,
        )  # None: refused


@pytest.mark.sampled
@pytest.mark.parametrize("question", QUESTIONS, ids=" ".join)
@given(st.data())
@settings(max_examples=2, deadline=None)
def test_what_nothing_reads_is_refused_where_it_is_said(question: tuple[str, ...], data: st.DataObject) -> None:
    base = asked(*question).base
    address, _ = data.draw(st.sampled_from(declared(base)))
    phases = [address.replace(".decode.", ".prefill."), address]  # decode follows prefill
    texts = [
        f"{chooser}={data.draw(st.sampled_from(options))}"
        for phase in phases
        for chooser, options in dict(declared(base))[phase].items()
    ]
    value = _values(base, address)[0]
    asked(*question, *texts)
    with pytest.raises(DesignError, match=rf"^{address}: has no effect with .*; leave it out$"):
        asked(*question, *texts, f"{address}={value}")
    with pytest.raises(DesignError, match=rf"^space\.{address}: has no effect with .*; leave it out$"):
        asked(*question, *texts, f"+space.{address}=choice({','.join(map(str, _values(base, address)))})")


@pytest.mark.parametrize("question", QUESTIONS, ids=" ".join)
@given(st.data(), st.booleans())
@settings(max_examples=5, deadline=None)
def test_rows_of_a_grid_are_designs_that_differ(question: tuple[str, ...], data: st.DataObject, both: bool) -> None:
    """Of any words of a knob, whichever phase it is of, and two values of what it may leave unread."""
    base = asked(*question).base
    address, beside = data.draw(st.sampled_from(declared(base)))
    chooser, unread = next(iter(beside.items()))
    assume(all(leaf_at(base, other) in words for other, words in beside.items() if other != chooser))
    assume(leaf_at(base, chooser) not in unread)  # else nothing ever reads it, and a question refuses it
    leaf = leaf_at(base, chooser)
    words = tuple(dict.fromkeys((leaf, *data.draw(st.lists(st.sampled_from(unread), min_size=1)))))
    wide = (lambda rename: rename.replace(".prefill.", ".both.").replace(".decode.", ".both.")) if both else str
    values = _values(base, address)
    space = Space(base, (ChoiceKnob(wide(chooser), words), ChoiceKnob(wide(address), values)))
    columns = space.grid(0, space.combinations or 0)
    rows = [space.row(columns, place) for place in range(len(columns[wide(chooser)]))]
    assert len(rows) == len({space.key_at(row) for row in rows}) == len(words) + 1
    assert len(space.stack(columns)) == len(rows)
    assert all(space.canonical(row) == row for row in rows)


def _values(base: Design, address: str) -> tuple[int | float | str, ...]:
    """Two values of a leaf, other than that of the base."""
    leaf = leaf_at(base, address)
    if isinstance(leaf, str):
        return tuple(word for word in words(base)[address] if word != leaf)[:2]
    return (3, 2) if isinstance(leaf, int) else (0.25, 0.5)
