"""How fast memory is: transactions of a channel, of a whole stack, and of tiles across a mesh."""

from typing import Any

import numpy as np

from dse.evaluators.machine import memory_system as hbm
from dse.evaluators.machine.dram_constants import QueueSizes
from dse.evaluators.machine.dram_simulator import simulate_requests
from dse.evaluators.machine.mesh_fabric import tile_fabric
from dse.evaluators.machine.requester_mesh import requester_mesh
from dse.space.array_math import Array
from dse.space.dram import pseudo_channel_count
from tests.evaluators.plain_dram import Plain
from tests.samples import asked, memory
from tests.speed.clock import cpu

COUNT = 300_000
PLAIN = 1000


def transactions() -> list[tuple[str, str, str]]:
    """Bursts a second, as fast as accepted; the baseline plays the same channel clock by clock in plain Python."""
    rng, lines = np.random.default_rng(0), []
    given_memory = memory("hbm2_legacy")
    for name, block, share in (
        ("sequential reads", np.arange(COUNT), 0.0),
        ("sequential writes", np.arange(COUNT), 1.0),
        ("sequential, a third writes", np.arange(COUNT), 0.33),
        ("reads in chunks of 4 KiB", chunks(64, rng), 0.0),
        ("reads in chunks of 256 B", chunks(4, rng), 0.0),
        ("reads at a stride of 1 KiB", np.arange(COUNT) * 16, 0.0),
        ("random reads", rng.integers(0, 1 << 24, COUNT), 0.0),
    ):
        _, place = hbm.map_addresses(given_memory, block * 64)
        write = rng.random(COUNT) < share

        def play_once(place: Array = place, write: Array = write) -> Any:
            return simulate_requests(place, write, np.zeros(COUNT), hbm.clocked_timing(given_memory), groups=4, banks=4)

        play_once()
        few = Plain(
            place[:PLAIN].tolist(), write[:PLAIN].tolist(), [0] * PLAIN, hbm.clocked_timing(given_memory), 4, 4, QueueSizes()
        )
        plain = PLAIN / cpu(lambda few=few: few.play(1 << 60))  # type: ignore[misc]
        rate = COUNT / min(cpu(play_once) for _ in range(3))
        lines.append((f"HBM, a channel: {name}", f"{rate / 1e6:.2f} M transactions/s", f"{plain:,.0f}/s in plain Python"))
    for stack in ("hbm2", "hbm3", "hbm4"):
        many, size = memory(stack), 1 << 24

        def stream(many: Any = many, size: int = size) -> Any:
            return hbm.simulate_memory(many, np.arange(0, size, 256), 256, False)

        stream()
        lines.append(
            (f"HBM, a stack of {stack}: 16 MiB in order", f"{size / 32 / cpu(stream, 3) / 1e6:.2f} M transactions/s", "")
        )
    return lines


def chunks(pieces: int, rng: np.random.Generator) -> Array:
    """Requests contiguous in chunks at random places."""
    start = rng.integers(0, (1 << 24) // pieces, -(-COUNT // pieces))[:, None] * pieces
    return (start + np.arange(pieces)).ravel()[:COUNT]


def across() -> list[tuple[str, str, str]]:
    """Random reads by 1,024 tiles across their mesh; the baseline is the same memory with requesters beside it."""
    given_memory, rng = memory("hbm4"), np.random.default_rng(0)
    address, by = rng.integers(0, 1 << 24, COUNT) * 32, np.repeat(np.arange(1024), COUNT // 1024 + 1)[:COUNT]
    fabric = tile_fabric(asked("chip=tile32", "workload=collective").base.chip)

    def play(mesh: bool) -> Any:
        between = (
            requester_mesh(
                (32, 32), "south", int(pseudo_channel_count(given_memory)), 1024, fabric, float(given_memory.clock), 32.0
            )
            if mesh
            else None
        )
        return hbm.simulate_memory(given_memory, address, 32, False, windows=np.full(1024, 8), requester=by, ways=between)

    play(True)
    rate, beside = (COUNT / cpu(lambda mesh=mesh: play(mesh), 3) for mesh in (True, False))  # type: ignore[misc]
    return [
        (
            "HBM: random reads by 1,024 tiles across a mesh",
            f"{rate / 1e6:.2f} M transactions/s",
            f"{beside / 1e6:.2f} M beside it",
        )
    ]
