"""Measures of how `evaluators` and the presets are built, each a number and where it is found; smaller is better."""

import ast
from collections import Counter
from collections.abc import Callable, Iterator
from functools import cache
from itertools import combinations
from pathlib import Path
from typing import Any

import yaml

from tests.house.sources import ROOT, SOURCES, arrows, parsed, place

PACKAGE = "evaluators"
OWN = [path for path in SOURCES if place(path).startswith(f"{PACKAGE}/")]
BUILDING = {"dse/config/question.py", "dse/config/record_parser.py"}
"""Where kinds of chips and mappings are made from names, which must ask for kinds."""

Measured = tuple[int, str]
"""A number, and where it is found."""


def modules_at_the_top() -> Measured:
    """Modules directly in the folder of the package, `__init__` apart."""
    paths = [path for path in OWN if path.parent == ROOT / PACKAGE and path.name != "__init__.py"]
    return len(paths), f"{PACKAGE}/*.py"


def lines_of_the_longest_file() -> Measured:
    """Lines of a source, blank ones and docstrings included."""
    return max((len(path.read_text().splitlines()), place(path)) for path in OWN)


def lines_of_the_longest_function() -> Measured:
    """Lines of a function or method from its ``def`` to its end, docstring and functions in it included."""
    return max(
        ((node.end_lineno or 0) - node.lineno + 1, f"{place(path)} {node.name}")
        for path in OWN
        for node in ast.walk(parsed(path))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    )


def modules_of_the_longest_import_chain() -> Measured:
    """Modules on the longest way along imports inside the package that run when a module is imported."""
    return _longest(_within(eager=True))


def modules_of_the_longest_chain_with_lazy_imports() -> Measured:
    """The same, with imports inside functions, and of judges by their registry, as further steps."""
    return _longest(_within(eager=False))


def modules_in_import_cycles() -> Measured:
    """Modules of the package from which imports, lazy ones included, lead back to them."""
    arrows_found = _within(eager=False)
    cyclic = [name for name in arrows_found if name in _reached(arrows_found, name)]
    return len(cyclic), ", ".join(map(_short, cyclic))


def pairs_of_folders_that_import_each_other() -> Measured:
    """Pairs of folders of the package of which each has a module that imports one of the other, lazily or not.

    A folder is one directly in the package, with all below it; modules at the top count as one more.
    """
    steps = {(_folder(name), _folder(other)) for name, others in _within(eager=False).items() for other in others}
    folders = sorted({folder for step in steps for folder in step})
    pairs = [(a, b) for a, b in combinations(folders, 2) if {(a, b), (b, a)} <= steps]
    return len(pairs), ", ".join(f"{a} <-> {b}" for a, b in pairs)


def questions_of_kind() -> Measured:
    """Calls of ``isinstance``, ``type`` or ``cast`` with a chip or a mapping, in evaluators/ and dse/, building code apart.

    A call counts if its arguments name a variable or a field `chip` or `mapping`, or a class whose name ends in ``Chip`` or
    ``Mapping``; the Mapping of `collections.abc` does not.
    """
    sources = [path for path in SOURCES if place(path).split("/")[0] in (PACKAGE, "dse") and place(path) not in BUILDING]
    counts = Counter({place(path): _kinds_asked(path) for path in sources})
    most = ", ".join(f"{name} {count}" for name, count in counts.most_common(3))
    return counts.total(), f"most in {most}"


def percent_of_repeated_settings_of_mappings() -> Measured:
    """Settings of files of `conf/mapping` that another file there has too, at the same address with the same value. [%]"""
    return _repeated_settings("mapping")


def percent_of_repeated_settings_of_chips() -> Measured:
    """The same of `conf/chip`; a constant is one setting, with its source, page and note."""
    return _repeated_settings("chip")


