"""Findings on claims: verdicts by paper, mechanisms of contradictions, and undecidable claims."""

from dse.accuracy.claims import CONTRADICTED, TITLES, UNDECIDABLE, Claim, Verdict, find_claims, read_verdicts, tally_verdicts
from dse.studies.markdown_table import table


def verdicts() -> list[tuple[Claim, Verdict]]:
    """Claims that have a verdict in ``verdicts.csv``, with the verdict."""
    known = read_verdicts()
    return [(claim, known[claim.paper, claim.id]) for claim in find_claims(()) if (claim.paper, claim.id) in known]


def tallies() -> str:
    """One line per paper: decided claims, and errors of numbers and ranges."""
    return "\n".join(f"- {tally}" for tally in tally_verdicts(verdicts()))


def finding() -> str:
    """One line per paper, then the contradicted and the undecidable claims."""
    contradicted = [_cells(claim, verdict, claim.mechanism) for claim, verdict in verdicts() if verdict.verdict == CONTRADICTED]
    undecidable = [
        _cells(claim, verdict, _missing(claim, verdict)) for claim, verdict in verdicts() if verdict.verdict == UNDECIDABLE
    ]
    head = ["claim", "place", "claimed", "published", "simulated", "second model"]
    parts = [tallies()]
    if contradicted:
        parts += ["Contradicted:", table([*head, "mechanism"], contradicted)]
    if undecidable:
        parts += ["Undecidable:", table([*head, "what would decide"], undecidable)]
    return "\n\n".join(parts)


def _cells(claim: Claim, verdict: Verdict, why: str) -> list[str]:
    name = f"{TITLES.get(claim.paper, claim.paper)} {claim.id}"
    published = f"{claim.value} {claim.unit}".strip()
    return [name, claim.where, claim.claim, published, verdict.simulated, verdict.reader, why]


def _missing(claim: Claim, verdict: Verdict) -> str:
    return f"{claim.missing}; holds at {verdict.holds_at}" if verdict.holds_at else claim.missing
