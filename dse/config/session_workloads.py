"""Sessions of a load from its settings: turns, think times, and closed-loop users."""

from dse.space.errors import DesignError
from dse.space.requests import Requests
from dse.space.sessions import make_sessions
from dse.space.workload_settings import CLOSED, MAX_RATE, ServingSettings, SessionSettings

EXAMPLE = "{turns: 5, think: 20 s}"

HASH_BLOCK_TOKENS = 16
"""Tokens of a hash block of generated sessions, vLLM's usual block, as of traces that have tokens."""


def read_sessions(sessions: SessionSettings, lengths: tuple[int, int], count: int, seed: int) -> Requests:
    """Sessions with random starts at a mean of one a second.

    Args:
        sessions: turns and times to think.
        lengths: new tokens of a turn and tokens of an answer, in the mean.
        count: turns of all sessions.
        seed: of the draw.
    """
    return make_sessions(
        count,
        sessions.turns,
        rate=1.0,
        think=sessions.think,
        system=sessions.system,
        question=lengths[0],
        answer=lengths[1],
        block=HASH_BLOCK_TOKENS,
        seed=seed,
        cv=sessions.think_cv,
        spread=sessions.spread,
        requests=count,
    )


def list_requests_by_population(served: Requests, settings: ServingSettings) -> list[tuple[str, Requests]]:
    """Requests of a closed loop with a label, for each given number of users.

    Raises:
        DesignError: no sessions, no users, or a largest rate, which such a population has not.
    """
    if not len(served.before):
        raise DesignError(
            f"workload.arrivals: {CLOSED} needs sessions; set workload.sessions={EXAMPLE}, or a trace that has some"
        )
    if MAX_RATE in (settings.rate, settings.rate_scale):
        raise DesignError(
            "workload.rate: a closed loop has no rate; set workload.users to a list, or another "
            "workload.arrivals, for the largest rate"
        )
    if settings.users is None:
        raise DesignError(f"workload.users: arrivals={CLOSED} needs the number of users, or a list, as in [8,16,32]")
    sessions_of = int((served.turns == 0).sum())
    requests = []
    for users in settings.users:
        if users > sessions_of:
            raise DesignError(
                f"workload.users: {users} of {sessions_of:,} sessions; set fewer users, or more workload.requests"
            )
        requests.append(
            (f"{len(served):,} requests of {users:,} users in {sessions_of:,} sessions", served.as_closed_loop(users))
        )
    return requests
