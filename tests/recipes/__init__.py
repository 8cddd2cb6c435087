"""How what there is grows: recipes that are applied to a copy of the tree and asked there, so that they stay true.

A recipe is new files and insertions after a line that stands once in its file; each file it touches is a place.
"""

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.faults.seeding import LEFT_OUT, ROOT


@dataclass(frozen=True)
class Recipe:
    """What to do for one more of something.

    Attributes:
        files: text of new ones, by path.
        lines: by path, what is replaced by what; each stands there once.
        asked: a question that it answers, as after ``dse evaluate``.
        without: the refusal of the same question before.
    """

    asked: tuple[str, ...]
    without: str
    files: dict[str, str] = field(default_factory=dict)
    lines: dict[str, tuple[tuple[str, str], ...]] = field(default_factory=dict)


BINARY = (ROOT / "studies/template/my_mesh/binary.py").read_text()

LPDDR5X = """\
# Packages of LPDDR5X along the south edge of a mesh of tiles: ~chip.hbm ~chip.dram +part@chip.lpddr=lpddr5x
capacity: {value: "128 GB", source: assumed, note: "eight packages of 16 GB"}
channels: {value: 32, source: assumed, note: "of 16 bits, four to a package"}
channel_bandwidth: {value: "17.1 GB/s", source: assumed, note: "8.533 Gb/s on each of 16 pins"}
stream_efficiency: {value: 0.9, source: assumed, note: "refresh and turnarounds, as HBM's"}
latency: {value: "100 ns", source: assumed, note: "an open row and the way through the controller"}
channel_side: {value: south, source: assumed, note: "one edge"}
devices:
  device_bandwidth: {value: "68.3 GB/s", source: assumed, note: "a package of 64 bits"}
  phy_area: {value: "2.9 mm2", source: assumed, note: "twice DDR5 of 32 bits, 1.45 mm2 [zhang2024]"}
  edge_length: {value: "5 mm", source: assumed, note: "of 64 data pins with their clocks"}
  energy_per_byte: {value: "40.0 pJ/B", source: assumed, note: "5 pJ a bit"}
  idle_power: {value: "0.1 W", source: assumed, note: "refresh and clocks"}
  price: {value: "4 USD/GB", source: assumed, note: "twice DDR5"}
"""

MEMORY_KIND = "a kind of main memory: its record and row, the part of a chip that states it, and a preset"

LAYOUT = "a layout of models: its class, its plan, and a declaration"
SHARED_CHIP = '''"""A model on all tiles of a mesh, beside other software that has a share of main memory."""

from dataclasses import replace

from dse.evaluators.accounting.decode_segments import BatchArrays
from dse.evaluators.accounting.memory_contents import MemoryContents
from dse.evaluators.accounting.phase import PhaseCost
from dse.evaluators.accounting.whole_chip import WholeChipLayout
from dse.space.design import Design


class SharedChipLayout(WholeChipLayout):
    """A model on all tiles of a mesh that leaves a share of main memory to others."""

    def phases(self, design: Design, job: BatchArrays, fidelity: str, *, detailed: bool = False) -> tuple[PhaseCost, ...]:
        """Costs as without other software; memory has a part more."""

        def reserve(memory: MemoryContents, share: float) -> MemoryContents:
            others = ("other software", share * memory.capacity)
            return memory._replace(parts=(*memory.parts, others)) if memory.is_main else memory

        phases = []
        for phase in super().phases(design, job, fidelity, detailed=detailed):
            share = getattr(design.mapping, phase.name).reserved_memory
            phases.append(replace(phase, memory=tuple(reserve(memory, share) for memory in phase.memory)))
        return tuple(phases)
'''
"""Text of a layout that differs from another in what memory holds."""

