"""Fields that an architecture does not use: refused if they may change shapes, else noted.

A name is split into its words. Some words show that a field is of training, sampling, tokens, numbers or of an omitted part of
a model (`INERT`); some that it is of shapes or layers (`SHAPING`). The value matters too: a field that is off changes nothing,
and a count may change anything.
"""

import re
from typing import Any


def _word_set(text: str) -> frozenset[str]:
    return frozenset(text.split())


INERT = _word_set(
    """
    audio aux bf16 checkpointing coef coeff draft drop dropout dtype dtypes eps epsilon fa2 flash fp16 fp32 fp8 fuse
    fused image images impl implementation init initializer jitter js kernels layerdrop liger loss losses mm modality
    mtp multimodal nextn onnx patch pdrop perceiver pixel projector resampler speech std summary tower triton unsloth
    upcast version versions video videos vision visual vit wandb
    """
)
"""Words of what is never in a count: training, kinds of numbers while they are computed, software, drafting, other towers."""

IDLE = _word_set(
    """
    beam beams bos code dataset datasets dp eos ep generation id ids interleaved jit label labels language languages
    multiplier multipliers normalize output outputs pad pp recompute sampling scale scaled scales scaling seed softmax
    step steps temperature theta token tokenizer tokens tp train training url
    """
)
"""Words of what is in no count unless a word of `SHAPING` stands beside them."""

SHAPING = _word_set(
    """
    adapter adapters alibi altup arch attention attn bias biases block blocks chunk chunks conv cross delta dense depth
    dim dims embed embedding embeddings engram every expand expansion expert experts factor ffn freq frequency full gate
    gated gates gating global gqa group groups head heads hidden hybrid hyper index indexer inner intermediate interval
    kernel kind kv laurel layer layernorm layers linear ln local loop loops lora mamba mem memory mixer mixing mixture
    mla mlp moe mqa mult ngram norm norms num number offset parallel pattern per period pos position positional
    positions qk rank ratio recurrent repeat residual reuse rnn route routed router routing share shared sharing shift
    size sliding sparse ssm state states stream streams stride table tables tie tied top topk type types variant vocab
    width window windows
    """
)
"""Words of shapes, of counts and of what layers are made of."""

SIZES = _word_set("dim dims expand expansion hidden inner intermediate mult rank ratio share size width")
"""Words of shapes that a fraction may say."""

NAMES = _word_set("arch block blocks kind layer layers mixer norm pattern type types variant attention attn mlp ffn position")
"""Words of what layers are, which a word may say."""


SCALES = _word_set("multiplier multipliers normalize recompute scale scaled scales scaling softmax")
"""Words of what values are multiplied by."""

COUNTS = SIZES | _word_set("factor n num number rope")
"""Words of what is counted, or of a context that is extended, whatever it is multiplied by."""


def can_shape(name: str, value: Any) -> bool:
    """Whether an unknown field may change shapes or counts, by the words of its name and its value.

    >>> can_shape("moe_router_dtype", "float32"), can_shape("is_llama_config", True), can_shape("index_share_for_mtp", True)
    (False, False, False)
    >>> can_shape("num_adapters", 4), can_shape("adapter_ratio", 0.5), can_shape("use_mla", True)
    (True, True, True)
    >>> can_shape("num_adapters", 0), can_shape("max_tokens", 4096), can_shape("kind_of_layers", "mamba")
    (False, False, True)
    """
    words = frozenset(re.findall(r"(?:fp|bf|fa)\d+|[a-z]+", re.sub(r"([a-z])([A-Z])", r"\1_\2", name).lower()))
    if not value or value == -1 or words & INERT:
        return False
    if isinstance(value, dict):
        return any(can_shape(f"{name}_{inner}", entry) for inner, entry in value.items())
    if isinstance(value, str):
        return bool(words & NAMES)
    if isinstance(value, float) and not value.is_integer():
        return bool(words & SIZES)
    if words & SCALES and not words & COUNTS:
        return False
    return bool(words & SHAPING) if isinstance(value, bool) else bool(words & SHAPING) or not words & IDLE


MOST = 6
"""Fields that a note names."""


def describe_unread_fields(names: list[str]) -> str:
    """A note on fields that were not read; empty string if there are none.

    >>> describe_unread_fields(["router_dtype"])
    'not read, and taken to change no shapes: router_dtype'
    """
    if not names:
        return ""
    known = sorted(set(names))
    more = f" and {len(known) - MOST} more" if len(known) > MOST else ""
    return f"not read, and taken to change no shapes: {', '.join(known[:MOST])}{more}"
