"""Orders of layers, and what contradicts itself."""

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dse.space.errors import DesignError
from dse.space.layers import expand_order, layers
from tests.samples import asked


@st.composite
def orders(draw: st.DrawFn, depth: int = 2) -> tuple[str, list[str]]:
    """A text, and the kinds that it says one by one."""
    texts, turns = [], []
    for _ in range(draw(st.integers(1, 4))):
        times = draw(st.integers(1, 5))
        if depth and draw(st.booleans()):
            text, inner = draw(orders(depth - 1))
            texts.append(f"{times} ({text})")
        else:
            name = draw(st.sampled_from(["local", "full", "delta"]))
            text, inner = name, [name]
            texts.append(name if times == 1 and draw(st.booleans()) else f"{times} {name}")
        turns += inner * times
    return draw(st.sampled_from([", ", ",", " , "])).join(texts), turns


@given(orders())
def test_an_order_says_each_layer(order_and_turns: tuple[str, list[str]]) -> None:
    text, turns = order_and_turns
    assert list(expand_order(text, ("local", "full", "delta"), len(turns))) == turns
    for wrong in (len(turns) - 1, len(turns) + 1):
        with pytest.raises(DesignError, match="layers"):
            expand_order(text, ("local", "full", "delta"), wrong)


@given(st.text(alphabet="(),12 afullocal+", max_size=30))
def test_any_text_is_an_order_or_refused(text: str) -> None:
    with contextlib.suppress(DesignError):
        assert len(expand_order(text, ("local", "full"), 12)) == 12


M = "+model.qwen3_1b7"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ((f"{M}.kinds={{local: {{window: 8}}, full: {{}}}}",), "order: missing, but kinds is set"),
        ((f"{M}.order='28 local'",), "kinds: missing, but order is set"),
        ((f"{M}.kinds={{local: {{}}, full: {{}}}}", f"{M}.order='28 local'"), "kinds.full: no layer is of this kind"),
        ((f"{M}.kinds={{ffn: {{}}}}", f"{M}.order='28 ffn'"), "kinds.ffn: is not allowed as a name"),
        ((f"{M}.kinds={{local: {{window: 99999}}}}", f"{M}.order='28 local'"), "kinds.local.window: 99999 tokens"),
        ((f"{M}.kinds={{a: {{window: 8, chunk: 8}}}}", f"{M}.order='28 a'"), "kinds.a.chunk: cannot be combined with a window"),
        ((f"{M}.kinds={{a: {{mixing: none}}}}", f"{M}.order='28 a'"), "kinds: at least one layer must mix tokens"),
        ((f"{M}.kinds={{a: {{kv_reused: true}}}}", f"{M}.order='28 a'"), "kinds.a.kv_reused: no earlier layer"),
        ((f"{M}.kinds={{a: {{windw: 8}}}}", f"{M}.order='28 a'"), "did you mean 'window'"),
        ((f"{M}.kinds=[a]", f"{M}.order='28 a'"), "is not a group of groups"),
        ((f"{M}.indexer={{heads: 4, dim: 64, top: 50000}}",), "indexer.top: picks 50000 positions"),
        (
            (f"{M}.indexer={{heads: 4, dim: 64, top: 100, block: 64}}",),
            "indexer.top: 100 positions are not a multiple of",
        ),
        ((f"{M}.indexer={{heads: 4, dim: 64, top: 64, reused: true}}",), "indexer.reused: no earlier layer"),
        (
            (f"{M}.recurrence={{rule: ssd, heads: 6, key_heads: 4, key_dim: 8, value_dim: 8}}",),
            "recurrence.key_heads: 4 key heads do not divide 6",
        ),
        ((f"{M}.recurrence={{rule: rwkv, heads: 6, key_heads: 6, key_dim: 8, value_dim: 8}}",), "no option 'rwkv'"),
    ],
)
def test_what_contradicts_itself_is_refused_by_its_field(words: tuple[str, ...], message: str) -> None:
    with pytest.raises(DesignError) as refused:
        asked("model=qwen3_1b7", *words)
    assert message in str(refused.value)
    assert "\n" not in str(refused.value)


def test_kinds_that_differ_in_one_half_share_the_other() -> None:
    question = asked(
        "model=qwen3_30b_a3b",
        "+model.qwen3_30b_a3b.kinds={near: {window: 128}, far: {}, dense: {ffn: dense}}",
        "+model.qwen3_30b_a3b.order='16 (near, far, dense)'",
    ).workload.cases[0]
    found_layers = layers(question.model)  # type: ignore[union-attr]
    assert [(layer.name, layer.times) for layer in found_layers.mixings] == [("near attention", 16), ("far attention", 32)]
    assert [(layer.name, layer.times) for layer in found_layers.ffns] == [("moe", 32), ("ffn", 16)]
    assert len(found_layers.names) == 96
