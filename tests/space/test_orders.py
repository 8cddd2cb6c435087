"""Layers of several kinds: orders are read and written, add up, and are refused in one line where they do not."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dse.config.workloads import read_models
from dse.huggingface.layer_order import order_text
from dse.space.errors import DesignError
from dse.space.layers import expand_order, layers
from dse.space.model import Model
from dse.space.parameter_counts import active_parameter_count, growing_values_per_token, parameter_count

ENTRY: dict[str, Any] = {
    "name": "small",
    "layers": 6,
    "hidden": 64,
    "heads": 8,
    "kv_heads": 2,
    "head_dim": 16,
    "ffn_intermediate": 96,
    "vocab": 512,
    "max_position": 4096,
}
STATE = {"rule": "delta", "heads": 4, "key_heads": 2, "key_dim": 12, "value_dim": 10, "conv": 4}
INDEXER = {"heads": 4, "dim": 8, "top": 64}
KINDS: dict[str, dict[str, Any]] = {
    "local": {"window": 32},
    "chunked": {"chunk": 64},
    "full": {"rope": 0.0},
    "state": {"recurrence": STATE},
    "picked": {"indexer": INDEXER},
    "fed": {"mixing": "none", "ffn": "dense"},
    "mixed": {"ffn": "none"},
}
turns = st.lists(st.sampled_from(sorted(KINDS)), min_size=1, max_size=40)


def read(**fields: Any) -> Model:
    (model,) = read_models({"small": ENTRY | fields}).values()
    return model


@given(turns)
def test_an_order_is_read_as_it_was_written(names: list[str]) -> None:
    assert expand_order(order_text(names), tuple(KINDS), len(names)) == tuple(names)


@given(st.lists(st.sampled_from(sorted(KINDS)), min_size=1, max_size=12), st.integers(2, 40))
def test_what_repeats_is_said_once(block: list[str], times: int) -> None:
    assert expand_order(order_text(block * times), tuple(KINDS), len(block) * times) == tuple(block) * times
    assert len(order_text(block * times)) <= len(order_text(block)) + len("40 ()")


@given(turns)
def test_a_model_is_the_sum_of_its_layers(names: list[str]) -> None:
    if all(name == "fed" for name in names):
        names = [*names, "full"]
    kinds = {name: KINDS[name] for name in names}
    model = read(layers=len(names), order=order_text(names), kinds=kinds)
    alone = {name: read(layers=1, order=name, kinds={name: KINDS[name]}) for name in kinds if name != "fed"}
    outside = 2 * 512 * 64 + 64
    fed = 3 * 64 * 96 + 64
    each = {name: parameter_count(model) - outside for name, model in alone.items()} | {"fed": fed}
    assert parameter_count(model) == active_parameter_count(model) == outside + sum(each[name] for name in names)
    assert growing_values_per_token(model) == sum(growing_values_per_token(alone[name]) for name in names if name != "fed")
    assert sum(layer.times for layer in layers(model).mixings) == sum(name != "fed" for name in names)
    assert sum(layer.times for layer in layers(model).ffns) == sum(name != "mixed" for name in names)


BOTH = {"kinds": {"local": {"window": 32}, "full": {}}}
BAD: list[tuple[dict[str, Any], str]] = [
    ({**BOTH, "order": "2 (local, full)"}, "order: has 4 layers, but model.layers=6; make both equal"),
    ({**BOTH, "order": "9 (local, full)"}, "order: 9 repetitions exceed model.layers=6"),
    ({**BOTH, "order": "3 (local, ful)"}, "order: no kind 'ful'; did you mean 'full'"),
    ({**BOTH, "order": "3 (local, full"}, "order: an opening bracket has no closing one"),
    ({**BOTH, "order": "3 local, full), full, full"}, "order: a closing bracket has no opening one"),
    ({**BOTH, "order": "6 local"}, "kinds.full: no layer is of this kind"),
    ({**BOTH}, "order: missing, but kinds is set"),
    ({"order": "6 local"}, "kinds: missing, but order is set"),
    ({"window": 8192}, "window: 8192 tokens exceed max_position=4096; set 0 for no window"),
    ({"kinds": {"local": {"window": 8192}, "full": {}}, "order": "3 (local, full)"}, "kinds.local.window: 8192 tokens"),
    ({"kinds": {"near": {"chunk": 8192}, "full": {}}, "order": "3 (near, full)"}, "kinds.near.chunk: 8192 tokens"),
    ({"indexer": INDEXER | {"top": 8192}}, "indexer.top: picks 8192 positions, but a cache has 4096 at most"),
    ({"indexer": INDEXER, "window": 64}, "indexer: cannot be combined with a window"),
    ({"indexer": INDEXER | {"block": 48}}, "indexer.top: 64 positions are not a multiple of blocks of 48"),
    ({"indexer": INDEXER | {"reused": True}}, "indexer.reused: no earlier layer"),
    ({"kinds": {"a": {"ffn": "experts"}}, "order": "6 a"}, "kinds.a.ffn: experts, but the model has none"),
    ({"kinds": {"a": {"mixing": "none"}}, "order": "6 a"}, "kinds: at least one layer must mix tokens"),
    ({"kinds": {"a": {"ffn": "none"}}, "order": "6 a", "mtp": 2}, "mtp: 2 modules need the last FFN .*; set mtp: 0"),
    ({"kinds": {"moe": {}}, "order": "6 moe"}, "kinds.moe: is not allowed as a name"),
    ({"kinds": {"a": {"kv_heads": 3}}, "order": "6 a"}, "kinds.a.kv_heads: 3 KV heads do not divide 8 query heads"),
    ({"compressed": {"ratio": 0, "q_rank": 8, "o_rank": 8, "groups": 3}}, "compressed.groups: 3 groups do not divide 8"),
    ({"recurrence": STATE | {"key_heads": 3}}, "recurrence.key_heads: 3 key heads do not divide 4"),
]


@pytest.mark.parametrize(("fields", "message"), BAD, ids=[message[:40] for _, message in BAD])
def test_what_contradicts_itself_is_one_line_with_the_field(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(DesignError, match="^model.small." + message) as error:
        read(**fields)
    assert len(str(error.value).splitlines()) == 1
