"""Plain dictionaries to nouns. A misspelt address, a missing unit or a word that is no option stops here, by name."""

import re
from collections.abc import Mapping as Dict
from collections.abc import Sequence
from dataclasses import MISSING, dataclass, fields, is_dataclass
from itertools import product
from pathlib import Path
from types import UnionType
from typing import Any, TypeVar, get_args, get_type_hints

from space.chip import TileChip
from space.design import Design
from space.errors import DesignError, nearest
from space.fields import checked
from space.kinds import CHIPS, KINDS, WHERE, asked
from space.knobs import Choice, Interval, Knob, Space
from space.memory import MemoryChip, refuse
from space.model import Model
from space.requests import requests
from space.units import parse
from space.workload import (
    ALONG,
    COMBINE,
    DECODE_AT,
    DIAGONAL,
    PATTERNS,
    PRODUCTS,
    STREAMS,
    Attention,
    Case,
    Collective,
    Load,
    Product,
    Stream,
    Workload,
    grouped,
)

T = TypeVar("T")

CONSTANT = {"value", "source", "page", "note"}
NOTES = {"mapping"}
"""A chip or a workload may name the mapping that it usually has; the command line reads that (`dse.compose`)."""
MODEL_NOTES = {"source", "published_parameters", "note"}


@dataclass(frozen=True, slots=True)
class Source:
    """Where a number came from: a key of the bibliography, "override", or "assumed"."""

    address: str
    value: str
    source: str
    page: str = ""
    note: str = ""


@dataclass(frozen=True)
class Question:
    """Everything that one evaluation or one study is about, as nouns."""

    base: Design
    workload: Workload
    space: Space
    sources: tuple[Source, ...]


def question(config: Dict[str, Any], folder: Path) -> Question:
    """The nouns of a composed configuration.

    Args:
        config: plain dictionary; sweeps of `space` already parsed into knob dictionaries.
        folder: against which relative files are found, after the working folder.

    Raises:
        DesignError: naming the address, the value, what was expected and the nearest valid name.
    """
    _check_shape(config)
    sources: list[Source] = []
    base = _design(config["chip"], config["mapping"], config["workload"], sources)
    knobs = tuple(_knob(address, knob, base) for address, knob in config["space"].items())
    return Question(base, workload(config, folder), Space(base, knobs), tuple(sources))


def _design(chip: Dict[str, Any], mapping: Dict[str, Any], workload: Dict[str, Any], sources: list[Source]) -> Design:
    """A chip of the kind that its fields say, with the mapping that goes with it and with what is asked."""
    constants = {key: value for key, value in chip.items() if key not in NOTES}
    of = _alike(constants, CHIPS, CHIPS[0])
    case = asked(workload)
    if (of, case) not in KINDS:
        raise DesignError(f"workload: nothing runs {_plural(case)} on this chip, which {_runs(of)}; try {WHERE[case]}")
    kind = KINDS[of, case]
    mappings = list(dict.fromkeys(kind.mapping for kind in KINDS.values()))
    if _alike(mapping, mappings, kind.mapping) is not kind.mapping:
        raise DesignError(f"mapping: this one is for something else; {kind.why}: choose mapping={kind.choices}")
    built = Design(record(of, constants, "chip", sources), record(kind.mapping, mapping, "mapping", sources))
    if isinstance(built.chip, MemoryChip):
        refuse(built.chip.memory, "chip.memory")
    if isinstance(built.chip, TileChip) and built.chip.hbm.banks is not None:
        refuse(built.chip.hbm.banks, "chip.hbm.banks")
    return built


def _plural(case: type) -> str:
    return "models" if case is Case else case.__name__.lower() + "s"


def _runs(chip: type) -> str:
    return "runs " + ", ".join(_plural(case) for of, case in KINDS if of is chip)


def _alike(config: Dict[str, Any], classes: Sequence[type], usual: type) -> type:
    """The class that has most of the fields of a group, and of the groups in it; the usual one where they are as many."""

    def shared(cls: type) -> int:
        hints, count = get_type_hints(cls), 0
        for key in set(hints) & set(config):
            inner = _inner(hints[key])
            within = isinstance(config[key], Dict) and inner is not None
            count += 1 + (len(set(get_type_hints(inner)) & set(config[key])) if within else 0)
        return count

    return max(classes, key=lambda cls: (shared(cls), cls is usual))


