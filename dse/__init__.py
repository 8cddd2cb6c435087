"""Design-space exploration of mesh accelerators and LLM serving, from Python.

>>> import dse
>>> answer = dse.evaluate(chip="h100", model="llama3_8b", batch=16)
>>> answer.metrics["tpot"] < 0.02
True

Questions: `evaluate` one design, `sweep` some settings, `compare` chips, find the `capacity` of a deployment, `run` or `load` a
study, `explain` a design, ask `whynot` of a study, `validate` against published figures. `list_chips` and its like list names.
Settings are keyword arguments (``batch=16``), a dictionary by address (``{"chip.l2.size": "64 MB"}``), or overrides as on the
command line (``"workload.batch=[16]"``). Metrics are in SI. What a user can fix raises `DesignError`, whose ``address`` is the
setting.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dse.analysis.capacity import ChipCapacity
    from dse.analysis.compare import ChipComparison
    from dse.commands.answer_documents import document
    from dse.commands.explain import explain_dominance as whynot
    from dse.commands.explain import explain_overrides as explain
    from dse.commands.notebook_api import StoredStudy as Study
    from dse.commands.notebook_api import load, run
    from dse.commands.python_answers import Capacity, Comparison, Validation
    from dse.commands.python_answers import DominanceAnswer as DominanceReport
    from dse.commands.python_answers import EvaluationAnswer as Evaluation
    from dse.commands.python_answers import ExplanationAnswer as Explanation
    from dse.commands.python_answers import SweepAnswer as Sweep
    from dse.commands.python_lists import (
        list_chips,
        list_knobs,
        list_mappings,
        list_metrics,
        list_models,
        list_stacks,
        list_studies,
    )
    from dse.commands.python_questions import capacity, compare, evaluate, sweep, validate
    from dse.commands.study_objective import StudyObjective
    from dse.search.optuna_local_sampler import LocalSearchSampler
    from dse.space.errors import DesignError
    from dse.terminal.package_version import version

    __version__: str

__all__ = [
    "Capacity",
    "ChipCapacity",
    "ChipComparison",
    "Comparison",
    "DesignError",
    "DominanceReport",
    "Evaluation",
    "Explanation",
    "LocalSearchSampler",
    "Study",
    "StudyObjective",
    "Sweep",
    "Validation",
    "capacity",
    "compare",
    "document",
    "evaluate",
    "explain",
    "list_chips",
    "list_knobs",
    "list_mappings",
    "list_metrics",
    "list_models",
    "list_stacks",
    "list_studies",
    "load",
    "run",
    "sweep",
    "validate",
    "version",
    "whynot",
]

_MODULES = {
    "dse.analysis.capacity": ("ChipCapacity",),
    "dse.analysis.compare": ("ChipComparison",),
    "dse.commands.answer_documents": ("document",),
    "dse.commands.notebook_api": ("load", "run"),
    "dse.commands.python_answers": ("Capacity", "Comparison", "Validation"),
    "dse.commands.python_lists": tuple(name for name in __all__ if name.startswith("list_")),
    "dse.commands.python_questions": ("capacity", "compare", "evaluate", "sweep", "validate"),
    "dse.commands.study_objective": ("StudyObjective",),
    "dse.search.optuna_local_sampler": ("LocalSearchSampler",),
    "dse.space.errors": ("DesignError",),
    "dse.terminal.package_version": ("version",),
}
"""Public names by the module that defines them."""

_PLACES = {name: (module, name) for module, names in _MODULES.items() for name in names} | {
    "DominanceReport": ("dse.commands.python_answers", "DominanceAnswer"),
    "Explanation": ("dse.commands.python_answers", "ExplanationAnswer"),
    "Evaluation": ("dse.commands.python_answers", "EvaluationAnswer"),
    "Study": ("dse.commands.notebook_api", "StoredStudy"),
    "Sweep": ("dse.commands.python_answers", "SweepAnswer"),
    "explain": ("dse.commands.explain", "explain_overrides"),
    "whynot": ("dse.commands.explain", "explain_dominance"),
}
"""Module of each public name, and its name there."""

_FORMER = {"compare_chips": "compare"}
"""Present names by former ones, which still work."""


def __getattr__(name: str) -> Any:
    """A public name, imported when it is first used, so that the command line starts fast."""
    if name == "__version__":
        from dse.terminal.package_version import version

        return version()
    place = _PLACES.get(_FORMER.get(name, name))
    if place is None:
        raise AttributeError(f"module 'dse' has no attribute {name!r}")
    from importlib import import_module

    value = getattr(import_module(place[0]), place[1])
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return __all__
