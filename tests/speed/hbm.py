"""How fast memory is: transactions of one channel, of a whole stack, and blocks at rates."""

from typing import Any

import numpy as np

from evaluators.machine import hbm
from evaluators.machine.dram import Queues, serve
from space.elementwise import Array
from tests.evaluators.plain_dram import Plain
from tests.samples import memory
from tests.speed.clock import cpu

COUNT = 300_000
PLAIN = 1000


def transactions() -> list[tuple[str, str, str]]:
    """Bursts a second, as fast as accepted; the baseline plays the same channel clock by clock in plain Python."""
    rng, lines = np.random.default_rng(0), []
    of = memory("hbm2_legacy")
    for name, block, share in (
        ("sequential reads", np.arange(COUNT), 0.0),
        ("sequential writes", np.arange(COUNT), 1.0),
        ("sequential, a third writes", np.arange(COUNT), 0.33),
        ("reads in chunks of 4 KiB", chunks(64, rng), 0.0),
        ("reads in chunks of 256 B", chunks(4, rng), 0.0),
        ("reads at a stride of 1 KiB", np.arange(COUNT) * 16, 0.0),
        ("random reads", rng.integers(0, 1 << 24, COUNT), 0.0),
    ):
        _, place = hbm.place(of, block * 64)
        write = rng.random(COUNT) < share

        def one(place: Array = place, write: Array = write) -> Any:
            return serve(place, write, np.zeros(COUNT), hbm.timing(of), groups=4, banks=4)

        one()
        few = Plain(place[:PLAIN].tolist(), write[:PLAIN].tolist(), [0] * PLAIN, hbm.timing(of), 4, 4, Queues())
        plain = PLAIN / cpu(lambda few=few: few.play(1 << 60))  # type: ignore[misc]
        rate = COUNT / min(cpu(one) for _ in range(3))
        lines.append((f"HBM, a channel: {name}", f"{rate / 1e6:.2f} M transactions/s", f"{plain:,.0f}/s in plain Python"))
    for stack in ("hbm2", "hbm3", "hbm4"):
        many, size = memory(stack), 1 << 24

        def stream(many: Any = many, size: int = size) -> Any:
            return hbm.play(many, np.arange(0, size, 256), 256, False)

        stream()
        lines.append(
            (f"HBM, a stack of {stack}: 16 MiB in order", f"{size / 32 / cpu(stream, 3) / 1e6:.2f} M transactions/s", "")
        )
    return lines


def chunks(pieces: int, rng: np.random.Generator) -> Array:
    """Requests contiguous in chunks at random places."""
    start = rng.integers(0, (1 << 24) // pieces, -(-COUNT // pieces))[:, None] * pieces
    return (start + np.arange(pieces)).ravel()[:COUNT]


def blocks() -> list[tuple[str, str, str]]:
    """Blocks of 64 KiB at one channel, by its rates; the baseline plays them."""
    of, count = memory("hbm3", channels=1, pseudo=1), 100_000
    known, size = hbm.rates(of), np.full(count, 65536)
    write = np.zeros(count, bool)
    hbm.blocks(np.zeros(2), size[:2], write[:2], known)
    rate = count / cpu(lambda: hbm.blocks(np.arange(count) * 1e-6, size, write, known))
    played = 200 / cpu(lambda: hbm.play(of, np.arange(200) * 65536, 65536, False))
    return [("HBM: blocks of 64 KiB at a channel", f"{rate / 1e6:.2f} M blocks/s", f"{played:,.0f} blocks/s played")]
