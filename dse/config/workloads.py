"""Workloads from the configuration: batches, serving loads, single kernels, streams or collectives."""

import re
from collections.abc import Callable, Sequence
from collections.abc import Mapping as Dict
from dataclasses import dataclass, fields, replace
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np

from dse.config.arrival_times import fill_arrivals, list_requests_by_rate, slo_share, trace_use
from dse.config.expert_routing_file import read_expert_shares
from dse.config.kernel_cases import read_elementwise_cases, read_expert_cases
from dse.config.record_parser import USUAL_CHOICES, parse_record, parse_setting, parse_settings
from dse.config.session_workloads import read_sessions
from dse.config.slo_classes import assign_slo_classes, read_slo_classes
from dse.config.trace_sampling import Draw, mean_lengths
from dse.space.compatibility import case_type_of
from dse.space.errors import DesignError
from dse.space.fields import integer_field
from dse.space.layers import check_layers
from dse.space.model import EXPERT_LOADS, Model
from dse.space.requests import Requests, make_requests
from dse.space.workload import (
    COMBINATIONS,
    DIAGONAL,
    TILE_PATTERNS,
    TRAFFIC_PATTERNS,
    AttentionCase,
    BatchCase,
    CollectiveCase,
    ElementwiseCase,
    ExpertsCase,
    MemoryStreamCase,
    NocTrafficCase,
    ProductCase,
    ServingLoad,
    SloClass,
    Speculation,
    Workload,
    group_lengths,
    product_text,
)
from dse.space.workload_settings import (
    AUTO,
    SETTINGS,
    SIZES,
    TRACE,
    AttentionSettings,
    CollectiveSettings,
    CombinationSettings,
    ExpertsSettings,
    ProductSettings,
    ServingSettings,
    StaticSettings,
    StreamSettings,
    TrafficSettings,
)

MODEL_NOTES = {"source", "published_parameters", "published_formats", "note", "graph"}


def read_models(config: Dict[str, Any]) -> dict[str, Model]:
    """Models of a configuration, by their names in it."""
    if not config:
        raise DesignError("model: none given; choose one or more, as in model=llama3_8b or model=[llama3_8b,qwen2_7b]")
    models = {}
    for name, entry in config.items():
        if not isinstance(entry, Dict):
            raise DesignError(f"model.{name}: {entry!r} is not a model; write model=NAME to choose one")
        architecture = {key: value for key, value in entry.items() if key not in MODEL_NOTES}
        models[name] = parse_record(Model, architecture, f"model.{name}", [])
        _check_model(models[name], f"model.{name}")
    return models


def _check_model(model: Model, address: str) -> None:
    """Refuse fields that contradict each other."""
    experts = model.experts
    if experts is not None and experts.top_k > experts.count:
        raise DesignError(f"{address}.experts.top_k: a token goes to {experts.top_k} of {experts.count} experts")
    if experts is not None and experts.load == "file":
        raise DesignError(f"{address}.experts.load: set by a file with workload.expert_load=FILE.csv; leave it out here")
    if experts is not None and experts.dense_layers > model.layers:
        raise DesignError(f"{address}.experts.dense_layers: {experts.dense_layers} of {model.layers} layers")
    try:
        check_layers(model)
    except DesignError as error:
        raise DesignError(f"{address}.{error}") from None


def read_workload(config: Dict[str, Any], folder: Path, *, guesses: bool = False) -> Workload:
    """Workload of a configuration.

    Args:
        config: with the groups `workload` and `model`, and a `seed`.
        folder: against which relative files are found, after the working folder.
        guesses: whether mappings can check guessed tokens in decode.
    """
    spec = {key: value for key, value in config["workload"].items() if key not in USUAL_CHOICES}
    seed = parse_setting(config["seed"], SEED, "seed")
    common = {key: spec.pop(key) for key in COMBINATION_NAMES if key in spec}
    case = case_type_of(spec)
    settings: Any = parse_settings(SETTINGS[case], spec, "workload", owner=OWNERS.get(case, ""))
    cases = READERS[case](settings, _Given(spec, config["model"], folder, seed, guesses))
    combination = parse_settings(CombinationSettings, common, "workload")
    weights = _model_weights(combination, cases, common)
    context = settings.decode_context if isinstance(settings, StaticSettings) else "mean"
    return Workload(combination.name, tuple(cases), context, weights, combination.over_cases)


