"""A scheduling policy of another package."""

from dse.evaluators.serving.policy import Policy

HASTY = Policy(mixed=True, chunked=True, tokens=64)
