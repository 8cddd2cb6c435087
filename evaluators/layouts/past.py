"""Prompts on regions that come in chunks: what a chunk's tokens attend to before themselves is cached already."""

from collections.abc import Sequence
from typing import Any

from dse.evaluators.kernels.gemm.tiling import Shape
from dse.evaluators.passes.call import Block, Call

OVER_KEYS = {"scores": "n", "softmax": "k", "values": "k"}
"""Kernels that go over keys, and along which side of their shape."""


def after(blocks: Sequence[Block], past: Any) -> Sequence[Block]:
    """The blocks of a prompt whose tokens come after others that are cached, evenly over the rows of cores.

    Scores, softmax and values go over these too; all else is of the tokens that are new.

    Args:
        blocks: of the new tokens by themselves.
        past: positions before them; 0 for a prompt from its beginning. Broadcasts over designs. [token]
    """
    if isinstance(past, float) and not past:
        return blocks
    return [block._replace(calls=tuple(_longer(call, past) for call in block.calls)) for block in blocks]


def _longer(call: Call, past: Any) -> Call:
    if call.kernel is None or call.kernel.name not in OVER_KEYS:
        return call
    sizes: dict[str, Any] = {name: getattr(call.kernel.shape, name) for name in ("m", "k", "n")}
    side = OVER_KEYS[call.kernel.name]
    sizes[side] = sizes[side] + past  # not in place: leaves are shared
    return call._replace(shape=tuple(sizes.values()), kernel=call.kernel._replace(shape=Shape(**sizes)))
