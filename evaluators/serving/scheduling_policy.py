"""Scheduling policies as choices of the simulation, with their names in the field."""

from dataclasses import dataclass, replace

from dse.space.errors import DesignError, choose_option
from dse.space.registry import Registry
from dse.space.serving_plan import ServingPlan, pool_phases


@dataclass(frozen=True, slots=True)
class SchedulingPolicy:
    """How an instance forms iterations. Admission is in order of arrival, preempted requests first.

    Attributes:
        mixed: prompts and decodes share iterations, decodes first; otherwise prompts go first, in separate iterations.
        chunked: a prompt may be cut over several iterations; otherwise it is prefilled whole.
        tokens: token budget of an iteration: of all its tokens with chunked prompts (a decode takes one), else of its
            prompts; a single longer prompt is allowed.
        unit: prompts are counted in chunks of `chunk` tokens that take `unit` of the budget each, whatever their length;
            0 counts tokens.
        chunk: the longest chunk of one prompt; 0 for no bound but the budget. [token]
        static: requests are admitted only when the last batch is done, to its last request.
        lifetime: memory is allocated up to a request's last token at once; otherwise it grows, and may run out.
        swap: preempted requests are swapped to the host; otherwise they are recomputed.
        by_chunk: memory is allocated for the next chunk, as in vLLM; otherwise for the whole prompt, before its first
            chunk. If the next chunk does not fit, the last admitted requests are preempted, possibly the request itself.
        shared_budget: decodes take from the budget of whole prompts too, as in TensorRT-LLM's in-flight batching; a prompt
            that needs all of it waits for no decode.
        gated: with `by_chunk`, admission only if the whole prompt would fit, vLLM's scheduler_reserve_full_isl.
    """

    mixed: bool = False
    chunked: bool = False
    tokens: int = 1 << 40
    unit: int = 0
    chunk: int = 0
    static: bool = False
    lifetime: bool = False
    swap: bool = False
    by_chunk: bool = False
    gated: bool = False
    shared_budget: bool = False

    def __post_init__(self) -> None:
        if self.tokens < 1 or self.unit < 0 or self.chunk < 0:
            raise DesignError(
                f"policy: budget {self.tokens}, unit {self.unit}, chunk {self.chunk}; the budget must be at "
                "least 1, the others at least 0"
            )
        if self.unit and (not self.chunked or self.chunk < 1):
            raise DesignError("policy.unit: chunks of N units need chunked prompts and a chunk length")
        if self.by_chunk and (not self.chunked or self.lifetime):
            raise DesignError("policy.by_chunk: memory by chunks needs chunked prompts, and no allocation for a whole lifetime")
        if self.gated and not self.by_chunk:
            raise DesignError("policy.gated: needs by_chunk; without it whole prompts must fit anyway")
        if self.shared_budget and (self.chunked or not self.mixed):
            raise DesignError("policy.shared_budget: needs iterations of whole prompts and decodes")
        if self.unit > self.tokens:
            raise DesignError(f"policy.unit: a chunk takes {self.unit} units of a budget of {self.tokens}; no prompt could run")


SHIPPED = {
    "static": SchedulingPolicy(static=True, lifetime=True),
    "prefill_first": SchedulingPolicy(tokens=4096),
    "orca": SchedulingPolicy(mixed=True, lifetime=True),
    "inflight": SchedulingPolicy(mixed=True, lifetime=True, shared_budget=True, tokens=8192),
    "chunked_prefill": SchedulingPolicy(mixed=True, chunked=True, tokens=512, by_chunk=True),
    "pd_fusion": SchedulingPolicy(mixed=True, chunked=True, tokens=128, unit=32, chunk=256),
}
"""Batches that end together; continuous batching with prompts first (vLLM's first scheduler); iterations of whole prompts and
decodes, memory reserved (Orca), also with decodes in the token budget (TensorRT-LLM without eviction); prompts in chunks that
fill what decodes leave of a token budget (Sarathi-Serve); a budget of units a core, of which a decode takes one and a prompt's
chunk N (NpuSim 4.3.2).

Source:
    [yu2022] iteration-level scheduling; [kwon2023] paged memory, preemption; [agrawal2024] chunked prefill; [zhu2025] budgets.
"""

POLICIES: Registry[SchedulingPolicy] = Registry("dse.policy", SHIPPED)
"""Those, and what installed packages add: a `SchedulingPolicy` each, by an entry point of the group dse.policy."""


def make_policy(name: str, **changes: object) -> SchedulingPolicy:
    """Scheduling policy of a name, with some of its choices changed.

    >>> make_policy("chunked_prefill", tokens=256).tokens
    256
    """
    return replace(choose_option(POLICIES, name, "mapping.serving.policy"), **changes)  # type: ignore[arg-type]


def policies_with_batch(serving: ServingPlan) -> tuple[tuple[SchedulingPolicy, int], ...]:
    """Scheduling policy and batch size of each pool; prefill-only pools have their own."""
    batches = {
        "prefill": int(serving.prefill_max_batch_size or serving.max_batch_size),
        "decode": int(serving.max_batch_size),
    }
    return tuple(zip(pool_policies(serving), map(batches.__getitem__, pool_phases(serving)), strict=True))


CHANGES = {"max_batched_tokens": "tokens", "chunk_budget_units": "unit", "max_chunk_tokens": "chunk"}
"""Settings of how requests are served, each with the field of a policy that it changes."""

BUDGETS = (*CHANGES, "prefill_max_batched_tokens")
"""Of how requests are served, numbers that `pool_policies` reads."""


def pool_policies(serving: ServingPlan) -> tuple[SchedulingPolicy, ...]:
    """Scheduling policy of each pool of instances."""

    def policy(phase: str) -> SchedulingPolicy:
        if phase == "prefill":
            budget = {"tokens": int(serving.prefill_max_batched_tokens)} if serving.prefill_max_batched_tokens else {}
            return _admitting(make_policy(serving.prefill_policy, **budget), serving)
        changes = {field: int(getattr(serving, name)) for name, field in CHANGES.items() if getattr(serving, name)}
        return _admitting(make_policy(serving.policy, **changes), serving)

    return tuple(map(policy, pool_phases(serving)))


def _admitting(rule: SchedulingPolicy, serving: ServingPlan) -> SchedulingPolicy:
    """A policy with the plan's settings of admission and preemption."""
    rule = replace(rule, swap=serving.preemption == "swap")
    if serving.admission == "policy":
        return rule
    # the chunk of a prompt that is never cut is all of it
    by_chunk = serving.admission != "prompt" and rule.chunked and not rule.lifetime
    return replace(rule, by_chunk=by_chunk, gated=by_chunk and serving.admission == "gate")


def max_prompt_tokens(rule: SchedulingPolicy, batch: int, longest: int) -> int:
    """Largest number of prompt tokens in an iteration.

    Args:
        rule: by which it is formed.
        batch: requests of it.
        longest: positions of a request. [token]
    """
    if not rule.chunked:
        return max(longest, min(rule.tokens, batch * longest))
    return min(rule.tokens // rule.unit * rule.chunk if rule.unit else rule.tokens, batch * longest)
