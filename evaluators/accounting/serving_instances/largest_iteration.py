"""Largest iterations of a pool of instances, by one rule: those that a load's requests can fill."""

from typing import Any, NamedTuple

from dse.evaluators.serving.scheduling_policy import BUDGETS, SchedulingPolicy, pool_policies
from dse.space.array_math import ceil_div, maximum, minimum, where
from dse.space.fields import replace_leaves
from dse.space.serving_plan import ServingPlan, is_disaggregated, pool_phases
from dse.space.workload import ServingLoad


class LargestIteration(NamedTuple):
    """Largest iterations of a pool, with the load's requests; leaves broadcast over designs.

    Attributes:
        prompt: tokens of the longest prompt, or of its longest chunk; 0 where no prompts are computed. [token]
        prompts: new tokens of all prompts of an iteration. [token]
        beside: decoding requests beside these that no budget counts. [1]
        decodes: requests of an iteration, or of a micro-batch, that decode; 0 where none do. [1]
        rows: tokens of each of these: one, and those guessed after it. [token]
        budget: token budget, or the longest request where prompts are whole. [token]
        requests: that run at once, at most. [1]
    """

    prompt: Any
    prompts: Any
    beside: Any
    decodes: Any
    rows: int
    budget: Any
    requests: Any

    @property
    def prompt_tokens(self) -> Any:
        """Tokens that go through the layers at a time in an iteration with prompts. [token]"""
        return self.prompts + self.beside * self.rows

    @property
    def decode_tokens(self) -> Any:
        """Tokens that go through the layers at a time in an iteration of decodes alone. [token]"""
        return self.decodes * self.rows

    @property
    def tokens(self) -> Any:
        """Tokens that go through the layers at a time, at most. [token]"""
        return maximum(self.prompt_tokens, self.decode_tokens)


class PoolRole(NamedTuple):
    """What instances of a pool do.

    Attributes:
        prefills, decodes: whether new requests are prefilled there, and whether requests decode.
        stages: pipeline stages of an instance, which have a micro-batch each.
    """

    prefills: bool = True
    decodes: bool = True
    stages: Any = 1


def pool_roles(serving: ServingPlan) -> list[PoolRole]:
    """Roles of all pools of a plan, each with one stage."""
    together = not is_disaggregated(serving)
    return [PoolRole(together or phase == "prefill", phase == "decode") for phase in pool_phases(serving)]


def pool_rules(serving: ServingPlan) -> tuple[SchedulingPolicy, ...]:
    """Scheduling policies of all pools with their own budgets, in which designs differ."""
    return pool_policies(replace_leaves(serving, dict.fromkeys(BUDGETS, 0)))


def largest_iteration(
    rule: SchedulingPolicy, load: ServingLoad, batch: Any, role: PoolRole, budgets: tuple[Any, Any, Any] | None = None
) -> LargestIteration:
    """Largest iterations of a pool.

    Where requests that memory has no room for are computed again, a prompt is as long as what one has by then; a pool that else
    decodes alone computes them one at a time. A budget of chunks counts decodes as well, and so does that of whole prompts
    where it is shared.

    Args:
        rule: by which iterations are formed.
        load: whose requests they are.
        batch: requests that run at once, at most. [1]
        role: of the pool.
        budgets: tokens, unit and chunk by design, as of `SchedulingPolicy`; 0 for the policy's own, None for all of them.
    """
    longest_prompt, whole = float(load.requests.prompt.max()), float(load.longest - 1)
    requests = minimum(batch, len(load.requests.prompt)) * 1.0
    again = role.decodes and not rule.lifetime and not rule.swap
    longest = whole if again else longest_prompt * role.prefills
    together = requests if role.prefills else 1.0
    tokens, unit, chunk = (
        where(value > 0, value, getattr(rule, name))
        for name, value in zip(("tokens", "unit", "chunk"), budgets or (0, 0, 0), strict=True)
    )  # fmt: skip
    if rule.chunked:
        budget = where(unit > 0, tokens // maximum(unit, 1) * chunk, tokens)
        prompt, prompts = minimum(budget, longest), minimum(budget, longest * together)
    else:
        budget = maximum(minimum(tokens, load.longest * batch), load.longest)
        prompt, prompts = longest, maximum(longest, minimum(tokens, longest * together))
    decodes = requests if isinstance(role.stages, int) and role.stages == 1 else ceil_div(requests, role.stages)
    decodes = decodes * role.decodes
    beside: Any = 0.0
    if rule.mixed and role.prefills and not rule.chunked and not rule.shared_budget:
        beside = minimum(decodes, maximum(requests - ceil_div(prompts, longest), 0.0))  # those that have no prompt there
    return LargestIteration(prompt, prompts, beside, decodes, 1 + load.guesses, budget, batch)
