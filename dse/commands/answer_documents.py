"""Documents of answers in Python: the records that ``--json`` prints, each field with its type."""

from typing import overload

from dse.analysis.evaluation import Evaluation
from dse.analysis.sweep import Sweep
from dse.commands.capacity_output import capacity_record, idle_settings
from dse.commands.compare_output import comparison_document
from dse.commands.evaluate_output import evaluation_record
from dse.commands.explain import loaded_front_record
from dse.commands.explain_output import explanation_record
from dse.commands.notebook_api import StoredStudy
from dse.commands.python_answers import Capacity, Comparison
from dse.commands.sweep_output import sweep_document
from dse.commands.whynot_output import dominance_record
from dse.config.setting_effects import find_settings_idle_in_all_designs
from dse.documents.capacity_document import CapacityDocument
from dse.documents.compare_document import CompareDocument
from dse.documents.evaluate_document import EvaluateDocument
from dse.documents.explain_document import ExplainDocument
from dse.documents.front_document import FrontDocument
from dse.documents.records import Document
from dse.documents.sweep_document import SweepDocument
from dse.documents.whynot_document import WhynotDocument
from dse.explanations.dominance import DominanceReport
from dse.explanations.explanation import Explanation
from dse.space.errors import DesignError


@overload
def document(answer: Evaluation) -> EvaluateDocument: ...


@overload
def document(answer: Explanation) -> ExplainDocument: ...


@overload
def document(answer: DominanceReport) -> WhynotDocument: ...


@overload
def document(answer: StoredStudy) -> FrontDocument: ...


@overload
def document(answer: Comparison) -> CompareDocument: ...


@overload
def document(answer: Capacity) -> CapacityDocument: ...


@overload
def document(answer: Sweep) -> SweepDocument: ...


def document(answer: Evaluation | Explanation | DominanceReport | StoredStudy | Comparison | Capacity | Sweep) -> Document:
    """The document of an answer, as ``--json`` prints it.

    Args:
        answer: of `dse.evaluate`, `dse.compare`, `dse.capacity`, `dse.sweep`, `dse.explain` or `dse.whynot`; or a study, for
            its front.

    Raises:
        DesignError: it is no such answer, or a study without results here.

    >>> import dse
    >>> found = dse.document(dse.evaluate("model=llama3_8b"))
    >>> found.metrics["tpot"].unit, found.STAMP
    ('s', 'dse/evaluate/11')
    """
    if isinstance(answer, Evaluation):
        return evaluation_record(answer)
    if isinstance(answer, Explanation):
        return explanation_record(answer)
    if isinstance(answer, DominanceReport):
        return dominance_record(answer)
    if isinstance(answer, StoredStudy):
        return loaded_front_record(answer)
    if isinstance(answer, Comparison):
        outcomes = ((side.found.design, side.found.workload) for side in answer if side.found)
        idle = find_settings_idle_in_all_designs("compare", outcomes, answer.typed)
        return comparison_document(answer.sides, answer.objective, idle)
    if isinstance(answer, Capacity):
        return capacity_record(answer.sides, idle_settings(answer.sides))
    if isinstance(answer, Sweep):
        return sweep_document(answer)
    raise DesignError(f"document: expected an answer of evaluate, explain, whynot or load, got {type(answer).__name__}")
