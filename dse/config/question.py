"""Composed dictionaries to records: the one door where wrong addresses, units and options are refused."""

from collections.abc import Mapping as Dict
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from dse.config import format_policy as formats
from dse.config.arrival_times import refuse_unread_fields
from dse.config.knob_conditions import parse_conditions
from dse.config.metric_expressions import DefinedMetrics, parse_metric_expressions
from dse.config.open_settings import choose_devices, close_mapping
from dse.config.part_presets import find_causing_part
from dse.config.record_parser import USUAL_CHOICES, ConstantSource, parse_record, parse_setting, parse_value
from dse.config.tied_leaves import build_space_of_chips, parse_ties, split_knobs_and_ties
from dse.config.unread_settings import (
    find_given_leaves,
    find_knobs_read_anywhere,
    group_in_study_file,
    refuse_settings_unread_by_workload,
    refuse_unread_optional,
    refuse_unread_settings,
)
from dse.config.unread_stack_leaves import refuse_unread_host_link, refuse_unread_prefill
from dse.config.workloads import SEED, read_workload
from dse.space import dram as memory
from dse.space import multi_chip_space as chips
from dse.space import noc_router as network
from dse.space.chip import Chip
from dse.space.compatibility import KINDS, SPECULATING_SOFTWARE, WHERE, case_type_name, case_type_of
from dse.space.design import PREFILL_ADDRESS, Design, PoolLink, PrefillPool, UnlikePools, hash_lines, record_key
from dse.space.errors import DesignError
from dse.space.fields import addresses, check_leaf, field_at, group_field, text_field
from dse.space.knobs import ChoiceKnob, IntervalKnob, Knob, Space
from dse.space.machines import MACHINES, NODE_HINT, POOL, machine_of
from dse.space.main_memory import has_main_memory, main_memory
from dse.space.mapping import Mapping
from dse.space.memory_tiers import check_placement, check_tiers
from dse.space.model import Model
from dse.space.multi_chip_space import AnySpace
from dse.space.parameter_counts import fixed_bytes_per_sequence, keeps_all_positions
from dse.space.published import FACTS, is_said, remove_published_facts
from dse.space.software import (
    MANY_DIES,
    POOLED_DIES,
    REGIONS,
    SERVED_DIES,
    SERVED_PIPELINES,
    SERVED_POOLED_DIES,
    SERVED_REGIONS,
    SERVED_WHOLE_CHIP,
    SOFTWARE,
    software_of,
    software_without_stack,
)
from dse.space.workload import BatchCase, CollectiveCase, ExpertsCase, MemoryStreamCase, ServingLoad, Workload


@dataclass(frozen=True)
class Question:
    """Design, workload, space and sources of one evaluation or one study.

    Attributes:
        devices: by chip, or by the empty string where there is one, the tensor parallelism that was left open, in words.
    """

    base: Design
    workload: Workload
    space: AnySpace
    sources: tuple[ConstantSource, ...]
    defined: DefinedMetrics = field(default_factory=dict)
    devices: Dict[str, str] = field(default_factory=dict)


