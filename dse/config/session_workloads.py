"""Sessions of a load from the configuration: turns, think times, and closed-loop users."""

from collections.abc import Mapping
from typing import Any

from dse.config.record_parser import parse_value
from dse.config.workload_fields import read_whole_numbers
from dse.space.errors import DesignError, suggest_nearest
from dse.space.requests import Requests
from dse.space.sessions import TURN_DISTRIBUTIONS, make_sessions

FIELDS = ("turns", "think", "think_cv", "system", "spread")

EXAMPLE = "{turns: 5, think: 20 s}"

HASH_BLOCK_TOKENS = 16
"""Tokens of a hash block of generated sessions, vLLM's usual block, as of traces that have tokens."""

CLOSED = "closed_loop"
"""The arrivals of a closed population."""


def read_sessions(spec: Mapping[str, Any], count: int, seed: int) -> Requests:
    """Sessions from `workload.sessions`, with random starts at a mean of one a second.

    Args:
        spec: fields of the workload; `prompt` new tokens of a turn and `output` tokens of an answer, in the mean.
        count: turns of all sessions.
        seed: of the draw.
    """
    sessions = spec["sessions"]
    if not isinstance(sessions, Mapping) or not {"turns", "think"} <= set(sessions):
        raise DesignError(f"workload.sessions: {sessions!r} are not turns and a time to think, as in {EXAMPLE}")
    if unknown := [key for key in sessions if key not in FIELDS]:
        raise DesignError(f"workload.sessions: no field {unknown[0]!r}; {suggest_nearest(str(unknown[0]), FIELDS)}")
    turns, think = (
        parse_value(sessions["turns"], "1", "workload.sessions.turns"),
        parse_value(sessions["think"], "s", "workload.sessions.think"),
    )
    cv = parse_value(sessions.get("think_cv", 1), "1", "workload.sessions.think_cv")
    system, spread = sessions.get("system", 0), str(sessions.get("spread", TURN_DISTRIBUTIONS[0]))
    if isinstance(system, bool) or not isinstance(system, int) or system < 0:
        raise DesignError(f"workload.sessions.system: {system!r} is not a whole number of tokens of at least 0")
    try:
        return make_sessions(
            count,
            turns,
            rate=1.0,
            think=think,
            system=system,
            question=read_whole_numbers(dict(spec), "prompt")[0],
            answer=read_whole_numbers(dict(spec), "output")[0],
            block=HASH_BLOCK_TOKENS,
            seed=seed,
            cv=cv,
            spread=spread,
            requests=count,
        )
    except DesignError as error:
        raise DesignError(f"workload.{error}") from None


def list_requests_by_population(served: Requests, spec: Mapping[str, Any]) -> list[tuple[str, Requests]]:
    """Requests of a closed loop with a label, for each given number of users.

    Raises:
        DesignError: no sessions, no users, or a largest rate, which such a population has not.
    """
    if not len(served.before):
        raise DesignError(
            f"workload.arrivals: {CLOSED} needs sessions; set workload.sessions={EXAMPLE}, or a trace that has some"
        )
    if "max" in (spec.get("rate"), spec.get("rate_scale")):
        raise DesignError(
            "workload.rate: a closed loop has no rate; set workload.users to a list, or another "
            "workload.arrivals, for the largest rate"
        )
    if spec.get("users") is None:
        raise DesignError(f"workload.users: arrivals={CLOSED} needs the number of users, or a list, as in [8,16,32]")
    sessions_of = int((served.turns == 0).sum())
    requests = []
    for users in read_whole_numbers(dict(spec), "users"):
        if users > sessions_of:
            raise DesignError(
                f"workload.users: {users} of {sessions_of:,} sessions; set fewer users, or more workload.requests"
            )
        requests.append(
            (f"{len(served):,} requests of {users:,} users in {sessions_of:,} sessions", served.as_closed_loop(users))
        )
    return requests
