"""Prompts on regions that come in chunks: what a chunk's tokens attend to before themselves is cached already."""

from typing import Any

from dse.evaluators.kernels.gemm.tiling import Shape
from dse.evaluators.passes.call import Kernel

OVER_KEYS = {"scores": "n", "softmax": "k", "values": "k"}
"""Kernels that go over keys, and along which side of their shape."""


def after(kernels: list[Kernel], past: Any) -> list[Kernel]:
    """The kernels of a prompt whose tokens come after others that are cached, evenly over the rows of cores.

    Scores, softmax and values go over these too; all else is of the tokens that are new.

    Args:
        kernels: of the new tokens by themselves.
        past: positions before them; 0 for a prompt from its beginning. Broadcasts over designs. [token]
    """
    if isinstance(past, float) and not past:
        return kernels
    return [_longer(one, OVER_KEYS[one.name], past) if one.name in OVER_KEYS else one for one in kernels]


def _longer(kernel: Kernel, side: str, past: Any) -> Kernel:
    sizes: dict[str, Any] = {name: getattr(kernel.shape, name) for name in ("m", "k", "n")}
    sizes[side] = sizes[side] + past
    return kernel._replace(shape=Shape(**sizes))
