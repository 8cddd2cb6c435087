"""Measured rates and times of inference engines, as overrides, and their simulated figures.

    python -m dse.studies.engines.rows --write

`measured.csv` has what the pages state. With --write, `published.csv` gets the same rows with their overrides, as all
studies have them. A row is evaluated in process, on the software stack of its engine or on another.
"""

import csv
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from dse.accuracy.validate import COLUMNS
from dse.analysis.evaluation import evaluate_config
from dse.analysis.withheld_metrics import computed_metrics
from dse.config.compose import compose, find_study_folder
from dse.config.question import build_question
from dse.space.main_memory import main_memory
from dse.space.model import Model
from dse.studies.engines.benchmark import OfflineBenchmark

HERE = Path(__file__).resolve().parent
MEASURED, PUBLISHED = HERE / "measured.csv", HERE / "published.csv"

ACTIVATIONS = {"nvfp4": "nvfp4", "mxfp4": "mxfp8", "fp8_128x128": "fp8_1x128"}
"""Format of what meets weights of a format, if not their own; with a 16-bit KV cache, mxfp4 meets 16 bits."""

OF_EXPERTS = ("mxfp4",)
"""Formats of checkpoints whose experts alone have them: all other weights stay in 16 bits."""

NODES = {"h100": "node_nvlink4", "h200": "node_nvlink4", "b200": "node_nvlink5"}
"""Parts of a chip whose experts lie on several dies."""

ENGINES = {"v0.14": "trtllm_v0", "v1.0": "trtllm_v1", "v1.2": "trtllm_v1"}
"""Inference engine of a version; other rows state none, and have the memory of the chip."""

RECORDING = ("v1.0", "v1.2")
"""Versions that record graphs of decodes for the sizes of an option file."""

STACKS = {
    **ENGINES,
    "gaudi2": "gaudi2",
    "gaudi3": "gaudi3",
    "mi300x": "mi300x_vllm",
    "n150": "tt_metal",
    "wormhole": "tt_metal",
    "wormhole_galaxy": "tt_metal",
    "p100": "tt_metal",
    "groq": "groq",
    "t3k": "tt_metal",
    "trainium1": "neuron",
    "inferentia2": "neuron",
    "tpu_v6e": "vllm_tpu",
    "tpu_v7x": "vllm_tpu",
}
"""Software stack of a version, or of a chip."""

ALIKE: dict[str, tuple[str, ...]] = {
    "codellama_13b": ("llama2_13b",),
    "qwq_32b": ("qwen3_32b", "heads=40", "ffn_intermediate=27648"),
}
"""Models that do not ship, each as a preset with fields of its own: 16 more words in CodeLlama's vocabulary are left out."""

FULL_MESH = ("mi300x", "gaudi2", "gaudi3")
"""Chips of which each has a link to each other of its node."""


@dataclass(frozen=True, slots=True)
class EngineRow:
    """One measured rate or time of an engine, as a page states it; columns of `measured.csv`."""

    place: str
    version: str
    chip: str
    model: str
    weights: str
    kv: str
    prompt: int
    output: int
    tp: int
    ep: int
    bench: str
    requests: int
    metric: str
    value: float
    unit: str

    @property
    def id(self) -> str:
        """Name of the row, of all that tells it from others."""
        tell = [
            self.version.replace(" ", "-").replace(",", ""),
            self.chip,
            self.model,
            self.weights,
            f"{self.prompt}-{self.output}",
        ]
        tell += [f"tp{self.tp}", *([f"ep{self.ep}"] if self.ep > 1 else []), *([f"n{self.requests}"] if self.requests else [])]
        return "-".join([*tell, self.metric])

    @property
    def vendor(self) -> str:
        """Vendor of the chip, by the page."""
        return self.place.split()[0]

    @property
    def kind(self) -> str:
        """Kind of deployment: experts or dense, and how it is divided."""
        if self.bench == "static":
            return f"{self.metric}, static"
        experts = model_of(self.model).experts is not None
        if self.ep > 1:
            return "experts, EP with attention DP"
        return f"{'experts' if experts else 'dense'}, {'TP 1' if self.tp == 1 else 'TP over 1'}"

    @property
    def four_bits(self) -> bool:
        """Whether weights have four bits."""
        return self.weights in ("nvfp4", "mxfp4")

    @property
    def stack(self) -> str:
        """Software stack of the row's engine; empty string on chips without one."""
        return STACKS.get(self.version, STACKS.get(self.chip, ""))

    def overrides(self) -> list[str]:
        """Overrides of chip, model, formats, division and load, without the stack."""
        positions = self.prompt + self.output
        name, *fields = ALIKE.get(self.model, (self.model,))
        longer = [f"model.max_position={positions}"] if positions > model_of(self.model).max_position else []
        return [
            *self._chip(),
            f"model={name}",
            *(f"model.{name}.{field}" for field in fields),
            *longer,
            *self._formats(),
            *self._load(),
        ]

    def _chip(self) -> list[str]:
        chip = [f"chip={self.chip}"]
        if self.version in ENGINES:
            chip.append(f"inference_engine={ENGINES[self.version]}")
        if self.ep > 1:
            chip += [
                f"+part@chip={NODES[self.chip]}",
                "chip.dies.rows=1",
                f"chip.dies.cols={self.ep}",
                f"chip.nodes.size={self.ep}",
            ]
            return [*chip, "mapping.both.tp=1", f"mapping.both.ep={self.ep}", "mapping.both.all_to_all=gather"]
        if not self.tp:
            return chip
        mesh = ["mapping.both.allreduce=full_mesh"] if self.chip in FULL_MESH and self.tp > 1 else []
        return [*chip, f"mapping.both.tp={self.tp}", *mesh]

    def _formats(self) -> list[str]:
        sixteen = self.kv in ("bf16", "fp16") and self.weights == "mxfp4"
        activations = "bf16" if sixteen else ACTIVATIONS.get(self.weights, self.weights)
        weights = f"bf16, experts: {self.weights}" if self.weights in OF_EXPERTS else self.weights
        return [f"precision={{weights: {weights}, activations: {activations}, kv: {self.kv}}}"]

    def stack_overrides(self) -> list[str]:
        """Overrides of the software stack of the row's engine, and of what the benchmark sets of it."""
        if not self.stack:
            return []
        sizes = recorded_sizes(self.stack) if self.version in RECORDING else None
        own = [f"mapping.stack.iteration.graph_batch_sizes={self._benchmark().graph_sizes(sizes)}"] if sizes else []
        return [f"stack={self.stack}", *own]

    def _benchmark(self) -> OfflineBenchmark:
        sizes = model_of(self.model), self.weights, self.kv, self.prompt, self.output, self.tp, self.ep
        return OfflineBenchmark(*sizes, driver_memory(self.chip, ENGINES.get(self.version, "none")))

    def _load(self) -> list[str]:
        if self.bench == "static":
            lengths = [f"workload.prompt={self.prompt}", f"workload.output={self.output}"]
            return ["workload=static", f"workload.batch=[{self.requests}]", *lengths, "workload.speculation=none"]
        if self.bench == "closed":
            return [*closed_loop(self.prompt, self.output, self.requests)]
        policy = ["mapping.serving.policy=inflight"] if self.version not in ENGINES else []
        return [*self._benchmark().overrides(self.requests), *policy]