MEASURES: dict[str, Callable[[], Measured]] = {
    measure.__name__.replace("_", " "): measure
    for measure in (
        modules_at_the_top,
        lines_of_the_longest_file,
        lines_of_the_longest_function,
        modules_of_the_longest_import_chain,
        modules_of_the_longest_chain_with_lazy_imports,
        modules_in_import_cycles,
        pairs_of_folders_that_import_each_other,
        questions_of_kind,
        percent_of_repeated_settings_of_mappings,
        percent_of_repeated_settings_of_chips,
    )
}
"""By name."""


def _repeated_settings(group: str) -> Measured:
    """Share of the settings of a group's files that stand in two or more, and where most do. [%]"""
    files = {
        path.stem: [*_settings(yaml.safe_load(path.read_text()) or {})] for path in (ROOT / "conf" / group).rglob("*.yaml")
    }
    holders = Counter(setting for settings in files.values() for setting in {*settings})
    repeated = {name: sum(holders[setting] > 1 for setting in settings) for name, settings in files.items()}
    most = ", ".join(f"{name} {count}" for name, count in Counter(repeated).most_common(3))
    return round(100 * sum(repeated.values()) / sum(map(len, files.values()))), f"conf/{group}: most in {most}"


def _settings(node: Any, address: str = "") -> Iterator[str]:
    """Addresses of a file with their values; a defaults list is none."""
    if not isinstance(node, dict) or "value" in node:
        yield f"{address}={node}"
        return
    for name, inner in node.items():
        if address or name != "defaults":
            yield from _settings(inner, f"{address}.{name}")


def _within(*, eager: bool) -> dict[str, set[str]]:
    """Imports inside the package, by module."""
    own = f"dse.{PACKAGE}"
    arrows_within = {name: others for name, others in arrows(eager=eager).items() if f"{name}.".startswith(f"{own}.")}
    return {name: {other for other in others if other in arrows_within} for name, others in arrows_within.items()}


def _longest(graph: dict[str, set[str]]) -> Measured:
    """The longest way along imports without cycles."""

    @cache
    def way(name: str) -> tuple[str, ...]:
        return (name, *max((way(other) for other in sorted(graph[name])), key=len, default=()))

    chain = max((way(name) for name in sorted(graph)), key=len)
    return len(chain), " > ".join(map(_short, chain))


def _reached(graph: dict[str, set[str]], start: str) -> set[str]:
    """Modules that imports lead to."""
    seen: set[str] = set()
    ahead = [start]
    while ahead:
        new = graph[ahead.pop()] - seen
        seen |= new
        ahead += new
    return seen


def _folder(name: str) -> str:
    rest = _short(name).split(".")
    path = ROOT / PACKAGE / rest[0]
    return rest[0] if path.is_dir() else "top"


def _short(name: str) -> str:
    return name.removeprefix(f"dse.{PACKAGE}").removeprefix(".") or PACKAGE


def _kinds_asked(path: Path) -> int:
    foreign = any(
        isinstance(node, ast.ImportFrom) and node.module in ("collections.abc", "typing") and "Mapping" in _names(node)
        for node in parsed(path).body
    )
    return sum(
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Name)
        and node.func.id in ("isinstance", "type", "cast")
        and any(_of_design(name, foreign) for argument in node.args for name in _named(argument))
        for node in ast.walk(parsed(path))
    )


def _names(node: ast.ImportFrom) -> set[str]:
    return {alias.asname or alias.name for alias in node.names}


def _named(node: ast.AST) -> set[str]:
    """Variables, fields and quoted types of an expression."""
    names = set()
    for inner in ast.walk(node):
        if isinstance(inner, ast.Name):
            names.add(inner.id)
        elif isinstance(inner, ast.Attribute):
            names.add(inner.attr)
        elif isinstance(inner, ast.Constant) and isinstance(inner.value, str):
            names.add(inner.value)
    return names


def _of_design(name: str, foreign: bool) -> bool:
    if name == "Mapping" and foreign:
        return False
    return name in ("chip", "mapping") or name.endswith(("Chip", "Mapping"))
