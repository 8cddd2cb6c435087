"""A stored design of a study by its id, which is the beginning of its content key.

All searched and screened designs count.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import pandas as pd

from dse.execution.result_frame import DESIGN, compute_design_keys, knob_values, report_order
from dse.execution.screen import ScreenResult
from dse.execution.study import Study
from dse.explanations.near_feasible import collect_known_tables
from dse.space.design import KEY_DIGITS, make_ids
from dse.space.errors import DesignError
from dse.space.knobs import Value

SHORTEST = 6
"""Digits of an id that are looked for; fewer, if they are decimal, are a rank that somebody read in a table."""

SHOWN = 5
"""Designs that a refusal names."""


@dataclass(frozen=True)
class StoredStudyDesign:
    """One stored design of a study: its id and knob values.

    Attributes:
        id: the beginning of its key.
        values: of its knobs.
    """

    id: str
    values: Mapping[str, Value]


def find_stored_design(study: Study, frame: pd.DataFrame, screened: ScreenResult | None, typed: str) -> StoredStudyDesign:
    """The design of a study that an id names.

    Args:
        study: the study.
        frame: of its designs, as `dse.execution.result_frame.combine_with_front` has it.
        screened: what its screen looked at, of which the frame has a sample.
        typed: the id, or more or fewer digits of the key, `SHORTEST` at least.

    Raises:
        DesignError: no design has it, or several do; or a rank was typed.
    """
    rows, text = report_order(study, frame), typed.strip().lower()
    if (rank := text.removeprefix("#")).isdecimal() and (len(rank) < SHORTEST or rank != text):
        raise DesignError(f"--design: {typed!r} is a rank, which changes while a study runs; {_of_rank(rows, int(rank))}")
    if not SHORTEST <= len(text) <= KEY_DIGITS or set(text) - set("0123456789abcdef"):
        raise DesignError(f"--design: {typed!r} is no id of a design; {_example_ids(study, rows)}")
    matches: dict[str, Mapping[str, Value]] = {}
    for table in (rows, *_other_tables(study, frame, screened)):
        matches |= _rows_with_key(study, table, text)
        if matches and len(text) >= KEY_DIGITS:
            break
        if matches and table is rows:  # others are looked through where these have none
            break
    if not matches:
        raise DesignError(f"--design: no design {typed!r} in study {study.name}; {_example_ids(study, rows)}")
    ids = dict(zip(matches, make_ids(list(matches)), strict=True))
    if len(matches) > 1:
        several = ", ".join(list(ids.values())[:SHOWN]) + (f" and {len(ids) - SHOWN:,} more" if len(ids) > SHOWN else "")
        raise DesignError(
            f"--design: {len(matches):,} designs of study {study.name} begin with {typed!r}: {several}; add digits"
        )
    ((key, values),) = matches.items()
    known = rows[DESIGN][rows[DESIGN].map(key.startswith)]
    return StoredStudyDesign(str(known.iloc[0]) if len(known) else ids[key], values)


def _other_tables(study: Study, frame: pd.DataFrame, screened: ScreenResult | None) -> Iterator[pd.DataFrame]:
    """Designs that were screened and are not in a frame, and some that are."""
    if screened is not None and screened.kept > len(frame):
        yield from collect_known_tables(study, frame, screened)


def _rows_with_key(study: Study, rows: pd.DataFrame, text: str) -> dict[str, Mapping[str, Value]]:
    """By key, the knob values of the rows whose key begins with a text."""
    if DESIGN in rows:
        rows = rows[rows[DESIGN].map(lambda id_: id_.startswith(text) or text.startswith(id_))]
    keys = compute_design_keys(study, rows) if len(rows) else []
    places = [place for place, key in enumerate(keys) if key.startswith(text)]
    return {keys[place]: knob_values(study, rows.iloc[place].to_dict()) for place in places}


def _of_rank(rows: pd.DataFrame, rank: int) -> str:
    """What to say in place of a rank."""
    if not 1 <= rank <= len(rows):
        return f"ranks are 1 to {len(rows):,}; name the design by its id, as in {rows[DESIGN].iloc[0]}"
    return f"use its id: rank {rank:,} is now {rows[DESIGN].iloc[rank - 1]}"


def _example_ids(study: Study, rows: pd.DataFrame) -> str:
    """Ids that would do."""
    best = rows[DESIGN].iloc[: 2 if rows["front"].any() else 1]
    example = f"the first of its front are {', '.join(best)}" if rows["front"].any() else f"one is {best.iloc[0]}"
    return f"an id is {SHORTEST} hexadecimal digits or more; {example} (dse explain {study.name})"
