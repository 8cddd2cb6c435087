"""Constants of a library's attention of single queries over latents (MLA with absorbed weights); for what they mean see
``evaluators/kernels/library/latent_generation.py``.
"""

from dse.space.elementwise import Number
from dse.space.fields import quantity, record


@record
class LatentGeneration:
    """One library's attention of decode steps over one latent a position."""

    start: Number = quantity("s", "start of a kernel and its end, whatever its size")
    merge: Number = quantity("s", "for each doubling of the parts of 64 positions of a cache, which are merged in the end")
    achieved: Number = quantity("1", "share of the matrix peak that full tiles reach", high=1.0, positive=True)
    hbm: Number = quantity("1", "share of the memory's bandwidth that reads and writes reach", high=1.0, positive=True)
    sharpness: Number = quantity("1", "q of (compute^q + memory^q)^(1/q): 1 where neither hides the other", low=1.0, high=50.0)
    passes: Number = quantity("1", "times that queries and results go through memory, partial results included")
    unit: Number = quantity("s", "of a core, to start and end the parts of caches that it has")
