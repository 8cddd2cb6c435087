"""Documents of answers in Python: the records that ``--json`` prints, each field with its type."""

from typing import overload

from dse.analysis.evaluation import Evaluation
from dse.commands.evaluate_output import evaluation_record
from dse.commands.explain import loaded_front_record
from dse.commands.explain_output import explanation_record
from dse.commands.notebook_api import StoredStudy
from dse.commands.whynot_output import dominance_record
from dse.documents.evaluate_document import EvaluateDocument
from dse.documents.explain_document import ExplainDocument
from dse.documents.front_document import FrontDocument
from dse.documents.records import Document
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


def document(answer: Evaluation | Explanation | DominanceReport | StoredStudy) -> Document:
    """The document of an answer, as ``--json`` prints it.

    Args:
        answer: of `dse.evaluate`; of `dse.explain`, or ``explain`` or ``whynot`` of a study; or a study, for its front.

    Raises:
        DesignError: it is no such answer, or a study without results here.

    >>> import dse
    >>> found = dse.document(dse.evaluate("model=llama3_8b"))
    >>> found.metrics["tpot"].unit, found.STAMP
    ('s', 'dse/evaluate/10')
    """
    if isinstance(answer, Evaluation):
        return evaluation_record(answer)
    if isinstance(answer, Explanation):
        return explanation_record(answer)
    if isinstance(answer, DominanceReport):
        return dominance_record(answer)
    if isinstance(answer, StoredStudy):
        return loaded_front_record(answer)
    raise DesignError(f"document: expected an answer of evaluate, explain, whynot or load, got {type(answer).__name__}")
