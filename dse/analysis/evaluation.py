"""One evaluated design: settings, metrics and breakdown, as a value, as text and as a table.

The command line and notebooks share it.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from html import escape
from typing import TYPE_CHECKING, Any, cast

from dse.accuracy.foreign_constants import describe_foreign_constants
from dse.accuracy.residuals import ErrorBand, band_beyond_rows, estimate_error_bands
from dse.accuracy.result_kind import MODELS, SERVICES, kernel_algorithm
from dse.accuracy.stack_basis import StackBasis, describe_unmeasured_kernels, stack_basis
from dse.analysis.fidelity_warnings import fidelity_warnings
from dse.analysis.load_notes import LoadNotes, format_max_rates, format_notes, load_notes
from dse.analysis.metric_text import OF_PART, format_metric
from dse.analysis.placement_facts import placement_facts
from dse.analysis.published_formats import describe_published_formats, propose_published_formats
from dse.analysis.withheld_metrics import WithheldMetrics, computed_metrics, nan_metrics
from dse.config.compose import find_study_folder
from dse.config.metric_expressions import evaluate_with_derived
from dse.config.part_presets import find_chosen_parts, find_parts_from_outside
from dse.config.question import Question, build_question
from dse.config.record_parser import ConstantSource
from dse.config.setting_effects import NoEffect, TypedSettings, evaluate_typed, list_unread_settings
from dse.documents.evaluate_document import OperatorRecord
from dse.documents.records import record_values
from dse.documents.shared_records import MeasuredRecord
from dse.evaluators import METRICS, explain, submesh_text
from dse.evaluators.accounting.breakdown import Breakdown, BreakdownRow
from dse.evaluators.accounting.broken_cores import repair_text
from dse.evaluators.accounting.die_crossings import crossing_text
from dse.evaluators.accounting.external_evaluators import external_fidelities
from dse.evaluators.accounting.power_profile import PowerProfile
from dse.evaluators.accounting.regions import chain_text
from dse.evaluators.calls.submesh import SUBMESH_MARK
from dse.evaluators.evaluation import explain_infeasibility, power_over_time, submesh_of_case
from dse.evaluators.layouts.startable_degrees import degrees_of, design_obstacle, padding_text, plans_of
from dse.evaluators.machine.memory_channels import is_faster_than_banks
from dse.evaluators.silicon.published import departures, published_facts, remarks, stated_metrics
from dse.space.compatibility import workload_name
from dse.space.design import Design, design_key, make_ids, prefill_mapping, stack_designs
from dse.space.errors import DesignError
from dse.space.fields import addresses, field_at, iterate_leaves, leaf_at
from dse.space.former_words import MetricValues, read_former_attribute
from dse.space.limits import Infeasibility
from dse.space.main_memory import main_memory
from dse.space.mapping import PipelineServingPlan
from dse.space.peaks import format_peaks
from dse.space.safe_text import count_text
from dse.space.software import OF_CACHES, PIPELINES, SERVED_PIPELINES, software_of
from dse.space.units import format_quantity
from dse.space.unread_leaves import explain_unread
from dse.space.workload import BatchCase, ServingLoad, Workload

if TYPE_CHECKING:
    import pandas as pd

    from dse.analysis.optimality_gap import OptimalityGap

BEYOND = "beyond measured rows: "
"""What begins the line of kernels that no measured row of the stack covers, or that rows say are slow."""

OPERATOR_UNITS = {
    **dict.fromkeys(("flop", "flop_executed"), "op"),
    **dict.fromkeys(("bytes", "network_bytes"), "B"),
    "flop_per_byte": "op/B",
    "prefetched": "1",
    "seconds": "s",
}
"""Units of the columns of a table of operators."""

PLAN_LABELS = {"inference_engine": "served by"}
"""Names of parts of a mapping in an answer, where they are too long."""

MAX_NAMES = 8
"""Metrics that are told by name."""

STABLE = 0
"""Value of load_status of a load that the design keeps up with."""

CHOICES = ("chip", "mapping", "stack", "workload")
"""Groups whose choice an answer names."""


@dataclass(frozen=True, slots=True)
class CaseResult:
    """One case of the workload; reading a metric of a case that violates a limit raises an error."""

    label: str
    feasible: bool
    metrics: Mapping[str, float]


@dataclass(frozen=True, repr=False)
class Evaluation:
    """One evaluated design for one workload.

    Attributes:
        metrics: by name, in SI, those that its kind of chip and workload has, over all cases; `evaluators.METRICS` has units
            and definitions. Of a part of the mesh (``fidelity=cycles@8``) names begin with ``part.``. Reading one of a design
            that breaks a limit raises a `DesignError` with that limit.
        cases: the same for each case.
        infeasible: the most violated limit, None if every limit holds.
        fidelity: of the evaluation.
        names: what was chosen by name, as ``chip: a100``.
        parts: parts of the chip that were, as ``technology@chip.technology: n7``.
        others: those of them that the file of the chip does not choose.
        question: type of the workload, as `space.kinds.called` has it: static, serving, gemm and others.
        untied: leaves that its study ties to others and that have another value here, in words.
        devices: tensor parallelism that was left open and how it was found, in words; the empty string where none was.
        published: whether it has the formats that its model is published in, in words; empty string if these are 16 bits.
        graphs: what was read of each model that comes from a graph, in words.
        pool_names: what was chosen by name of a prefill pool on chips of another kind.
        typed: what was typed of it.
        not_taken: settings of groups that no answer takes.
        external: metrics that an installed package returned at its fidelity; all others are the analytical model's.
    """

    design: Design
    workload: Workload
    metrics: Mapping[str, float]
    cases: tuple[CaseResult, ...]
    infeasible: Infeasibility | None
    sources: tuple[ConstantSource, ...]
    fidelity: str
    names: dict[str, str]
    question: str
    untied: tuple[str, ...] = ()
    devices: str = ""
    published: str = ""
    graphs: tuple[str, ...] = ()
    parts: Mapping[str, str] = field(default_factory=dict)
    others: Mapping[str, str] = field(default_factory=dict)
    pool_names: Mapping[str, str] = field(default_factory=dict)
    typed: TypedSettings | None = field(default=None, compare=False)
    not_taken: tuple[NoEffect, ...] = ()
    external: tuple[str, ...] = ()

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            return read_former_attribute(
                self, name, {"about": "facts", "beside": "load_notes", "extrapolated": "extrapolation_text"}
            )

    @cached_property
    def without_effect(self) -> tuple[NoEffect, ...]:
        """Settings that the user set and that have no effect on this answer."""
        return (*self.not_taken, *(self.typed.without_effect() if self.typed else ()))

    @property
    def id(self) -> str:
        """Id of the design: the beginning of its content key."""
        return make_ids([design_key(self.design)])[0]

    @property
    def title(self) -> str:
        """Workload type, number of cases, published formats, and number of devices if that was left open."""
        devices = f"on {self.devices}" if self.devices else ""
        return "; ".join(filter(None, (_cases_title(self.cases, self.workload), self.published, devices)))

    @cached_property
    def bands(self) -> tuple[ErrorBand, ...]:
        """Error bands of the metrics that are modelled, from measured rows of this kind; none on a submesh."""
        if SUBMESH_MARK in self.fidelity:
            return ()
        kernel = kernel_algorithm(self.design, self.question)
        stated = stated_metrics(self.design.chip)
        metrics = {
            name: value for name, value in computed_metrics(self.metrics).items() if name not in (*stated, *self.external)
        }
        bands = estimate_error_bands(metrics, self.names, kernel, self.question, self.fidelity, changed=bool(self.changes))
        if self.question in (MODELS, SERVICES) or not self.kernel_basis:
            return bands
        return tuple(band_beyond_rows(band, [row.basis.text for row in self.breakdown.rows]) for band in bands)

    @cached_property
    def extrapolation_text(self) -> str:
        """One line on constants of its software that were fitted on other chips only; else empty string."""
        return describe_foreign_constants(self.sources, self.names, self.design, self.workload)

    @cached_property
    def stack_basis(self) -> StackBasis | None:
        """Measured and assumed parts of its software stack; None of a chip without one."""
        return stack_basis(self.sources, self.names, self.design, self.workload)

    @property
    def keeps_up(self) -> bool:
        """Whether the design keeps up with a given rate of requests, which is its throughput then."""
        case = self.workload.cases[0]
        return (
            isinstance(case, ServingLoad)
            and not case.largest
            and not (case.requests.users or case.requests.is_alone)
            and computed_metrics(self.metrics).get("load_status") == STABLE
        )

    @property
    def rate_band(self) -> str:
        """Band of measured rates around the predicted throughput; empty string where there is none.

        There is none where no row tells, where an installed package predicts the throughput, and of a stable load at a given
        rate: its throughput is what arrives, on slower machines too.
        """
        rate = computed_metrics(self.metrics).get("throughput")
        if self.keeps_up or "throughput" in self.external:
            return ""
        return self.stack_basis.rate_band(rate, "token/s") if self.stack_basis and rate is not None else ""

    def measured_range(self, metric: str) -> tuple[float, float] | None:
        """Range of the measured value of a metric if this answer errs like rows of its kind; None if unknown.

        Args:
            metric: by name; its range is in SI.
        """
        if metric == "throughput" and self.rate_band and self.stack_basis is not None and self.stack_basis.accuracy is not None:
            rate, accuracy = computed_metrics(self.metrics)[metric], self.stack_basis.accuracy
            return rate * accuracy.low, rate * accuracy.high
        return next((band.measured_range for band in self.bands if band.metric == metric), None)

    @cached_property
    def kernel_basis(self) -> str:
        """Kernels of the first case that no measured row of the stack covers; empty string if none."""
        return "" if self.stack_basis is None else describe_unmeasured_kernels(self.stack_basis, self.breakdown.rows)

    @property
    def _basis_lines(self) -> list[str]:
        """What stands behind the software; kernels by themselves where explaining them plays nothing again."""
        if self.stack_basis is None:
            return []
        quick = self.fidelity == "analytical" and not isinstance(self.workload.cases[0], ServingLoad)
        return [self.stack_basis.text, *([f"{BEYOND}{text}"] if quick and (text := self.kernel_basis) else [])]

    @cached_property
    def breakdown(self) -> Breakdown:
        """Time by operator, of the first case."""
        return explain(self.design, self.workload.cases[0], decode_context=self.workload.decode_context, fidelity=self.fidelity)

    @cached_property
    def certificate(self) -> "OptimalityGap | None":
        """Optimality gap of the auto-tuned settings, of the first case.

        None if nothing was left open, if the design is infeasible, or on a submesh.
        """
        from dse.analysis.optimality_gap import compute_optimality_gap

        if self.infeasible is not None or SUBMESH_MARK in self.fidelity:
            return None
        return compute_optimality_gap(self.design, self.workload, self.breakdown.seconds)

    @cached_property
    def profile(self) -> PowerProfile | None:
        """Power of all chips over time, of the first case; None if infeasible or unknown. [W]"""
        if self.infeasible is not None:
            return None
        return power_over_time(
            self.design, self.workload.cases[0], decode_context=self.workload.decode_context, fidelity=self.fidelity
        )

    @cached_property
    def part(self) -> str:
        """Simulated submesh, and how the workload shrinks with it; empty string for the whole mesh."""
        if SUBMESH_MARK not in self.fidelity:
            return ""
        whose = submesh_of_case(self.design, self.workload.cases[0], self.fidelity)
        return f"{whose}: {submesh_text(self.design, self.workload)}"

    def facts(self) -> list[tuple[str, str]]:
        """Name and text of each part of the evaluated design.

        Chip with its changes, plan of each phase, number formats, fidelity and notes.
        """
        plans = _plan_facts(self.design if self.design.pools is None else decode_pool_design(self.design))
        plans = [(name, f"{self.names[name]}: {text}" if name == "stack" else text) for name, text in plans]
        formats = [(name, text) for name, text in plans if name == "formats"]
        lines = [("graph", text) for text in self.graphs]
        lines += [("chip", ", ".join((self.names["chip"], *self.changes)))]
        lines += [("peak", text)] if (text := format_peaks(self.design.chip)) else []
        lines += [("data sheet", published_fact.text) for published_fact in published_facts(self.design.chip)]
        lines += [("data sheet", text) for text in departures(self.design.chip)]
        lines += [("remark", text) for text in remarks(self.design.chip)]
        lines += [("dies", text)] if (text := crossing_text(self.design)) else []
        lines += [("repair", text)] if (text := repair_text(self.design)) else []
        lines += placement_facts(self.design, self.workload)
        lines += pool_facts(self.design, self.pool_names, self.names) if self.design.pools is not None else []
        lines += [("mapping", self.names["mapping"])]
        lines += [
            *(plan for plan in plans if plan not in formats),
            *formats,
            *([("not fitted", self.extrapolation_text)] if self.extrapolation_text else []),
            *self._speculation_facts(),
            *self._first_token_facts(),
            *self._residency_facts(),
            *self._reuse_facts(),
            *self._skipped_row_facts(),
            *self._resident_layer_facts(),
            *self._chain_facts(),
            *self._padding_facts(),
            *format_notes(
                [case for case in self.workload.cases if isinstance(case, ServingLoad)][: len(self.load_notes)], self.load_notes
            ),
            *(("not tied", text) for text in self.untied),
            ("fidelity", self.fidelity),
            *self._bank_facts(),
            *(("not counted", text) for text in self.warnings),
        ]
        return [*lines, *([("submesh", self.part)] if self.part else [])]

    @cached_property
    def warnings(self) -> list[str]:
        """Contention that the fidelity is known to miss for this design; empty of an infeasible one."""
        return [] if self.infeasible is not None else fidelity_warnings(self.design, self.workload, self.fidelity)

    @property
    def remarks(self) -> list[str]:
        """Notes on what limits the answer: data sheet, contention, graphs of models, metrics of packages."""
        whose = [text] if (text := self.external_text) else []
        return [*remarks(self.design.chip), *self.warnings, *self.graphs, *whose]

    @property
    def external_text(self) -> str:
        """Which metrics an installed package returned, and whose the others are; empty string without one."""
        names = self.external
        if not names and self.fidelity not in external_fidelities():
            return ""
        more = f" and {len(names) - MAX_NAMES} more" if len(names) > MAX_NAMES else ""
        whose = f"{', '.join(names[:MAX_NAMES])}{more}" if names else "none"
        return f"{whose} by {self.fidelity}; all others by the analytical model"

    @property
    def changes(self) -> tuple[str, ...]:
        """Parts of the chip by name and its overridden settings, where they differ from the preset."""
        values = (source for source in self.sources if source.source == "override" and source.address.startswith("chip."))
        parts = (f"{group}={name}" for group, name in self.others.items())
        return (
            *parts,
            *(source.note if source.note.startswith("chip.") else f"{source.address}={source.value}" for source in values),
        )

    def _speculation_facts(self) -> list[tuple[str, str]]:
        """What is guessed in decode, of cases that guess."""
        speculations = {
            case.speculation for case in self.workload.cases if isinstance(case, BatchCase | ServingLoad) and case.speculation
        }
        text = (
            f"{speculation.tokens} tokens a step, accepted with "
            f"{speculation.acceptance:g}: {speculation.expected_tokens:g} tokens a step"
            for speculation in speculations
        )
        return [("speculation", "; ".join(text))] if speculations else []

    @cached_property
    def load_notes(self) -> tuple[LoadNotes, ...]:
        """Notes on loads beside their metrics, case by case; none of an infeasible design."""
        if self.infeasible is not None or not isinstance(self.workload.cases[0], ServingLoad):
            return ()
        loads = (case for case in self.workload.cases if isinstance(case, ServingLoad))
        rates = (computed_metrics(case.metrics).get("max_rate") for case in self.cases)
        return tuple(load_notes(self.design, load, self.fidelity, rate) for load, rate in zip(loads, rates, strict=True))

    @property
    def max_rates(self) -> list[str]:
        """Maximum rate of each load with its range over seeds, as text, if it was searched."""
        loads = [case for case in self.workload.cases if isinstance(case, ServingLoad)]
        return format_max_rates(loads[: len(self.load_notes)], self.load_notes)

    def _reuse_facts(self) -> list[tuple[str, str]]:
        """What a trace with hashes would reuse of its prompts, where nothing is reused."""
        serving = self.design.mapping.serving
        if serving is None or float(serving.prefix_cache_share) or getattr(serving, "prefix_cache", "reserved") == "shared":
            return []
        most = max((case.requests.reusable for case in self.workload.cases if isinstance(case, ServingLoad)), default=0.0)
        knob = (
            "mapping.serving.prefix_cache=shared" if hasattr(serving, "prefix_cache") else "mapping.serving.prefix_cache_share"
        )
        return (
            [("prefixes", f"up to {most:.1%} of the prompt tokens repeat earlier ones; none are reused, see {knob}")]
            if most
            else []
        )

    def _first_token_facts(self) -> list[tuple[str, str]]:
        """Batches whose first tokens come from decode, and batches without decode steps."""
        cases = [case for case in self.workload.cases if isinstance(case, BatchCase)]
        facts = []
        if not all(case.prefill_gives_token for case in cases):
            facts.append(("first token", "from the first decode step, workload.first_token=decode"))
        if not all(case.decode_steps for case in cases):
            facts.append(("decode", "none with 1 output token, which prefill gives: no tpot and no decode_throughput"))
        return facts

    def _residency_facts(self) -> list[tuple[str, str]]:
        """Which rule of residency in local memory a served load follows, where there are two."""
        serving = self.design.mapping.serving
        if not isinstance(serving, PipelineServingPlan):
            return []
        text = {
            "fixed": "fixed: local memory is laid out once, for the largest iteration and the caches of a full batch",
            "by_phase": "by_phase: as in a static batch of the load's requests",
        }
        return [("residency", text[serving.residency or "fixed"])]

    def _skipped_row_facts(self) -> list[tuple[str, str]]:
        """Rows of a trace that were passed over."""
        skips = {(case.requests.skipped, len(case.requests)) for case in self.workload.cases if isinstance(case, ServingLoad)}
        return [
            ("trace", f"{count_text(skipped_rows, 'row')} skipped, {count_text(kept, 'request')} kept")
            for skipped_rows, kept in skips
            if skipped_rows
        ]

    def _resident_layer_facts(self) -> list[tuple[str, str]]:
        """Which layers of a model are on the chip, where some stand for all: the chip has no room for the others."""
        resident_layers = int(self.design.mapping.simulated_layers or 0)
        models = {
            case.model.name: case.model.layers for case in self.workload.cases if isinstance(case, BatchCase | ServingLoad)
        }
        text = ", ".join(
            f"{resident_layers} of {layers} layers of {name}" for name, layers in models.items() if 0 < resident_layers < layers
        )
        return (
            [("on the chip", f"{text}: their time represents all; the place of the other layers is not modelled")]
            if text
            else []
        )

    def _chain_facts(self) -> list[tuple[str, str]]:
        """How chips of a chain share the layers of each model, and how many have none."""
        pools = self.design.pools
        designs = {"": self.design}
        if pools is not None:
            designs["prefill on "] = replace(self.design, chip=pools.prefill.chip, mapping=prefill_mapping(self.design))
        models = {case.model: None for case in self.workload.cases if isinstance(case, BatchCase | ServingLoad)}
        facts = []
        for phase, design in designs.items():
            chain = design.chip.chain
            if chain is not None and models:
                link = f"{format_quantity(chain.bandwidth, 'B/s')} and {format_quantity(chain.latency, 's')} from chip to chip"
                facts.append(("chain", phase + "; ".join((*(chain_text(design, model) for model in models), link))))
        return facts

    def _padding_facts(self) -> list[tuple[str, str]]:
        """Heads and columns that devices pad since these do not divide them, and which engines refuse to start."""
        mapping = self.design.mapping
        if software_of(mapping) not in OF_CACHES:
            return []
        models = {case.model: None for case in self.workload.cases if isinstance(case, BatchCase | ServingLoad)}
        padded = {padding_text(model, *degrees_of(plan), mapping.precision) for model in models for plan in plans_of(mapping)}
        refused = {f"engines do not start it: {text}" for model in models if (text := design_obstacle(mapping, model))}
        return [("padding", "; ".join(texts)) for texts in [(*sorted(padded - {""}), *sorted(refused))] if texts]

    def _bank_facts(self) -> list[tuple[str, str]]:
        """That blocks of tiles, or reads of a die, have a pace where banks would be played, since these move less."""
        chip = self.design.chip
        by_core = software_of(self.design.mapping) in (PIPELINES, SERVED_PIPELINES)
        on_die = software_of(self.design.mapping) in OF_CACHES
        played = self.fidelity in ("events", "cycles") if on_die else self.fidelity.startswith("cycles")
        if not played or (chip.tile is None and not on_die) or by_core or not is_faster_than_banks(main_memory(chip)):
            return []
        memory = main_memory(chip)
        address, banks = memory.address("bandwidth" if on_die else "channel_bandwidth"), f"chip.{memory.banks_part}"
        return [("memory", f"one rate for all blocks: {address} is more than {banks} reaches, so banks are not simulated")]

    def frame(self) -> "pd.DataFrame":
        """Operators of the first case as a table; NaN if the design violates a limit."""
        import pandas as pd

        table = pd.DataFrame([record_values(operator_record(row)) for row in self.breakdown.rows])
        if self.infeasible is not None:
            table[table.select_dtypes("number").columns] = float("nan")
        table.attrs.update({"design": self.id, "units": OPERATOR_UNITS})
        return table

    def by_case(self) -> "pd.DataFrame":
        """Cases as a table, with the metrics of each in SI; NaN for cases that violate a limit."""
        import pandas as pd

        table = pd.DataFrame(
            [{"case": result.label, "feasible": result.feasible, **nan_metrics(result.metrics)} for result in self.cases]
        )
        units = {name: METRICS[name.removeprefix(OF_PART)].unit for name in computed_metrics(self.metrics)}
        table.attrs.update({"design": self.id, "units": units})
        return table

    def rows(self) -> list[tuple[str, str, str]]:
        """Name, value with unit, and definition of every metric; none of an infeasible design."""
        return list_metric_rows(self.metrics) if self.infeasible is None else []

    def first_screen(self, width: int = 80) -> list[str]:
        """Lines of the first screen, at most 25: question, fit, main figures with bands, limits, best knob."""
        from dse.analysis.evaluation_screen import evaluation_lines

        return evaluation_lines(self, width)

    def __repr__(self) -> str:
        return "\n".join(self.first_screen())

    def _repr_html_(self) -> str:
        """First screen as HTML, which notebooks show."""
        return f"<pre>{escape(repr(self))}</pre>"


def evaluate_config(config: Mapping[str, Any]) -> Evaluation:
    """Evaluate the design of a composed configuration."""
    chips = list(config.get("chips") or ())
    if len(chips) > 1:
        raise DesignError(f"evaluate: one design of {', '.join(chips)}: choose its chip, as in chips=[{chips[0]}]")
    question = build_question(config, find_study_folder(config), fewer=bool(chips))
    if isinstance(question.workload.cases[0], ServingLoad):
        from dse.evaluators.accounting.serving_runs.steady_state_run import STEADY  # which loads the compiler, as the next does
        from dse.execution.precompile import start_precompile

        if config["fidelity"] != STEADY:
            start_precompile()
    evaluation, own = evaluate_typed(
        question, config, find_study_folder(config), lambda: evaluate_design(question.base, question, config)
    )
    devices = next(iter(question.devices.values()), "")
    return replace(
        evaluation,
        untied=_untied_leaves(question),
        devices=devices,
        typed=own,
        not_taken=list_unread_settings("evaluate", config),
    )


def _untied_leaves(question: Question) -> tuple[str, ...]:
    """Leaves that a space ties and whose value is another: a design that was typed, and that no study of it has."""
    (_, space), *_ = question.space.base_spaces
    design = space.with_ties(question.base)
    untied = []
    for tied in space.tied:
        for leaf in addresses(question.base, tied.address):
            unit, current_leaf, wanted = (
                field_at(question.base, leaf).metadata["unit"] or "1",
                leaf_at(question.base, leaf),
                leaf_at(design, leaf),
            )
            if current_leaf != wanted:
                untied.append(
                    f"{leaf} is {format_quantity(float(current_leaf), unit)}; tied to {tied.text} it would be "
                    f"{format_quantity(float(wanted), unit)}"
                )
    return tuple(untied)


def evaluate_design(design: Design, question: Question, config: Mapping[str, Any]) -> Evaluation:
    """Evaluate a design of a question at the fidelity of its configuration.

    Raises:
        DesignError: words of its mapping that do not go together, which in a study is one infeasible design among others.
    """
    fidelity = config["fidelity"]
    workload, prefix = question.workload, OF_PART if SUBMESH_MARK in fidelity else ""
    outcomes = evaluate_with_derived(
        stack_designs([design]), workload, question.defined, fidelity=fidelity, cases=True
    ).require_compatible()

    def list_known_metrics(columns: Iterable[tuple[str, Any]]) -> dict[str, float]:
        """The metrics that there are: the others are not a number."""
        return {f"{prefix}{name}": float(value) for name, value in columns if name in METRICS and value == value}

    why = propose_published_formats(explain_infeasibility(design, workload), design, workload, config["model"])
    if why is None and not outcomes.feasible[0]:  # which only the times tell
        why = cast(Infeasibility, outcomes.row_outcome(0))
        why = replace(why, remedy=describe_unkept_bound(why.limit)) if why.limit.startswith("workload.") else why

    def wrap_metrics(columns: Iterable[tuple[str, Any]], *, fits: bool) -> Mapping[str, float]:
        return MetricValues(list_known_metrics(columns)) if fits else WithheldMetrics(list_known_metrics(columns), str(why))

    fit = [bool(fits) for fits in outcomes.cases["fits"][:, 0]]
    each = [
        CaseResult(
            case.label, fit[row], wrap_metrics(((name, at[row, 0]) for name, at in outcomes.cases.items()), fits=fit[row])
        )
        for row, case in enumerate(workload.cases)
    ]
    metrics = wrap_metrics(((name, column[0]) for name, column in outcomes.columns.items()), fits=why is None)
    evaluation = describe_design(design, question, config, metrics, tuple(each), why)
    return replace(evaluation, external=tuple(name for name in METRICS if name in outcomes.external))


def describe_design(
    design: Design,
    question: Question,
    config: Mapping[str, Any],
    metrics: Mapping[str, float],
    cases: tuple[CaseResult, ...],
    infeasible: Infeasibility | None = None,
) -> Evaluation:
    """An evaluated design with the words of the configuration that it comes from.

    Args:
        design: one of the question's.
        question: what was asked of it.
        config: composed configuration of the question.
        metrics: of all cases, in SI.
        cases: results by case.
        infeasible: the most violated limit, None if every limit holds.
    """
    workload = question.workload
    names = {group: str(config["choices"].get(group, "")) for group in CHOICES}
    parts, others = find_chosen_parts(config["choices"]), find_parts_from_outside(config["choices"])
    what = workload_name(config["workload"])
    return Evaluation(
        design, workload, metrics, cases, infeasible, question.sources, config["fidelity"], names, what,
        published=_published_text(design, workload, config["model"]), parts=parts, others=others,
        graphs=_graph_texts(config["model"]), pool_names=((config.get("pools") or {}).get("prefill") or {}).get("choices", {}),
    )  # fmt: skip


def describe_unkept_bound(limit: str) -> str:
    """What to do where no rate keeps a bound of a load."""
    return f"a request alone takes that long, so that no rate keeps the bound; loosen {limit}, or give the design more devices"


def _published_text(design: Design, workload: Workload, models: Mapping[str, Any]) -> str:
    """Published formats of the models that a workload runs; empty string of kernels by themselves."""
    runs_models = all(isinstance(case, BatchCase | ServingLoad) for case in workload.cases)
    return describe_published_formats(design, models) if runs_models else ""


def _graph_texts(models: Mapping[str, Any]) -> tuple[str, ...]:
    """What was read of the models that come from graphs: their names, sources, known blocks and unknown operators."""
    graphs = (entry for entry in models.values() if isinstance(entry, Mapping) and entry.get("graph"))
    return tuple(f"{entry['name']} ({entry['source']}): {entry['graph']}" for entry in graphs)


def list_metric_rows(metrics: Mapping[str, float]) -> list[tuple[str, str, str]]:
    """Name, value with unit, and definition of metrics."""
    return [
        (name, format_metric(name, value), METRICS[name.removeprefix(OF_PART)].definition) for name, value in metrics.items()
    ]


def metric_records(metrics: Mapping[str, float]) -> dict[str, MeasuredRecord]:
    """Metrics with their units as records of documents, by name."""
    return {name: MeasuredRecord(value=value, unit=METRICS[name.removeprefix(OF_PART)].unit) for name, value in metrics.items()}


def operator_record(row: BreakdownRow) -> OperatorRecord:
    """One operator of a breakdown as a record of documents."""
    return OperatorRecord(
        phase=row.phase,
        segment=row.segment,
        operator=row.operator,
        shape=row.shape,
        flop=row.flop,
        flop_executed=row.executed_flop,
        flop_excess=row.excess or {},
        bytes=row.nbytes,
        network_bytes=row.sent,
        flop_per_byte=row.intensity,
        prefetched=row.prefetched,
        bound=row.bound,
        seconds=row.seconds,
        kernel=row.basis.kernel,
        basis=row.basis.text,
    )


def _cases_title(cases: tuple[CaseResult, ...], workload: Workload) -> str:
    return cases[0].label + (
        f" and {count_text(len(cases) - 1, 'more case')}; {workload.combination_text}" if len(cases) > 1 else ""
    )


def decode_pool_design(design: Design) -> Design:
    """Decode pool of a design with two pools of unlike chips, by its plan of decode throughout."""
    return replace(design, pools=None, mapping=replace(design.mapping, prefill=design.mapping.decode))


def pool_facts(design: Design, prefill: Mapping[str, str], decode: Mapping[str, str]) -> list[tuple[str, str]]:
    """Name and text of both pools of unlike chips, and of the link between them.

    Args:
        design: with both pools.
        prefill, decode: what was chosen by name of each pool, by group.
    """
    from dse.evaluators.accounting.serving_instances.unlike_pools import pool_sides, sent_format  # which compiles loops

    pools, serving = design.pools, design.mapping.serving
    assert pools is not None
    first, last = (side.layout.device_count(side.design) for side in pool_sides(design))
    own = replace(design, pools=None, chip=pools.prefill.chip, mapping=replace(pools.prefill.mapping, decode=None))
    plan = "; ".join(f"{name} {text}" for name, text in _plan_facts(own) if name in ("prefill", "formats"))
    stack = f", stack {prefill['stack']}" if prefill.get("stack") else ""
    link = pools.link
    received = (
        "" if link.decode_bandwidth is None else f", {format_quantity(float(link.decode_bandwidth), 'B/s')} a decode chip"
    )
    return [
        (
            "prefill on",
            f"{first:g} x {prefill.get('chip', '')}, {_instances_text(serving.prefill_instances)}: "
            f"mapping {prefill.get('mapping', '')}{stack}; {plan}",
        ),
        ("decode on", f"{last:g} x {decode['chip']}, {_instances_text(serving.instances)}"),
        (
            "pool link",
            f"{format_quantity(float(link.bandwidth), 'B/s')} a prefill chip{received}, latency "
            f"{format_quantity(float(link.latency), 's')}, KV caches in {sent_format(design)}",
        ),
    ]


def _instances_text(count: Any) -> str:
    return f"{count:g} instance" + ("s" if count > 1 else "")


def _plan_facts(design: Design) -> list[tuple[str, str]]:
    """The fields of the mapping that something reads, by what they are of: phases that are alike together, formats apart."""
    fields: dict[str, list[str]] = {}
    for address, value, spec in iterate_leaves(design):
        head, _, rest = address.removeprefix("mapping.").partition(".")
        if not address.startswith("mapping.") or explain_unread(design, address):
            continue
        text = value if isinstance(value, str) else format_quantity(float(value), spec.metadata["unit"] or "1")
        group = ("formats" if head == "precision" else head) if rest else "kernels"
        fields.setdefault(group, []).append(f"{rest or head} {text}")
    texts = {PLAN_LABELS.get(name, name): ", ".join(parts) for name, parts in fields.items()}
    if "prefill" in texts and texts["prefill"] == texts.get("decode"):
        texts = {"both phases" if name == "prefill" else name: text for name, text in texts.items() if name != "decode"}
    return list(texts.items())
