"""Useful operations of every model that ships, by hand: from its file as it is written, layer by layer."""

import re
from dataclasses import replace
from typing import Any

import pytest
import yaml

from dse.evaluators.graph.operators import useful_flop
from dse.evaluators.graph.step_counts import StepCounts, decode_steps, prefill_step
from dse.evaluators.graph.transformer import transformer_segments
from dse.space.model import Model
from tests.presets import EVERY, FOLDER
from tests.samples import asked

PROMPT, BATCH = 3000, 3

Of = dict[str, Any]


def turns(order: str) -> list[str]:
    """Kinds of layers in turn, as in ``10 (5 local, global), 2 local``."""
    tokens = re.findall(r"\d+|[A-Za-z_]\w*|[(),]", order)

    def group() -> list[str]:
        found_group: list[str] = []
        while tokens and tokens[0] != ")":
            if tokens[0] == ",":
                tokens.pop(0)
                continue
            times = int(tokens.pop(0)) if tokens[0].isdigit() else 1
            if tokens[0] == "(":
                tokens.pop(0)
                found_group += group() * times
                tokens.pop(0)
            else:
                found_group += [tokens.pop(0)] * times
        return found_group

    return group()


def layers(model: Of) -> list[Of]:
    """Every layer, with what its kind has in another way; dense FFNs in the first ones where a model says how many."""
    kinds, experts = model.get("kinds", {}), model.get("experts")
    layers = []
    for place, kind in enumerate(turns(model["order"]) if model.get("order") else [""] * model["layers"]):
        own = kinds.get(kind) or {}
        usual = "experts" if experts and place >= experts.get("dense_layers", 0) else "dense"
        layers.append({"ffn": usual, "mixing": "attention", **model, **own, "recurrence": own.get("recurrence")})
    return layers


def fed(layer: Of, tokens: float) -> float:
    """Multiply-adds of an FFN: a router, the experts of a token and those of all tokens, between two projections where said."""
    matrices, hidden, experts = (3 if layer.get("gated_ffn", True) else 2), layer["hidden"], layer.get("experts")
    if layer["ffn"] == "none":
        return 0.0
    if layer["ffn"] == "dense":
        return tokens * matrices * hidden * layer["ffn_intermediate"]
    wide, latent = experts.get("shared_intermediate") or experts["intermediate"], experts.get("latent", 0)
    each = hidden * experts["count"] + experts["top_k"] * matrices * (latent or hidden) * experts["intermediate"]
    each += (
        experts.get("shared", 0) * matrices * hidden * wide + hidden * experts.get("shared_gate", False) + 2 * hidden * latent
    )
    return float(tokens * each)


def seen(layer: Of, positions: range) -> float:
    """Keys that queries at some positions see: all before, those of a window, or of their chunk."""
    window, chunk = layer.get("window", 0), layer.get("chunk", 0)
    return float(sum(min(i, window) if window else ((i - 1) % chunk + 1 if chunk else i) for i in positions))


def of_state(layer: Of, prompt: bool) -> float:
    """Of a token in a layer with states: projections, and the products of its rule, of a chunk or by itself."""
    r, hidden = layer["recurrence"], layer["hidden"]
    heads, shared, keys, values, chunk = r["heads"], r["key_heads"], r["key_dim"], r["value_dim"], r.get("chunk", 64)
    if r["rule"] == "delta":  # queries, keys, values, gates; two numbers a head
        weights = hidden * (2 * shared * keys + 2 * heads * values + 2 * heads) + heads * values * hidden
        by_chunk = heads * (3 * keys * values + chunk * (3 * keys + 2 * values))
        return float(weights + (by_chunk if prompt else heads * 3 * keys * values))
    assert r["rule"] == "ssd"
    weights = hidden * (2 * heads * values + 2 * shared * keys + heads) + heads * values * hidden
    by_chunk = heads * (2 * keys * values + chunk * values) + shared * chunk * keys
    return float(weights + (by_chunk if prompt else heads * 2 * keys * values))


def mixed(layer: Of, tokens: float, positions: range, prompt: bool) -> float:
    """Multiply-adds of attention, or of what stands in its place; an indexer's choice is all that is attended to."""
    if layer["recurrence"]:
        return tokens * of_state(layer, prompt)
    if layer["mixing"] == "none":
        return 0.0
    hidden, heads, latent, chosen = layer["hidden"], layer["heads"], layer.get("latent"), layer.get("indexer")
    pairs, indexed = BATCH * seen(layer, positions), 0.0
    if chosen:
        if not chosen.get("reused"):
            rank, scores = latent["q_rank"] if latent else hidden, chosen["heads"] * chosen["dim"]
            indexed = pairs * scores + tokens * (rank * scores + hidden * (chosen["dim"] + chosen["heads"] * bool(latent)))
        pairs = BATCH * seen({"window": chosen["top"]}, positions)
    if latent:
        rank, keys, rope, values = (latent[name] for name in ("kv_rank", "nope_dim", "rope_dim", "v_dim"))
        q = latent["q_rank"]
        weights = (hidden * q + q * heads * (keys + rope) if q else hidden * heads * (keys + rope)) + hidden * (rank + rope)
        weights += heads * values * hidden + rank * heads * (keys + values)  # expanded, or absorbed into queries and outputs
        each = keys + rope + values if prompt and not chosen else 2 * rank + rope
        return tokens * weights + pairs * heads * each + indexed
    key, value = layer["head_dim"], layer.get("v_dim") or layer["head_dim"]
    cached = 0 if layer.get("kv_reused") else layer["kv_heads"] * (key + value * layer.get("v_proj", True))
    gate = {"none": 0, "element": heads * value, "head": heads}[layer.get("gate", "none")]
    weights = hidden * (heads * key + cached + gate) + heads * value * hidden
    return tokens * weights + pairs * heads * (key + value) + indexed


def by_hand(model: Of, tokens: float, positions: range, prompt: bool) -> float:
    """Operations of a step: two a multiply-add, and of the head for one token of each request."""
    each = sum(mixed(layer, tokens, positions, prompt) + fed(layer, tokens) for layer in layers(model))
    return 2 * (each + BATCH * model["hidden"] * model["vocab"])


def counted(model: Model, at: StepCounts) -> float:
    return sum(
        part.times * float(useful_flop(operator)) for part in transformer_segments(model, at) for operator in part.operators
    )


def written(name: str) -> Of:
    values: Of = yaml.safe_load((FOLDER / f"{name}.yaml").read_text())
    return values


KNOWN = [name for name in EVERY if "compressed" not in (FOLDER / f"{name}.yaml").read_text()]
"""Compressed entries are left out."""


@pytest.mark.parametrize("name", KNOWN)
def test_operations_of_a_model_are_those_of_its_file(name: str) -> None:
    """Of prompts, and of the next token of each; nothing is guessed."""
    words = (f"workload.batch=[{BATCH}]", f"workload.prompt={PROMPT}", "workload.output=2", "model.max_position=1048576")
    case = replace(asked("chip=h100", f"model={name}", *words).workload.cases[0], speculation=None)
    written_path = written(name)
    assert counted(case.model, prefill_step(case)) == pytest.approx(
        by_hand(written_path, BATCH * PROMPT, range(1, PROMPT + 1), True)
    )
    ((_, token),) = decode_steps(case, "mean")
    assert counted(case.model, token) == pytest.approx(by_hand(written_path, BATCH, range(PROMPT + 1, PROMPT + 2), False))
