"""Columns of stored tables by present addresses and options; files stay as they were written."""

from collections.abc import Callable
from functools import partial
from typing import Any

import pyarrow as pa

from dse.space.aliases import EVERY, current_address, current_option, new_option_by_old
from dse.space.former_words import current_metric

LIMIT = "limit"
"""Column with the address of the limit that a design violates."""


def current_column(name: str) -> str:
    """Name of now of a stored column.

    >>> current_column("chip.mesh.rows")
    'chip.mesh.rows'
    """
    return current_metric(current_address(name, EVERY))


def rename_columns(table: pa.Table) -> pa.Table:
    """A stored table with its columns, and the options in them, by their names of now."""
    names = [current_column(name) for name in table.column_names]
    if names != table.column_names:
        table = table.rename_columns(names).replace_schema_metadata(table.schema.metadata)
    for place, name in enumerate(names):
        if name in new_option_by_old():
            table = table.set_column(place, name, _current_words(table.column(place), partial(current_option, name)))
        elif name == LIMIT:
            table = table.set_column(place, name, _current_words(table.column(place), current_column))
    return table


def _current_words(column: Any, current: Callable[[str], str]) -> Any:
    """A stored column of words by their names of now; missing values stay."""
    if not pa.types.is_dictionary(column.type):
        return pa.chunked_array([pa.array(_rename_words(column, current), type=column.type)])
    coded = column.unify_dictionaries().combine_chunks()
    coded = coded.chunk(0) if isinstance(coded, pa.ChunkedArray) else coded
    words = pa.array(_rename_words(coded.dictionary, current), type=column.type.value_type)
    return pa.chunked_array([pa.DictionaryArray.from_arrays(coded.indices, words)])


def _rename_words(values: Any, current: Callable[[str], str]) -> list[str | None]:
    return [value if value is None else current(value) for value in values.to_pylist()]