def build_question(config: Dict[str, Any], folder: Path, *, fewer: bool = False) -> Question:
    """Design, workload and space of a composed configuration.

    Args:
        config: plain dictionary; sweeps of `space` already parsed into knob dictionaries.
        folder: against which relative files are found, after the working folder.
        fewer: whether it may be of fewer chips than its space was written for; what those have not is left out.

    Raises:
        DesignError: naming the address, the value, what was expected and the nearest valid name.
    """
    _check_shape(config)
    defined = parse_metric_expressions(config)
    sources: list[ConstantSource] = []
    bases, open_tp = _base_designs(config, sources)
    asked_for = read_workload(
        config, folder, guesses=all(software_of(base.mapping) in SPECULATING_SOFTWARE for base in bases.values())
    )
    devices = {
        name: _choose_all_devices(base, asked_for, open_tp[name], find_given_leaves(base, config, folder), config["space"])
        for name, base in bases.items()
    }
    bases = {name: base for name, (base, _) in devices.items()}
    moving, following = split_knobs_and_ties(build_space_of_chips(config["space"], bases) if fewer else config["space"])
    _refuse_foreign_knobs(moving, bases)
    knobs = parse_conditions([_parse_knob(address, knob, bases) for address, knob in moving.items()], bases)
    knobs = find_knobs_read_anywhere(bases, knobs) if fewer else knobs
    tied = parse_ties(following, bases, knobs)
    for base in bases.values():
        refuse_unread_optional(base, knobs)
        refuse_unread_prefill(base, knobs)
        refuse_unread_host_link(base, knobs)
    refuse_unread_settings(bases, knobs, config, folder)
    if "chip.noc.topology" in config["space"] and case_type_of(config["workload"]) is not CollectiveCase:
        raise DesignError(
            "space.chip.noc.topology: has effect with workload=collective only; tiles of other workloads are a mesh: "
            "leave it out"
        )
    base = next(iter(bases.values()))
    space = chips.multi_chip_space(bases, knobs, tied) if config.get("chips") else Space(base, knobs, tied[""])
    if config.get("chips"):
        formats.check_equal_formats(bases, knobs, config)
    refuse_unread_fields(config["workload"], config.get("overrides", ()), group_in_study_file(config, folder, "workload"))
    refuse_settings_unread_by_workload(bases, asked_for, knobs, config, folder)
    for base in bases.values():
        _refuse_unread(base.mapping, asked_for)
        _refuse_stateless(base, asked_for)
        _refuse_snapshots(base.mapping, asked_for)
        _refuse_pooled(base.mapping, asked_for)
        _refuse_apart(base.mapping, asked_for)
    return Question(
        base, asked_for, space, tuple(sources), defined, {name: text for name, (_, text) in devices.items() if text}
    )


def _refuse_snapshots(mapping: Mapping, cases: Workload) -> None:
    """Refuse snapshots of states where there are none: nothing else is kept apart from the blocks of a prefix."""
    has_snapshot = mapping.serving is not None and mapping.serving.state_snapshot_tokens is not None
    models = [case.model for case in cases.cases if isinstance(case, ServingLoad)]
    if has_snapshot and not any(fixed_bytes_per_sequence(model, 1.0) for model in models):
        raise DesignError(
            f"mapping.serving.state_snapshot_tokens: {models[0].name} has no recurrent states to keep; leave it out"
        )


def _refuse_apart(mapping: Mapping, cases: Workload) -> None:
    """Refuse dies of attention alone beside batches, and micro-batches between them and FFNs where there are none."""
    for phase in ("prefill", "decode"):
        plan, served = getattr(mapping, phase), isinstance(cases.cases[0], ServingLoad)
        apart = getattr(plan, "attention_dies", None)
        if apart and not served:
            raise DesignError(f"mapping.{phase}.attention_dies: needs a serving load; set workload=serving, or leave it out")
        if getattr(plan, "pingpong", None) and not apart:
            raise DesignError(
                f"mapping.{phase}.pingpong: has no effect where each die has attention and FFNs; set attention_dies"
            )


def _refuse_pooled(mapping: Mapping, cases: Workload) -> None:
    """Refuse prefixes in the pool, of models that do not keep all positions: windows forget, states have no blocks."""
    if getattr(mapping.serving, "prefix_cache", "reserved") != "shared":
        return
    for model in (case.model for case in cases.cases if isinstance(case, ServingLoad)):
        if not keeps_all_positions(model):
            raise DesignError(
                f"mapping.serving.prefix_cache: {model.name} has layers that do not keep all positions; set reserved, and its "
                "size, mapping.serving.prefix_cache_share"
            )


def _base_designs(
    config: Dict[str, Any], sources: list[ConstantSource]
) -> tuple[dict[str, Design], dict[str, tuple[str, ...]]]:
    """The designs that knobs move, by chip; of a study of one chip, that one by no name.

    Beside them the tensor parallelism that is left open, by address.
    """
    if not config.get("chips"):
        try:
            base, open_tp = _parse_design(config, config["workload"], sources)
            return {"": base}, {"": open_tp}
        except DesignError as error:
            if by := find_causing_part(str(error), config.get("choices", {})):
                raise DesignError(f"{error}; {by}") from None
            raise
    bases, open_in = {}, {}
    for name, group in config["chips"].items():
        own: list[ConstantSource] = []
        try:
            bases[name], open_in[name] = _parse_design(group, config["workload"], own)
        except DesignError as error:
            raise DesignError(f"chips: {name}: {error}") from None
        sources += [replace(source, address=f"{name}: {source.address}") for source in own]
    _refuse_mixed(bases)
    return bases, open_in