SEED = integer_field("seed of all draws", low=0)

COMBINATION_NAMES = tuple(spec.name for spec in fields(CombinationSettings))
"""Settings that workloads of all kinds have."""

OWNERS = {
    ServingLoad: "served requests have",
    ProductCase: "a single product has",
    ExpertsCase: "experts as a single kernel have",
    ElementwiseCase: "an operator on elements has",
    MemoryStreamCase: "requests to a memory have",
    NocTrafficCase: "packets on a network have",
    CollectiveCase: "a single collective has",
    AttentionCase: "attention as a single kernel has",
}
"""What messages on unknown settings say of a workload."""


def _model_weights(
    combination: CombinationSettings, cases: Sequence[Any], written: Dict[str, Any]
) -> tuple[tuple[str, float], ...]:
    """Share of each model by its name, in the order of the models; they sum to 1."""
    shares = combination.model_shares
    if shares is None:
        return ()
    names = list(dict.fromkeys(case.model.name for case in cases if isinstance(case, BatchCase | ServingLoad)))
    if len(shares) != len(names):
        models = ", ".join(names) or "no model here"
        raise DesignError(f"workload.model_shares: {[*shares]!r} is not a list with a share for each of {models}")
    if abs(sum(shares) - 1) > SHARES_ROUNDING:
        raise DesignError(f"workload.model_shares: shares must be above 0 and sum to 1, got {[*shares]}")
    if combination.over_cases != COMBINATIONS[0]:
        raise DesignError("workload.model_shares: over_cases=worst does not use it; set workload.over_cases=mean, or remove it")
    return tuple(zip(names, map(_as_written, written["model_shares"], shares), strict=True))


SHARES_ROUNDING = 1e-6
"""Difference from 1 that a sum of shares may have."""


@dataclass(frozen=True)
class _Given:
    """What cases are made with, beside the settings of a workload: its fields as they were written, models and a seed."""

    spec: Dict[str, Any]
    model: Dict[str, Any]
    folder: Path
    seed: int
    guesses: bool


def _parse_batches(settings: StaticSettings, given: _Given) -> list[BatchCase]:
    names = {name for name in ("lengths", "prompt", "output") if getattr(settings, name) is not None}
    if not names and settings.sequence is None:
        raise DesignError("workload: give sequence and output_share, prompt and output, or lengths (a file)")
    _refuse_lengths(names)
    batches = _drawn_requests(settings, given) if settings.lengths is not None else _equal_requests(settings)
    cases = [
        BatchCase(
            f"{model.name} {label}",
            _with_routing(model, settings.expert_load, given),
            batch,
            _check_speculation(settings.speculation, model, given.guesses),
            settings.first_token,
        )
        for model in read_models(given.model).values()
        for label, batch in batches
    ]
    if settings.expert_load != EXPERT_LOADS[0] and not any(case.model.experts for case in cases):
        raise DesignError("workload.expert_load: no model here has experts; leave it out")
    return cases


def _refuse_lengths(names: set[str]) -> None:
    """Refuse one length of a request without the other, and either beside a file that has both."""
    if "lengths" in names and len(names) > 1:
        raise DesignError(
            f"workload.{min(names - {'lengths'})}: has no effect with workload.lengths, whose file has both; leave it out, "
            "or set workload.lengths=null"
        )
    if names == {"output"}:
        raise DesignError(
            "workload.output: has no effect without workload.prompt; set both, or workload.sequence and output_share"
        )
    if names == {"prompt"}:
        raise DesignError("workload.output: missing; set the number of output tokens, as in workload.output=128")


def _with_routing(model: Model, routing: str, given: _Given) -> Model:
    """A model whose tokens spread over experts as the workload says, where that is not as usual: in a word, or in a file."""
    if model.experts is None or routing == EXPERT_LOADS[0]:
        return model
    if routing in EXPERT_LOADS:
        return replace(model, experts=replace(model.experts, load=routing))
    expert_shares = read_expert_shares(_find_file(routing, "workload.expert_load", given.folder), model, model.experts)
    return replace(model, experts=replace(model.experts, load="file", shares=expert_shares))