ROUNDS = 10
"""Requests of a closed loop over its users: enough that its ramp and its drain are a tenth."""


def closed_loop(prompt: int, output: int, users: int) -> list[str]:
    """Overrides of a load of users who ask again when they are answered.

    Requests wait for as many places as there are users. All are there at once, so that rates and times of a token are those of
    the loop, and first tokens are not.
    """
    load = ["workload=serving", "workload.arrivals=offline", f"workload.requests={ROUNDS * users}", "workload.speculation=none"]
    return [*load, f"workload.prompt={prompt}", f"workload.output={output}", f"mapping.serving.max_batch_size={users}"]


@cache
def measured_rows(path: Path = MEASURED) -> tuple[EngineRow, ...]:
    """All rows of a file with the columns of `measured.csv`."""
    with path.open(newline="") as file:
        return tuple(_read_row(row) for row in csv.DictReader(file))


def _read_row(row: Mapping[str, str]) -> EngineRow:
    sizes = {name: int(row[name] or 0) for name in ("prompt", "output", "tp", "ep", "requests")}
    return EngineRow(**(dict(row) | sizes | {"value": float(row["value"])}))  # type: ignore[arg-type]


@cache
def model_of(name: str) -> Model:
    """Record of the model that has a name in the configuration."""
    preset, *fields = ALIKE.get(name, (name,))
    config = compose([f"model={preset}", *(f"model.{preset}.{field}" for field in fields), "chip=h100", "workload=static"])
    case = build_question(config, find_study_folder(config)).workload.cases[0]
    return case.model  # type: ignore[union-attr]


@cache
def driver_memory(chip: str, engine: str) -> float:
    """Main memory that a driver offers to an inference engine, or that of the data sheet. [B]"""
    config = compose([f"chip={chip}", f"inference_engine={engine}", "workload=serving"])
    return float(main_memory(build_question(config, find_study_folder(config)).base.chip).usable_capacity)


@cache
def recorded_sizes(stack: str) -> str | None:
    """Decode batches of recorded graphs that a stack has; None without any."""
    iteration = compose(["chip=h100", f"stack={stack}"])["mapping"]["stack"].get("iteration") or {}
    sizes = iteration.get("graph_batch_sizes")
    return str(sizes["value"]) if sizes else None


def simulate_row(row: EngineRow, stack: Sequence[str]) -> float:
    """Simulated figure of a row, on a stack given by overrides, whether or not all limits hold.

    Raises:
        DesignError: the row has no meaning on its chip.
    """
    evaluation = evaluate_config(compose([*row.overrides(), *stack]))
    return float(computed_metrics(evaluation.metrics)[row.metric])


def simulate_rows(rows: Iterable[EngineRow], *more: str, stack: str = "") -> list[float]:
    """Simulated over measured figure of each row, as a speed: a rate, or one over a time.

    Args:
        rows: to simulate.
        more: further overrides of the stack.
        stack: its name; empty string for that of each row's engine.
    """
    ratios = []
    for row in rows:
        simulated = simulate_row(row, [*([f"stack={stack}"] if stack else row.stack_overrides()), *more])
        ratios.append(row.value / simulated if row.unit == "s" else simulated / row.value)
    return ratios


def published_rows() -> list[list[str]]:
    """Rows of `published.csv`, with the overrides of each."""
    lines: list[list[str]] = []
    for row in measured_rows():
        again = sum(line[0].startswith(row.id) for line in lines)
        name = f"{row.id}-{again + 1}" if again else row.id  # a figure that was published twice
        words = [*row.overrides(), *row.stack_overrides()]
        overrides = " ".join(f"'{word}'" if " " in word else word for word in words)
        lines.append(
            [name, f"{row.place} {row.version}", overrides, "", row.metric, f"{row.value:g}", row.unit, "calibration", ""]
        )
    return lines


def write_published() -> None:
    """Write all measured rows with their overrides into `published.csv`."""
    with PUBLISHED.open("w", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerows([COLUMNS, *published_rows()])


if __name__ == "__main__":
    if sys.argv[1:] != ["--write"]:
        raise SystemExit("python -m dse.studies.engines.rows --write")
    write_published()