def _refuse_mixed(bases: Dict[str, Design]) -> None:
    """Refuse areas of a paper's own model beside those of nodes: in one front they would be compared."""
    own = [name for name, base in bases.items() if base.chip.areas is not None]
    others = [name for name in bases if name not in own]
    if own and others:
        raise DesignError(
            f"chips: {own[0]} has areas of a paper (chip.areas), {others[0]} those of its process node; these do not compare; "
            "leave chip.areas out"
        )


def _parse_design(
    config: Dict[str, Any], workload: Dict[str, Any], sources: list[ConstantSource]
) -> tuple[Design, tuple[str, ...]]:
    """A chip of the parts that its fields say, with the mapping that goes with it and with what is asked.

    Beside it the tensor parallelism that is left open, by address.
    """
    mapping, part = config["mapping"], _with_part(_parse_chip(config["chip"], sources), config.get("as_given"))
    machine, case = machine_of(part), case_type_of(workload)
    if (machine, case) not in KINDS:
        raise DesignError(
            f"workload: nothing runs {case_type_name(case)} on this chip, which {_runs_text(machine)}; try {WHERE[case]}"
        )
    kind = KINDS[machine, case]
    closed, open_tp = close_mapping(mapping, workload)
    record = parse_record(Mapping, closed, "mapping", sources)
    if (plans := software_without_stack(record)) not in kind.software:
        case_text = f"{case_type_name(case)} on {MACHINES[machine].name}"
        boxes = f"; or {NODE_HINT}" if machine == POOL and plans in (POOLED_DIES, SERVED_POOLED_DIES) else ""
        raise DesignError(
            f"mapping: the chosen mapping is for {SOFTWARE[plans].name}; for {case_text} choose mapping={kind.choices}{boxes}"
        )
    software_of(record)
    _refuse_parts(part, case)
    check_tiers(part)
    check_placement(part, record, serves=case is ServingLoad, is_model=case in (BatchCase, ServingLoad))
    if config.get("pools") and part.tiers is not None:
        raise DesignError("chip.tiers: pools on unlike chips read main memory only; leave out pools, or ~chip.tiers")
    _refuse_ahead(part, record)
    _refuse_products(record)
    _refuse_states(record)
    if config.get("pools"):
        _refuse_pipelined_pool(record, "")
    pools, pools_open_tp = _parse_pools(config.get("pools"), workload, sources)
    return Design(part, record, pools), (*open_tp, *pools_open_tp)


def _parse_pools(
    config: Dict[str, Any] | None, workload: Dict[str, Any], sources: list[ConstantSource]
) -> tuple[UnlikePools | None, tuple[str, ...]]:
    """The prefill pool on chips of another kind, with the link from it, and its tensor parallelism that is left open.

    None where one kind of chip does both.
    """
    if not config:
        return None, ()
    if case_type_of(workload) is not ServingLoad:
        raise DesignError("pools: pools of unlike chips serve requests; set workload=serving, or leave them out")
    own: list[ConstantSource] = []
    try:
        prefill, open_tp = _parse_design(config["prefill"], workload, own)
    except DesignError as error:
        raise DesignError(f"pools.prefill: {error}") from None
    _refuse_pipelined_pool(prefill.mapping, PREFILL_ADDRESS)
    if prefill.chip.tiers is not None:
        raise DesignError("pools.prefill.chip.tiers: pools on unlike chips read main memory only; ~pools.prefill.chip.tiers")
    sources += [replace(source, address=f"{PREFILL_ADDRESS}{source.address}") for source in own]
    link = parse_record(PoolLink, config["link"], "pools.link", sources)
    pools = UnlikePools(prefill=PrefillPool(chip=prefill.chip, mapping=prefill.mapping), link=link)
    return pools, tuple(f"{PREFILL_ADDRESS}{address}" for address in open_tp)


