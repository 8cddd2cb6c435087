"""Groups of settings that each command reads; the other groups have no effect on it."""

from collections.abc import Sequence

OF_RUNS = ("search", "screen", "verify", "workers", "ray", "report", "run_dir", "store", "name", "question")
"""Groups that say how a study is run, and where its results are."""

GOALS = ("objectives", "constraints")

NOT_TAKEN: dict[str, tuple[str, ...]] = {
    "evaluate": (*OF_RUNS, *GOALS),
    "compare": (*OF_RUNS, *GOALS),
    "capacity": (*OF_RUNS, *GOALS),
    "fleet": (*OF_RUNS, *GOALS),
    "explain": OF_RUNS,
    "constants": (*OF_RUNS, "constraints"),
}
"""By command, the groups that it does not take."""


def list_unread_overrides(command: str, words: Sequence[str]) -> list[str]:
    """Addresses of overrides whose group a command does not read, in the order of the command line.

    >>> list_unread_overrides("evaluate", ["chip=a100", "search.budget=40", "search=tpe", "+objectives.tpot=min"])
    ['search.budget', 'search', 'objectives.tpot']
    """
    addresses = (word.lstrip("+~").partition("=")[0] for word in words if not word.startswith("-"))
    return list(dict.fromkeys(address for address in addresses if address.partition(".")[0] in NOT_TAKEN[command]))