MAX_REQUESTS = 2_000_000
"""Of a load, so that an answer takes less than a gigabyte: some 350 bytes each while they are played and measured."""

DEFAULT_ACCEPTANCE = 0.7
"""Chance that the guess of a multi-token prediction module is right, where nobody says it: as evaluated in [zhang2026] section
III-E; a model's own report has 0.85 to 0.9 [deepseek2024]."""


def _check_speculation(setting: Speculation | str | None, model: Model, guesses: bool) -> Speculation | None:
    """What is guessed in decode: what is said; where that is left open, what a model has a module for, if the mapping can."""
    if setting == AUTO:
        return Speculation(1, DEFAULT_ACCEPTANCE) if model.mtp and guesses else None
    if not isinstance(setting, Speculation) or not setting.tokens:
        return None
    if not guesses:
        raise DesignError(
            "workload.speculation: this mapping decodes a token at a time; set none, or choose mapping=flat, serving or "
            "tensor_parallel"
        )
    if setting.tokens > model.mtp:
        raise DesignError(
            f"workload.speculation.tokens: {model.name} can draft {model.mtp}, one for each of its modules (model.mtp)"
        )
    return setting


def _parse_products(settings: ProductSettings, given: _Given) -> list[ProductCase]:
    study = []
    for shape in settings.shapes:
        shape_match = re.fullmatch(SIZES, shape)
        assert shape_match is not None  # as declared
        groups, m, k, n = (int(size or 1) for size in shape_match.groups())
        product = ProductCase("", settings.kernel, m, k, n, groups)
        study.append(replace(product, label=f"{settings.kernel.upper()} {product_text(product)}"))
    return study


def _parse_loads(settings: ServingSettings, given: _Given) -> list[ServingLoad]:
    count = settings.requests
    if count and count > MAX_REQUESTS:
        raise DesignError(
            f"workload.requests: at most {MAX_REQUESTS:,}, which take about a gigabyte, got {count:,}; set fewer: a load that "
            "lasts is the same long before"
        )
    slo_classes = read_slo_classes(settings)
    if settings.trace is not None:
        served = _traced_requests(settings, slo_classes, given)
    else:
        for name, usual in (("skip", "none"), ("chars_per_token", None), ("class_column", None)):
            if getattr(settings, name) != usual:
                raise DesignError(f"workload.{name}: needs a trace; set workload.trace, or leave it out")
        if settings.sessions is not None:
            served = read_sessions(settings.sessions, mean_lengths(settings), count or 1000, given.seed)
            if settings.max_length is None:
                _refuse_long(
                    served, given, "workload.sessions", "fewer turns, workload.max_length={most}, which shortens prompts"
                )
        else:
            served = make_requests([mean_lengths(settings)] * (count or 1000))
    whole, of_file = served, served if settings.trace is not None else None
    served = served.clip_lengths(settings.max_length) if settings.max_length is not None else served
    served = assign_slo_classes(served, slo_classes, settings, given.seed)
    settings = fill_arrivals(settings, timed=served.has_times and settings.trace is not None)
    settings = replace(settings, demand_text=str(given.spec.get("demand")))
    share, file = slo_share(settings), settings.trace
    clipped = bool((served.total < whole.total).any())
    trace = None if file is None else trace_use(served, settings, Path(file).name, clipped=clipped)
    guessed, seed, each = settings.speculation, given.seed, list_requests_by_rate(served, settings, given.seed, trace)
    draw, most = _make_draw(settings, slo_classes, of_file, served)
    demand = _check_demand(settings, share)
    return [
        ServingLoad(
            f"{model.name} {label}",
            model,
            came,
            settings.ttft,
            settings.tpot,
            share,
            nominal,
            _check_speculation(guessed, model, given.guesses),
            seed,
            slo_classes,
            trace,
            draw,
            most,
            demand,
        )
        for model in read_models(given.model).values()
        for label, came, nominal in each
    ]  # fmt: skip