RECIPES: dict[str, Recipe] = {
    "a kernel: a file, and its name in the registry": Recipe(
        (
            "chip=wse2",
            "workload=gemv",
            "workload.shapes=[1x512x700]",
            "mapping.rows=16",
            "mapping.gemv=binary",
            "fidelity=events",
        ),
        "mapping.gemv: no option 'binary'",
        {"evaluators/kernels/gemv/binary.py": BINARY},
        {
            "evaluators/kernels/gemv/__init__.py": (
                ("import ktree, ladder", "import binary, ktree, ladder"),
                ('"ladder": ladder}', '"ladder": ladder, "binary": binary}'),
            )
        },
    ),
    "a dataflow of attention: a line in the registry": Recipe(
        ("chip=tile32", "workload=attention", "workload.keys=[512]", "mapping.dataflow=flat_seq_async"),
        "mapping.dataflow: no option 'flat_seq_async'",
        {},
        {
            "evaluators/kernels/attention/__init__.py": (
                (
                    '    "flat_async": Dataflow("hardware", 2, grouped=True),\n',
                    '    "flat_async": Dataflow("hardware", 2, grouped=True),\n'
                    '    "flat_seq_async": Dataflow("sequential", 2, grouped=True),\n',
                ),
            )
        },
    ),
    "a metric: an entry of the table": Recipe(
        (
            "chip=wse2",
            "workload=gemv",
            "workload.shapes=[1x512x700]",
            "mapping.rows=16",
            "+metrics.core_hours=core_seconds / 3600",
        ),
        "no metric 'core_seconds'",
        {},
        {
            "evaluators/accounting/metrics.py": (
                (
                    '    "die_mm2": Metric("mm2", "min", "area of one die"),\n',
                    '    "core_seconds": Metric(\n'
                    '        "s", "min", "cores of a product, times its time", needs=("cores", "latency"),\n'
                    '        worth=lambda of, design: of["cores"] * of["latency"],\n'
                    "    ),\n"
                    '    "die_mm2": Metric("mm2", "min", "area of one die"),\n',
                ),
            )
        },
    ),
    "a part of a chip: its record, the machines that have it, and who reads it": Recipe(
        ("chip=npu64", "model=qwen3_1b7", "workload.batch=[1]", "workload.sequence=[512]", "+chip.io.area=250 mm2"),
        "no field 'chip.io'",
        {},
        {
            "space/chip.py": (
                (
                    "@record_class\nclass Chip:\n",
                    '@record_class\nclass Io:\n    """Ports to the outside."""\n\n'
                    '    area: Number = quantity_field("mm2", "area of all of them")\n\n\n@record_class\nclass Chip:\n',
                ),
                (
                    "    memory: Any = part_field(",
                    '    io: Any = part_field("ports to the outside", Io)\n    memory: Any = part_field(',
                ),
            ),
            "space/machines.py": (
                ('("faults", "decode", "l2", "published")', '("faults", "decode", "l2", "published", "io")'),
            ),
            "evaluators/silicon/area.py": (
                (
                    '"host": own.host * tech.host}\n',
                    '"host": own.host * tech.host}\n    found["io"] = 0.0 if chip.io is None else chip.io.area\n',
                ),
            ),
        },
    ),
    LAYOUT: Recipe(
        (
            "chip=tile_gh200",
            "model=qwen3_4b",
            "workload.batch=[2]",
            "workload.sequence=[256]",
            "+mapping.prefill.reserved_memory=0.25",
            "+mapping.decode.reserved_memory=0.25",
        ),
        "mapping.prefill: no field 'mapping.prefill.reserved_memory'",
        {"evaluators/accounting/shared_chip.py": SHARED_CHIP},
        {
            "space/mapping.py": (
                (
                    "PHASE_PLANS = (\n",
                    "@record_class\nclass SharedChipPlan(WholeChipPlan):\n"
                    '    """Mapping of one phase on all tiles of a mesh, beside other software in main memory."""\n\n'
                    '    reserved_memory: Any = quantity_field("1", "share of main memory of other software", high=0.9)\n\n\n'
                    "PHASE_PLANS = (\n    SharedChipPlan,\n",
                ),
            ),
            "space/software.py": (
                (
                    "    SharedCacheDiesPlan,\n    TensorParallelPlan,\n",
                    "    SharedCacheDiesPlan,\n    SharedChipPlan,\n    TensorParallelPlan,\n",
                ),
                (
                    "MODEL_LAYOUTS: dict[str, ModelLayout] = {\n",
                    "MODEL_LAYOUTS: dict[str, ModelLayout] = {\n"
                    '    "shared chip": ModelLayout(\n'
                    '        "a model beside other software", _phases(SharedChipPlan), TILES, "shared_chip:SharedChipLayout"\n'
                    "    ),\n",
                ),
            ),
        },
    ),
    MEMORY_KIND: Recipe(
        (
            "chip=tile_gh200",
            "~chip.hbm",
            "~chip.dram",
            "+part@chip.lpddr=lpddr5x",
            "model=qwen3_8b",
            "workload.batch=[8]",
            "workload.sequence=[512]",
        ),
        "part: no option 'lpddr5x'",
        {"conf/part/lpddr5x.yaml": LPDDR5X},
        {
            "space/main_memory.py": (
                (
                    "class MainMemory(NamedTuple):\n",
                    "@record_class\nclass LowPowerMemory(TileMemory):\n"
                    '    """Main memory of a mesh of tiles in packages, whose own figures are here too."""\n\n'
                    "    devices: DramDevices\n\n\n"
                    "class MainMemory(NamedTuple):\n",
                ),
                (
                    "MEMORY_KINDS: dict[type, MemoryKind] = {\n",
                    "def lpddr_memory(record: LowPowerMemory, chip: Any) -> MainMemory:\n"
                    '    """Main memory of packages along an edge of a mesh."""\n'
                    '    memory = mesh_memory(record, chip, "lpddr")\n'
                    '    return memory._replace(devices=record.devices, devices_part="lpddr.devices")\n\n\n'
                    "MEMORY_KINDS: dict[type, MemoryKind] = {\n"
                    "    LowPowerMemory: MemoryKind(\n"
                    '        "lpddr", lpddr_memory, {"hbm": TileMemory, "dram": DramDevices}\n'
                    "    ),\n",
                ),
            ),
            "space/chip.py": (
                (
                    "import HighBandwidthMemory, TileMemory, main_memory\n",
                    "import HighBandwidthMemory, LowPowerMemory, TileMemory, main_memory\n",
                ),
                (
                    "    network: Any = part_field(",
                    '    lpddr: Any = part_field("main memory in packages, in place of hbm and dram", LowPowerMemory)\n'
                    "    network: Any = part_field(",
                ),
            ),
        },
    ),
}
"""By what there is one more of."""


@contextmanager
def tree(recipe: Recipe | None = None) -> Iterator[Path]:
    """A copy of the tree, as it is or with a recipe applied."""
    with TemporaryDirectory() as folder:
        copy = Path(folder) / "copy"
        shutil.copytree(ROOT, copy, ignore=LEFT_OUT, symlinks=True)
        for path, text in (recipe.files if recipe else {}).items():
            (copy / path).write_text(text)
        for path, changes in (recipe.lines if recipe else {}).items():
            source = (copy / path).read_text()
            for before, after in changes:
                if source.count(before) != 1:
                    raise ValueError(f"{path}: {before!r} stands there {source.count(before)} times")
                source = source.replace(before, after)
            (copy / path).write_text(source)
        yield copy


def evaluated(words: tuple[str, ...], folder: Path) -> subprocess.CompletedProcess[str]:
    """What ``dse evaluate --json`` says in a tree."""
    command = [sys.executable, "-m", "dse.main", "evaluate", "--json", *words]
    return subprocess.run(command, cwd=folder, env=os.environ | {"CI": "1"}, capture_output=True, text=True, check=False)
