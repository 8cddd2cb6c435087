"""State update of recurrent layers in decode, one token of every sequence at a time.

A state is read, decayed, corrected, written and read out.

A row is the state of a head of a sequence, a matrix of `key_dim` entries for each value; its values may be cut, since no two of
them meet. What a tile does is a recipe of `row_kernels`, so that its steps, its analytical model and its buffers are those.

    S = a S + k e,   o = q S,   e = beta (v - k (a S))    delta: `a` a number a head; channel_delta: one for each key
                                e = beta v                ssd
                                e = v                     linear

Norms of queries and keys, and what decays come from, are operators of their own.

Source:
    [yang2024] the gated delta rule; [kimi2025] with a decay for each key; [dao2024] Mamba-2, whose k, q, v and beta are B, C, x
    and the step; [qin2024] lightning attention.
"""

from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from dse.evaluators.kernels.vector.row_kernels import WIDE, RowInstruction, RowKernel
from dse.space.errors import choose_option

RULE_OPERATIONS = {"delta": 7, "channel_delta": 7, "ssd": 5, "linear": 5}
"""By rule, operations on each entry of a state."""

SLICES = (1, 2, 4, 8)
"""Into how many rows of fewer values a state is cut that is tried."""


@dataclass(frozen=True, slots=True)
class RecurrenceShape:
    """States of a recurrent layer and their updates; whole numbers, or arrays over designs.

    Attributes:
        rule: an option of `RULE_OPERATIONS`.
        heads, key_heads: of values, each with a state, and of keys and queries, which heads share evenly.
        key_dim, value_dim: of a state.
        sequences, tokens: how many, and tokens of all of them.
        chunk: tokens of a prompt that go together.
    """

    rule: str
    heads: Any
    key_heads: Any
    key_dim: int
    value_dim: Any
    sequences: Any
    tokens: Any
    chunk: int = 64

    @property
    def states(self) -> Any:
        """Number of states: sequences times heads. [-]"""
        return self.sequences * self.heads

    @property
    def state_bytes(self) -> Any:
        """Bytes of all states, in FP32. [B]

        >>> RecurrenceShape("delta", 32, 16, 128, 128, 1, 1).state_bytes  # 65 kB a head
        2097152
        """
        return self.states * self.key_dim * self.value_dim * 4

    @property
    def prompt(self) -> Any:
        """Tokens of a sequence. [-]"""
        return self.tokens / self.sequences

    @property
    def chunk_flop(self) -> Any:
        """Operations on chunks of prompts, with full squares of tokens and without inverses. [FLOP]

        Of a token and head 6 dk dv + 2 C (2 dk + 2 dv) with a delta term, and 4 dk dv + 2 C (dk + dv) without.
        """
        dk, dv, delta = self.key_dim, self.value_dim, self.rule.endswith("delta")
        return self.tokens * self.heads * ((6 if delta else 4) * dk * dv + 2 * self.chunk * (dk + dv) * (2 if delta else 1))

    @property
    def updates(self) -> Any:
        """Operations on states, one token at a time. [FLOP]"""
        return self.tokens * self.heads * RULE_OPERATIONS[self.rule] * self.key_dim * self.value_dim


@lru_cache(maxsize=64)
def update_kernel(rule: str, key_dim: int, *, resident: bool = False) -> RowKernel:
    """Row kernel of one token's update of each state under a rule.

    Args:
        rule: an option of `RULE_OPERATIONS`.
        key_dim: entries of a key.
        resident: whether states stay with their tiles, each of which then has all of its own at once.
    """
    choose_option(RULE_OPERATIONS, rule, "rule")
    apart, delta = rule == "channel_delta", rule.endswith("delta")
    key, value = (key_dim, 1), (1, WIDE)
    loads = ("k", "q", "v", "decay", *(("beta",) if rule != "linear" else ()))
    calls: tuple[RowInstruction, ...] = ()
    if delta:
        faded = (RowInstruction("scale", ("k", "decay"), "faded"), RowInstruction("dots", ("state", "faded"), "seen"))
        plain = (RowInstruction("dots", ("state", "k"), "seen"), RowInstruction("scale", ("seen", "decay"), "seen"))
        calls = (*(faded if apart else plain), RowInstruction("error", ("v", "seen", "beta"), "e"))
    elif rule == "ssd":
        calls = (RowInstruction("scale", ("v", "beta"), "e"),)
    after = "state" if resident else "next"
    calls += (
        RowInstruction("updated", ("state", "decay", "k", "e" if rule != "linear" else "v"), after),
        RowInstruction("dots", (after, "q"), "out"),
    )
    sides: dict[str, tuple[int, ...]] = {
        "state": (key_dim, WIDE), "next": (key_dim, WIDE), "k": key, "q": key, "v": value, "decay": key if apart else (1, 1),
        "beta": (1, 1), "faded": key, "seen": value, "e": value, "out": value,
    }  # fmt: skip
    used = {"state", *loads, *(name for call in calls for name in (*call.inputs, call.out))}
    wide = ("state", "next", "decay", "beta", "faded", "seen", "e")
    return RowKernel(
        (((*(() if resident else ("state",)), *loads), calls),),
        ("out",) if resident else ("next", "out"),
        tuple((name, side) for name, side in sides.items() if name in used),
        False,
        tuple(name for name in wide if name in used),
        SLICES,
        resident,
    )
