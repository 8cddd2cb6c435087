"""Documents of answers in Python: the records that ``--json`` prints, each field with its type."""

from typing import overload

from dse.analysis.evaluation import Evaluation
from dse.commands.evaluate_output import evaluation_record
from dse.commands.explain_output import explanation_record
from dse.commands.whynot_output import dominance_record
from dse.documents.evaluate_document import EvaluateDocument
from dse.documents.explain_document import ExplainDocument
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


def document(answer: Evaluation | Explanation | DominanceReport) -> EvaluateDocument | ExplainDocument | WhynotDocument:
    """The document of an answer, as ``--json`` prints it.

    Args:
        answer: of `dse.evaluate`, of `dse.explain` or ``explain`` of a study, or of ``whynot`` of a study.

    Raises:
        DesignError: it is no such answer.

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
    raise DesignError(f"document: expected an answer of evaluate, explain or whynot, got {type(answer).__name__}")
