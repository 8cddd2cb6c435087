"""Basis of a software stack: kernels that were measured, with their chips, and assumed ones.

The basis is read from the constants of the stack. A part with a fitted constant was measured. Kernels for which a stack has no
part run at flat rates: these were fitted, or no measurement stands behind them.
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

from dse.config.record_parser import STACK, ConstantSource
from dse.config.unread_stack_leaves import (
    ATTENTION,
    COLLECTIVES,
    FLAT,
    KERNELS,
    LINKS,
    NODES,
    ON_DEVICES,
    attention_library_part,
    find_unread_stack_leaves,
)
from dse.documents.shared_records import StackAccuracyRecord, StackBasisRecord, StackPartRecord
from dse.evaluators.accounting.breakdown import BreakdownRow
from dse.evaluators.accounting.kernel_basis import basis_text
from dse.space.design import Design
from dse.space.software import software_of
from dse.space.stack import StackAccuracy
from dse.space.units import format_quantity
from dse.space.workload import AttentionCase, BatchCase, ServingLoad, Workload

FITTED, OVERRIDE = "fitted", "override"
"""The sources of a constant that was fitted on measurements, and of one that the user set."""

PARTS = (*KERNELS, *ATTENTION, *COLLECTIVES)
"""Parts of a stack, each of which has the library kernels of one kind."""

NONE = "no measurement stands behind it"


@dataclass(frozen=True, slots=True)
class MeasuredPart:
    """One part of a stack whose constants were fitted.

    Attributes:
        part: a name of `PARTS`, or of flat rates.
        rows: measurements that they were fitted on; 0 where nothing says how many.
        chips: that were measured.
        source: key of who published the measurements; the empty string where nothing says it.
    """

    part: str
    rows: int
    chips: tuple[str, ...]
    source: str

    def __str__(self) -> str:
        rows, chips = f"{self.rows:,} rows" if self.rows else "", " and ".join(self.chips)
        where = " ".join(filter(None, (rows, f"on {chips}" if chips else "")))
        return f"{self.part} ({where})" if where else self.part


@dataclass(frozen=True, slots=True)
class StackBasis:
    """Measured and assumed parts of the software stack of one design.

    Attributes:
        stack: its name.
        measured: parts that the design reads and that were measured.
        assumed: kinds of kernels that it runs at unmeasured flat rates; or, where some rates were, the others.
        idle: parts that were measured and that it does not read.
        accuracy: how far measured rates of whole models lie from those of the stack; None where no row tells.
    """

    stack: str
    measured: tuple[MeasuredPart, ...]
    assumed: tuple[str, ...]
    idle: tuple[MeasuredPart, ...] = ()
    accuracy: StackAccuracy | None = None

    @property
    def text(self) -> str:
        """Measured and assumed parts of the stack in one line."""
        idle = f"; measured, and not read here: {', '.join(part.part for part in self.idle)}" if self.idle else ""
        if not self.measured:
            return f"stack {self.stack}: {NONE}{' here' if self.idle else ''}{idle}"
        measured = ", ".join(map(str, self.measured))
        assumed = ", ".join(self.assumed) or "nothing"
        return f"stack {self.stack}: measured: {measured}; assumed: {assumed}{idle}"

    def record(self) -> StackBasisRecord:
        """Measured and assumed parts of the stack as a record of documents."""
        measured = [
            StackPartRecord(part=part.part, rows=part.rows, chips=part.chips, source=part.source or None)
            for part in self.measured
        ]
        accuracy = None
        if self.accuracy is not None:
            accuracy = StackAccuracyRecord(
                rows=self.accuracy.rows,
                kind=self.accuracy.kind,
                median_error=self.accuracy.median_error,
                low=self.accuracy.low,
                high=self.accuracy.high,
            )
        return StackBasisRecord(text=self.text, measured=measured, assumed=self.assumed, accuracy=accuracy)

    def rate_band(self, rate: float, unit: str) -> str:
        """Band of measured rates around a predicted one, with its rows; empty string if unknown."""
        if self.accuracy is None:
            return ""
        low, high = (format_quantity(rate * share, unit) for share in (self.accuracy.low, self.accuracy.high))
        return f"{low} to {high} ({self.accuracy.text})"


def describe_unmeasured_kernels(basis: StackBasis | None, rows: Iterable[BreakdownRow]) -> str:
    """Kernels of a breakdown that no measured row of the stack covers, as one line; empty string if none.

    Args:
        basis: of the stack of the design that the breakdown is of; None without a stack.
        rows: of the breakdown.
    """
    if basis is None:
        return ""
    measured = any(part.part in PARTS for part in (*basis.measured, *basis.idle))
    return basis_text(((row.operator, row.basis) for row in rows), measured=measured)


def stack_basis(
    sources: Iterable[ConstantSource], names: Mapping[str, str], base: Design, asked_for: Workload, moved: Collection[str] = ()
) -> StackBasis | None:
    """Measured and assumed parts of a design's stack for a workload; None without a stack.

    Args:
        sources: of one chip's design.
        names: what was chosen by name: stack.
        base, asked_for, moved: by which it is known what nothing reads, as
            `dse.config.unread_stack_leaves.find_unread_stack_leaves` has them.
    """
    stack, sources = base.mapping.stack, list(sources)
    if stack is None:
        return None
    unread = {*find_unread_stack_leaves(base, asked_for, moved), *_other_attention(asked_for)}
    constants: dict[str, list[ConstantSource]] = {}
    for source in sources:
        address = source.address.rpartition(": ")[2]
        if address.startswith(f"{STACK}."):
            constants.setdefault(address.removeprefix(f"{STACK}.").partition(".")[0], []).append(source)
    fitted = {name: part for name in PARTS if getattr(stack, name) and (part := _measured_part(name, constants.get(name, ())))}
    absent = [name for name in _kernel_kinds(base, unread) if getattr(stack, name, None) is None]
    flat = {name: source for name in (*FLAT, *LINKS, *NODES) if name not in unread for source in constants.get(name, ())}
    known = [name for name, source in flat.items() if source.source == FITTED] if absent else []
    rates = _measured_part(", ".join(known), [flat[name] for name in known])
    return StackBasis(
        str(names.get("stack", "")),
        (*(part for name, part in fitted.items() if name not in unread), *((rates,) if rates else ())),
        tuple(name for name in flat if name not in known) if rates else tuple(absent),
        tuple(part for name, part in fitted.items() if name in unread),
        _stack_accuracy(sources, names, asked_for, moved),
    )


ENGINE_OPTIONS = (f"{STACK}.iteration.graph_batch_sizes",)
"""Leaves of a stack that an engine's options file says, and that no rate was fitted with: another value keeps the band."""


