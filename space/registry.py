"""Registries of options by name: those that ship, and entry points of installed packages.

A name is looked up among shipped options first. Packages are searched only for other names, or when all names are
listed. A study or chip file holds at most a name, so only declared entry points are imported.
"""

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from dse.space.errors import DesignError
from dse.space.former_names import install_former_names, say_former_names, with_former_functions

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

T = TypeVar("T")

METADATA_SUFFIXES = ("dist-info", "egg-info")
"""Suffixes of the folders in which installed packages declare entry points."""


class Registry(dict[str, T]):
    """Options of one kind by name; iteration covers shipped options and packages loaded so far.

    >>> from types import SimpleNamespace as Module
    >>> lines = Registry("dse.none", {"ring": Module(cost=len)}, ("cost",))
    >>> "ring" in lines, lines.names()
    (True, ['ring'])
    """

    def __init__(self, group: str, shipped: Mapping[str, T], needs: tuple[str, ...] = (), kind: type[T] | None = None) -> None:
        """Options that ship.

        Args:
            group: of entry points, as a package names it.
            shipped: by name.
            needs: names that every option has.
            kind: what options are, where none ships.
        """
        super().__init__(shipped)
        self._kind = kind
        self.group, self.needs, self.shipped = group, needs, tuple(shipped)

    def __missing__(self, name: str) -> T:
        """The option of a package, imported; the next look-up finds it here.

        Raises:
            KeyError: no package has it.
            DesignError: it cannot be imported, or is no option of this kind.
        """
        entry = self._installed()[name]
        try:
            install_former_names()
            former_functions: T = with_former_functions(self.group, entry.load())
        except Exception as error:  # a package may fail in any way
            raise DesignError(f"{_place(entry)}: cannot be imported: {type(error).__name__}: {error}") from error
        kind = self._kind or type(self[self.shipped[0]])
        lacks = [need for need in self.needs if not hasattr(former_functions, need)]
        if not isinstance(former_functions, kind) or lacks:
            what = (
                f"it lacks {', '.join(lacks)}" if lacks else f"it is a {type(former_functions).__name__}, not a {kind.__name__}"
            )
            raise DesignError(f"{_place(entry)}: no option of this kind: {what}")
        say_former_names(entry.dist.name if entry.dist is not None else "a package")
        self[name] = former_functions
        return former_functions

    def names(self) -> list[str]:
        """Names of all options, shipped or added by installed packages.

        Raises:
            DesignError: a package has a name that another one has, or that ships.
        """
        return [*self.shipped, *self._installed()]

    def has_packages(self) -> bool:
        """Whether an installed package declares entry points of the group, from its metadata files."""
        folders = (Path(place) for place in sys.path)
        files = (file for folder in folders for kind in METADATA_SUFFIXES for file in folder.glob(f"*.{kind}/entry_points.txt"))
        return any(f"[{self.group}]" in file.read_text(errors="replace") for file in files)

    def _installed(self) -> "dict[str, EntryPoint]":
        from importlib.metadata import entry_points  # slow, and hardly ever needed

        points: dict[str, EntryPoint] = {}
        for entry in entry_points(group=self.group):
            if entry.name in self.shipped or entry.name in points:
                other = _place(points[entry.name]) if entry.name in points else "what ships here"
                raise DesignError(f"{_place(entry)}: the name is that of {other}; one of them needs another name")
            points[entry.name] = entry
        return points


def _place(entry: "EntryPoint") -> str:
    """Package and entry point, as text for messages."""
    package = entry.dist.name if entry.dist is not None else "a package"
    return f"{package}: {entry.group} {entry.name!r} = {entry.value}"