def record(cls: type[T], config: Any, address: str, sources: list[Source]) -> T:
    """A value object from a dictionary of its fields; quantities are text with units, constants carry their source."""
    if not isinstance(config, Dict):
        raise DesignError(f"{address}: {config!r} is not a group of fields; {_has(address, cls)}")
    hints = get_type_hints(cls)
    names = {spec.name: spec for spec in fields(cls)}  # type: ignore[arg-type]
    for key in config:
        if key not in names:
            raise DesignError(f"{address}: no field {f'{address}.{key}'!r}; {nearest(str(key), names)}")
    values: dict[str, Any] = {}
    for name, spec in names.items():
        here = f"{address}.{name}"
        if name not in config:
            if spec.default is MISSING:
                raise DesignError(f"{here}: missing; {_meaning(spec)}")
            continue
        inner = _inner(hints[name])
        if inner is not None:
            absent = config[name] is None and isinstance(hints[name], UnionType)
            values[name] = None if absent else record(inner, config[name], here, sources)
        else:
            values[name] = _leaf(config[name], spec, here, sources)
    return cls(**values)


def models(config: Dict[str, Any]) -> dict[str, Model]:
    """The models of a configuration, by their names in it."""
    if not config:
        raise DesignError("model: none given; choose one or more, as in model=llama3_8b or model=[llama3_8b,qwen2_7b]")
    found = {}
    for name, entry in config.items():
        if not isinstance(entry, Dict):
            raise DesignError(f"model.{name}: {entry!r} is not a model; write model=NAME to choose one")
        architecture = {key: value for key, value in entry.items() if key not in MODEL_NOTES}
        found[name] = record(Model, architecture, f"model.{name}", [])
        _check_model(found[name], f"model.{name}")
    return found


def workload(config: Dict[str, Any], folder: Path) -> Workload:
    """The workload of a configuration: batches of equal requests or of lengths drawn from a file, products, or streams."""
    spec = {key: value for key, value in config["workload"].items() if key not in NOTES}
    seed = config["seed"]
    if isinstance(seed, bool) or not isinstance(seed, int) or seed < 0:
        raise DesignError(f"seed: {seed!r} is not a whole number of at least 0")
    if spec.get("patterns") is not None:
        return Workload(str(spec.get("name", "workload")), _streams(spec, seed))
    if spec.get("arrivals") is not None:
        return Workload(str(spec.get("name", "workload")), _loads(spec, folder, seed, config["model"]))
    if spec.get("kernel") is not None:
        return Workload(str(spec.get("name", "workload")), _products(spec))
    if spec.get("pattern") is not None:
        return Workload(str(spec.get("name", "workload")), _collectives(spec))
    if spec.get("keys") is not None:
        return Workload(str(spec.get("name", "workload")), _attention(spec))
    kinds = {"sequence": _equal_requests, "prompt": _equal_requests, "lengths": _drawn_requests}
    allowed = {"name", "batch", "sequence", "output_share", "prompt", "output", "lengths", "requests", "decode_at"}
    for key in spec:
        if key not in allowed:
            raise DesignError(f"workload: no field 'workload.{key}'; {nearest(key, allowed)}")
    kind = next((kinds[key] for key in ("lengths", "prompt", "sequence") if spec.get(key) is not None), None)
    if kind is None:
        raise DesignError("workload: give sequence and output_share, prompt and output, or lengths (a file)")
    decode_at = spec.get("decode_at", "mean")
    if decode_at not in DECODE_AT:
        raise DesignError(f"workload.decode_at: no option {decode_at!r}; {nearest(str(decode_at), DECODE_AT)}")
    cases = []
    for model in models(config["model"]).values():
        for label, batch in kind(spec, folder, seed):
            cases.append(Case(f"{model.name} {label}", model, batch))
    return Workload(str(spec.get("name", "workload")), tuple(cases), decode_at)