def _refuse_pipelined_pool(mapping: Mapping, address: str) -> None:
    """Refuse pipelines of cores as one of two pools on unlike chips: both of their pools are on one chip."""
    if software_of(mapping) == SERVED_PIPELINES:
        raise DesignError(
            f"{address}mapping: {SOFTWARE[SERVED_PIPELINES].name} have prefill and decode on one chip; choose another mapping "
            "of this pool, as flat_serving, or leave pools out"
        )


def _choose_all_devices(
    base: Design, workload: Workload, open_tp: tuple[str, ...], given: list[str], space: Dict[str, Any]
) -> tuple[Design, str]:
    """A design on the fewest devices that hold its models, with those of a prefill pool; and how many, in words."""
    own = tuple(address for address in open_tp if not address.startswith(PREFILL_ADDRESS))
    chosen, text = choose_devices(base, workload, own, given, space)
    if base.pools is None:
        return chosen, text
    prefill = base.pools.prefill
    others = tuple(address.removeprefix(PREFILL_ADDRESS) for address in open_tp if address not in own)
    pool, pool_text = choose_devices(Design(prefill.chip, prefill.mapping), workload, others, [], {})
    mapping = replace(pool.mapping, serving=None)  # that of the design counts
    pools = replace(base.pools, prefill=replace(prefill, mapping=mapping))
    texts = [text, f"prefill pool on {pool_text}" if pool_text else ""]
    return replace(chosen, pools=pools), "; ".join(filter(None, texts))


def _parse_chip(chip: Dict[str, Any], sources: list[ConstantSource]) -> Chip:
    return parse_record(Chip, {key: value for key, value in chip.items() if key not in USUAL_CHOICES}, "chip", sources)


def _with_part(chip: Chip, as_given: Dict[str, Any] | None) -> Chip:
    """A chip whose facts know the part that they are of: the chip itself, or that of the file which says them."""
    facts = chip.published
    if facts is None:
        return chip
    if facts.part is not None:
        raise DesignError("chip.published.part: is computed from the preset of the chip; leave it out")
    parts = dict.fromkeys((fact for fact in FACTS if is_said(chip, fact)), remove_published_facts(chip))
    if as_given is not None:
        parts |= dict.fromkeys(as_given["facts"], remove_published_facts(_parse_chip(as_given["chip"], [])))
    part = hash_lines(f"{fact}: {record_key(part)}" for fact, part in parts.items()) if parts else None
    return replace(chip, published=replace(facts, part=part, given=tuple(parts.items())))


def _refuse_parts(chip: Chip, case: type) -> None:
    """Refuse parts that make no sense, alone or for what is asked."""
    if chip.memory is not None:
        memory.check_memory(chip.memory, "chip.memory")
    if chip.router is not None:
        network.check_network(chip)
    elif chip.mesh is not None:
        network.parse_faults(chip)
    main = main_memory(chip) if has_main_memory(chip) else None
    if chip.mesh is not None and chip.die is not None:
        if main is None and chip.dram is not None:
            raise DesignError("chip.dram: has no effect without chip.hbm")
        if main is not None and main.devices is None:
            raise DesignError("chip.dram: missing; choose a preset: +dram@chip.dram=hbm3")
    if chip.memory is None and main is not None and main.banks is not None:
        memory.check_memory(main.banks, f"chip.{main.banks_part}")
    if chip.tile is None:
        _refuse_edge(chip, case)
        return
    if chip.l2 is not None and case not in (BatchCase, ServingLoad):
        raise DesignError(
            f"chip.l2: {case_type_name(case)} alone read nothing twice; leave it out, or choose a workload of models"
        )
    if case is MemoryStreamCase:
        _refuse_stream(chip)
    if case is not CollectiveCase and chip.noc.topology != "mesh":
        raise DesignError(f"chip.noc.topology: only workload=collective runs on {chip.noc.topology!r}; set mesh")


def _refuse_edge(chip: Chip, case: type) -> None:
    """Refuse main memory of a mesh of cores that nothing reads so."""
    if chip.mesh is None or not has_main_memory(chip):
        return
    main = main_memory(chip)
    if main.channel_side in ("", "core"):
        raise DesignError(
            f"{main.address('channel_side')}: main memory of a mesh of cores is at an edge; set south, or add "
            "+part@chip.hbm=hbm3_edge"
        )
    if case is not BatchCase:
        raise DesignError(
            f"chip.{main.part}: {case_type_name(case)} on a mesh of cores do not use it; leave it out, or choose a batch "
            "workload"
        )


