"""Kernel times of torch.profiler (traces, tables) and of nsys (summaries) as measured runs.

A trace with the shapes of operators (``record_shapes=True``) gives the time of each product by its shape. A summary gives the
total time of kernels; with the number of times that the profiled workload ran, that is the time of the workload on kernels.
Keys are those of Kineto's traces in PyTorch 2.9, of ``key_averages().table()``, and of cuda_gpu_kern_sum in nsys 2025.
"""

import csv
import re
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

from dse.accuracy.measurements.measured_run import MeasuredFigure, MeasuredRun, name_run
from dse.documents.validate_documents import Role
from dse.space.errors import DesignError

KINDS = (
    ("collectives", r"nccl|all_?reduce|all_?gather|reduce_?scatter|multimem|cross_device"),
    ("attention", r"flash|fmha|attention|attn|paged|mla_"),
    ("products", r"gemm|nvjet|cutlass|xmma|cublas|matmul|splitk|cijk_|s\d+816|(?:^|_)mm(?:_|$)"),
)
"""Kinds of kernels by patterns of their names; others are elementwise."""
OTHER = "elementwise and others"
PRODUCTS = {"aten::mm": (0, 1), "aten::addmm": (1, 2)}
"""Operators of products with the places of their operands among the inputs."""
TYPES = {"c10::bfloat16": "bf16", "bfloat16": "bf16", "c10::half": "fp16", "half": "fp16"}
MAX_EVENTS = 5_000_000
MAX_SHAPES = 100
CHECK_EVERY = 5
"""Every so many shapes, by their time, one is a check."""
MIN_KERNEL_S = 1e-7
NSYS_COLUMNS = ("Total Time (ns)", "Instances", "Name")
SELF_TIMES = ("Self CUDA", "Self XPU", "Self Device")
DEVICE_TOTAL = re.compile(r"Self (?:CUDA|XPU|Device) time total: ([0-9.]+)(us|ms|s)\b")
TIME = re.compile(r"([0-9.]+)(us|ms|s)")
UNITS = {"us": 1e-6, "ms": 1e-3, "s": 1.0}


@dataclass
class TraceEvents:
    """Kernels of a trace and the products that launched them, as they come.

    Attributes:
        products: shape (m, k, n) and format of each product, by the trace's external id.
        shapes: each of them once.
        kernels: time of the kernels of each external id. [s]
        totals: time by kind of kernel. [s]
        count: kernels.
    """

    path: Path
    products: dict[int, tuple[int, int, int, str]] = field(default_factory=dict)
    shapes: dict[tuple[int, int, int, str], tuple[int, int, int, str]] = field(default_factory=dict)
    kernels: dict[int, float] = field(default_factory=lambda: defaultdict(float))
    totals: dict[str, float] = field(default_factory=lambda: defaultdict(float))
    count: int = 0

    def add(self, event: Any) -> None:
        """Take an event of a trace.

        Raises:
            DesignError: a kernel whose time is no number, or too many.
        """
        if not isinstance(event, dict) or event.get("ph") != "X":
            return
        category, parts = str(event.get("cat", "")).lower(), event.get("args")
        arguments: Mapping[str, Any] = parts if isinstance(parts, dict) else {}
        identity = arguments.get("External id", arguments.get("external id"))
        if category == "kernel":
            self._add_kernel(event, identity)
        elif category == "cpu_op" and str(event.get("name")) in PRODUCTS and isinstance(identity, int):
            shape = _product_shape(str(event["name"]), arguments)
            if shape is not None and len(self.products) < MAX_EVENTS:
                self.products[identity] = self.shapes.setdefault(shape, shape)

    def _add_kernel(self, event: Mapping[str, Any], identity: Any) -> None:
        value = event.get("dur")
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < 1e12:
            raise DesignError(f"{self.path}: kernel {str(event.get('name'))[:40]!r}: dur {str(value)[:20]} is no time in us")
        self.count += 1
        if self.count > MAX_EVENTS:
            raise DesignError(f"{self.path}: more than {MAX_EVENTS:,} kernels; profile fewer steps")
        kind = kind_of_kernel(str(event.get("name", "")))
        self.totals[kind] += value * 1e-6
        if isinstance(identity, int) and kind == "products":  # others may follow under the same id
            self.kernels[identity] += value * 1e-6

    def finish(self, number: int, runs: int) -> MeasuredRun:
        """Run of a trace: each shape of a product is a figure, or the total time if there are none.

        Raises:
            DesignError: no kernels, or no shapes and no number of runs.
        """
        if not self.count:
            raise DesignError(f"{self.path}: a trace without kernels; profile with ProfilerActivity.CUDA")
        by_shape: dict[tuple[int, int, int, str], list[float]] = defaultdict(list)
        for identity, shape in self.products.items():
            if self.kernels.get(identity, 0.0) >= MIN_KERNEL_S:
                by_shape[shape].append(self.kernels[identity])
        notes = [_shares_text(self.totals)]
        if not by_shape:
            return total_run(self.path, "torch.profiler, trace", sum(self.totals.values()), runs, notes)
        ranked = sorted(by_shape, key=lambda shape: -sum(by_shape[shape]))
        if len(ranked) > MAX_SHAPES:
            notes.append(f"{len(ranked):,} shapes of products: the {MAX_SHAPES} that take most time are used")
        notes.append("operators that a recorded graph replays have no shapes, and are in no figure")
        figures = tuple(
            _product_figure(shape, by_shape[shape], "check" if place % CHECK_EVERY == CHECK_EVERY - 1 else "calibration")
            for place, shape in enumerate(ranked[:MAX_SHAPES])
        )
        return MeasuredRun("torch.profiler, trace", name_run(self.path, number), figures, notes=tuple(notes))


