"""The files of a screen: blocks, and pieces of a block that is not whole yet; each named by a checksum of all that is in it."""

import base64
import io
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from rich.markup import escape

from dse.space.elementwise import Array
from dse.terminal.drafts import draft
from dse.terminal.progress import say_once

ROWS = b"rows"
"""In what a piece says of itself, which rows of its block it has."""

SOME = 4096
"""Values of a column that tell whether most of its values differ."""


def read(folder: Path, number: int) -> tuple[Path, pa.Table] | None:
    """A block that is on disk, and is what its name says; of a damaged one this is told, as it will be evaluated again."""
    return next(_sound(folder, "block", number), None)


def pieces(folder: Path, number: int) -> list[tuple[Path, Array, pa.Table]]:
    """What is on disk of a block that is not whole: of each piece its file, its rows in the block, and the table of them."""
    found = []
    for path, table in _sound(folder, "piece", number):
        rows = np.frombuffer(base64.b64decode(table.schema.metadata[ROWS]), dtype=np.int32)
        found.append((path, rows, table))
    return found


def write(table: pa.Table, folder: Path, number: int) -> Path:
    """Stores a block, in the place of all that was there of it. Returns its file."""
    path = _stored(table, folder, "block", number)
    for other in (*_files(folder, "block", number), *_files(folder, "piece", number)):
        if other != path:
            other.unlink(missing_ok=True)
    return path


def write_piece(table: pa.Table, rows: Array, folder: Path, number: int) -> None:
    """Stores some rows of a block.

    Args:
        table: of these rows, as the block will have them.
        rows: their places in the block.
    """
    text = base64.b64encode(rows.astype(np.int32).tobytes())
    _stored(table.replace_schema_metadata({**(table.schema.metadata or {}), ROWS: text}), folder, "piece", number)


def _stored(table: pa.Table, folder: Path, kind: str, number: int) -> Path:
    out = io.BytesIO()
    # to look for a dictionary of values that differ is most of the time that writing takes, and to compress them by bytes
    # of a kind is half of their size
    differing = [name for name in table.column_names if _differ(table[name])]
    listed = [name for name in table.column_names if name not in differing]
    pq.write_table(table, out, compression="lz4", use_dictionary=listed, use_byte_stream_split=differing)
    path = folder / _name(kind, number, out.getvalue())
    with draft(path) as place:
        place.write_bytes(out.getvalue())
    return path


def _sound(folder: Path, kind: str, number: int) -> Iterator[tuple[Path, pa.Table]]:
    """Files of a block that are what their names say; of others this is told."""
    for path in _files(folder, kind, number):
        content = path.read_bytes()
        if path.name == _name(kind, number, content):
            yield path, pq.read_table(pa.BufferReader(content))
        else:
            say_once(f"[yellow]screen[/]: {escape(str(path))}: damaged; left out, and a run evaluates it again")


def _files(folder: Path, kind: str, number: int) -> list[Path]:
    return sorted(folder.glob(f"{kind}-{number:05d}.*.parquet"))


def _differ(column: Any) -> bool:
    """Whether most values of a column are numbers that differ."""
    if not pa.types.is_float64(column.type):
        return False
    some = column.to_numpy()[:: max(1, len(column) // SOME)]
    return len(np.unique(some)) > len(some) / 4


def _name(kind: str, number: int, content: bytes) -> str:
    """A name with the checksum of the whole file: Parquet has one for its pages, and none for what says where they are."""
    return f"{kind}-{number:05d}.{zlib.crc32(content):08x}.parquet"