def _refuse_ahead(chip: Chip, mapping: Mapping) -> None:
    """Refuse what is read ahead where requests come and go, or of a memory that is not there."""
    software = software_of(mapping)
    for phase in ("prefill", "decode"):
        if software in (REGIONS, SERVED_REGIONS) and not has_main_memory(chip) and getattr(mapping, phase).prefetch is not None:
            raise DesignError(
                f"mapping.{phase}.prefetch: this chip has no main memory to read ahead from; add +part@chip.hbm=hbm3_edge, or "
                "leave it out"
            )
        if software == SERVED_WHOLE_CHIP and getattr(mapping, phase).prefetch is not None:
            raise DesignError(
                f"mapping.{phase}.prefetch: tiles with a serving load do not prefetch; leave it out, or choose a batch workload"
            )


def _refuse_products(mapping: Mapping) -> None:
    """Refuse algorithms of matrix products that only decode has, whose products are of vectors."""
    if software_of(mapping) not in (REGIONS, SERVED_REGIONS):
        return
    for name in ("gemm_attention", "gemm_ffn"):
        if getattr(mapping.decode, name) not in (None, getattr(mapping.prefill, name)):
            raise DesignError(f"mapping.decode.{name}: decode multiplies vectors, by gemv; set mapping.prefill.{name}")


def _refuse_states(mapping: Mapping) -> None:
    """Refuse room for states that nobody keeps there."""
    if getattr(mapping.prefill, "state_share", None) is not None:
        raise DesignError("mapping.prefill.state_share: states of a prompt stay with its tiles; set mapping.decode.state_share")
    if getattr(mapping.decode, "state_share", None) is not None and software_of(mapping) == SERVED_WHOLE_CHIP:
        raise DesignError("mapping.decode.state_share: tiles with a serving load keep states in main memory; leave it out")


def _refuse_stateless(base: Design, workload: Workload) -> None:
    """Refuse room for states where no model has any."""
    models = [case.model for case in workload.cases if isinstance(case, BatchCase)]
    if getattr(base.mapping.decode, "state_share", None) is not None and not any(
        fixed_bytes_per_sequence(model, 0.0) for model in models
    ):
        raise DesignError("mapping.decode.state_share: no model of the workload has recurrent states; leave it out")


def _refuse_unread(mapping: Mapping, asked_for: Workload) -> None:
    """Refuse formats of tensors that no model has which is asked for."""
    models = [case.model for case in asked_for.cases if isinstance(case, BatchCase | ServingLoad)]
    tensors = {
        "attention": ("attention", bool(models)),
        "experts": (
            "experts",
            any(model.experts is not None for model in models)
            or any(isinstance(case, ExpertsCase) for case in asked_for.cases),
        ),
        "index": ("a sparse indexer", any(_has_indexer(model) for model in models)),
    }
    for name, (what, is_used) in tensors.items() if mapping.precision is not None else ():
        if not is_used and getattr(mapping.precision, name) is not None:
            raise DesignError(f"mapping.precision.{name}: has no effect, since no model here has {what}; leave it out")
    _refuse_combine(mapping, expert=tensors["experts"][1])


def _refuse_combine(mapping: Mapping, *, expert: bool) -> None:
    """Refuse a format of what experts send back where they send nothing: `expert` says whether a model has any.

    The mappings of many dies with a cache say one whatever the model.
    """
    software = software_of(mapping)
    pooled, tiles = software in (POOLED_DIES, SERVED_POOLED_DIES), software in (MANY_DIES, SERVED_DIES)
    if getattr(mapping.precision, "combine", None) is None or pooled or (tiles and expert):
        return
    why = "no model here has experts" if tiles else "experts send nothing back here"
    raise DesignError(
        f"mapping.precision.combine: has no effect, since {why}; leave it out, or choose a model with experts on many dies "
        "(chip=wafer64, chip=h800_ep)"
    )


