"""Designs of a page in columns: packed numbers in base64, options as codes; each column once."""

import base64
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from dse.evaluators import METRICS
from dse.execution.result_frame import DESIGN, tied_columns
from dse.execution.study import Study
from dse.space.fields import addresses, field_at
from dse.space.multi_chip_space import AnySpace
from dse.terminal.plain_names import plain_name, setting_name

SHARE, UNDECIDED = "draw_share", "not_distinguished"
"""Columns of a frame, where it has them: share of draws of the constants in which a design is on the front; and the chips of
other kinds that it is not distinguished from."""

LEVELS = 256
"""Different numbers up to which a knob's column is codes into them."""


def pack_columns(studies: Sequence[Study], frames: Sequence[pd.DataFrame]) -> list[dict[str, Any]]:
    """Knobs, metrics and marks of all rows, each column once; NaN for studies without the column."""
    columns: list[dict[str, Any]] = []
    units: dict[str, str] = {}
    docs: dict[str, str] = {}
    logs: dict[str, bool] = {}
    orders: dict[str, list[str]] = {}
    for study in studies:
        space = study.question.space
        for knob in space.knobs:
            spec = space.spec(knob.address)
            units.setdefault(knob.address, spec.metadata["unit"])
            docs.setdefault(knob.address, spec.metadata["doc"])
            orders[knob.address] = [*orders.get(knob.address, []), *map(str, getattr(knob, "values", ()))]
            logs[knob.address] = logs.get(knob.address, False) or bool(getattr(knob, "log", False))
    ties = [tied_columns(study, frame) for study, frame in zip(studies, frames, strict=True)]
    for address, unit in units.items():
        about: dict[str, Any] = {
            "name": address,
            "label": setting_name(address),
            "kind": "knob",
            "unit": unit,
            "doc": docs[address],
        }
        parts = [_knob_cells(frame, tie, address) for frame, tie in zip(frames, ties, strict=True)]
        columns.append(
            about | {"log": logs[address]} | _knob_values(pd.concat(parts, ignore_index=True), orders[address], worded=not unit)
        )
    for address in dict.fromkeys(address for tie in ties for address in tie if address not in units):
        parts_of = [tie.get(address, np.full(len(frame), np.nan)) for tie, frame in zip(ties, frames, strict=True)]
        spec = next(
            _tied_spec(study.question.space, address) for study, tie in zip(studies, ties, strict=True) if address in tie
        )
        about = {
            "name": address,
            "label": setting_name(address),
            "kind": "tied",
            **{key: spec.metadata[key] for key in ("unit", "doc")},
        }
        columns.append(about | {"type": "f8", "data": _pack_array(np.concatenate(parts_of), "<f8")})
    if any("formats" in frame for frame in frames):
        parts = [frame.get("formats", pd.Series([None] * len(frame), dtype=object)) for frame in frames]
        about = {"name": "formats", "kind": "knob", "unit": "", "doc": "number formats", "log": False}
        columns.append(about | _pack_words(pd.concat(parts, ignore_index=True)))
    for name, metric in METRICS.items():
        arrays = [frame[name].to_numpy(dtype=float) if name in frame else np.full(len(frame), np.nan) for frame in frames]
        values = np.concatenate(arrays)
        if np.isfinite(values).any():
            about = {"name": name, "label": plain_name(name), "kind": "metric", "unit": metric.unit, "better": metric.better}
            columns.append(about | {"doc": metric.definition} | {"type": "f4", "data": _pack_array(values, "<f4")})
    if any(SHARE in frame for frame in frames):
        shares = np.concatenate([frame.get(SHARE, np.full(len(frame), np.nan)) for frame in frames]).astype(float)
        doc = "share of draws of assumed and fitted constants in which the design is on the front (dse robust)"
        about = {"name": SHARE, "label": "draws on the front", "kind": "robust", "unit": "1", "doc": doc}
        columns.append(about | {"type": "f4", "data": _pack_array(shares, "<f4")})
    if any(UNDECIDED in frame for frame in frames):
        parts = [frame.get(UNDECIDED, pd.Series([None] * len(frame), dtype=object)) for frame in frames]
        doc = "chips of other kinds of which a design may beat it, within the bands of measured over predicted rates"
        about = {"name": UNDECIDED, "label": "not distinguished from", "kind": "robust", "unit": "", "doc": doc}
        columns.append(about | _pack_words(pd.concat(parts, ignore_index=True)))
    ids = [str(design_id) for frame in frames for design_id in frame[DESIGN]]
    columns.append({"name": DESIGN, "kind": "mark", "type": "ids", "data": " ".join(ids)})
    for name in ("limit", "error", "stage"):
        series = pd.concat([frame[name] for frame in frames], ignore_index=True)
        columns.append({"name": name, "kind": "mark", **_pack_words(series)})
    excess = np.concatenate([frame["excess"].to_numpy(dtype=float) for frame in frames])
    columns.append({"name": "excess", "kind": "mark", "type": "f4", "data": _pack_array(excess, "<f4")})
    for name in ("feasible", "front"):
        flags = np.concatenate([frame[name].to_numpy(dtype=bool) for frame in frames])
        columns.append({"name": name, "kind": "mark", "type": "u1", "data": _pack_array(flags, "u1")})
    owners = np.repeat(np.arange(len(frames)), [len(frame) for frame in frames])
    columns.append({"name": "study", "kind": "mark", "type": "u1", "data": _pack_array(owners, "u1")})
    return columns


def _knob_cells(frame: pd.DataFrame, tied: Mapping[str, Any], address: str) -> pd.Series:
    """A knob's values in a study, of one where it follows others too; nothing where it is neither."""
    if address in frame:
        return frame[address]
    return pd.Series(tied.get(address, [None] * len(frame)), dtype=object)


def _tied_spec(space: AnySpace, address: str) -> Any:
    """What the leaf that is tied is declared as, on the first chip where it is."""
    base = next(space.base for _, space in space.base_spaces if any(tied.address == address for tied in space.tied))
    return field_at(base, addresses(base, address)[0])


def _knob_values(series: pd.Series, order: Sequence[str], *, worded: bool) -> dict[str, Any]:
    if worded:
        return _pack_words(series, order)
    values = series.to_numpy(dtype=float)
    levels = np.unique(values[np.isfinite(values)])
    if len(levels) > LEVELS:
        return {"type": "f8", "data": _pack_array(values, "<f8")}
    codes = np.where(np.isfinite(values), np.searchsorted(levels, values), -1)
    return {"type": "i2", "data": _pack_array(codes, "<i2"), "levels": [float(level) for level in levels]}


def _pack_words(series: pd.Series, order: Sequence[str] = ()) -> dict[str, Any]:
    """Words as codes into those that there are, in some order; others after them."""
    known = series.dropna().astype(str)
    present, place = set(known), {word: number for number, word in reversed(list(enumerate(order)))}
    words = sorted(present, key=lambda word: (place.get(word, len(order)), word))
    codes = np.full(len(series), -1)
    codes[np.flatnonzero(series.notna().to_numpy())] = known.map({word: code for code, word in enumerate(words)}).to_numpy(int)
    return {"type": "i2", "data": _pack_array(codes, "<i2"), "words": words}


def _pack_array(values: Any, kind: str) -> str:
    return base64.b64encode(np.asarray(values).astype(kind).tobytes()).decode()