def kind_of_kernel(name: str) -> str:
    """Kind of a kernel by its name.

    >>> kind_of_kernel("nvjet_tst_128x128"), kind_of_kernel("flash_fwd_kernel"), kind_of_kernel("rms_norm")
    ('products', 'attention', 'elementwise and others')
    """
    return next((kind for kind, pattern in KINDS if re.search(pattern, name.lower())), OTHER)


def total_run(path: Path, source: str, seconds: float, runs: int, notes: list[str]) -> MeasuredRun:
    """Run of the total time of kernels, of a workload that the user names.

    Raises:
        DesignError: it is not known how often the workload ran.
    """
    if not seconds > 0:
        raise DesignError(f"{path}: the kernels took no time; nothing was measured")
    if runs < 1:
        raise DesignError(
            f"{path}: {'; '.join(notes)}; without shapes these alone determine no constant: set runs=N, how often the "
            "profiled workload ran (times devices), and name it, as in workload.batch=[8]"
        )
    figure = MeasuredFigure("latency", seconds / runs, seconds / runs, f"kernels of one of {runs:,} runs (s)", "calibration")
    notes = [*notes, "kernel times have no host and no gaps: choose a stack without these, as stack=tuned"]
    return MeasuredRun(source, name_run(path, 1), (figure,), notes=tuple(notes))


def find_nsys_header(head: str) -> int:
    """Line of the header of a kernel summary of nsys, from 0; -1 where there is none."""
    for place, line in enumerate(head.splitlines()[:200]):
        if all(column in line for column in NSYS_COLUMNS) and "," in line:
            return place
    return -1


def find_table_header(text: str) -> int:
    """Line of the header of a table of ``key_averages()``, from 0; -1 where there is none."""
    lines = enumerate(text.splitlines())
    return next((place for place, line in lines if line.split()[:1] == ["Name"] and "# of Calls" in line), -1)


