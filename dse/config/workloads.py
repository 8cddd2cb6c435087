"""Workloads from the configuration: batches, serving loads, single kernels, streams or collectives."""

import re
from collections.abc import Callable, Sequence
from collections.abc import Mapping as Dict
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np

from dse.config.arrival_times import fill_arrivals, list_requests_by_rate, slo_share, trace_use
from dse.config.expert_routing_file import read_expert_shares
from dse.config.kernel_cases import read_elementwise_cases, read_expert_cases
from dse.config.record_parser import USUAL_CHOICES, parse_record, parse_value
from dse.config.session_workloads import read_sessions
from dse.config.slo_classes import assign_slo_classes, read_slo_classes
from dse.config.trace_sampling import Draw
from dse.config.workload_fields import read_whole_numbers, refuse_unknown_fields
from dse.space.compatibility import case_type_of
from dse.space.errors import DesignError, choose_option, suggest_nearest
from dse.space.layers import check_layers
from dse.space.model import EXPERT_LOADS, Model
from dse.space.requests import Requests, make_requests
from dse.space.workload import (
    COMBINATIONS,
    DECODE_CONTEXTS,
    DIAGONAL,
    DIE_EXCHANGES,
    EXPERT_EXCHANGES,
    FIRST_TOKENS,
    GROUP_AXES,
    PRODUCT_KINDS,
    REDUCTIONS,
    STREAM_PATTERNS,
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
    Speculation,
    Workload,
    group_lengths,
    product_text,
)

MAX_LAYERS = 10_000
"""Of a model at most; those of today have some hundred, and each takes time to describe."""

MODEL_NOTES = {"source", "published_parameters", "published_formats", "note"}


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
    for name in ("layers", "mtp"):
        if getattr(model, name) > MAX_LAYERS:
            raise DesignError(f"{address}.{name}: {getattr(model, name):,} is above the most that makes sense, {MAX_LAYERS:,}")
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
    seed = config["seed"]
    if isinstance(seed, bool) or not isinstance(seed, int) or seed < 0:
        raise DesignError(f"seed: {seed!r} is not a whole number of at least 0")
    shares, combine = spec.pop("model_shares", None), str(spec.pop("over_cases", COMBINATIONS[0]))
    if combine not in COMBINATIONS:
        raise DesignError(f"workload.over_cases: no option {combine!r}; {suggest_nearest(combine, COMBINATIONS)}")
    cases = READERS[case_type_of(spec)](spec, _Given(config["model"], folder, seed, guesses))
    weights = () if shares is None else _parse_model_shares(shares, cases)
    if weights and combine != COMBINATIONS[0]:
        raise DesignError("workload.model_shares: over_cases=worst does not use it; set workload.over_cases=mean, or remove it")
    return Workload(str(spec.get("name", "workload")), tuple(cases), spec.get("decode_context", "mean"), weights, combine)


def _parse_model_shares(shares: Any, cases: Sequence[Any]) -> tuple[tuple[str, float], ...]:
    """Share of each model by its name, in the order of the models; they sum to 1."""
    names = list(dict.fromkeys(case.model.name for case in cases if isinstance(case, BatchCase | ServingLoad)))
    if not isinstance(shares, list) or len(shares) != len(names):
        models = ", ".join(names) or "no model here"
        raise DesignError(f"workload.model_shares: {shares!r} is not a list with a share for each of {models}")
    parts = [parse_value(share, "1", "workload.model_shares") for share in shares]
    if not all(part > 0 for part in parts) or abs(sum(parts) - 1) > SHARES_ROUNDING:
        raise DesignError(f"workload.model_shares: shares must be above 0 and sum to 1, got {shares}")
    return tuple(zip(names, parts, strict=True))


SHARES_ROUNDING = 1e-6
"""Difference from 1 that a sum of shares may have."""


@dataclass(frozen=True)
class _Given:
    """What a workload's fields are read with."""

    model: Dict[str, Any]
    folder: Path
    seed: int
    guesses: bool


