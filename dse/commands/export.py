"""``dse export``: a study's results as Parquet, CSV, JSON or Optuna journal, with units."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import orjson
import pandas as pd
from rich.markup import escape

from dse.commands.notebook_api import StoredStudy, load
from dse.evaluators import METRICS
from dse.execution.result_frame import DESIGN, SEARCH_ORDER, tied_columns
from dse.search.pareto import nondominated_layers
from dse.space.errors import DesignError
from dse.space.fields import addresses, field_at
from dse.space.safe_text import count_text, strip_control_codes
from dse.terminal.atomic_files import is_device, write_atomically
from dse.terminal.progress import say


def export_study(name: str, to: str, out: str, *overrides: str, trust: bool = False, everything: bool = False) -> int:
    """Write a study's results to a file atomically, with a file of units where the format has none.

    Args:
        name: of the study.
        to: format, one of `FORMATS`.
        out: file; empty string for one in the run's folder.
        overrides: of the study.
        trust: whether files that are not ours may run code.
        everything: whether an Optuna journal has all designs with all metrics, however many they are; others have them anyway.

    Raises:
        DesignError: there are no results, or the file cannot be written.
    """
    if everything and to != "optuna":
        raise DesignError(f"export --all: has no effect with --to {to}, which has all designs anyway; remove it")
    loaded = load(name, *overrides, trust=trust)
    study = loaded.study
    frame = loaded.frame()
    if not len(frame):
        raise DesignError(f"study {name!r} has no results in {study.run_dir}; run it first: dse run study={name}")
    frame = frame.assign(**tied_columns(study, frame))
    path = Path(out) if out else study.run_dir / f"{name}.{SUFFIX[to]}"
    if path.is_dir() or not path.parent.is_dir():
        raise DesignError(
            f"export --out: {path} is not a file in a folder that exists; name one, as in --out {name}.{SUFFIX[to]}"
        )
    written = frame
    if to == "optuna" and not everything and len(frame) > MAX_TRIALS:
        shown = [name for name in frame.columns if name in study.objectives or name not in METRICS]
        written = thin_designs(frame[shown], study.objectives, MAX_TRIALS)
    with write_atomically(path) as place:
        FORMATS[to](loaded, written, place)
    if to in ("csv", "json") and not is_device(path):
        with write_atomically(path.with_name(f"{path.name}.units.json")) as place:
            place.write_bytes(orjson.dumps(column_units(loaded, frame), option=orjson.OPT_INDENT_2))
    if written is frame:
        say(f"{count_text(len(frame), 'design')} written to {escape(str(path))}")
        return 0
    say(f"{len(written):,} of {len(frame):,} trials: front and an even sample, written to {escape(str(path))}")
    say("attributes: id, stage and limit of each; --all writes all trials with all metrics, which open more slowly")
    return 0


MAX_TRIALS = 3_000
"""Designs up to which a journal has all with all metrics; the dashboard opens it in 5 s (`tests/speed/dashboard.py`)."""


def thin_designs(frame: pd.DataFrame, objectives: Mapping[str, str], most: int) -> pd.DataFrame:
    """The front, the best designs off it, and an even sample of the rest, in the order that they had.

    The front is whole, however large. Half of what is left goes to the next nondominated layers of the feasible designs.

    Args:
        frame: designs in rows, with objectives, ``feasible`` and ``front``.
        objectives: metrics with their directions.
        most: designs in all, more only if the front has more.
    """
    kept = frame["front"].to_numpy(dtype=bool).copy()
    values = frame[list(objectives)].to_numpy(dtype=float)
    others = np.flatnonzero(~kept & frame["feasible"].to_numpy(dtype=bool) & np.isfinite(values).all(axis=1))
    kept[others[nondominated_layers(values[others], list(objectives.values()), (most - kept.sum()) // 2)]] = True
    rest = np.flatnonzero(~kept)
    left = most - int(kept.sum())
    if left > 0:
        kept[rest[np.unique(np.linspace(0, len(rest) - 1, min(left, len(rest))).round().astype(int))]] = True
    return frame[kept].reset_index(drop=True)


def column_units(loaded: StoredStudy, frame: pd.DataFrame) -> dict[str, dict[str, str]]:
    """Unit and meaning of every column: unit "1" for plain numbers, "" for text."""
    study = loaded.study
    space = study.question.space
    tied = {tied.address: (space.base, tied.text) for _, space in space.base_spaces for tied in space.tied}
    units = {}
    for name in map(str, frame.columns):
        if name in METRICS:
            units[name] = {"unit": METRICS[name].unit, "definition": METRICS[name].definition}
        elif name in space.targets:
            words = frame[name].map(lambda value: isinstance(value, str)).any()
            unit = "" if words else space.spec(name).metadata["unit"] or "1"
            units[name] = {"unit": unit, "definition": "knob"}
        elif name in tied:
            base, text = tied[name]
            unit = field_at(base, addresses(base, name)[0]).metadata["unit"] or "1"
            units[name] = {"unit": unit, "definition": f"follows knobs: {text}"}
        else:
            units[name] = {"unit": "1" if name in (SEARCH_ORDER, "excess") else "", "definition": NOTES[name]}
    return units


NOTES = {
    "formats": "number formats that it computes in",
    DESIGN: "its id, the beginning of its key, which every command takes: dse explain STUDY --design ID",
    SEARCH_ORDER: "its place among the searched designs, from 0; none for a design that was only screened",
    "limit": "the limit that is violated most; none where all hold",
    "excess": "relative excess over the limit",
    "error": "why its evaluation failed; none where it did not",
    "stage": "search or screen",
    "feasible": "whether every limit and constraint holds",
    "front": "no other feasible design is better in one objective and as good in all others",
}


def _write_parquet(loaded: StoredStudy, frame: pd.DataFrame, path: Path) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    table = pa.Table.from_pandas(frame, preserve_index=False)
    for place, about in enumerate(column_units(loaded, frame).values()):
        table = table.set_column(place, table.field(place).with_metadata(about), table.column(place))
    pq.write_table(table, path, compression="zstd")


def _write_csv(loaded: StoredStudy, frame: pd.DataFrame, path: Path) -> None:
    numbers = pd.api.types.is_numeric_dtype
    cells = {name: frame[name] if numbers(frame[name]) else frame[name].map(_as_text) for name in frame.columns}
    frame.assign(**cells).rename(columns=_as_text).to_csv(path, index=False)


def _as_text(cell: Any) -> Any:
    """A cell that a spreadsheet does not take for a formula: a text that would start one is quoted; numbers stay numbers."""
    if not isinstance(cell, str):
        return cell
    text = strip_control_codes(cell)
    return f"'{text}" if text.lstrip()[:1] in FORMULA else text


FORMULA = tuple("=+-@")
"""How a formula starts."""


def _write_json(loaded: StoredStudy, frame: pd.DataFrame, path: Path) -> None:
    rows = orjson.dumps(frame.to_dict("records"), option=orjson.OPT_SERIALIZE_NUMPY | orjson.OPT_INDENT_2)
    path.write_bytes(rows)


def _write_optuna(loaded: StoredStudy, frame: pd.DataFrame, path: Path) -> None:
    from dse.search.optuna_journal import write_optuna_journal

    study, about = loaded.study, column_units(loaded, frame)
    attributes = [name for name in about if about[name]["definition"] != "knob" and name not in study.objectives]
    units = {name: texts["unit"] for name, texts in about.items()}
    write_optuna_journal(study.name, study.objectives, study.question.space, frame, path, units, attributes)


FORMATS: dict[str, Callable[[StoredStudy, pd.DataFrame, Path], None]] = {
    "parquet": _write_parquet,
    "csv": _write_csv,
    "json": _write_json,
    "optuna": _write_optuna,
}
SUFFIX = {"parquet": "parquet", "csv": "csv", "json": "json", "optuna": "journal"}
