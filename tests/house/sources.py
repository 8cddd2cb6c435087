"""The sources of the project, and what they import."""

import ast
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


def arrows(*, eager: bool = False) -> dict[str, set[str]]:
    """Modules that each module of ours imports, by name; imports inside functions count as well, unless `eager`.

    Judges and layouts, which are imported by the names in their registries, count as imported inside a function. A package's
    front door re-exports its rooms, and a room may name its package to reach another room: imports of a package by what is in
    it are left out.
    """
    from dse.evaluators.accounting.layout import LAYOUTS
    from dse.evaluators.evaluation import READERS
    from dse.evaluators.workloads.kernels import KERNEL_MODULES
    from dse.evaluators.workloads.serving import INSTANCE_MODULES

    modules = {module(path): path for path in SOURCES}
    arrows = {
        name: {other for other in imported(path, eager=eager) if other in modules and other != name}
        for name, path in modules.items()
    }
    if not eager:
        arrows["dse.evaluators.evaluation"] |= {f"dse.evaluators.workloads.{judge}" for judge in READERS.values()}
        rooms = {
            "batch_inference": ("", {software: place.partition(":")[0] for software, place in LAYOUTS.items()}),
            "kernels": ("kernel_workloads.", KERNEL_MODULES),
            "serving": ("serving_instances.", INSTANCE_MODULES),
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