def parsed(value: Any, unit: str, address: str) -> float:
    """A number from text with a unit, or from a bare number where the field has none.

    Raises:
        DesignError: with the address in front.
    """
    if isinstance(value, str):
        try:
            return parse(value, unit)
        except DesignError as error:
            raise DesignError(f"{address}: {error}") from None
    if isinstance(value, int | float) and not isinstance(value, bool) and unit != "1" and value != 0:
        raise DesignError(f"{address}: {value!r} has no unit; expected one of {unit}, as in '{value} {unit}'")
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise DesignError(f"{address}: {value!r} is not a number")
    return value


def _check_model(model: Model, address: str) -> None:
    """Refuses fields that contradict each other."""
    if model.heads % model.kv_heads:
        raise DesignError(f"{address}.kv_heads: {model.kv_heads} KV heads do not divide {model.heads} query heads")
    experts = model.experts
    if experts is not None and experts.top_k > experts.count:
        raise DesignError(f"{address}.experts.top_k: a token goes to {experts.top_k} of {experts.count} experts")
    if experts is not None and experts.dense_layers > model.layers:
        raise DesignError(f"{address}.experts.dense_layers: {experts.dense_layers} of {model.layers} layers")


SHAPE: dict[str, tuple[type, ...]] = {
    **dict.fromkeys(("chip", "model", "mapping", "workload", "space", "objectives", "constraints"), (dict,)),
    **dict.fromkeys(("screen", "search", "verify", "workers", "ray", "report"), (dict,)),
    **dict.fromkeys(("name", "question", "fidelity", "run_dir"), (str,)),
    "store": (str, type(None)),
}


def _check_shape(config: Dict[str, Any]) -> None:
    for key, kinds in SHAPE.items():
        if key not in config:
            raise DesignError(f"{key}: missing from the configuration")
        if not isinstance(config[key], kinds):
            wanted = "a group of fields" if dict in kinds else "text"
            raise DesignError(f"{key}: {config[key]!r} is not {wanted}")
    if not config["name"] or set(config["name"]) & set('/\\:*?"<>|') or config["name"].startswith("."):
        raise DesignError(f"name: {config['name']!r} cannot name a folder")


def _products(spec: dict[str, Any]) -> tuple[Product, ...]:
    allowed = {"name", "kernel", "shapes"}
    for key in spec:
        if key not in allowed:
            raise DesignError(f"workload: a product by itself has no field 'workload.{key}'; {nearest(key, allowed)}")
    kind, shapes = spec["kernel"], spec.get("shapes")
    if kind not in PRODUCTS:
        raise DesignError(f"workload.kernel: no option {kind!r}; {nearest(str(kind), PRODUCTS)}")
    if not isinstance(shapes, list) or not shapes:
        raise DesignError(f"workload.shapes: {shapes!r} is not a list of sizes; write m x k x n, as in [8192x8192x8192]")
    found = []
    for shape in shapes:
        sizes = re.fullmatch(r"(\d+) *x *(\d+) *x *(\d+)", str(shape).strip())
        if sizes is None or "0" in sizes.groups():
            raise DesignError(f"workload.shapes: {shape!r} is not m x k x n, whole numbers above 0, as in 8192x8192x8192")
        m, k, n = map(int, sizes.groups())
        found.append(Product(f"{str(kind).upper()} {m} x {k} x {n}", str(kind), m, k, n))
    return tuple(found)