def _parse_batches(spec: dict[str, Any], given: _Given) -> list[BatchCase]:
    kinds = {"sequence": _equal_requests, "prompt": _equal_requests, "lengths": _drawn_requests}
    refuse_unknown_fields(
        spec,
        (
            "batch",
            "sequence",
            "output_share",
            "prompt",
            "output",
            "lengths",
            "requests",
            "decode_context",
            "first_token",
            *MORE,
        ),
    )
    kind = next((kinds[key] for key in ("lengths", "prompt", "sequence") if spec.get(key) is not None), None)
    if kind is None:
        raise DesignError("workload: give sequence and output_share, prompt and output, or lengths (a file)")
    _refuse_lengths({name for name in ("lengths", "prompt", "output") if spec.get(name) is not None})
    words = {
        key: choose_option(dict(zip(options, options, strict=True)), str(spec.get(key, options[0])), f"workload.{key}")
        for key, options in (("decode_context", DECODE_CONTEXTS), ("first_token", FIRST_TOKENS))
    }
    routing = str(spec.get("expert_load", EXPERT_LOADS[0]))
    cases = [
        BatchCase(
            f"{model.name} {label}",
            _with_routing(model, routing, given),
            batch,
            _parse_speculation(spec.get("speculation", "auto"), model, given.guesses),
            words["first_token"],
        )
        for model in read_models(given.model).values()
        for label, batch in kind(spec, given)
    ]
    if routing != EXPERT_LOADS[0] and not any(case.model.experts for case in cases):
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


MORE = ("speculation", "expert_load")
"""Fields of batches beside lengths."""


def _with_routing(model: Model, routing: str, given: _Given) -> Model:
    """A model whose tokens spread over experts as the workload says, where that is not as usual: in a word, or in a file."""
    words = EXPERT_LOADS[:-1]
    if routing not in words and not routing.endswith(".csv"):
        raise DesignError(
            f"workload.expert_load: no option {routing!r}; {suggest_nearest(routing, words)}, or a file: NAME.csv"
        )
    if model.experts is None or routing == EXPERT_LOADS[0]:
        return model
    if routing in words:
        return replace(model, experts=replace(model.experts, load=routing))
    expert_shares = read_expert_shares(_find_file(routing, "workload.expert_load", given.folder), model, model.experts)
    return replace(model, experts=replace(model.experts, load="file", shares=expert_shares))


MAX_REQUESTS = 2_000_000
"""Of a load, so that an answer takes less than a gigabyte: some 350 bytes each while they are played and measured."""

DEFAULT_ACCEPTANCE = 0.7
"""Chance that the guess of a multi-token prediction module is right, where nobody says it: as evaluated in [zhang2026] section
III-E; a model's own report has 0.85 to 0.9 [deepseek2024]."""


def _parse_speculation(setting: Any, model: Model, guesses: bool) -> Speculation | None:
    """What is guessed in decode: what is said; where that is left open, what a model has a module for, if the mapping can."""
    if setting in ("none", None):
        return None
    if setting == "auto":
        return Speculation(1, DEFAULT_ACCEPTANCE) if model.mtp and guesses else None
    if not isinstance(setting, Dict) or set(setting) != {"tokens", "acceptance"}:
        raise DesignError(f"workload.speculation: {setting!r} is not auto, none or {{tokens: 1, acceptance: 0.7}}")
    tokens, acceptance = setting["tokens"], setting["acceptance"]
    if isinstance(tokens, bool) or not isinstance(tokens, int) or tokens < 0:
        raise DesignError(f"workload.speculation.tokens: {tokens!r} is not a whole number of at least 0")
    if isinstance(acceptance, bool) or not isinstance(acceptance, int | float) or not 0 <= acceptance <= 1:
        raise DesignError(f"workload.speculation.acceptance: {acceptance!r} is not a share between 0 and 1")
    if not guesses and tokens:
        raise DesignError(
            "workload.speculation: this mapping decodes a token at a time; set none, or choose mapping=flat, serving or "
            "tensor_parallel"
        )
    if tokens > model.mtp:
        raise DesignError(
            f"workload.speculation.tokens: {model.name} can draft {model.mtp}, one for each of its modules (model.mtp)"
        )
    return Speculation(tokens, float(acceptance)) if tokens else None


