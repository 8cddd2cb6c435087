"""Records of the document of ``dse validate --claims``: claims of papers and their verdicts."""

from collections.abc import Mapping, Sequence
from typing import Annotated, Literal

from dse.documents.records import Document, Record
from dse.documents.shared_records import PhysicsVersion

ClaimVerdict = Literal["reproduced", "contradicted", "undecidable"]


class PaperRecord(Record):
    """Verdicts on the claims of one paper."""

    paper: Annotated[str, "name of its file"]
    title: str
    claims: int
    decided: Annotated[int, "reproduced or contradicted"]
    reproduced: int
    contradicted: int
    undecidable: int
    fitted: Annotated[int, "reproduced, with constants fitted on their published rows"]
    numbers: Annotated[int, "decided claims that publish a number and have a simulated value"]
    median: Annotated[float | None, "of their absolute relative errors; null where there are none"]
    worst: Annotated[float | None, "likewise"]
    held: Annotated[int, "decided claims of a range that are reproduced"]
    ranges: Annotated[int, "decided claims of a range"]


class ClaimPointRecord(Record):
    """A claim at one combination of its sweep."""

    overrides: Annotated[Sequence[str], "of this combination of the sweep"]
    simulated: Annotated[float | None, "in the published unit; null where nothing is feasible"]
    fits: Annotated[bool, "whether every limit holds"]
    holds: Annotated[bool, "whether the claim holds here"]


class ClaimRecord(Record):
    """A claim of a paper with its verdict."""

    paper: Annotated[str, "name of its file"]
    id: str
    where: Annotated[str, "in the paper"]
    claim: Annotated[str, "in words"]
    row: Annotated[str, "published row that the claim is the same as, STUDY/ID; empty for none"]
    overrides: Sequence[str]
    baseline: Annotated[Sequence[str], "changes to the overrides, or a whole design; empty for none"]
    metric: str
    value: Annotated[str, "published: a number, or a range as LOW..HIGH"]
    unit: Annotated[str, "of `value`, `simulated`, `span` and `reader_value`"]
    reader: Annotated[Sequence[str], "overrides of a second model"]
    missing: Annotated[str, "what the paper leaves out"]
    mechanism: Annotated[str, "why the simulated value differs"]
    fitted: Annotated[bool, "whether constants were fitted on the published row"]
    sweep: Annotated[Mapping[str, Sequence[str]], "values by address"]
    tolerance: Annotated[float | None, "of the absolute relative error; null of a range"]
    is_range: Annotated[bool, "whether the published value is a range"]
    command: Annotated[str, "that gives this verdict"]
    verdict: Annotated[ClaimVerdict, "computed from the simulated values"]
    simulated: Annotated[str, "number, LOW..HIGH over the sweep, infeasible, or empty where nothing is simulated"]
    span: Annotated[tuple[float, float] | None, "least and largest simulated value"]
    error: Annotated[float | None, "relative, of the point nearest to the published value; 0 inside a range"]
    reader_value: Annotated[float | None, "of the second model, at that point"]
    points: Annotated[Sequence[ClaimPointRecord], "one without a sweep; none where nothing is simulated"]
    problem: Annotated[str, "what is wrong with the file in view of the verdict; empty for nothing"]
    seconds: Annotated[float, "s; that it took to simulate"]


class ClaimsDocument(Document):
    """Claims of papers, each with its verdict."""

    STAMP = "dse/claims/2"
    COMMAND = "dse validate --claims --json [PAPER]"

    physics: PhysicsVersion
    papers: Sequence[PaperRecord]
    problems: Annotated[Sequence[str], "of contradicted claims: no mechanism, or a second model that disagrees"]
    claims: Sequence[ClaimRecord]
    page: Annotated[str, "path of the page"]
