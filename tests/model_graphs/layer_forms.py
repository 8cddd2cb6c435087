"""Layers of families as one writes them on paper, of any sizes."""

from typing import Any

Form = dict[str, Any]


def grouped_query(qk_norm: bool) -> Form:
    """Operators of attention of Llama, and with norms of heads that of Qwen3."""
    form: Form = {
        "first": {"norm": "x"},
        "q": {"einsum": "b t h, h a d -> b t a d", "of": "first"},
        "k": {"einsum": "b t h, h k d -> b t k d", "of": "first"},
        "v": {"einsum": "b t h, h k d -> b t k d", "of": "first"},
    }
    if qk_norm:
        form |= {"qn": {"norm": "q"}, "kn": {"norm": "k"}}
    queries, keys = ("qn", "kn") if qk_norm else ("q", "k")
    return form | {
        "seen": {"attention": [queries, keys, "v"]},
        "o": {"einsum": "b t a d, a d h -> b t h", "of": "seen"},
        "mid": {"add": ["x", "o"]},
    }


LATENT: Form = {
    "first": {"norm": "x"},
    "q_down": {"einsum": "b t h, h r -> b t r", "of": "first"},
    "q_norm": {"norm": "q_down"},
    "q": {"einsum": "b t r, r a q -> b t a q", "of": "q_norm"},
    "kv_down": {"einsum": "b t h, h w -> b t w", "of": "first"},
    "latent": {"take": "kv_down", "shape": "b t l"},
    "rope": {"take": "kv_down", "shape": "b t p"},
    "kv_norm": {"norm": "latent"},
    "kv": {"einsum": "b t l, l a u -> b t a u", "of": "kv_norm"},
    "nope": {"take": "kv", "shape": "b t a n"},
    "v": {"take": "kv", "shape": "b t a v"},
    "k": {"concat": ["nope", "rope"], "shape": "b t a q"},
    "seen": {"attention": ["q", "k", "v"]},
    "o": {"einsum": "b t a v, a v h -> b t h", "of": "seen"},
    "mid": {"add": ["x", "o"]},
}


def dense() -> Form:
    """Operators of a dense FFN with a gate."""
    return {
        "second": {"norm": "mid"},
        "gate": {"einsum": "b t h, h f -> b t f", "of": "second"},
        "up": {"einsum": "b t h, h f -> b t f", "of": "second"},
        "act": {"elements": "silu", "of": "gate"},
        "inner": {"elements": "mul", "of": ["act", "up"]},
        "down": {"einsum": "b t f, f h -> b t h", "of": "inner"},
        "out": {"add": ["mid", "down"]},
    }


def routed(top_k: int, *, shared: bool) -> Form:
    """Operators of experts, with a shared one or without."""
    form: Form = {
        "second": {"norm": "mid"},
        "scores": {"einsum": "b t h, h e -> b t e", "of": "second"},
        "choice": {"elements": "topk", "of": "scores"},
        "gate": {"einsum": "b t h, e h f -> b t e f", "of": "second", "routed": top_k},
        "up": {"einsum": "b t h, e h f -> b t e f", "of": "second", "routed": top_k},
        "act": {"elements": "silu", "of": "gate"},
        "inner": {"elements": "mul", "of": ["act", "up"]},
        "down": {"einsum": "b t e f, e f h -> b t e h", "of": "inner", "routed": top_k},
        "sum": {"elements": "sum", "of": ["down", "choice"], "shape": "b t h"},
    }
    if shared:
        form |= {
            "own_gate": {"einsum": "b t h, h s1 -> b t s1", "of": "second"},
            "own_up": {"einsum": "b t h, h s1 -> b t s1", "of": "second"},
            "own_inner": {"elements": "swiglu", "operations": 5, "of": ["own_gate", "own_up"]},
            "own_down": {"einsum": "b t s1, s1 h -> b t h", "of": "own_inner"},
            "both": {"add": ["sum", "own_down"]},
        }
    return form | {"out": {"add": ["mid", "both" if shared else "sum"]}}
