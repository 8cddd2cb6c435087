"""``dse validate --claims``: claims of papers with results and verdicts, as tables, a page and JSON.

The command ends with a status other than 0 where a contradicted claim has no mechanism, or a second model that disagrees.
"""

from collections.abc import Sequence
from pathlib import Path

from rich.markup import escape
from rich.table import Table

from dse.accuracy.claims import (
    CONTRADICTED,
    REPRODUCED,
    TITLES,
    UNDECIDABLE,
    Decision,
    decide_claims,
    find_claims,
    tally_papers,
)
from dse.documents.claims_document import ClaimsDocument
from dse.evaluators.evaluation import PHYSICS_VERSION
from dse.terminal.json_text import format_json
from dse.terminal.progress import ProgressBar, SafeConsole, say

COLOURS = {REPRODUCED: "green", CONTRADICTED: "red", UNDECIDABLE: "yellow"}


def validate_claims(names: Sequence[str], out: Path, *, as_json: bool) -> int:
    """Decide claims of papers, write the page and print the verdicts; returns the exit status.

    Args:
        names: of papers, claims as PAPER/ID, or files.
        out: where the page goes.
        as_json: print everything as JSON.
    """
    from dse.report.standalone_pages import build_claims_page, write_answer_page

    claims = find_claims(names)
    decisions: list[Decision] = []
    with ProgressBar("validate") as bar:
        for decision in decide_claims(claims):
            decisions.append(decision)
            bar.update(len(decisions), len(claims), decision.claim.paper)
    document = claims_record(decisions, out)
    write_answer_page(build_claims_page(document), out)
    status = int(bool(document.problems))
    if as_json:
        print(format_json(document, indent=1))
        return status
    console = SafeConsole(150)
    for paper in dict.fromkeys(claim.paper for claim in claims):
        own = [decision for decision in decisions if decision.claim.paper == paper]
        console.print(build_verdict_table(paper, own))
        for decision in own:
            if text := explain_verdict(decision):
                console.print(f"  {escape(decision.claim.id)}: {escape(text)}")
        console.print()
    for problem in document.problems:
        console.print(f"[red]{escape(problem)}[/]")
    for tally in tally_papers(decisions):
        console.print(escape(str(tally)))
    say(f"page    {escape(str(out))}")
    return status


def claims_record(decisions: Sequence[Decision], page: Path) -> ClaimsDocument:
    """The document of claims: tallies by paper, every claim with its verdict, and the path of its page."""
    return ClaimsDocument(
        physics=PHYSICS_VERSION,
        papers=[tally.record() for tally in tally_papers(decisions)],
        problems=[decision.problem for decision in decisions if decision.problem],
        claims=[decision.record() for decision in decisions],
        page=str(page),
    )


def build_verdict_table(paper: str, decisions: Sequence[Decision]) -> Table:
    """Table of the claims of one paper for the terminal."""
    table = Table(title=escape(TITLES.get(paper, paper)), title_justify="left", box=None)
    for name in ("id", "place", "claim", "published", "simulated", "reader", "verdict"):
        table.add_column(name, justify="right" if name in ("published", "simulated", "reader") else "left")
    for decision in decisions:
        claim = decision.claim
        published = f"{claim.value} {claim.unit}".strip()
        cells = (claim.id, claim.where, claim.claim, published, decision.simulated_text, decision.reader_value)
        verdict = f"[{COLOURS[decision.verdict]}]{decision.verdict}[/]"
        table.add_row(*map(escape, cells), verdict)
    return table


def explain_verdict(decision: Decision) -> str:
    """Why a claim is contradicted, or what would decide it; empty string for a reproduced claim."""
    claim = decision.claim
    if decision.verdict == CONTRADICTED:
        return f"contradicted: {claim.mechanism}"
    if decision.verdict == UNDECIDABLE and decision.points:
        fails = "; ".join(" ".join(point.words) for point in decision.points if not point.holds)
        return f"undecidable, the paper leaves out: {claim.missing}. Holds at {decision.holds_at}; not at {fails}"
    if decision.verdict == UNDECIDABLE:
        return f"undecidable, cannot be simulated: {claim.missing}"
    return ""