def _parse_products(spec: dict[str, Any], given: _Given) -> list[ProductCase]:
    refuse_unknown_fields(spec, ("kernel", "shapes"), "workload: a single product has ")
    kind, shapes = spec["kernel"], spec.get("shapes")
    if kind not in PRODUCT_KINDS:
        raise DesignError(f"workload.kernel: no option {kind!r}; {suggest_nearest(str(kind), PRODUCT_KINDS)}")
    if not isinstance(shapes, list) or not shapes:
        raise DesignError(f"workload.shapes: {shapes!r} is not a list of sizes; write m x k x n, as in [8192x8192x8192]")
    study = []
    for shape in shapes:
        shape_match = re.fullmatch(r"(?:(\d+) *x *)?(\d+) *x *(\d+) *x *(\d+)", str(shape).strip())
        if shape_match is None or "0" in shape_match.groups():
            raise DesignError(
                f"workload.shapes: {shape!r} is not m x k x n, whole numbers above 0, as in 8192x8192x8192, nor several of "
                "these, as in 8x128x7168x2048"
            )
        groups, m, k, n = (int(size or 1) for size in shape_match.groups())
        product = ProductCase("", str(kind), m, k, n, groups)
        study.append(replace(product, label=f"{str(kind).upper()} {product_text(product)}"))
    return study