def _has_indexer(model: Model) -> bool:
    """Whether some layers of a model choose what they attend to."""
    return model.indexer is not None or any(kind.indexer is not None for _, kind in model.kinds)


def _refuse_stream(chip: Chip) -> None:
    main = main_memory(chip)
    if main.banks is None:
        raise DesignError(
            f"chip.{main.banks_part}: requests are simulated on banks; add `/memory@{main.banks_part}: hbm4` to the chip's "
            "defaults"
        )
    if main.channel_side == "core":
        raise DesignError(
            f"{main.address('channel_side')}: at core, each core has its own memory without links; simulate that memory alone, "
            "as chip=hbm2"
        )


def _runs_text(machine: str) -> str:
    return "runs " + ", ".join(case_type_name(case) for machine_name, case in KINDS if machine_name == machine)


SHAPE: Dict[str, Any] = {
    **dict.fromkeys(
        ("chip", "model", "mapping", "workload", "space", "objectives", "constraints"), group_field("part of a question")
    ),
    **dict.fromkeys(("screen", "search", "verify", "workers", "ray", "report"), group_field("settings of a study")),
    "name": text_field("name of the study, and of its folder"),
    "question": text_field("what the study asks"),
    "fidelity": text_field("fidelity of the search"),
    "run_dir": text_field("folder of the report and the results"),
    "seed": SEED,
    "store": text_field("database of the results; null for a file of the folder", absent=True),
}
"""Declarations of the settings and groups at the top of a configuration."""


def _check_shape(config: Dict[str, Any]) -> None:
    for key, declared in SHAPE.items():
        if key not in config:
            raise DesignError(f"{key}: missing from the configuration; needed: {declared.metadata['doc']}")
        parse_setting(config[key], declared, key)
    name = config["name"]
    if not name.isprintable() or set(name) & set('/\\:*?"<>|') or name.strip() != name or name[:1] in ("", ".", "-"):
        raise DesignError(f"name: {name!r} cannot name a folder")


def _refuse_foreign_knobs(moving: Dict[str, Any], bases: Dict[str, Design]) -> None:
    """Refuse knobs of which no chip has the address.

    Raises:
        DesignError: one with the nearest valid address; of several, how many there are.
    """
    refusals: dict[str, str] = {}
    for address in moving:
        try:
            chips.chips_with_address(bases, address)
        except DesignError as error:
            refusals[address] = str(error)
    if len(refusals) > 1:
        kept = len(moving) - len(refusals)
        removed = ", or leave the others out: " + " ".join(f"~space.{address}" for address in refusals) if kept else ""
        chip_names = ", ".join(filter(None, bases)) or "this chip"
        raise DesignError(
            f"space: {chip_names} with its mapping has {kept or 'none'} of the {len(moving)} knobs of this space, "
            f"such as {next(iter(refusals))}; choose a chip or a study that fits{removed}"
        )
    if refusals:
        raise DesignError(f"space: {next(iter(refusals.values()))}")


def _parse_knob(address: str, config: Dict[str, Any], bases: Dict[str, Design]) -> Knob:
    where = f"space.{address}"
    base = bases[chips.chips_with_address(bases, address)[0]]
    leaf = addresses(base, address)[0]
    spec = field_at(base, leaf)
    unit = spec.metadata["unit"]
    scale = parse_value(f"1 {config['unit']}", unit, where) if config.get("unit") else 1.0

    def parse_entry(entry: Any) -> Any:
        if not unit:
            return entry
        if unit != "1" and not config.get("unit") and not isinstance(entry, str):
            raise DesignError(f"{where}: {entry!r} has no unit; set it once, as in tag({unit}, choice(1, 2))")
        number = parse_value(entry, unit, where) if not config.get("unit") else parse_value(entry, "1", where) * scale
        return check_leaf(number, spec, where)

    when = tuple(
        (other, tuple(allowed if isinstance(allowed, list) else [allowed])) for other, allowed in config.get("when", {}).items()
    )
    if "values" in config:
        return ChoiceKnob(address, tuple(parse_entry(entry) for entry in config["values"]), when)
    low, high = (parse_entry(config[key]) for key in ("low", "high"))
    return IntervalKnob(address, low, high, bool(config.get("log")), when)