def _loads(spec: dict[str, Any], folder: Path, seed: int, given: Dict[str, Any]) -> tuple[Load, ...]:
    allowed = {"name", "arrivals", "rate", "cv", "trace", "ticks", "prompt", "output", "requests", "shuffle", "clip", "scale"}
    for key in spec:
        if key not in allowed | {"ttft", "tpot"}:
            raise DesignError(f"workload: served requests have no field 'workload.{key}'; {nearest(key, allowed)}")
    count = None if spec.get("requests") is None else _whole_numbers(spec, "requests")[0]
    if spec.get("trace") is not None:
        from evaluators.serving.traces import read

        asked = read(_found(spec["trace"], "workload.trace", folder), ticks=spec.get("ticks"))
        asked = asked.shuffled(seed) if spec.get("shuffle") else asked
        asked = asked.first(count) if count else asked
    else:
        asked = requests([(_whole_numbers(spec, "prompt")[0], _whole_numbers(spec, "output")[0])] * (count or 1000))
    asked = asked.clipped(_whole_numbers(spec, "clip")[0]) if spec.get("clip") is not None else asked
    if spec["arrivals"] == "trace":
        if not asked.timed:
            raise DesignError("workload.arrivals: no times to take from a trace; choose poisson, gamma, fixed or at_once")
        asked = asked.scaled(parsed(spec.get("scale", 1.0), "1", "workload.scale"))
    else:
        rate, cv = parsed(spec.get("rate"), "Hz", "workload.rate"), parsed(spec.get("cv", 1.0), "1", "workload.cv")
        asked = asked.arriving(str(spec["arrivals"]), rate=rate, cv=cv, seed=seed)
    slo = [parsed(spec.get(key), "s", f"workload.{key}") for key in ("ttft", "tpot")]
    label = f"{len(asked):,} requests at {asked.rate:.3g} a second"
    return tuple(Load(f"{model.name} {label}", model, asked, *slo) for model in models(given).values())


