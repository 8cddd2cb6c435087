"""Settings with which inference engines run their throughput benchmarks, from what a page states.

All requests arrive at once, and the rate is that of all output tokens over the whole time, ramp and drain included.
Batch and token budget are those that the benchmark's own heuristic computes from the model and the chips; the KV pool is that
of the inference engine.
"""

from dataclasses import dataclass

from dse.space.errors import DesignError
from dse.space.model import Model
from dse.space.number_formats import BYTES_BY_FORMAT
from dse.space.parameter_counts import kv_values_all_layers, parameter_count

REQUESTS = {
    (128, 128): 30_000,
    **dict.fromkeys([(128, 2048), (500, 2000), (1000, 1000), (2048, 128), (1024, 1024)], 3_000),
    **dict.fromkeys([(128, 4096), (1000, 2000), (2048, 2048), (5000, 500), (1024, 8192), (8192, 1024)], 1_500),
    **dict.fromkeys([(20000, 2000), (1024, 32768), (32768, 1024)], 1_000),
}
"""Requests of a benchmark by prompt and output length, as the pages of TensorRT-LLM state them."""

MAX_BATCH, MIN_BATCH, MAX_TOKENS, MIN_TOKENS = 4096, 64, 32_768, 2_048
"""Bounds of batch and token budget in the heuristic of the benchmark."""

POOL_SHARE = 0.92
"""Share of the memory that weights leave which the heuristic takes for KV caches; the pages say 0.90 or 0.95."""


@dataclass(frozen=True, slots=True)
class OfflineBenchmark:
    """One throughput benchmark as a page states it: model, formats, lengths, chips.

    Attributes:
        weights, kv: number formats.
        prompt, output: lengths of every request. [token]
        tp: chips of the deployment.
        ep: chips that share out the experts, with attention copied; 1 if all layers are divided by tp.
        memory: bytes of a chip that the driver counts. [B]
    """

    model: Model
    weights: str
    kv: str
    prompt: int
    output: int
    tp: int
    ep: int
    memory: float

    @property
    def requests(self) -> int:
        """Number of requests, by the lengths.

        Raises:
            DesignError: no page states how many requests such lengths have.
        """
        try:
            return REQUESTS[self.prompt, self.output]
        except KeyError:
            lengths, stated = f"{self.prompt}/{self.output}", ", ".join(f"{prompt}/{output}" for prompt, output in REQUESTS)
            raise DesignError(f"bench.requests: no page states those of {lengths} tokens; set them, or use {stated}") from None

    @property
    def batch_and_tokens(self) -> tuple[int, int]:
        """Largest batch and token budget of an iteration on one rank, by the benchmark's heuristic.

        It takes all layers for layers that keep all positions, also those with a window or chunks.
        """
        length = self.prompt + self.output
        heads = max(self.tp / self.model.kv_heads, 1.0)
        itemsize = BYTES_BY_FORMAT[self.kv]
        token = kv_values_all_layers(self.model) * itemsize * (1.0 if self.model.latent else heads)
        free = self.tp * self.memory - parameter_count(self.model) * BYTES_BY_FORMAT[self.weights]
        rows = max(min(POOL_SHARE * free / (token * length), MAX_BATCH), 1.0)
        batch = max(_round_up(rows, 32 if rows < 256 else 128 if rows < 1024 else 256), MIN_BATCH)
        tokens = min(rows * (1 + self.prompt / self.output), MAX_TOKENS)
        tokens = max(_round_up(tokens, 256 if tokens < 2048 else 512 if tokens < 8192 else 1024), MIN_TOKENS)
        return batch, max(tokens, self.prompt + batch)

    def graph_sizes(self, recorded: str) -> str:
        """Decode batches of recorded graphs: those below the largest batch of a rank, and that batch.

        The engine drops sizes that no iteration can have, and records its largest batch in their place
        (`_filter_cuda_graph_batch_sizes` of TensorRT-LLM's PyTorch executor).

        Args:
            recorded: sizes of the option file, rising.
        """
        batch, _ = self.batch_and_tokens
        return " ".join([*(size for size in recorded.split() if int(size) < batch), str(batch)])

    def overrides(self, requests: int = 0) -> list[str]:
        """Overrides of the load and of how it is scheduled: whole prompts, the engine's policy.

        Args:
            requests: that the page states; 0 for those of the lengths.
        """
        batch, tokens = self.batch_and_tokens
        ranks = max(self.ep, 1)
        return [
            "workload=serving",
            "workload.arrivals=offline",
            f"workload.requests={requests or self.requests}",
            f"workload.prompt={self.prompt}",
            f"workload.output={self.output}",
            "workload.speculation=none",
            f"mapping.serving.max_batch_size={batch * ranks}",
            f"mapping.serving.max_batched_tokens={tokens * ranks}",
        ]


def _round_up(value: float, step: int) -> int:
    return int(-(-value // step) * step)