def _parse_loads(spec: dict[str, Any], given: _Given) -> list[ServingLoad]:
    of_trace = "trace skip chars_per_token coarse_timestamps shuffle max_length rate_scale"
    where = f"arrivals rate cv {of_trace} prompt output requests ttft tpot slo_percentile speculation slo_classes".split()
    where += ["class_column", "sessions", "users", "resample", "demand"]
    refuse_unknown_fields(spec, where, "workload: served requests have ")
    count = None if spec.get("requests") is None else read_whole_numbers(spec, "requests")[0]
    if count and count > MAX_REQUESTS:
        raise DesignError(
            f"workload.requests: at most {MAX_REQUESTS:,}, which take about a gigabyte, got {count:,}; set fewer: a load that "
            "lasts is the same long before"
        )
    ttft, tpot = (parse_value(spec.get(key), "s", f"workload.{key}") for key in ("ttft", "tpot"))
    if min(ttft, tpot) <= 0:
        raise DesignError(f"workload: bounds of {ttft:g} s and {tpot:g} s; each must be above 0")
    slo_classes = read_slo_classes(spec, ttft, tpot)
    if spec.get("trace") is not None:
        from dse.evaluators.serving.trace_rows import RequestKinds
        from dse.evaluators.serving.traces import read_trace

        if spec.get("sessions") is not None:
            raise DesignError("workload.sessions: a trace has its own requests; leave one of trace and sessions out")

        skip, most = str(spec.get("skip", "none")), 0 if spec.get("shuffle") else count or 0
        characters = (
            0.0
            if spec.get("chars_per_token") is None
            else parse_value(spec["chars_per_token"], "1", "workload.chars_per_token")
        )
        path = _find_file(spec["trace"], "workload.trace", given.folder)
        sorts = RequestKinds(str(spec.get("class_column") or ""), tuple(slo_class.name for slo_class in slo_classes))
        served = read_trace(path, ticks=spec.get("coarse_timestamps"), skip=skip, most=most, characters=characters, sorts=sorts)
        served = served.shuffle_order(given.seed) if spec.get("shuffle") else served
        served = served.first_requests(count) if count else served
        if len(served) > MAX_REQUESTS:
            raise DesignError(f"workload.trace: {len(served):,} requests; set workload.requests={MAX_REQUESTS}, or fewer")
        if spec.get("max_length") is None:
            _refuse_long(
                served, given, f"workload.trace: {spec['trace']}", "workload.max_length={most}, which shortens prompts"
            )
    else:
        for name, usual in (("skip", "none"), ("chars_per_token", None), ("class_column", None)):
            if spec.get(name, usual) != usual:
                raise DesignError(f"workload.{name}: needs a trace; set workload.trace, or leave it out")
        if spec.get("sessions") is not None:
            served = read_sessions(spec, count or 1000, given.seed)
            if spec.get("max_length") is None:
                _refuse_long(
                    served, given, "workload.sessions", "fewer turns, workload.max_length={most}, which shortens prompts"
                )
        else:
            served = make_requests(
                [(read_whole_numbers(spec, "prompt")[0], read_whole_numbers(spec, "output")[0])] * (count or 1000)
            )
    whole, of_file = served, served if spec.get("trace") is not None else None
    served = served.clip_lengths(read_whole_numbers(spec, "max_length")[0]) if spec.get("max_length") is not None else served
    served = assign_slo_classes(served, slo_classes, spec, given.seed)
    spec = fill_arrivals(spec, timed=served.has_times and spec.get("trace") is not None)
    share, file = slo_share(spec), spec.get("trace")
    clipped = bool((served.total < whole.total).any())
    trace = None if file is None else trace_use(served, spec, Path(str(file)).name, clipped=clipped)
    guessed, seed, each = spec.get("speculation", "auto"), given.seed, list_requests_by_rate(served, spec, given.seed, trace)
    draw, most = _make_draw(spec, slo_classes, of_file, served, count)
    demand = _parse_demand(spec, share)
    return [
        ServingLoad(
            f"{model.name} {label}",
            model,
            came,
            ttft,
            tpot,
            share,
            nominal,
            _parse_speculation(guessed, model, given.guesses),
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


def _parse_demand(spec: dict[str, Any], share: float) -> float:
    """Rate of a fleet of as many systems as it takes; 0 for one system. [1/s]"""
    if spec.get("demand") is None:
        return 0.0
    if not share:
        raise DesignError(
            "workload.demand: is shared by systems that have their maximum rate at most; set workload.rate=max, or for one "
            "system workload.rate in its place"
        )
    demand = parse_value(spec["demand"], "Hz", "workload.demand")
    if spec.get("users") is not None or not demand > 0:
        raise DesignError(f"workload.demand: {spec['demand']!r} is not a rate above 0 of requests that arrive independently")
    return demand


def _make_draw(
    spec: dict[str, Any], slo_classes: tuple[Any, ...], of_file: Requests | None, served: Requests, count: int | None
) -> tuple[Draw | None, int]:
    """What draws a load's requests again, and how many there can be; None where their times are those of a file, or none."""
    if spec["arrivals"] in ("trace", "offline"):
        return None, len(served)
    longest = served.longest if spec.get("sessions") is not None else 0
    if spec.get("resample"):
        if of_file is None or len(served.starts) or len(served.before) or not slo_share(spec):
            raise DesignError(
                "workload.resample: draws lengths of a trace again, for the maximum rate, of requests without prefixes and "
                "sessions in common; remove it, or set workload.trace and workload.rate=max"
            )
        return Draw(spec, slo_classes, of_file if count is None else of_file.first_requests(count), longest), 0
    return Draw(spec, slo_classes, of_file, longest), len(of_file) if of_file is not None else count or 0


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


def _parse_streams(spec: dict[str, Any], given: _Given) -> list[MemoryStreamCase]:
    where = ("patterns", "writes", "request", "gap", "span", "requests")
    refuse_unknown_fields(spec, where, "workload: requests to a memory have ")
    sizes = {}
    for key, unit, least in (("request", "B", 1), ("gap", "s", 0), ("span", "B", 1)):
        sizes[key] = parse_value(spec.get(key), unit, f"workload.{key}")
        if sizes[key] < least or (unit == "B" and sizes[key] != int(sizes[key])):
            raise DesignError(
                f"workload.{key}: {spec[key]!r} is not {'a whole number' if least else 'a time'} of at least {least}"
            )
    (requests,) = read_whole_numbers(spec, "requests")[:1]
    shares = spec["writes"] if isinstance(spec.get("writes"), list) else [spec.get("writes")]
    if not isinstance(spec["patterns"], list) or not spec["patterns"] or not shares:
        raise DesignError("workload.patterns and workload.writes: lists, as in [sequential,stride1024] and [0,0.33]")
    streams = []
    for text in spec["patterns"]:
        named = re.fullmatch(r"(sequential|random|stride|chunk)([1-9]\d*)?", str(text))
        if named is None or (named[1] in ("stride", "chunk")) != (named[2] is not None):
            raise DesignError(
                f"workload.patterns: no pattern {text!r}; valid: {', '.join(STREAM_PATTERNS)}, the last two with "
                f"bytes, as in chunk256"
            )
        step = int(named[2] or 0)
        if step > sizes["span"] or sizes["request"] > sizes["span"]:
            raise DesignError(f"workload.span: {spec['span']} is less than {text!r} needs")
        if named[1] == "chunk" and step % sizes["request"]:
            raise DesignError(f"workload.patterns: {text!r} is not a whole number of requests of {spec['request']}")
        for share in shares:
            if isinstance(share, bool) or not isinstance(share, int | float) or not 0 <= share <= 1:
                raise DesignError(f"workload.writes: {share!r} is not a share between 0 and 1")
            label = f"{text}, {share:.0%} writes" if share else str(text)
            streams.append(
                MemoryStreamCase(
                    label,
                    named[1],
                    step,
                    float(share),
                    int(sizes["request"]),
                    sizes["gap"],
                    int(sizes["span"]),
                    requests,
                    given.seed,
                )
            )
    return streams


def _parse_traffic(spec: dict[str, Any], given: _Given) -> list[NocTrafficCase]:
    refuse_unknown_fields(spec, ("traffic", "rates", "flits", "period", "packets"), "workload: packets on a network have ")
    patterns, rates = spec["traffic"], spec.get("rates")
    if not isinstance(patterns, list) or not patterns:
        raise DesignError(f"workload.traffic: {patterns!r} is not a list of patterns, as in [uniform,transpose]")
    if not isinstance(rates, list) or not rates:
        raise DesignError(f"workload.rates: {rates!r} is not a list of flits a node and cycle, as in [0.1,0.2]")
    (period,), (packets,) = (read_whole_numbers(spec, key)[:1] for key in ("period", "packets"))
    traffic = []
    for text, flits, rate in product(patterns, read_whole_numbers(spec, "flits"), rates):
        pattern, spots, middle = _parse_places(str(text))
        if isinstance(rate, bool) or not isinstance(rate, int | float) or not 0 < rate <= 1:
            raise DesignError(f"workload.rates: {rate!r} is not above 0 and at most 1 flit a node and cycle")
        label = f"{text} at {rate:g}, packets of {flits}"
        traffic.append(NocTrafficCase(label, pattern, spots, middle, float(rate), flits, period, packets, given.seed))
    return traffic


def _parse_places(text: str) -> tuple[str, tuple[int, ...], int]:
    """A pattern of traffic, the nodes of a hotspot, and how many in the middle."""
    if text in TRAFFIC_PATTERNS[:-1]:
        return text, (), 0
    if text in ("hotspot1", "hotspot4"):
        return "hotspot", (), int(text[-1])
    named = re.fullmatch(r"hotspot@(\d+(?:\+\d+)*)", text)
    if named is None:
        valid = (*TRAFFIC_PATTERNS[:-1], "hotspot1", "hotspot4", "hotspot@NODE+NODE")
        raise DesignError(f"workload.traffic: no pattern {text!r}; {suggest_nearest(text, valid)}")
    return "hotspot", tuple(dict.fromkeys(map(int, named[1].split("+")))), 0


def _parse_collectives(spec: dict[str, Any], given: _Given) -> list[CollectiveCase]:
    words = {
        "pattern": tuple(dict.fromkeys((*TILE_PATTERNS, *DIE_EXCHANGES, *EXPERT_EXCHANGES))),
        "group_axis": GROUP_AXES,
        "combine": REDUCTIONS,
    }
    refuse_unknown_fields(spec, (*words, "bytes", "group", "root", "recorded", "hidden"), "workload: a single collective has ")
    patterns = spec["pattern"] if isinstance(spec["pattern"], list) and spec["pattern"] else [spec["pattern"]]
    for key, options in words.items():
        for chosen in patterns if key == "pattern" else [spec.get(key)]:
            if chosen not in options:
                raise DesignError(f"workload.{key}: no option {chosen!r}; {suggest_nearest(str(chosen), options)}")
    sizes, group, root = spec.get("bytes"), str(spec.get("group")).strip(), spec.get("root")
    if not isinstance(sizes, list) or not sizes:
        raise DesignError(f"workload.bytes: {sizes!r} is not a list of sizes with units, as in ['128 KiB']")
    mesh_match = re.fullmatch(r"([1-9]\d*) *x *([1-9]\d*)|mesh", group)
    if mesh_match is None:
        raise DesignError(f"workload.group: {group!r} is not rows x columns of tiles, as in 8x8, or mesh")
    rows, cols = (int(side or 0) for side in mesh_match.groups())
    if isinstance(root, bool) or not (root == DIAGONAL or (isinstance(root, int) and root >= 0)):
        raise DesignError(f"workload.root: {root!r} is not a place in a team from 0 on, or {DIAGONAL}")
    if root == DIAGONAL and spec["group_axis"] == "rectangle":
        raise DesignError("workload.root: a rectangle has one root; give its place, rows after rows, as in 0")
    others = [pattern for pattern in patterns if pattern not in TILE_PATTERNS]
    if others and not (spec["group_axis"] == "rectangle" and not rows and not cols):
        whole = "workload.group=mesh workload.group_axis=rectangle workload.root=0"
        raise DesignError(f"workload.pattern: all tiles take part in {others[0]}; add {whole}")
    if spec["combine"] != "sum" and set(patterns) & {"reduce_scatter"}:
        raise DesignError(f"workload.combine: a reduce_scatter sums; {spec['combine']!r} is of a reduce or an allreduce")
    recorded = spec.get("recorded", True)
    if not isinstance(recorded, bool):
        raise DesignError(f"workload.recorded: {recorded!r} is neither true nor false")
    hidden = spec.get("hidden", 7168)
    if isinstance(hidden, bool) or not isinstance(hidden, int) or hidden < 1:
        raise DesignError(f"workload.hidden: {hidden!r} is not a whole number from 1 on")
    cases = []
    for pattern in patterns:
        for size in sizes:
            nbytes = parse_value(size, "B", "workload.bytes")
            if nbytes <= 0 or nbytes % 1:
                raise DesignError(f"workload.bytes: {size!r} is not a whole number of bytes above 0")
            summed = pattern in ("reduce", "allreduce", "reduce_scatter")
            what = f"{spec['group_axis']} {pattern}" + (f" ({spec['combine']})" if summed else "")
            label = f"{what}, {size}, {'all together' if group == 'mesh' else f'groups of {rows} x {cols}'}"
            settings = spec["group_axis"], rows, cols, root, spec["combine"], recorded, hidden
            cases.append(CollectiveCase(label, pattern, nbytes, *settings))
    return cases


def _parse_attention(spec: dict[str, Any], given: _Given) -> list[AttentionCase]:
    """Every combination of sizes; of `variants`, each of which says in what it differs, one after the other."""
    variants = spec.get("variants") or [{}]
    if not isinstance(variants, list) or not all(isinstance(variant, Dict) for variant in variants):
        raise DesignError(
            f"workload.variants: {variants!r} is not a list of groups of fields, as in [{{kv_heads: 8, queries: 1}}]"
        )
    common = {key: value for key, value in spec.items() if key != "variants"}
    return [case for variant in variants for case in _attention_combinations({**common, **variant})]


def _attention_combinations(spec: dict[str, Any]) -> list[AttentionCase]:
    spec = {"window": 0, "decodes": 0, "cached": 0, **spec}
    sizes = ("batch", "heads", "kv_heads", "queries", "keys", "qk", "v", "window", "decodes", "cached")
    none, flags = ("kv_heads", "queries", "v", "window", "decodes", "cached"), ("causal", "latent")
    refuse_unknown_fields(spec, (*sizes, *flags, "variants"), "workload: attention as a single kernel has ")
    for key in flags:
        if not isinstance(spec.get(key), bool):
            raise DesignError(f"workload.{key}: {spec.get(key)!r} is neither true nor false")
    values = [read_whole_numbers(spec, key, low=0 if key in none else 1) for key in sizes]
    combinations = []
    for batch, heads, kv_heads, queries, keys, qk, v, window, decodes, cached in product(*values):
        kv_heads, queries, v = kv_heads or heads, queries or keys, v or qk
        if heads % kv_heads:
            raise DesignError(f"workload.kv_heads: {kv_heads} KV heads do not divide {heads} heads of queries")
        if spec["causal"] and queries > keys:
            raise DesignError(f"workload.queries: {queries} causal queries of {keys} keys; there is a key for each query")
        if window and not spec["causal"]:
            raise DesignError(f"workload.window: {window} keys up to a query's own, and workload.causal=false; set true")
        if spec["latent"] and not v < qk:
            raise DesignError(f"workload.v: {v} latent values are no part of keys of {qk} columns")
        if (decodes or cached) and not (spec["causal"] and decodes and cached):
            raise DesignError(f"workload.decodes: {decodes} beside causal prompts, each with workload.cached={cached} keys")
        what = f"batch {batch}, {heads} heads ({kv_heads} KV) of {qk}" + (f"/{v}" if v != qk else "")
        label = f"{what}, {queries} x {keys}" + (", causal" if spec["causal"] else "") + (", latent" if spec["latent"] else "")
        label += f", window {window}" if window else ""
        label += f", beside {decodes} x {cached}" if decodes else ""
        shape = (batch, heads, kv_heads, queries, keys, qk, v)
        combinations.append(AttentionCase(label, *shape, spec["causal"], spec["latent"], window, decodes, cached))
    return combinations


Batches = list[tuple[str, tuple[tuple[int, int, int], ...]]]
"""Requests that come together, by a label: how many, and their lengths."""


def _equal_requests(spec: dict[str, Any], given: _Given) -> Batches:
    requests: Batches = []
    for batch in read_whole_numbers(spec, "batch"):
        if spec.get("prompt") is not None:
            pairs = [(p, o) for p in read_whole_numbers(spec, "prompt") for o in read_whole_numbers(spec, "output")]
        else:
            share = parse_value(spec.get("output_share"), "1", "workload.output_share")
            if not 0 < share < 1:
                raise DesignError(f"workload.output_share: {share:g} is not between 0 and 1")
            pairs = [(s - round(s * share), round(s * share)) for s in read_whole_numbers(spec, "sequence")]
        for prompt, output in pairs:
            if prompt < 1 or output < 1:
                raise DesignError(f"workload: a request of {prompt} prompt and {output} output tokens; each must be at least 1")
            requests.append((f"batch {batch}, {prompt}+{output} tokens", ((batch, prompt, output),)))
    return requests


def _drawn_requests(spec: dict[str, Any], given: _Given) -> Batches:
    from dse.evaluators.serving.traces import read_trace

    path = _find_file(spec["lengths"], "workload.lengths", given.folder)
    (wanted,) = read_whole_numbers(spec, "requests") if spec.get("requests") is not None else (64,)
    picked = read_trace(path).draw_requests(wanted, given.seed)
    _refuse_long(picked, given, f"workload.lengths: {spec['lengths']}", "shorter ones")
    drawn = list(zip(picked.prompt.tolist(), picked.output.tolist(), strict=True))
    cases = []
    for batch in read_whole_numbers(spec, "batch"):
        for start in range(0, len(drawn) - batch + 1, batch):
            members = drawn[start : start + batch]
            cases.append((f"batch {batch}, requests {start}-{start + batch - 1}", group_lengths(members)))
    if not cases:
        raise DesignError(f"workload.batch: no batch as large as {spec['batch']} in {wanted} requests; raise workload.requests")
    return cases


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


READERS: dict[type, Callable[[dict[str, Any], _Given], Sequence[Any]]] = {
    BatchCase: _parse_batches,
    ServingLoad: _parse_loads,
    ProductCase: _parse_products,
    ExpertsCase: lambda spec, given: read_expert_cases(spec, given.seed),
    ElementwiseCase: lambda spec, given: read_elementwise_cases(spec),
    MemoryStreamCase: _parse_streams,
    NocTrafficCase: _parse_traffic,
    CollectiveCase: _parse_collectives,
    AttentionCase: _parse_attention,
}
"""Cases from the fields of a workload, by their kind."""