def _traced_requests(settings: ServingSettings, slo_classes: Sequence[SloClass], given: _Given) -> Requests:
    """Requests of a load's trace, as many and in the order that its settings say."""
    from dse.evaluators.serving.trace_rows import RequestKinds
    from dse.evaluators.serving.traces import read_trace

    if settings.sessions is not None:
        raise DesignError("workload.sessions: a trace has its own requests; leave one of trace and sessions out")
    count = settings.requests
    served = read_trace(
        _find_file(settings.trace, "workload.trace", given.folder),
        ticks=settings.coarse_timestamps,
        skip=settings.skip,
        most=0 if settings.shuffle else count or 0,
        characters=settings.chars_per_token or 0.0,
        sorts=RequestKinds(settings.class_column or "", tuple(slo_class.name for slo_class in slo_classes)),
    )
    served = served.shuffle_order(given.seed) if settings.shuffle else served
    served = served.first_requests(count) if count else served
    if len(served) > MAX_REQUESTS:
        raise DesignError(f"workload.trace: {len(served):,} requests; set workload.requests={MAX_REQUESTS}, or fewer")
    if settings.max_length is None:
        _refuse_long(served, given, f"workload.trace: {settings.trace}", "workload.max_length={most}, which shortens prompts")
    return served


def _check_demand(settings: ServingSettings, share: float) -> float:
    """Rate of a fleet of as many systems as it takes; 0 for one system. [1/s]"""
    if settings.demand is None:
        return 0.0
    if not share:
        raise DesignError(
            "workload.demand: is shared by systems that have their maximum rate at most; set workload.rate=max, or for one "
            "system workload.rate in its place"
        )
    if settings.users is not None:
        raise DesignError("workload.demand: is a rate of requests that arrive independently; remove workload.users")
    return settings.demand


def _make_draw(
    settings: ServingSettings, slo_classes: tuple[SloClass, ...], of_file: Requests | None, served: Requests
) -> tuple[Draw | None, int]:
    """What draws a load's requests again, and how many there can be; None where their times are those of a file, or none."""
    if settings.arrivals in (TRACE, "offline"):
        return None, len(served)
    count = settings.requests
    longest = served.longest if settings.sessions is not None else 0
    if settings.resample:
        if of_file is None or len(served.starts) or len(served.before) or not slo_share(settings):
            raise DesignError(
                "workload.resample: draws lengths of a trace again, for the maximum rate, of requests without prefixes and "
                "sessions in common; remove it, or set workload.trace and workload.rate=max"
            )
        return Draw(settings, slo_classes, of_file if count is None else of_file.first_requests(count), longest), 0
    return Draw(settings, slo_classes, of_file, longest), len(of_file) if of_file is not None else count or 0


def _refuse_long(served: Any, given: _Given, where: str, do: str) -> None:
    """Raises where requests of a file are longer than a model was made for."""
    for model in read_models(given.model).values():
        beyond = np.flatnonzero(served.total > model.max_position)
        if len(beyond):
            worst = beyond[served.total[beyond].argmax()]
            more = f", and {len(beyond) - 1:,} more rows are too long" if len(beyond) > 1 else ""
            row = served.rows[worst] if len(served.rows) else worst + 1
            length = f"{served.prompt[worst]:,} prompt and {served.output[worst]:,} output tokens"
            raise DesignError(
                f"{where}, row {row}: {length}{more}; {model.name} was made for {model.max_position:,}: "
                f"use {do.format(most=model.max_position)}, a model for longer ones, remove such rows, or set the extended "
                f"length: model.max_position={served.total[worst]}"
            )


def _parse_streams(settings: StreamSettings, given: _Given) -> list[MemoryStreamCase]:
    streams = []
    for text in settings.patterns:
        named = re.fullmatch(r"([a-z]+)(\d*)", text)
        assert named is not None  # as declared
        step = int(named[2] or 0)
        if step > settings.span or settings.request > settings.span:
            raise DesignError(f"workload.span: {given.spec['span']} is less than {text!r} needs")
        if named[1] == "chunk" and step % settings.request:
            raise DesignError(f"workload.patterns: {text!r} is not a whole number of requests of {given.spec['request']}")
        for share in settings.writes:
            label = f"{text}, {share:.0%} writes" if share else text
            sizes = settings.request, _as_written(given.spec["gap"], settings.gap), settings.span, settings.requests
            streams.append(MemoryStreamCase(label, named[1], step, share, *sizes, given.seed))
    return streams