def _streams(spec: dict[str, Any], seed: int) -> tuple[Stream, ...]:
    allowed = {"name", "patterns", "writes", "request", "gap", "span", "requests"}
    for key in spec:
        if key not in allowed:
            raise DesignError(f"workload: requests to a memory have no field 'workload.{key}'; {nearest(key, allowed)}")
    sizes = {}
    for key, unit, least in (("request", "B", 1), ("gap", "s", 0), ("span", "B", 1)):
        sizes[key] = parsed(spec.get(key), unit, f"workload.{key}")
        if sizes[key] < least or (unit == "B" and sizes[key] != int(sizes[key])):
            raise DesignError(
                f"workload.{key}: {spec[key]!r} is not {'a whole number' if least else 'a time'} of at least {least}"
            )
    (requests,) = _whole_numbers(spec, "requests")[:1]
    shares = spec["writes"] if isinstance(spec.get("writes"), list) else [spec.get("writes")]
    if not isinstance(spec["patterns"], list) or not spec["patterns"] or not shares:
        raise DesignError("workload.patterns and workload.writes: lists, as in [sequential,stride1024] and [0,0.33]")
    found = []
    for text in spec["patterns"]:
        named = re.fullmatch(r"(sequential|random|stride|chunk)([1-9]\d*)?", str(text))
        if named is None or (named[1] in ("stride", "chunk")) != (named[2] is not None):
            raise DesignError(
                f"workload.patterns: no pattern {text!r}; valid: {', '.join(STREAMS)}, the last two with bytes, as in chunk256"
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
            found.append(
                Stream(
                    label, named[1], step, float(share), int(sizes["request"]), sizes["gap"], int(sizes["span"]), requests, seed
                )
            )
    return tuple(found)


def _collectives(spec: dict[str, Any]) -> tuple[Collective, ...]:
    words = {"pattern": PATTERNS, "along": ALONG, "combine": COMBINE}
    allowed = {"name", *words, "bytes", "group", "root"}
    for key in spec:
        if key not in allowed:
            raise DesignError(f"workload: a collective by itself has no field 'workload.{key}'; {nearest(key, allowed)}")
    patterns = spec["pattern"] if isinstance(spec["pattern"], list) and spec["pattern"] else [spec["pattern"]]
    for key, options in words.items():
        for chosen in patterns if key == "pattern" else [spec.get(key)]:
            if chosen not in options:
                raise DesignError(f"workload.{key}: no option {chosen!r}; {nearest(str(chosen), options)}")
    sizes, group, root = spec.get("bytes"), str(spec.get("group")).strip(), spec.get("root")
    if not isinstance(sizes, list) or not sizes:
        raise DesignError(f"workload.bytes: {sizes!r} is not a list of sizes with units, as in ['128 KiB']")
    found = re.fullmatch(r"([1-9]\d*) *x *([1-9]\d*)|mesh", group)
    if found is None:
        raise DesignError(f"workload.group: {group!r} is not rows x columns of tiles, as in 8x8, or mesh")
    rows, cols = (int(side or 0) for side in found.groups())
    if isinstance(root, bool) or not (root == DIAGONAL or (isinstance(root, int) and root >= 0)):
        raise DesignError(f"workload.root: {root!r} is not a place in a team from 0 on, or {DIAGONAL}")
    if root == DIAGONAL and spec["along"] == "rectangle":
        raise DesignError("workload.root: a rectangle has one root; give its place, rows after rows, as in 0")
    cases = []
    for pattern in patterns:
        for size in sizes:
            nbytes = parsed(size, "B", "workload.bytes")
            if nbytes <= 0 or nbytes % 1:
                raise DesignError(f"workload.bytes: {size!r} is not a whole number of bytes above 0")
            what = f"{spec['along']} {pattern}" + ("" if pattern == "multicast" else f" ({spec['combine']})")
            label = f"{what}, {size}, groups of {'all tiles' if group == 'mesh' else f'{rows} x {cols}'}"
            cases.append(Collective(label, pattern, nbytes, spec["along"], rows, cols, root, spec["combine"]))
    return tuple(cases)


def _attention(spec: dict[str, Any]) -> tuple[Attention, ...]:
    sizes, flags = ("batch", "heads", "kv_heads", "queries", "keys", "qk", "v"), ("causal", "latent")
    for key in spec:
        if key not in ("name", *sizes, *flags):
            raise DesignError(f"workload: attention by itself has no field 'workload.{key}'; {nearest(key, (*sizes, *flags))}")
    for key in flags:
        if not isinstance(spec.get(key), bool):
            raise DesignError(f"workload.{key}: {spec.get(key)!r} is neither true nor false")
    values = [_whole_numbers(spec, key, low=0 if key in ("kv_heads", "queries", "v") else 1) for key in sizes]
    found = []
    for batch, heads, kv_heads, queries, keys, qk, v in product(*values):
        kv_heads, queries, v = kv_heads or heads, queries or keys, v or qk
        if heads % kv_heads:
            raise DesignError(f"workload.kv_heads: {kv_heads} KV heads do not divide {heads} heads of queries")
        if spec["causal"] and queries > keys:
            raise DesignError(f"workload.queries: {queries} causal queries of {keys} keys; there is a key for each query")
        if spec["latent"] and not v < qk:
            raise DesignError(f"workload.v: {v} latent values are no part of keys of {qk} columns")
        what = f"batch {batch}, {heads} heads ({kv_heads} KV) of {qk}" + (f"/{v}" if v != qk else "")
        label = f"{what}, {queries} x {keys}" + (", causal" if spec["causal"] else "") + (", latent" if spec["latent"] else "")
        found.append(Attention(label, batch, heads, kv_heads, queries, keys, qk, v, spec["causal"], spec["latent"]))
    return tuple(found)


Requests = list[tuple[str, tuple[tuple[int, int, int], ...]]]


def _equal_requests(spec: dict[str, Any], folder: Path, seed: int) -> Requests:
    found: Requests = []
    for batch in _whole_numbers(spec, "batch"):
        if spec.get("prompt") is not None:
            pairs = [(p, o) for p in _whole_numbers(spec, "prompt") for o in _whole_numbers(spec, "output")]
        else:
            share = parsed(spec.get("output_share"), "1", "workload.output_share")
            if not 0 < share < 1:
                raise DesignError(f"workload.output_share: {share:g} is not between 0 and 1")
            pairs = [(s - round(s * share), round(s * share)) for s in _whole_numbers(spec, "sequence")]
        for prompt, output in pairs:
            if prompt < 1 or output < 1:
                raise DesignError(f"workload: a request of {prompt} prompt and {output} output tokens; each must be at least 1")
            found.append((f"batch {batch}, {prompt}+{output} tokens", ((batch, prompt, output),)))
    return found


def _drawn_requests(spec: dict[str, Any], folder: Path, seed: int) -> Requests:
    from evaluators.serving.traces import read

    found = _found(spec["lengths"], "workload.lengths", folder)
    (wanted,) = _whole_numbers(spec, "requests") if spec.get("requests") is not None else (64,)
    picked = read(found).drawn(wanted, seed)
    drawn = list(zip(picked.prompt.tolist(), picked.output.tolist(), strict=True))
    cases = []
    for batch in _whole_numbers(spec, "batch"):
        for start in range(0, len(drawn) - batch + 1, batch):
            members = drawn[start : start + batch]
            cases.append((f"batch {batch}, requests {start}-{start + batch - 1}", grouped(members)))
    if not cases:
        raise DesignError(f"workload.batch: no batch as large as {spec['batch']} in {wanted} requests; raise workload.requests")
    return cases


def _found(name: Any, address: str, folder: Path) -> Path:
    """A file here, or in the folder of a study."""
    path = Path(str(name))
    found = next((p for p in (path, folder / path) if p.exists()), None)
    if found is None:
        raise DesignError(f"{address}: no file {str(path)!r} here or in {folder}")
    return found


def _whole_numbers(spec: dict[str, Any], key: str, *, low: int = 1) -> list[int]:
    value = spec.get(key)
    values: list[Any] = value if isinstance(value, list) else [value]
    for entry in values:
        if isinstance(entry, bool) or not isinstance(entry, int) or entry < low:
            raise DesignError(f"workload.{key}: {entry!r} is not a whole number above {low - 1}")
    if not values:
        raise DesignError(f"workload.{key}: empty list")
    return values


def _leaf(value: Any, spec: Any, address: str, sources: list[Source]) -> Any:
    if isinstance(value, Dict):
        unknown = set(value) - CONSTANT
        if unknown or "value" not in value:
            raise DesignError(f"{address}: a constant has value, source, page and note; got {', '.join(map(str, value))}")
        origin = {key: str(value.get(key, "")) for key in ("page", "note")}
        sources.append(Source(address, str(value["value"]), str(value.get("source", "override")), **origin))
        value = value["value"]
    elif address.startswith("chip"):
        sources.append(Source(address, str(value), "override"))
    unit = spec.metadata["unit"]
    if unit and not isinstance(value, bool):
        value = parsed(value, unit, address)
    return checked(value, spec, address)


def _knob(address: str, config: Dict[str, Any], base: Design) -> Knob:
    from space.fields import addresses, spec_at

    where = f"space.{address}"
    try:
        leaf = addresses(base, address)[0]
    except DesignError as error:
        raise DesignError(f"space: {error}") from None
    spec = spec_at(base, leaf)
    unit = spec.metadata["unit"]
    scale = parsed(f"1 {config['unit']}", unit, where) if config.get("unit") else 1.0

    def value(entry: Any) -> Any:
        if not unit:
            return entry
        if unit != "1" and not config.get("unit") and not isinstance(entry, str):
            raise DesignError(f"{where}: {entry!r} has no unit; say it once, as in tag({unit}, choice(1, 2))")
        number = parsed(entry, unit, where) if not config.get("unit") else parsed(entry, "1", where) * scale
        return checked(number, spec, where)

    when = tuple(
        (other, tuple(allowed if isinstance(allowed, list) else [allowed])) for other, allowed in config.get("when", {}).items()
    )
    if "values" in config:
        return Choice(address, tuple(value(entry) for entry in config["values"]), when)
    low, high = (value(config[key]) for key in ("low", "high"))
    return Interval(address, low, high, bool(config.get("log")), when)


def _inner(hint: Any) -> Any:
    candidates = get_args(hint) if isinstance(hint, UnionType) else (hint,)
    return next((c for c in candidates if isinstance(c, type) and is_dataclass(c)), None)


def _meaning(spec: Any) -> str:
    unit = spec.metadata.get("unit", "")
    doc = str(spec.metadata.get("doc", "a group of fields"))
    return f"{doc} [{unit}]" if unit not in ("", "1") else doc


def _has(address: str, cls: type) -> str:
    return f"{address} has {', '.join(sorted(spec.name for spec in fields(cls)))}"
