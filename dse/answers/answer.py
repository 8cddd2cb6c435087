"""One design under one workload: what it is, what came out, and where the time goes; as a value, as text and as a table.

The same for the command line and for a notebook.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from html import escape
from typing import TYPE_CHECKING, Any

from dse.answers.of_loads import Beside, beside, max_rates, said
from dse.answers.published_formats import remedied
from dse.answers.withheld_metrics import WithheldMetrics, computed_metrics, nan_metrics
from dse.config.build import Question, question
from dse.config.compose import folder_of
from dse.config.effects import NoEffect, Typed, not_taken, typed
from dse.config.expressions import evaluate
from dse.config.parts import other_parts, parts_of
from dse.config.records import Source
from dse.evaluators import METRICS, explain, smaller
from dse.evaluators.account.breakdown import Breakdown
from dse.evaluators.account.kernel_basis import basis_text
from dse.evaluators.account.profile import Profile
from dse.evaluators.evaluation import infeasible, on_part, power_over_time
from dse.evaluators.machine.channels import beyond
from dse.evaluators.passes.part import PART
from dse.evaluators.silicon.published import facts, remarks
from dse.measured.elsewhere import elsewhere
from dse.measured.kind import MODELS, SERVICES, kernel_of
from dse.measured.residuals import Band, band_beyond_rows, bands
from dse.measured.stack_basis import PARTS, StackBasis, stack_basis
from dse.space.beside import unread
from dse.space.design import Design, stacked
from dse.space.errors import DesignError
from dse.space.fields import addresses, at, leaves, spec_at
from dse.space.kinds import called
from dse.space.limits import Infeasible
from dse.space.peaks import peaks_text
from dse.space.shown import number_of
from dse.space.software import OF_CACHES, PIPELINES, SERVED_PIPELINES, software_of
from dse.space.units import show
from dse.space.workload import Case, Load, Workload

if TYPE_CHECKING:
    import pandas as pd

    from dse.answers.certified import Certificate

OF_PART = "part."
"""What begins the names of metrics that are of a part of the mesh: nothing of the whole can be read off them."""

BEYOND = "beyond measured rows: "
"""What begins the line of kernels that no measured row of the stack covers, or that rows say are slow."""

CHOICES = ("chip", "mapping", "stack", "workload")
"""Groups whose choice an answer names."""


@dataclass(frozen=True, slots=True)
class Answered:
    """One case of the workload by itself; reading a metric of one that breaks a limit raises it."""

    label: str
    feasible: bool
    metrics: Mapping[str, float]


@dataclass(frozen=True, repr=False)
class Evaluation:
    """One design under one workload.

    Attributes:
        metrics: by name, in SI, those that its kind of chip and workload has, over all cases; `evaluators.METRICS` has units
            and definitions. Of a part of the mesh (``fidelity=cycles@8``) names begin with ``part.``. Reading one of a design
            that breaks a limit raises a `DesignError` with that limit.
        cases: the same for each case.
        infeasible: what binds, None where every limit holds.
        fidelity: the reader that it was evaluated by.
        names: what was chosen by name, as ``chip: a100``.
        parts: parts of the chip that were, as ``technology@chip.technology: n7``.
        others: those of them that the file of the chip does not choose.
        question: what is asked, as `space.kinds.called` has it: static, serving, gemm and others.
        untied: leaves that its study ties to others and that have another value here, in words.
        devices: tensor parallelism that was left open and how it was found, in words; the empty string where none was.
        typed: what was typed of it.
        not_taken: settings of groups that no answer takes.
    """

    design: Design
    workload: Workload
    metrics: Mapping[str, float]
    cases: tuple[Answered, ...]
    infeasible: Infeasible | None
    sources: tuple[Source, ...]
    fidelity: str
    names: dict[str, str]
    question: str
    untied: tuple[str, ...] = ()
    devices: str = ""
    parts: Mapping[str, str] = field(default_factory=dict)
    others: Mapping[str, str] = field(default_factory=dict)
    typed: Typed | None = field(default=None, compare=False)
    not_taken: tuple[NoEffect, ...] = ()

    @cached_property
    def without_effect(self) -> tuple[NoEffect, ...]:
        """Settings that were typed and have no effect on this answer."""
        return (*self.not_taken, *(self.typed.without_effect() if self.typed else ()))

    @property
    def title(self) -> str:
        """What was asked, of how many cases, and on how many devices where that was left open."""
        return _titled(self.cases) + (f"; on {self.devices}" if self.devices else "")

    @cached_property
    def bands(self) -> tuple[Band, ...]:
        """How far off measured rows of this kind were, metric by metric; of a part of a mesh nothing was measured."""
        if PART in self.fidelity:
            return ()
        kernel = kernel_of(self.design, self.question)
        metrics = computed_metrics(self.metrics)
        found = bands(metrics, self.names, kernel, self.question, self.fidelity, changed=bool(self.changes))
        if self.question in (MODELS, SERVICES) or not self.kernel_basis:
            return found
        return tuple(band_beyond_rows(band, [row.basis.text for row in self.breakdown.rows]) for band in found)

    @cached_property
    def extrapolated(self) -> str:
        """Which constants of its software were fitted on other chips alone; "" where none were."""
        return elsewhere(self.sources, self.names, self.design, self.workload)

    @cached_property
    def stack_basis(self) -> StackBasis | None:
        """Which kernels of its software stack were measured; None of a chip without one."""
        return stack_basis(self.sources, self.names, self.design, self.workload)

    @cached_property
    def kernel_basis(self) -> str:
        """Kernels that no measured row of the stack covers, of the first case; the empty string where there are none."""
        basis = self.stack_basis
        if basis is None:
            return ""
        kernels = ((row.operator, row.basis) for row in self.breakdown.rows)
        return basis_text(kernels, measured=any(of.part in PARTS for of in (*basis.measured, *basis.idle)))

    @property
    def _basis_lines(self) -> list[str]:
        """What stands behind the software; kernels by themselves where explaining them plays nothing again."""
        if self.stack_basis is None:
            return []
        quick = self.fidelity == "closed" and not isinstance(self.workload.cases[0], Load)
        return [self.stack_basis.text, *([f"{BEYOND}{text}"] if quick and (text := self.kernel_basis) else [])]

    @cached_property
    def breakdown(self) -> Breakdown:
        """Time by operator, of the first case."""
        return explain(self.design, self.workload.cases[0], decode_at=self.workload.decode_at, fidelity=self.fidelity)

    @cached_property
    def certificate(self) -> "Certificate | None":
        """How far what was left to the product is from a bound, of the first case; None where nothing was, or on a part."""
        from dse.answers.certified import certificate

        if self.infeasible is not None or PART in self.fidelity:
            return None
        return certificate(self.design, self.workload, self.breakdown.seconds)

    @cached_property
    def profile(self) -> Profile | None:
        """Power of all chips over time, of the first case; None of a design that is not feasible, or where none is known."""
        if self.infeasible is not None:
            return None
        return power_over_time(self.design, self.workload.cases[0], decode_at=self.workload.decode_at, fidelity=self.fidelity)

    @cached_property
    def part(self) -> str:
        """On which part of the mesh it was played, and what becomes of the workload; "" for all of it."""
        if PART not in self.fidelity:
            return ""
        whose = on_part(self.design, self.workload.cases[0], self.fidelity)
        return f"{whose}: {smaller(self.design, self.workload)}"

    def about(self) -> list[tuple[str, str]]:
        """What was evaluated: parts by name, what was set of the chip, the plan of each phase, number formats, the fidelity."""
        plans = _plans(self.design)
        plans = [(name, f"{self.names[name]}: {text}" if name == "stack" else text) for name, text in plans]
        formats = [(name, text) for name, text in plans if name == "formats"]
        found = [("chip", ", ".join((self.names["chip"], *self.changes)))]
        found += [("peak", text)] if (text := peaks_text(self.design.chip)) else []
        found += [("data sheet", of.text) for of in facts(self.design.chip)]
        found += [("remark", text) for text in remarks(self.design.chip)]
        found += [("mapping", self.names["mapping"])]
        found += [
            *(plan for plan in plans if plan not in formats),
            *formats,
            *([("not fitted", self.extrapolated)] if self.extrapolated else []),
            *self._guessed(),
            *self._reusable(),
            *self._skipped(),
            *self._partial(),
            *said([case for case in self.workload.cases if isinstance(case, Load)][: len(self.beside)], self.beside),
            *(("not tied", text) for text in self.untied),
            ("fidelity", self.fidelity),
            *self._paced(),
        ]
        return [*found, *([("on a part", self.part)] if self.part else [])]

    @property
    def changes(self) -> tuple[str, ...]:
        """What the chip is not as it ships in: parts by name, and values that were set, as overrides say them."""
        values = (of for of in self.sources if of.source == "override" and of.address.startswith("chip."))
        parts = (f"{group}={name}" for group, name in self.others.items())
        return (*parts, *(of.note if of.note.startswith("chip.") else f"{of.address}={of.value}" for of in values))

    def _guessed(self) -> list[tuple[str, str]]:
        """What is guessed in decode, of cases that guess."""
        found = {case.speculation for case in self.workload.cases if isinstance(case, Case | Load) and case.speculation}
        text = (f"{of.tokens} tokens a step, accepted with {of.acceptance:g}: {of.expected:g} tokens a step" for of in found)
        return [("speculation", "; ".join(text))] if found else []

    @cached_property
    def beside(self) -> tuple[Beside, ...]:
        """What is said of loads beside their metrics, case by case; nothing of a design that is not feasible."""
        if self.infeasible is not None or not isinstance(self.workload.cases[0], Load):
            return ()
        loads = (case for case in self.workload.cases if isinstance(case, Load))
        rates = (computed_metrics(one.metrics).get("max_rate") for one in self.cases)
        return tuple(beside(self.design, of, self.fidelity, rate) for of, rate in zip(loads, rates, strict=True))

    @property
    def max_rates(self) -> list[str]:
        """The maximum rate of each load with its range over seeds, in words, where it was looked for."""
        loads = [case for case in self.workload.cases if isinstance(case, Load)]
        return max_rates(loads[: len(self.beside)], self.beside)

    def _reusable(self) -> list[tuple[str, str]]:
        """What a trace with hashes would reuse of its prompts, where nothing is reused."""
        serving = self.design.mapping.serving
        if serving is None or float(serving.prefix) or getattr(serving, "reuse", "part") == "pool":
            return []
        most = max((case.requests.reusable for case in self.workload.cases if isinstance(case, Load)), default=0.0)
        knob = "mapping.serving.reuse=pool" if hasattr(serving, "reuse") else "mapping.serving.prefix"
        return [("prefixes", f"up to {most:.1%} of the prompt tokens came before; none are reused, see {knob}")] if most else []

    def _skipped(self) -> list[tuple[str, str]]:
        """Rows of a trace that were passed over."""
        found = {(case.requests.skipped, len(case.requests)) for case in self.workload.cases if isinstance(case, Load)}
        return [("trace", f"{some:,} rows skipped, {kept:,} requests kept") for some, kept in found if some]

    def _partial(self) -> list[tuple[str, str]]:
        """Which layers of a model are on the chip, where some stand for all: the chip has no room for the others."""
        some = int(self.design.mapping.resident_layers or 0)
        models = {of.model.name: of.model.layers for of in self.workload.cases if isinstance(of, Case | Load)}
        text = ", ".join(f"{some} of {layers} layers of {name}" for name, layers in models.items() if 0 < some < layers)
        return [("on the chip", f"{text}: their time stands for all, and nothing says where the others are")] if text else []

    def _paced(self) -> list[tuple[str, str]]:
        """That blocks of tiles, or reads of a die, have a pace where banks would be played, since these move less."""
        chip = self.design.chip
        by_core = software_of(self.design.mapping) in (PIPELINES, SERVED_PIPELINES)
        on_die = software_of(self.design.mapping) in OF_CACHES
        played = self.fidelity in ("events", "cycles") if on_die else self.fidelity.startswith("cycles")
        if not played or (chip.tile is None and not on_die) or by_core or not beyond(chip.hbm):
            return []
        said = "chip.hbm.bandwidth" if on_die else "chip.hbm.channel_bandwidth"
        return [("memory", f"one pace for all blocks: {said} is more than chip.hbm.banks moves, so not played")]

    def frame(self) -> "pd.DataFrame":
        """The operators of the first case as a table; numbers are NaN of a design that breaks a limit."""
        import pandas as pd

        table = pd.DataFrame([row.record() for row in self.breakdown.rows])
        if self.infeasible is not None:
            table[table.select_dtypes("number").columns] = float("nan")
        return table

    def by_case(self) -> "pd.DataFrame":
        """The cases as a table, with the metrics of each in SI; NaN of cases that break a limit."""
        import pandas as pd

        return pd.DataFrame([{"case": one.label, "feasible": one.feasible, **nan_metrics(one.metrics)} for one in self.cases])

    def rows(self) -> list[tuple[str, str, str]]:
        """Name, value with unit, and definition of every metric; none of a design that breaks a limit."""
        return metric_rows(self.metrics) if self.infeasible is None else []

    def __repr__(self) -> str:
        verdict = [f"infeasible: {self.infeasible}"] if self.infeasible else []
        lines = [f"{name:11}{text}" for name, text in self.about()]
        measured = [f"  {band.metric:32}{band}" for band in self.bands if self.infeasible is None]
        metrics = [f"  {name:32}{text}" for name, text, _ in self.rows()]
        rates = [f"{'max rate':11}{text}" for text in self.max_rates]
        return "\n".join([*verdict, self.title, *self._basis_lines, *rates, *lines, *metrics, *measured])

    def _repr_html_(self) -> str:
        """The same as a table, for notebooks."""
        verdict = [("infeasible", str(self.infeasible), "")] if self.infeasible else []
        basis = [("measured", text, "") for text in self._basis_lines]
        basis += [("max rate", text, "") for text in self.max_rates]
        rows = [*verdict, *basis, *((name, text, "") for name, text in self.about()), *self.rows()]
        rows += [(band.metric, str(band), "") for band in self.bands if self.infeasible is None]
        cells = ("".join(f"<td style='text-align:left'>{escape(text)}</td>" for text in row) for row in rows)
        return f"<table><caption>{escape(self.title)}</caption>{''.join(f'<tr>{row}</tr>' for row in cells)}</table>"


def answered(config: Mapping[str, Any]) -> Evaluation:
    """The design of a composed configuration, evaluated."""
    chips = list(config.get("chips") or ())
    if len(chips) > 1:
        raise DesignError(f"evaluate: one design of {', '.join(chips)}: say whose, as in chips=[{chips[0]}]")
    asked = question(config, folder_of(config), fewer=bool(chips))
    if isinstance(asked.workload.cases[0], Load):
        from dse.evaluators.account.played.steady import STEADY  # which loads the compiler, as the next does
        from dse.running.beforehand import begun

        if config["fidelity"] != STEADY:
            begun()
    found, own = typed(asked, config, folder_of(config), lambda: evaluation(asked.base, asked, config))
    devices = next(iter(asked.devices.values()), "")
    return replace(found, untied=_untied(asked), devices=devices, typed=own, not_taken=not_taken("evaluate", config))


def _untied(asked: Question) -> tuple[str, ...]:
    """Leaves that a space ties and whose value is another: a design that was typed, and that no study of it has."""
    (_, space), *_ = asked.space.each
    there = space.following(asked.base)
    found = []
    for tied in space.tied:
        for leaf in addresses(asked.base, tied.address):
            unit, here, wanted = spec_at(asked.base, leaf).metadata["unit"] or "1", at(asked.base, leaf), at(there, leaf)
            if here != wanted:
                found.append(
                    f"{leaf} is {show(float(here), unit)}; tied to {tied.text} it would be {show(float(wanted), unit)}"
                )
    return tuple(found)


def evaluation(design: Design, asked: Question, config: Mapping[str, Any]) -> Evaluation:
    """A design of a question, evaluated at the fidelity of its configuration.

    Raises:
        DesignError: words of its mapping that do not go together, which in a study is one infeasible design among others.
    """
    fidelity = config["fidelity"]
    workload, prefix = asked.workload, OF_PART if PART in fidelity else ""
    found = evaluate(stacked([design]), workload, asked.defined, fidelity=fidelity, cases=True).accepted()

    def own(columns: Iterable[tuple[str, Any]]) -> dict[str, float]:
        """The metrics that there are: the others are not a number."""
        return {f"{prefix}{name}": float(value) for name, value in columns if name in METRICS and value == value}

    why = remedied(infeasible(design, workload), design, workload, config["model"])

    def kept(columns: Iterable[tuple[str, Any]], *, fits: bool) -> Mapping[str, float]:
        return own(columns) if fits else WithheldMetrics(own(columns), str(why))

    fit = [bool(fits) for fits in found.cases["fits"][:, 0]]
    each = [
        Answered(case.label, fit[row], kept(((name, at[row, 0]) for name, at in found.cases.items()), fits=fit[row]))
        for row, case in enumerate(workload.cases)
    ]
    metrics = kept(((name, column[0]) for name, column in found.columns.items()), fits=why is None)
    names = {group: str(config["choices"].get(group, "")) for group in CHOICES}
    parts, others = parts_of(config["choices"]), other_parts(config["choices"])
    what = called(config["workload"])
    return Evaluation(
        design, workload, metrics, tuple(each), why, asked.sources, fidelity, names, what, parts=parts, others=others
    )


def shown(name: str, value: float) -> str:
    """A metric for people."""
    metric = METRICS[name.removeprefix(OF_PART)]
    return metric.words[round(value)] if metric.words else show(value, metric.unit)


def metric_rows(metrics: Mapping[str, float]) -> list[tuple[str, str, str]]:
    """Name, value with unit, and definition of metrics."""
    return [(name, shown(name, value), METRICS[name.removeprefix(OF_PART)].definition) for name, value in metrics.items()]


def _titled(cases: tuple[Answered, ...]) -> str:
    return cases[0].label + (f" and {number_of(len(cases) - 1, 'more case')}; metrics are of all" if len(cases) > 1 else "")


def _plans(design: Design) -> list[tuple[str, str]]:
    """The fields of the mapping that something reads, by what they are of: phases that are alike together, formats apart."""
    fields: dict[str, list[str]] = {}
    for address, value, spec in leaves(design):
        head, _, rest = address.removeprefix("mapping.").partition(".")
        if not address.startswith("mapping.") or unread(design, address):
            continue
        text = value if isinstance(value, str) else show(float(value), spec.metadata["unit"] or "1")
        group = ("formats" if head == "precision" else head) if rest else "kernels"
        fields.setdefault(group, []).append(f"{rest or head} {text}")
    texts = {name: ", ".join(parts) for name, parts in fields.items()}
    if "prefill" in texts and texts["prefill"] == texts.get("decode"):
        texts = {"both phases" if name == "prefill" else name: text for name, text in texts.items() if name != "decode"}
    return list(texts.items())
