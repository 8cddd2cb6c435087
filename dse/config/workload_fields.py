"""Fields of a workload: allowed names and whole numbers; every refusal names the address."""

from collections.abc import Iterable
from typing import Any

from dse.space.errors import DesignError, suggest_nearest


def refuse_unknown_fields(spec: dict[str, Any], allowed: Iterable[str], whose: str = "workload: ") -> None:
    """Refuse a field that the workload type does not have."""
    allowed = {"name", *allowed}
    for key in spec:
        if key not in allowed:
            raise DesignError(f"{whose}no field 'workload.{key}'; {suggest_nearest(key, allowed)}")


def read_whole_numbers(spec: dict[str, Any], key: str, *, low: int = 1) -> list[int]:
    """Whole numbers of a field, which has one or a list, each at least `low`."""
    value = spec.get(key)
    values: list[Any] = value if isinstance(value, list) else [value]
    for entry in values:
        if isinstance(entry, bool) or not isinstance(entry, int) or entry < low:
            raise DesignError(f"workload.{key}: {entry!r} is not a whole number above {low - 1}")
    if not values:
        raise DesignError(f"workload.{key}: empty list")
    return values