def _as_written(value: Any, number: float) -> float:
    """A number of a content key: the whole number that was written, if one was, as in stored keys."""
    return value if isinstance(value, int) else number


def _parse_traffic(settings: TrafficSettings, given: _Given) -> list[NocTrafficCase]:
    traffic = []
    for text, flits, rate in product(settings.traffic, settings.flits, settings.rates):
        label = f"{text} at {rate:g}, packets of {flits}"
        sizes = flits, settings.period, settings.packets
        traffic.append(NocTrafficCase(label, *_parse_places(text), rate, *sizes, given.seed))
    return traffic


def _parse_places(text: str) -> tuple[str, tuple[int, ...], int]:
    """A pattern of traffic, the nodes of a hotspot, and how many in the middle."""
    if text in TRAFFIC_PATTERNS:
        return text, (), 0
    name, at, nodes = text.partition("@")
    return "hotspot", tuple(dict.fromkeys(map(int, nodes.split("+")))) if at else (), 0 if at else int(name[-1])


def _parse_collectives(settings: CollectiveSettings, given: _Given) -> list[CollectiveCase]:
    group = settings.group.strip()
    rows, cols = (0, 0) if group == "mesh" else map(int, group.split("x"))
    axis, root, combine = settings.group_axis, settings.root, settings.combine
    if root == DIAGONAL and axis == "rectangle":
        raise DesignError("workload.root: a rectangle has one root; give its place, rows after rows, as in 0")
    others = [pattern for pattern in settings.pattern if pattern not in TILE_PATTERNS]
    if others and not (axis == "rectangle" and not rows and not cols):
        whole = "workload.group=mesh workload.group_axis=rectangle workload.root=0"
        raise DesignError(f"workload.pattern: all tiles take part in {others[0]}; add {whole}")
    if combine != "sum" and "reduce_scatter" in settings.pattern:
        raise DesignError(f"workload.combine: a reduce_scatter sums; {combine!r} is of a reduce or an allreduce")
    cases = []
    for pattern, (size, nbytes) in product(settings.pattern, zip(given.spec["bytes"], settings.bytes, strict=True)):
        summed = pattern in ("reduce", "allreduce", "reduce_scatter")
        what = f"{axis} {pattern}" + (f" ({combine})" if summed else "")
        label = f"{what}, {size}, {'all together' if group == 'mesh' else f'groups of {rows} x {cols}'}"
        more = axis, rows, cols, root, combine, settings.recorded, settings.hidden
        cases.append(CollectiveCase(label, pattern, float(nbytes), *more))
    return cases


def _parse_attention(settings: AttentionSettings, given: _Given) -> list[AttentionCase]:
    """Every combination of sizes; of `variants`, each of which says in what it differs, one after the other."""
    if not settings.variants:
        return _attention_combinations(settings)
    common = {key: value for key, value in given.spec.items() if key != "variants"}
    owner = OWNERS[AttentionCase]
    variants = [parse_settings(AttentionSettings, {**common, **own}, "workload", owner=owner) for own in settings.variants]
    return [case for variant in variants for case in _attention_combinations(variant)]