def read_nsys_summary(path: Path, lines: Iterable[str], runs: int) -> MeasuredRun:
    """Run from the CSV of ``nsys stats --report cuda_gpu_kern_sum --format csv``, from its header on.

    Raises:
        DesignError: a cell that is no number, or no number of runs.
    """
    totals: dict[str, float] = defaultdict(float)
    launches = 0
    try:
        for number, row in enumerate(csv.DictReader(lines, strict=True), start=1):
            seconds, count = (_nsys_number(path, number, row, column) for column in NSYS_COLUMNS[:2])
            totals[kind_of_kernel(row.get("Name") or "")] += seconds * 1e-9
            launches += int(count)
    except csv.Error as error:
        raise DesignError(f"{path}: not a line of CSV: {error}") from None
    return total_run(path, "nsys stats", sum(totals.values()), runs, [_shares_text(totals), f"{launches:,} launches"])


def read_key_averages(path: Path, text: str, runs: int) -> MeasuredRun:
    """Run from the table of ``key_averages().table()``.

    Only rows of kernels count: those without time of the host.

    Raises:
        DesignError: no column of device times, or no number of runs.
    """
    lines, start = text.splitlines(), find_table_header(text)
    names = re.split(r"\s{2,}", lines[start].strip())
    column = next((i for i, name in enumerate(names) if name in SELF_TIMES), None)
    host = names.index("Self CPU") if "Self CPU" in names else None
    if column is None:
        raise DesignError(f"{path}: the table has no column {' or '.join(SELF_TIMES)}; profile with ProfilerActivity.CUDA")
    totals: dict[str, float] = defaultdict(float)
    for line in lines[start + 1 :]:
        cells = re.split(r"\s{2,}", line.strip())
        if len(cells) != len(names) or (host is not None and not cells[host].startswith("0.000")):
            continue
        if match := TIME.fullmatch(cells[column]):
            totals[kind_of_kernel(cells[0])] += float(match[1]) * UNITS[match[2]]
    stated = DEVICE_TOTAL.search(text)  # rows may be left out, and marks of a range repeat its kernels
    seconds = float(stated[1]) * UNITS[stated[2]] if stated else sum(totals.values())
    return total_run(path, "torch.profiler, table", seconds, runs, [_shares_text(totals)])


def _nsys_number(path: Path, number: int, row: Mapping[str, str | None], column: str) -> float:
    text = (row.get(column) or "").replace(",", "")
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 <= value < 1e18:
        raise DesignError(f"{path}: kernel {number}: column {column}: {text[:30]!r} is no number of 0 or more")
    return value


def _product_shape(name: str, arguments: Mapping[str, Any]) -> tuple[int, int, int, str] | None:
    """Shape (m, k, n) and format of a product; None where its operands are no matrices of a known format."""
    dims, types = arguments.get("Input Dims"), arguments.get("Input type")
    left, right = PRODUCTS[name]
    if not isinstance(dims, list) or len(dims) <= right:
        return None
    a, b = dims[left], dims[right]
    sizes = [*a, *b] if isinstance(a, list) and isinstance(b, list) and len(a) == len(b) == 2 else []
    if len(sizes) != 4 or not all(type(size) is int and 1 <= size < 2**31 for size in sizes) or a[1] != b[0]:
        return None
    kind = TYPES.get(str(types[left]).lower(), "") if isinstance(types, list) and len(types) > left else ""
    return (a[0], a[1], b[1], kind) if kind else None


def _product_figure(shape: tuple[int, int, int, str], times: list[float], role: Role) -> MeasuredFigure:
    m, k, n, kind = shape
    seconds = median(times)
    words = (
        "mapping=tensor_parallel",
        "workload=gemm",
        f"workload.shapes=[{m}x{k}x{n}]",
        "mapping.decode.tp=1",
        f"mapping.precision.weights={kind}",
        f"mapping.precision.activations={kind}",
    )
    return MeasuredFigure("latency", seconds, seconds, f"{m}x{k}x{n} {kind}, median of {len(times):,} (s)", role, words)


def _shares_text(totals: Mapping[str, float]) -> str:
    """Total time of kernels with the share of each kind, as text."""
    whole = sum(totals.values())
    parts = sorted(totals.items(), key=lambda item: -item[1])
    return f"kernels {whole:.4g} s: " + ", ".join(f"{kind} {value / whole:.0%}" for kind, value in parts if whole)
