"""Files of a screen: blocks, and pieces of an unfinished block, each named by its checksum."""

import base64
import io
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from rich.markup import escape

from dse.space.array_math import Array
from dse.store.storage_folders import StorageFolder, StoredFile, read_parquet
from dse.terminal.progress import say_once

ROWS = b"rows"
"""In what a file says of itself, which rows of its block it has, where it has not all of them."""

SOME = 4096
"""Values of a column that tell whether most of its values differ."""


@dataclass(frozen=True)
class StoredBlock:
    """Contents of one file of a screen.

    Attributes:
        file: where it is.
        rows: places in the block of the rows that it has; shape (rows,).
        table: of these rows.
    """

    file: StoredFile
    rows: Array
    table: pa.Table


def read_block(files: Sequence[StoredFile], number: int) -> StoredBlock | None:
    """Read a block if its file is intact; a damaged one is reported and will be evaluated again.

    None if there is no intact file.
    """
    return next(_sound_files(files, "block", number), None)


def read_pieces(files: Sequence[StoredFile], number: int) -> list[StoredBlock]:
    """Read the stored pieces of an unfinished block."""
    return list(_sound_files(files, "piece", number))


def write_block(table: pa.Table, place: StorageFolder, number: int, rows: Array | None = None) -> StoredBlock:
    """Store a block, and remove all earlier files of it.

    Args:
        table: of the block.
        place: the screen's folder.
        number: of the block.
        rows: places in the block of the rows that are kept; None for all.
    """
    block = _store_table(table, place, "block", number, rows)
    for other in place.list_files():
        if other != block.file and other.name.startswith((_file_start("block", number), _file_start("piece", number))):
            other.drop()
    return block


def write_piece(table: pa.Table, rows: Array, place: StorageFolder, number: int) -> None:
    """Store some rows of a block.

    Args:
        table: of these rows, as the block will have them.
        rows: their places in the block.
        place: the screen's folder.
        number: of the block.
    """
    _store_table(table, place, "piece", number, rows)


def _store_table(table: pa.Table, place: StorageFolder, kind: str, number: int, rows: Array | None) -> StoredBlock:
    out = io.BytesIO()
    if rows is not None:
        text = base64.b64encode(rows.astype(np.int32).tobytes())
        table = table.replace_schema_metadata({**(table.schema.metadata or {}), ROWS: text})
    # to look for a dictionary of values that differ is most of the time that writing takes, and to compress them by bytes
    # of a kind is half of their size
    differing = [name for name in table.column_names if _has_different_numbers(table[name])]
    listed = [name for name in table.column_names if name not in differing]
    pq.write_table(table, out, compression="lz4", use_dictionary=listed, use_byte_stream_split=differing)
    content = out.getvalue()
    return _block_of_file(place.put(_file_name(kind, number, content), content), table)


def _sound_files(files: Sequence[StoredFile], kind: str, number: int) -> Iterator[StoredBlock]:
    """Files of a block that are what their names say; of others this is told."""
    for file in files:
        if not file.name.startswith(_file_start(kind, number)):
            continue
        content = file.read_content()
        if file.name == _file_name(kind, number, content):
            yield _block_of_file(file, read_parquet(pa.BufferReader(content)))
        else:
            say_once(f"[yellow]screen[/]: {escape(str(file))}: damaged; left out, and a run evaluates it again")


def _block_of_file(file: StoredFile, table: pa.Table) -> StoredBlock:
    encoded = (table.schema.metadata or {}).get(ROWS)
    rows = np.arange(table.num_rows) if encoded is None else np.frombuffer(base64.b64decode(encoded), dtype=np.int32)
    return StoredBlock(file, rows, table)


def _has_different_numbers(column: Any) -> bool:
    """Whether most values of a column are numbers that differ."""
    if not pa.types.is_float64(column.type):
        return False
    selected_column = column.to_numpy()[:: max(1, len(column) // SOME)]
    return len(np.unique(selected_column)) > len(selected_column) / 4


def _file_start(kind: str, number: int) -> str:
    return f"{kind}-{number:05d}."


def _file_name(kind: str, number: int, content: bytes) -> str:
    """A name with the checksum of the whole file: Parquet has one for its pages, and none for what says where they are."""
    return f"{_file_start(kind, number)}{zlib.crc32(content):08x}.parquet"