def _stack_accuracy(
    sources: Iterable[ConstantSource], names: Mapping[str, str], asked_for: Workload, moved: Collection[str]
) -> StackAccuracy | None:
    """How far measured rates lie from those of the stack as it ships, on chips that it is for; None where no row tells.

    Rows tested whole models on one stack: single kernels, a stack with other numbers, or one that inherits, have none.
    """
    if not all(isinstance(case, BatchCase | ServingLoad) for case in asked_for.cases):
        return None
    own = [source for source in sources if source.address.rpartition(": ")[2].startswith(f"{STACK}.")]
    typed = [source.address.rpartition(": ")[2] for source in own if source.source == OVERRIDE]
    changed = [address for address in (*typed, *moved) if address.startswith(f"{STACK}.") and address not in ENGINE_OPTIONS]
    if changed:
        return None
    chips = {name for source in own for name in (*source.fitted_on, *source.meant_for)}
    accuracy = next((source.accuracy for source in own if source.accuracy is not None), None)
    if accuracy is None or accuracy.stack != names.get("stack") or (chips and names.get("chip") not in chips):
        return None
    return accuracy


def _measured_part(part: str, constants: Iterable[ConstantSource]) -> MeasuredPart | None:
    """A part by its constants; None where none was fitted."""
    measured_constants = next((constant for constant in constants if constant.source == FITTED), None)
    return (
        MeasuredPart(part, measured_constants.measured_rows, measured_constants.fitted_on, measured_constants.measured_by)
        if measured_constants
        else None
    )


def _kernel_kinds(base: Design, unread: Collection[str]) -> list[str]:
    """Kinds of kernels that a design runs; collectives by an algorithm of its mapping are a kind without a part."""
    names = [name for name in (*KERNELS, *ATTENTION) if name not in unread]
    plans = (base.mapping.prefill, base.mapping.decode)
    if (
        LINKS[0] not in unread
        and software_of(base.mapping) in ON_DEVICES
        and all(plan.allreduce != "library" for plan in plans)
    ):
        names.append("allreduces")
    return names + [name for name in ("all_to_all", "moe_all_to_all") if name not in unread]


def _other_attention(asked_for: Workload) -> set[str]:
    """Parts for attention that no case asks for."""
    attention_parts = set()
    for case in asked_for.cases:
        if isinstance(case, AttentionCase):
            attention_parts.add(attention_library_part(case))
        elif isinstance(case, BatchCase | ServingLoad):
            latent = case.model.latent is not None or case.model.compressed is not None
            attention_parts |= {*(ATTENTION[2:] if latent else ATTENTION[:2])}
    return set(ATTENTION) - attention_parts
