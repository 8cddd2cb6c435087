"""JSON that every parser accepts: numbers that are not finite become null."""

import json
import math
from typing import Any

from dse.documents.records import plain_values, record_values


def format_json(value: Any, **how: Any) -> str:
    """A value as JSON, with null for a number that is not finite.

    Args:
        value: of records, dictionaries, lists, texts and numbers.
        how: as `json.dumps` takes it.

    >>> format_json({"tpot": float("nan"), "cores": [1.0, float("inf")]})
    '{"tpot": null, "cores": [1.0, null]}'
    """
    try:
        return json.dumps(value, allow_nan=False, default=record_values, **how)
    except ValueError:
        return json.dumps(_finite_values(plain_values(value)), allow_nan=False, **how)


def _finite_values(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _finite_values(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_finite_values(inner) for inner in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
