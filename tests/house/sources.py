"""The sources of the project, and what they import."""

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
LAYERS = ("space", "evaluators", "dse", "studies")
STRANGERS = ROOT / "studies/template"
"""What others copy, which keeps to rules of its own."""

SOURCES = [path for layer in LAYERS for path in sorted((ROOT / layer).rglob("*.py")) if not path.is_relative_to(STRANGERS)]


@cache
def parsed(path: Path) -> ast.Module:
    """The syntax tree of a source."""
    return ast.parse(path.read_text())


@cache
def imported(path: Path, *, eager: bool = False) -> set[str]:
    """Names of modules that a source imports, and of what it takes from them; `eager`: only when it is itself imported."""
    names: set[str] = set()
    for node in _run_at_import(parsed(path)) if eager else ast.walk(parsed(path)):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            names |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
    return names


def _run_at_import(node: ast.AST) -> Iterator[ast.AST]:
    """The nodes below one that are not inside a function, nor read by type checkers alone."""
    for inner in ast.iter_child_nodes(node):
        typing = isinstance(inner, ast.If) and "TYPE_CHECKING" in ast.unparse(inner.test)
        if not typing and not isinstance(inner, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            yield inner
            yield from _run_at_import(inner)


def place(path: Path) -> str:
    """The path of a source from the root of the repository."""
    return path.relative_to(ROOT).as_posix()


def module(path: Path) -> str:
    """The name that a source is imported by: the folders of the repository are all in one package."""
    name = place(path).removesuffix(".py").removesuffix("/__init__").replace("/", ".")
    return name if layer(name) == "dse" else f"dse.{name}"


def layer(name: str) -> str:
    """The layer of a module of ours, or of a name in one, and nothing of another."""
    root, *rest = name.split(".")
    if root != "dse":
        return root if root in LAYERS else ""
    return rest[0] if rest and rest[0] in LAYERS else "dse"


@cache
def steps(path: Path) -> frozenset[str]:
    """Modules of ours that a source leads to when it runs: by imports, those inside functions too, and by names in its texts.

    An import of a module leads to that alone, not to its package. Texts are what `import_module` and the like take:
    ``dse.room.module``, ``dse.room.module:NAME``, and an f-string for every module that it may be. What only type checkers read
    leads nowhere.
    """
    ours = _modules()
    found: set[str] = set()
    for node in _run_at_all(parsed(path)):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            names = {f"{node.module}.{alias.name}" for alias in node.names}
            found |= {name if name in ours else node.module for name in names}
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and "." in node.value:
            found.add(node.value.partition(":")[0])
        elif isinstance(node, ast.JoinedStr):
            found |= _modules_like(node)
    return frozenset(found & ours.keys() - {_name(path)})


def circles() -> list[list[str]]:
    """Modules that steps lead back to, in groups of which each leads to each; in all folders, tests included."""
    graph = {name: steps(path) for name, path in _modules().items()}
    order: dict[str, int] = {}
    lowest: dict[str, int] = {}
    open_names: list[str] = []  # in the order of their visits
    found: list[list[str]] = []

    def visit(name: str) -> None:  # Tarjan's
        order[name] = lowest[name] = len(order)
        open_names.append(name)
        for other in sorted(graph[name]):
            if other not in order:
                visit(other)
            if other in open_names:
                lowest[name] = min(lowest[name], lowest[other])
        if lowest[name] == order[name]:
            group = open_names[open_names.index(name) :]
            del open_names[open_names.index(name) :]
            if len(group) > 1:
                found.append(sorted(group))

    for name in sorted(graph):
        if name not in order:
            visit(name)
    return found


def _run_at_all(tree: ast.AST) -> Iterator[ast.AST]:
    """The nodes below one, without those that type checkers alone read."""
    ahead = [tree]
    while ahead:
        node = ahead.pop()
        typing = isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test)
        ahead += node.orelse if typing else ast.iter_child_nodes(node)  # type: ignore[attr-defined]
        yield node


@cache
def _modules() -> dict[str, Path]:
    """Sources and tests by the names that they are imported by."""
    tests = sorted((ROOT / "tests").rglob("*.py"))
    return {_name(path): path for path in (*SOURCES, *tests)}


def _name(path: Path) -> str:
    return module(path).removeprefix("dse.") if path.is_relative_to(ROOT / "tests") else module(path)


def _modules_like(text: ast.JoinedStr) -> set[str]:
    """Modules of studies that an f-string may name; what evaluators name so, a registry lists, and `arrows` has it."""
    pattern = "".join(re.escape(str(part.value)) if isinstance(part, ast.Constant) else "[^.]+" for part in text.values)
    return {name for name in _modules() if re.fullmatch(pattern, name)} if pattern.startswith(r"dse\.studies\.") else set()


def arrows(*, eager: bool = False) -> dict[str, set[str]]:
    """Modules that each module of ours imports, by name; imports inside functions count as well, unless `eager`.

    Judges and layouts, which are imported by the names in their registries, count as imported inside a function. A package's
    front door re-exports its rooms, and a room may name its package to reach another room: imports of a package by what is in
    it are left out.
    """
    from dse.evaluators.accounting.layout_registry import BATCH_LAYOUTS, SERVING_LAYOUTS
    from dse.evaluators.evaluation import READERS
    from dse.evaluators.workloads.kernels import KERNEL_MODULES

    modules = {module(path): path for path in SOURCES}
    arrows = {
        name: {other for other in imported(path, eager=eager) if other in modules and other != name}
        for name, path in modules.items()
    }
    if not eager:
        arrows["dse.evaluators.evaluation"] |= {f"dse.evaluators.workloads.{judge}" for judge in READERS.values()}
        rooms = {
            "batch_inference": ("", {software: place.partition(":")[0] for software, place in BATCH_LAYOUTS.items()}),
            "kernels": ("kernel_workloads.", KERNEL_MODULES),
            "serving": ("", {software: place.partition(":")[0] for software, place in SERVING_LAYOUTS.items()}),
        }
        for judge, (room, registry) in rooms.items():
            arrows[f"dse.evaluators.workloads.{judge}"] |= {
                f"dse.evaluators.accounting.{room}{name}" for name in registry.values()
            }
    for package in (module(path) for path in SOURCES if path.name == "__init__.py"):
        for name in modules:
            if name.startswith(f"{package}."):
                arrows[name].discard(package)
    return arrows
