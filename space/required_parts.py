"""Part tables: which parts a chip or mapping must have, may have, and what nothing reads."""

from collections.abc import Mapping
from dataclasses import MISSING, fields
from operator import attrgetter
from types import MappingProxyType, NoneType
from typing import Any, NamedTuple

from dse.space.errors import DesignError


class Parts(NamedTuple):
    """Parts of one kind of whole: required ones by field with their kind, and optional ones."""

    name: str
    needs: dict[str, type | None]
    may: tuple[str, ...] = ()


class WholeKinds:
    """Kinds of one record by name, each with its required and optional parts.

    Args:
        record: of parts that may be absent.
        address: of such a record.
        wholes: by name.
        stand_ins: parts that are in place of others, each with these and their kinds.
    """

    def __init__(
        self,
        record: type,
        address: str,
        wholes: dict[str, Parts],
        stand_ins: Mapping[str, Mapping[str, type]] = MappingProxyType({}),
    ) -> None:
        self.address, self.wholes, self.stand_ins = address, wholes, stand_ins
        self.specs = {spec.name: spec for spec in fields(record)}
        self._values = attrgetter(*self.specs)
        self._known: dict[tuple[type, ...], str] = {}

    def whole_of(self, value: Any) -> str:
        """Name of the kind of whole that a record's parts form.

        Raises:
            DesignError: a part that is missing from the whole that is nearest, or that nothing reads there.
        """
        kinds = tuple(map(type, self._values(value)))
        if kinds not in self._known:  # numbers and arrays of them are leaves alike
            have = {name: kind for name, kind in zip(self.specs, kinds, strict=True) if kind is not NoneType}
            self._known[kinds] = self._made(have)
        return self._known[kinds]

    def _made(self, given: dict[str, type]) -> str:
        have, names = self._replaced(given)

        def count_missing(whole: Parts) -> int:
            return sum(not (name in have and kind in (None, have[name])) for name, kind in whole.needs.items())

        def count_surplus(whole: Parts) -> int:
            return sum(name not in whole.needs and name not in whole.may for name in have)

        begin = "start from a shipped file: defaults: [NAME, _self_]"
        if not have:
            raise DesignError(f"{self.address}: has no parts; {begin}")
        name, near = min(
            self.wholes.items(), key=lambda entry: (count_missing(entry[1]) + count_surplus(entry[1]), count_missing(entry[1]))
        )
        if not any(part in near.needs for part in have):
            raise DesignError(f"{self.address}: has only {', '.join(given)}; {begin}")
        for part, kind in near.needs.items():
            if part not in have:
                raise DesignError(f"{self.address}.{part}: missing; {near.name} needs it: {self._said(part)}")
            if kind not in (None, have[part]):
                raise DesignError(
                    f"{self.address}.{names.get(part, part)}: lacks the fields that {near.name} needs: {_fields(kind)}"
                )
        for part in have:
            if part not in near.needs and part not in near.may:
                has = ", ".join((*near.needs, *near.may))
                raise DesignError(f"{self.address}.{names.get(part, part)}: {near.name} does not read it; it has {has}")
        return name

    def _replaced(self, given: dict[str, type]) -> tuple[dict[str, type], dict[str, str]]:
        """Parts with those that stand-ins replace in place of these, and the stand-in of each.

        Raises:
            DesignError: a part beside the one that is in its place.
        """
        have, names = dict(given), dict[str, str]()
        for part in filter(given.__contains__, self.stand_ins):
            replaced = self.stand_ins[part]
            twice = next(filter(given.__contains__, replaced), "")
            if twice:
                address = f"{self.address}.{twice}"
                raise DesignError(f"{self.address}.{part}: is in place of {address}, which is set too; remove one: ~{address}")
            del have[part]
            have |= replaced
            names |= dict.fromkeys(replaced, part)
        return have, names

    def _said(self, part: str) -> str:
        about = self.specs[part].metadata
        unit = about.get("unit", "")
        return str(about["doc"]) + (f" [{unit}]" if unit not in ("", "1") else "")


def _fields(kind: Any) -> str:
    return ", ".join(spec.name for spec in fields(kind) if spec.default is MISSING) if kind else ""
