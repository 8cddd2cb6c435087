"""``dse export``: a study's results as Parquet, CSV, JSON or Optuna journal, with units."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import orjson
import pandas as pd
from rich.markup import escape

from dse.commands.notebook_api import StoredStudy, load
from dse.evaluators import METRICS
from dse.execution.result_frame import DESIGN, SEARCH_ORDER, tied_columns
from dse.space.errors import DesignError
from dse.space.fields import addresses, field_at
from dse.space.safe_text import count_text, strip_control_codes
from dse.terminal.atomic_files import is_device, write_atomically
from dse.terminal.progress import say


def export_study(name: str, to: str, out: str, *overrides: str, trust: bool = False) -> int:
    """Write a study's results to a file atomically, with a file of units where the format has none."""
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
    with write_atomically(path) as place:
        FORMATS[to](loaded, frame, place)
    if to in ("csv", "json") and not is_device(path):
        with write_atomically(path.with_name(f"{path.name}.units.json")) as place:
            place.write_bytes(orjson.dumps(column_units(loaded, frame), option=orjson.OPT_INDENT_2))
    say(f"{count_text(len(frame), 'design')} written to {escape(str(path))}")
    return 0


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
    from dse.search.optuna_samplers import write_optuna_journal

    study = loaded.study
    write_optuna_journal(study.name, study.objectives, study.question.space, frame, path, column_units(loaded, frame))


FORMATS: dict[str, Callable[[StoredStudy, pd.DataFrame, Path], None]] = {
    "parquet": _write_parquet,
    "csv": _write_csv,
    "json": _write_json,
    "optuna": _write_optuna,
}
SUFFIX = {"parquet": "parquet", "csv": "csv", "json": "json", "optuna": "journal"}