def _attention_combinations(settings: AttentionSettings) -> list[AttentionCase]:
    sizes = ("batch", "heads", "kv_heads", "queries", "keys", "qk", "v", "window", "decodes", "cached")
    causal, latent = settings.causal, settings.latent
    combinations = []
    for batch, heads, kv_heads, queries, keys, qk, v, window, decodes, cached in product(
        *(getattr(settings, key) for key in sizes)
    ):
        kv_heads, queries, v = kv_heads or heads, queries or keys, v or qk
        if heads % kv_heads:
            raise DesignError(f"workload.kv_heads: {kv_heads} KV heads do not divide {heads} heads of queries")
        if causal and queries > keys:
            raise DesignError(f"workload.queries: {queries} causal queries of {keys} keys; there is a key for each query")
        if window and not causal:
            raise DesignError(f"workload.window: {window} keys up to a query's own, and workload.causal=false; set true")
        if latent and not v < qk:
            raise DesignError(f"workload.v: {v} latent values are no part of keys of {qk} columns")
        if (decodes or cached) and not (causal and decodes and cached):
            raise DesignError(f"workload.decodes: {decodes} beside causal prompts, each with workload.cached={cached} keys")
        what = f"batch {batch}, {heads} heads ({kv_heads} KV) of {qk}" + (f"/{v}" if v != qk else "")
        label = f"{what}, {queries} x {keys}" + (", causal" if causal else "") + (", latent" if latent else "")
        label += f", window {window}" if window else ""
        label += f", beside {decodes} x {cached}" if decodes else ""
        shape = (batch, heads, kv_heads, queries, keys, qk, v)
        combinations.append(AttentionCase(label, *shape, causal, latent, window, decodes, cached))
    return combinations


Batches = list[tuple[str, tuple[tuple[int, int, int], ...]]]
"""Requests that come together, by a label: how many, and their lengths."""


def _equal_requests(settings: StaticSettings) -> Batches:
    requests: Batches = []
    for batch in settings.batch:
        if settings.prompt is not None:
            pairs = [*product(settings.prompt, settings.output or ())]
        else:
            share = settings.output_share
            if share is None:
                raise DesignError("workload.output_share: missing; set the share of output tokens in workload.sequence")
            pairs = [(s - round(s * share), round(s * share)) for s in settings.sequence or ()]
        for prompt, output in pairs:
            if prompt < 1 or output < 1:
                raise DesignError(f"workload: a request of {prompt} prompt and {output} output tokens; each must be at least 1")
            requests.append((f"batch {batch}, {prompt}+{output} tokens", ((batch, prompt, output),)))
    return requests


DRAWN_REQUESTS = 64
"""Requests that are drawn from a file of lengths, where nobody says how many."""


def _drawn_requests(settings: StaticSettings, given: _Given) -> Batches:
    from dse.evaluators.serving.traces import read_trace

    path, wanted = _find_file(settings.lengths, "workload.lengths", given.folder), settings.requests or DRAWN_REQUESTS
    picked = read_trace(path).draw_requests(wanted, given.seed)
    _refuse_long(picked, given, f"workload.lengths: {settings.lengths}", "shorter ones")
    drawn = list(zip(picked.prompt.tolist(), picked.output.tolist(), strict=True))
    cases = []
    for batch in settings.batch:
        for start in range(0, len(drawn) - batch + 1, batch):
            members = drawn[start : start + batch]
            cases.append((f"batch {batch}, requests {start}-{start + batch - 1}", group_lengths(members)))
    if not cases:
        raise DesignError(
            f"workload.batch: no batch as large as {given.spec['batch']} in {wanted} requests; raise workload.requests"
        )
    return cases


def _parse_experts(settings: ExpertsSettings, given: _Given) -> Sequence[ExpertsCase]:
    exponent = 0.0 if settings.exponent is None else _as_written(given.spec["exponent"], settings.exponent)
    return read_expert_cases(settings, given.seed, exponent)


def _find_file(name: Any, address: str, folder: Path) -> Path:
    """A file here, or in the folder of a study."""
    path = Path(str(name))
    try:
        existing = next((p for p in (path, folder / path) if p.exists()), None)
    except OSError as error:  # a name that is too long, a folder that may not be read
        raise DesignError(f"{address}: {str(path)[:80]!r}: {error.strerror}") from None
    if existing is None:
        raise DesignError(f"{address}: no file {str(path)!r} here or in {folder}")
    return existing


READERS: dict[type, Callable[[Any, _Given], Sequence[Any]]] = {
    BatchCase: _parse_batches,
    ServingLoad: _parse_loads,
    ProductCase: _parse_products,
    ExpertsCase: _parse_experts,
    ElementwiseCase: lambda settings, given: read_elementwise_cases(settings),
    MemoryStreamCase: _parse_streams,
    NocTrafficCase: _parse_traffic,
    CollectiveCase: _parse_collectives,
    AttentionCase: _parse_attention,
}
"""Cases from the settings of a workload, by their kind."""
