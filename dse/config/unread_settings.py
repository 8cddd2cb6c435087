"""Settings of a mapping that the user or a knob sets and that nothing reads under the other options.

Settings of a preset for an algorithm that was not chosen stay, and change nothing.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from dse.config.renamed_addresses import overridden_leaves as given
from dse.config.renamed_addresses import rename_content
from dse.config.unread_stack_leaves import attention_library_part, find_unread_serving_leaves, find_unread_stack_leaves
from dse.config.yaml_files import read_document
from dse.space.aliases import current_address, guess_machine_of_leaves
from dse.space.compatibility import case_type_name
from dse.space.design import Design
from dse.space.errors import DesignError
from dse.space.fields import iterate_leaves, leaf_at, match_addresses_or_none
from dse.space.knobs import Knob, explain_never_read
from dse.space.software import DEVICES, PIPELINES, PRODUCT, REGIONS, SERVED_PIPELINES, SERVED_REGIONS, software_of
from dse.space.unread_leaves import deciding_leaves
from dse.space.workload import AttentionCase, BatchCase, CollectiveCase, ProductCase, ServingLoad, Workload

CHIP, MAPPING, STACK, PLANS = "chip.", "mapping.", "mapping.stack.", ("mapping.prefill.", "mapping.decode.")

PRODUCTS = ("mapping.decode.gemm", "mapping.decode.gemm_attention", "mapping.decode.gemm_ffn")
"""What regions of a mesh never read: tokens that are generated are vectors there, which `gemv` multiplies."""


def find_given_leaves(base: Design, config: Mapping[str, Any], folder: Path) -> list[str]:
    """Settings of a design that overrides, the file of a study or knobs set."""
    own = [address for address, _, _ in iterate_leaves(base)]
    machine = guess_machine_of_leaves(own)
    of_file = (_leaves_inside(group_in_study_file(config, folder, group), f"{group}.") for group in ("mapping", "chip"))
    addresses = [
        *sorted(given(config.get("overrides", ()), own)),
        *(current_address(address, machine) for entries in of_file for address, _ in entries),
        *config["space"],
    ]
    leaves = (leaf for address in addresses for leaf in find_leaves_named(base, address.removesuffix(".value")))
    return list(dict.fromkeys(leaves))


def find_knobs_read_anywhere(bases: Mapping[str, Design], knobs: Sequence[Knob]) -> tuple[Knob, ...]:
    """Knobs of which at least one chip reads a setting."""
    return tuple(knob for knob in knobs if not _unread_text(bases, knob.address, knobs))


def refuse_unread_optional(base: Design, knobs: Sequence[Knob]) -> None:
    """Refuse an optional setting that is given and that nothing reads.

    Raises:
        DesignError: the first, by its address, with the word beside which nothing reads it.
    """
    for address, _, spec in iterate_leaves(base.mapping, MAPPING):
        if "unread" not in spec.metadata or spec.default is not None:
            continue
        if explain_never_read(base, [address], knobs):
            chooser, word = _first_decider(base, address)
            raise DesignError(f"{address}: has no effect with {word}; set null, or another {chooser}")


def refuse_unread_settings(bases: Mapping[str, Design], knobs: Sequence[Knob], config: Mapping[str, Any], folder: Path) -> None:
    """Refuse a knob, an override or a line of a study's file that sets what nothing reads.

    Args:
        bases: by chip.
        knobs: of the space.
        config: with the overrides that were typed.
        folder: of the study.

    Raises:
        DesignError: the first of them, by its address. A line of a file gives way to a word that was typed.
    """
    for knob in knobs:
        if beside := _unread_text(bases, knob.address, knobs):
            raise DesignError(f"space.{knob.address}: has no effect with {beside}; leave it out")
    typed = dict(_typed_leaves(config.get("overrides", ())))
    chosen = {leaf for address in typed for base in bases.values() for leaf in find_leaves_named(base, address)}
    own = (
        {}
        if _idle_leaves(bases, knobs) == set()
        else dict(_leaves_inside(group_in_study_file(config, folder, "mapping"), MAPPING))
    )
    for address, value in (own | typed).items():
        if value in (None, 0, 0.0):  # not said, or chosen by the model
            continue
        if beside := _unread_text(bases, address, knobs, {*typed, *own}):
            if address not in typed and {part.partition("=")[0] for part in beside.split(", ")} & chosen:
                continue
            raise DesignError(f"{address}: has no effect with {beside}; leave it out")


def refuse_settings_unread_by_workload(
    bases: Mapping[str, Design], asked_for: Workload, knobs: Sequence[Knob], config: Mapping[str, Any], folder: Path
) -> None:
    """Refuse a knob, an override or a line of a study file that no chip reads for the workload.

    Raises:
        DesignError: the first of them, by its address, and what to say instead.
    """
    unread_by_chip = {
        name: find_unread_by_workload(
            base, asked_for, [leaf for knob in knobs for leaf in find_leaves_named(base, knob.address)]
        )
        for name, base in bases.items()
    }
    if not any(unread_by_chip.values()):
        return
    words = config.get("overrides", ())
    settings = dict(_leaves_inside(group_in_study_file(config, folder, "mapping"), MAPPING)) | dict(_typed_leaves(words))
    typed = [address for address, value in settings.items() if value not in (None, 0, 0.0)]
    moved = [knob.address for knob in knobs if not knob.address.endswith(".experts")]  # spaces are for models with and without
    for prefix, address in (*(("space.", address) for address in moved), *(("", address) for address in typed)):
        leaves_by_chip = {name: leaves for name, base in bases.items() if (leaves := _leaves_set(base, address, settings))}
        if leaves_by_chip and all(set(leaves) <= unread_by_chip[name].keys() for name, leaves in leaves_by_chip.items()):
            name, leaves = next(iter(leaves_by_chip.items()))
            raise DesignError(f"{prefix}{address}: has no effect, since {unread_by_chip[name][leaves[0]]}")


def refuse_unread_overrides(base: Design, asked_for: Workload, words: Sequence[str], others: Sequence[str] = ()) -> None:
    """Refuse an override of one design that sets what nothing reads, whatever a study's knobs set.

    Args:
        base: the design.
        asked_for: of it.
        words: that name it.
        others: further overrides, such as those that a study was run with.

    Raises:
        DesignError: the first of them, by its address.
    """
    typed, designs = {*dict(_typed_leaves([*others, *words]))}, {"": base}
    for address, value in _typed_leaves(words):
        if value not in (None, 0, 0.0) and (beside := _unread_text(designs, address, (), typed)):
            raise DesignError(f"{address}: has no effect with {beside}; leave it out")
    typed_alone = [word for word in words if not word.startswith("study=")]  # without the lines of a study's file
    refuse_settings_unread_by_workload(designs, asked_for, (), {"overrides": typed_alone}, Path())


def find_unread_by_workload(base: Design, asked_for: Workload, moved: Collection[str] = ()) -> dict[str, str]:
    """Settings of a mapping that nothing reads for the workload, each with the reason and a remedy.

    Args:
        base: chip and mapping.
        asked_for: of them.
        moved: leaves that knobs move.
    """
    return _of_plans(base, asked_for) | _of_stack(base, asked_for, moved) | find_unread_serving_leaves(base, asked_for)


def _of_stack(base: Design, asked_for: Workload, moved: Collection[str]) -> dict[str, str]:
    unread = find_unread_stack_leaves(base, asked_for, moved)
    leaves = [leaf for leaf, _, _ in iterate_leaves(base.mapping, MAPPING) if unread and leaf.startswith(STACK)]
    names = {leaf: leaf.removeprefix(STACK) for leaf in leaves}
    reasons = {leaf: unread.get(name) or unread.get(name.partition(".")[0]) for leaf, name in names.items()}
    return {leaf: f"{reason}; leave it out" for leaf, reason in reasons.items() if reason}


def _of_plans(base: Design, asked_for: Workload) -> dict[str, str]:
    case, software = asked_for.cases[0], software_of(base.mapping)
    if software in (REGIONS, SERVED_REGIONS):
        return dict.fromkeys(
            PRODUCTS, "decode multiplies vectors here; set mapping.decode.gemv, or mapping.prefill.gemm for prompts"
        )
    if software == PRODUCT and isinstance(case, ProductCase):
        if case.kind == "gemv":
            return {"mapping.gemm": "workload=gemv multiplies a vector; set mapping.gemv, or workload=gemm"}
        others = ("mapping.gemv", "mapping.ktree_k", "mapping.gemv_result")
        return dict.fromkeys(others, "workload=gemm multiplies matrices; set mapping.gemm, or workload=gemv")
    if software == DEVICES and not isinstance(case, BatchCase):
        read = sorted({leaf for case in asked_for.cases for leaf in _divided_leaves(case)})
        plans = [leaf for leaf, _, _ in iterate_leaves(base.mapping, MAPPING) if leaf.startswith(PLANS) and leaf not in read]
        return dict.fromkeys(plans, f"{case_type_name(type(case))} alone use only {' and '.join(read)}; leave it out")
    models = [case.model for case in asked_for.cases if isinstance(case, BatchCase | ServingLoad)]
    if software in (PIPELINES, SERVED_PIPELINES) and not any(model.experts for model in models):
        both = (f"mapping.{phase}.experts" for phase in ("prefill", "decode"))
        return dict.fromkeys(both, "no model here has experts; leave it out")
    return {}


def _divided_leaves(case: Any) -> tuple[str, ...]:
    """Leaves of the plans that a kernel by itself on dies with a cache reads."""
    if isinstance(case, AttentionCase):
        plan = "prefill" if attention_library_part(case).endswith("prefill_attention") else "decode"
        return f"mapping.{plan}.tp", f"mapping.{plan}.kv_heads"
    sums = ("mapping.decode.allreduce",) if isinstance(case, ProductCase | CollectiveCase) else ()
    return "mapping.decode.tp", *sums


def _idle_leaves(bases: Mapping[str, Design], knobs: Sequence[Knob]) -> set[str]:
    """Leaves of the bases that nothing reads."""
    return {
        address
        for base in bases.values()
        for address, _, spec in iterate_leaves(base.mapping, MAPPING)
        if "unread" in spec.metadata and explain_never_read(base, [address], knobs)
    }


def _unread_text(bases: Mapping[str, Design], address: str, knobs: Sequence[Knob], typed: set[str] | None = None) -> str:
    """Beside what no chip reads the leaves of an address; "" where some chip may, or none has them.

    Args:
        bases: by chip.
        address: of leaves of one phase or of both.
        knobs: of the space.
        typed: addresses that somebody says; decode follows prefill where its own is not among them. None where it does not.
    """
    reason = ""
    for base in bases.values():
        targets = find_leaves_named(base, address) if typed is None else _leaves_set(base, address, typed)
        if not targets:
            continue
        reason = explain_never_read(base, targets, knobs)
        if not reason:
            return ""
    return reason


def _first_decider(base: Design, address: str) -> tuple[str, str]:
    """The first leaf that decides whether another is read, and its word."""
    chooser = next(iter(deciding_leaves(base, address)))
    return chooser, str(leaf_at(base, chooser))


def find_leaves_named(base: Design, address: str) -> list[str]:
    """Settings that an address names."""
    return match_addresses_or_none([leaf for leaf, _, _ in iterate_leaves(base)], address)


def _leaves_set(base: Design, address: str, addresses: Collection[str]) -> list[str]:
    """Leaves that an address sets: decode follows prefill where its own is not said."""
    decode = address.replace(".prefill.", ".decode.")
    return [
        *find_leaves_named(base, address),
        *(leaf for leaf in find_leaves_named(base, decode) if decode != address and leaf not in addresses),
    ]


def set_by(base: Design, words: Sequence[str]) -> dict[str, list[str]]:
    """Settings of chip and mapping that overrides set, by address as written.

    A setting of prefill that decode follows counts for both phases.
    """
    addresses = [address for address, _ in (*_typed_leaves(words, CHIP), *_typed_leaves(words))]
    leaves = {address: _leaves_set(base, address.removesuffix(".value"), {*addresses}) for address in addresses}
    return {address: leaves_of for address, leaves_of in leaves.items() if leaves_of}


def _typed_leaves(words: Sequence[str], where: str = MAPPING) -> Iterator[tuple[str, Any]]:
    """Leaves of the mapping that overrides set, or of the chip, with their values; of groups of fields, those inside."""
    for word in words:
        address, _, value = word.lstrip("+").partition("=")
        if not address.startswith(where) and address != where[:-1]:
            continue
        if value.startswith("{"):
            from dse.config.sweep_syntax import overridden_group

            yield from _leaves_inside(overridden_group(word) or {}, f"{address}.")
        elif address != where[:-1]:
            yield address, {"null": None, "0": 0}.get(value, value)


def group_in_study_file(config: Mapping[str, Any], folder: Path, group: str) -> Mapping[str, Any]:
    """Fields of a group that the file of a study sets itself."""
    if not any(str(word).startswith("study=") for word in config.get("overrides", ())):
        return {}
    entry = rename_content(read_document(folder / "study.yaml")).get(group)
    return entry if isinstance(entry, dict) else {}


def _leaves_inside(group: Any, prefix: str) -> Iterator[tuple[str, Any]]:
    for name, value in group.items() if isinstance(group, dict) else ():
        if isinstance(value, dict):
            yield from _leaves_inside(value, f"{prefix}{name}.")
        elif not str(value).startswith("${"):
            yield f"{prefix}{name}", value
