"""Notebook interface of the driver: `evaluate`, `explain`, `compare_chips`, `run`, `load`, `document`.

`evaluate` and the others take configuration and return designs, fronts and reports; `document` gives the record that ``--json``
prints of an answer. `StudyObjective` is a study for another optimiser, and `LocalSearchSampler` our search for Optuna.
"""

from typing import Any


def __getattr__(name: str) -> Any:
    """`dse.evaluate` and the others of `dse.commands.notebook_api`, imported when first used so that the command line starts
    fast.
    """
    if name in ("evaluate", "run", "load", "compare_chips"):
        from dse.commands import notebook_api as api

        return getattr(api, name)
    if name == "explain":
        from dse.commands.explain import explain_overrides

        return explain_overrides
    if name == "document":
        from dse.commands.answer_documents import document

        return document
    if name == "StudyObjective":
        from dse.commands.study_objective import StudyObjective

        return StudyObjective
    if name == "LocalSearchSampler":
        from dse.search.optuna_local_sampler import LocalSearchSampler

        return LocalSearchSampler
    if name == "version":
        from dse.terminal.package_version import version

        return version
    raise AttributeError(f"module 'dse' has no attribute {name!r}")
