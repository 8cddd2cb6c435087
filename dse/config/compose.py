"""Configuration by Hydra: overrides in, a plain dictionary out.

Hydra composes here; its sweep grammar becomes plain knob dictionaries (`dse.config.sweep_syntax`), its errors one line each,
and what it reads of others is checked (`dse.config.hydra_sources`, `dse.config.untrusted_files`). What belongs to a chip
follows the composed chip.
"""

import contextlib
import io
import os
import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from dse import huggingface as from_hf
from dse import model_graphs as from_graph
from dse.config import multi_chip as chips
from dse.config import peaks, renamed_words
from dse.config import renamed_addresses as spelling
from dse.config import untrusted_files as strangers
from dse.config.compose_cache import compose_cached
from dse.config.dropped_leaves import drop_leaves_of_other_algorithms
from dse.config.engine_settings import settle_engine
from dse.config.override_errors import describe_broken_reference, explain_override_error, find_chosen_part
from dse.config.overrides import DEFAULT, CommandLine, find_study_paths, parse_command_line
from dse.config.published_formats import with_published_formats
from dse.config.record_parser import ACCURACY, STACK, USUAL, parse_record, parse_setting
from dse.config.unlike_pools import compose_with_pools
from dse.config.untrusted_files import TRUST
from dse.config.yaml_files import listed_defaults, read_document
from dse.space.errors import CONFIGURATION_FIELDS, DesignError, suggest_nearest
from dse.space.fields import integer_field
from dse.space.model import MAX_LAYERS
from dse.space.published import FACTS
from dse.space.stack import StackAccuracy

STUDIES, CONF = strangers.SHIPPED_STUDIES, strangers.SHIPPED_CONF


def compose(overrides: Sequence[str], *, trust: bool = False) -> dict[str, Any]:
    """Configuration of some overrides as a plain dictionary, ready for `dse.config.question`.

    ``study=NAME`` may be among the overrides.

    Args:
        overrides: Hydra's, and its flags.
        trust: whether files that are not ours may run code.

    Raises:
        DesignError: an override or a file is not understood, or a file of others would run code.
    """
    configs: list[dict[str, Any]] = []
    run_with_hydra([*overrides, *([TRUST] if trust else [])], configs.append)
    if not configs:
        raise DesignError(f"{' '.join(overrides)}: prints text and gives no configuration")
    return configs[0]


def find_study_folder(config: Mapping[str, Any]) -> Path:
    """Folder of the files that a study names: that of its definition, whatever its name."""
    chosen = [word.removeprefix("study=") for word in config.get("overrides", ()) if word.startswith("study=")]
    path = find_study_paths().get(chosen[-1] if chosen else str(config["name"]))
    return path.parent if path else Path.cwd()


def read_bibliography() -> dict[str, str]:
    """Sources by the keys that constants name."""
    return {str(key): str(text) for key, text in read_document(CONF / "sources.yaml").items()}


def read_stack_accuracy(name: str) -> StackAccuracy:
    """How far measured rates lie from those of a stack that ships, as its file says."""
    card = read_document(CONF / "stack" / f"{name}.yaml")
    return parse_record(StackAccuracy, card[ACCURACY], f"{STACK}.{ACCURACY}", [])


def run_with_hydra(arguments: list[str], task: Callable[[dict[str, Any]], Any]) -> None:
    """Compose a command line, and pass the plain dictionary to a task.

    Hydra's own program runs where one of its flags or settings asks for it, and with ``--trust``.
    """
    words = [word for word in arguments if word != TRUST]
    trust = len(words) < len(arguments)
    with _shorten_errors(words, trust=trust):
        jobs = _compose_jobs(parse_command_line(words, trust=trust))
    for plain in jobs:
        task(plain)


def _compose_jobs(typed: CommandLine) -> list[dict[str, Any]]:
    """The configurations of a line, mostly one; addresses are spelled as the files have them."""
    from hydra.errors import HydraException

    def compose_line(line: CommandLine) -> list[dict[str, Any]]:
        return _under_hydra(line) if line.flags or line.trust or line.sets_hydra else [_compose_job(line)]

    former = spelling.can_use_old_address(typed.overrides) or renamed_words.may_use_former_metric(typed.overrides)
    typed = _with_file_spelling(typed) if former else typed
    try:
        return compose_line(typed)
    except HydraException:  # a new address, of a file that has the old one?
        again = _with_file_spelling(typed)
        if again == typed:
            raise
        return compose_line(again)


def _with_file_spelling(typed: CommandLine) -> CommandLine:
    """A line whose overrides have the addresses of the files that are chosen; as it is where these cannot be composed."""
    from hydra.errors import HydraException
    from omegaconf import OmegaConf

    try:
        config: Any = OmegaConf.to_container(_by_hydra(replace(typed, usual=_usual_names(typed)).choices)[0], resolve=False)
    except HydraException:  # what is wrong with them is said when they are composed with all that was typed
        return typed
    parts = config.get("chip")
    others = peaks.ADDRESSES if isinstance(parts, dict) and parts.get("core") is not None else ()
    words = renamed_words.rename_metric_overrides(typed.overrides, config)
    return replace(typed, overrides=spelling.rename_overrides(words, config, others))


def _compose_job(typed: CommandLine) -> dict[str, Any]:
    """The configuration of a line, of one chip or several."""

    def compose_chip(line: CommandLine) -> dict[str, Any]:
        return _plain_config(*_compose_line(line), line)

    def compose_pool(line: CommandLine) -> dict[str, Any]:
        with _shorten_errors(list(line.overrides), trust=typed.trust):
            return compose_chip(line)

    def compose_one(line: CommandLine) -> dict[str, Any]:
        own = [word for word in line.overrides if word not in typed.overrides]  # of one chip of several
        with _shorten_errors([*typed.typed, *own], trust=typed.trust) if own else contextlib.nullcontext():
            return compose_with_pools(line, compose_chip, compose_pool)

    return chips.compose_chips(typed, compose_one)


def _compose_line(typed: CommandLine) -> tuple[Any, dict[str, Any]]:
    """The configuration of a line, and what is chosen in it by group.

    Where nobody chose a mapping, a stack or an inference engine they are those that the composed chip or workload names. Hydra
    needs them before it has composed the chip, so some are supposed; where others come out, Hydra composes again.
    """
    from hydra.errors import HydraException

    supposed = replace(typed, usual=_usual_names(typed))
    try:
        config, choices = _by_hydra(supposed)
    except HydraException:  # a value that the mapping which was supposed does not have?
        named = _usual_of_composed(*_by_hydra(supposed.choices), supposed.usual)
        if named == supposed.usual:
            raise
    else:
        named = _usual_of_composed(config, choices, supposed.usual)
    if named != supposed.usual:
        config, choices = _by_hydra(replace(typed, usual=named))
    usual = dict(zip(USUAL, named, strict=True))
    chosen = {group: usual.get(group, "") if name == "usual" else name for group, name in choices.items()}
    return config, {group: name for group, name in chosen.items() if name != "" or group not in USUAL}


def _usual_names(typed: CommandLine) -> tuple[str, str, str]:
    """Usual mapping, stack and inference engine by the chosen chip's own file; the composed chip has the last word."""
    chips = [override.removeprefix("chip=") for override in typed.overrides if override.startswith("chip=")]
    places = [Path(place.partition("://")[2]) / "study.yaml" for place in typed.places if not chips]
    chips = chips or [name for path in (CONF / "config.yaml", *places) for name in _listed_default("chip", path)]
    loads = [override.removeprefix("workload=") for override in typed.overrides if override.startswith("workload=")]
    files = [("chip", chips[-1:], [f"mapping_{name}" for name in loads[-1:]]), ("workload", loads[-1:], ["mapping"])]
    mapping = [leaf for group in (*files, ("chip", chips[-1:], ["mapping"])) for leaf in _fields_in_files(*group)]
    stack, engine = (
        (_fields_in_files("chip", chips[-1:], [group]) or [usual])[0]
        for group, usual in zip(USUAL[1:], DEFAULT[1:], strict=True)
    )
    return (mapping or DEFAULT)[0], stack, engine


def _listed_default(group: str, path: Path) -> list[str]:
    """What a list of defaults chooses of a group."""
    return [name for key, name in listed_defaults(read_document(path)) if key == group and isinstance(name, str)]


def _fields_in_files(group: str, names: Sequence[str], fields: Sequence[str]) -> Sequence[str]:
    """What files of ours say first of some fields, or the files that they start from."""
    named = [_field_in_file(group, name, field) for name in names for field in fields]
    return [name for name in named if isinstance(name, str)]


def _field_in_file(group: str, name: str, field: str) -> Any:
    """Value of a field in a file of ours, else in the last file that it starts from and that has it; else None."""
    document = read_document(CONF / group / f"{name}.yaml")
    if field in document:
        return document[field]
    bases = [base for key, base in listed_defaults(document) if not key and base not in ("_self_", name)]
    return next((value for base in reversed(bases) if (value := _field_in_file(group, base, field)) is not None), None)


def _by_hydra(typed: CommandLine) -> tuple[Any, dict[str, Any]]:
    """What Hydra composes, and what is chosen in it by group."""
    config, choices = compose_cached(typed)
    strangers.check_choices(choices)
    return config, {group: chosen for group, chosen in choices.items() if not group.startswith("hydra/")}


def _usual_of_composed(config: Any, choices: Mapping[str, Any], supposed: tuple[str, str, str]) -> tuple[str, str, str]:
    """Usual mapping, stack and inference engine of a composed chip and workload; what was supposed where one was chosen.

    The mapping is the one that the chip names for this kind of workload, or the workload does if not for other machines alone,
    or the chip for most.
    """
    from omegaconf import DictConfig

    from dse.space.compatibility import case_type_of, is_for_other_machines, workload_name
    from dse.space.machines import POOL, POOLED, guess_machine

    chip, workload = (
        {} if not isinstance(group, DictConfig) else group for group in (config.get("chip"), config.get("workload"))
    )

    def find_first_named(*places: tuple[Any, str, str], default: str) -> str:
        for group, name, field in places:
            if (named := group.get(field)) is not None:
                if not isinstance(named, str) or not re.fullmatch(r"[\w-]+", named):
                    preset = next(usual for usual in USUAL if field.startswith(usual))
                    raise DesignError(f"{name}.{field}: {named!r} is not the name of a preset of {preset}")
                return spelling.resolve_choice(field, named)
        return default

    mapping, stack, engine = supposed
    machine = guess_machine(name for name in chip if chip.get(name) is not None)
    if choices.get("mapping") == "usual":
        of_kind = (chip, "chip", f"mapping_{workload_name(workload)}")
        of_load = {} if is_for_other_machines(str(workload.get("mapping")), machine, case_type_of(workload)) else workload
        mapping = find_first_named(of_kind, (of_load, "workload", "mapping"), (chip, "chip", "mapping"), default=DEFAULT[0])
    if choices.get("stack") == "usual":
        stack = find_first_named((chip, "chip", "stack"), default="unfitted" if machine in (POOL, POOLED) else "")
    if choices.get("inference_engine") == "usual":
        engine = find_first_named((chip, "chip", "inference_engine"), default="")
    return mapping, stack, engine


def _under_hydra(typed: CommandLine) -> list[dict[str, Any]]:
    """What Hydra's own program makes of a line, so that all its flags work: none, one configuration or several."""
    import hydra
    from hydra.core.hydra_config import HydraConfig

    jobs: list[dict[str, Any]] = []

    def append_job(config: Any) -> None:
        mine = tuple(word for word in HydraConfig.get().overrides.task)  # of one job where there are several
        jobs.append(_compose_job(replace(typed, overrides=mine)))

    saved = sys.argv, os.environ.get("HYDRA_FULL_ERROR")
    complaint = io.StringIO()
    several = any(flag in ("-m", "--multirun") for flag in typed.flags)
    try:
        if not several:
            choices = _compose_line(typed)[1]
            typed = replace(typed, usual=(choices["mapping"], *(choices.get(group, "") for group in USUAL[1:])))
        else:
            from dse.config.hydra_sources import register_sources

            register_sources()
        sys.argv = ["dse", *typed.flags, *typed.words]
        os.environ["HYDRA_FULL_ERROR"] = "1"  # Hydra would print its own many lines and exit with 1
        with contextlib.redirect_stderr(complaint):
            hydra.main(version_base="1.3", config_path="pkg://dse.conf", config_name="config")(append_job)()
    except SystemExit:  # from its argument parser, which has said why
        raise DesignError((complaint.getvalue().strip().splitlines() or ["no such flag"])[-1].removeprefix("dse: ")) from None
    finally:
        sys.argv = saved[0]
        if saved[1] is None:
            os.environ.pop("HYDRA_FULL_ERROR", None)
        else:
            os.environ["HYDRA_FULL_ERROR"] = saved[1]
    return jobs


@contextlib.contextmanager
def _shorten_errors(typed: list[str], *, trust: bool) -> Iterator[None]:
    """Errors of Hydra's, one line each."""
    from hydra.errors import HydraException
    from omegaconf.errors import InterpolationResolutionError, OmegaConfBaseException

    from dse.config.sweep_syntax import extract_first_statement

    if part := find_chosen_part(typed):
        raise DesignError(part)
    try:
        yield
    except (HydraException, OmegaConfBaseException) as error:
        overrides = parse_command_line(typed, trust=trust).overrides
        if isinstance(error, InterpolationResolutionError) and (
            tie := describe_broken_reference(_as_written(typed, trust=trust))
        ):
            raise DesignError(tie) from None
        raise DesignError(explain_override_error(error, overrides, lambda: _chosen_groups(typed, trust=trust))) from None
    except (DesignError, BrokenPipeError):
        raise
    except RecursionError:
        raise DesignError("defaults: files include each other, or one includes itself; remove one of these lines") from None
    except Exception as error:  # what Hydra lets through of YAML, of files and of its own slips
        wrong = explain_override_error(error, parse_command_line(typed, trust=trust).overrides, dict)
        raise DesignError(wrong if wrong != extract_first_statement(error) else f"configuration: {wrong}") from None


def _as_written(typed: list[str], *, trust: bool) -> dict[str, Any]:
    """The configuration of a line with its references as they are written."""
    from omegaconf import OmegaConf

    written_path: Any = OmegaConf.to_container(compose_cached(parse_command_line(typed, trust=trust))[0], resolve=False)
    return dict(written_path)


def _plain_config(config: Any, choices: dict[str, Any], typed: CommandLine) -> dict[str, Any]:
    """A composed configuration as a dictionary; ``choices`` has what was chosen in it by group."""
    from dse.config.sweep_syntax import parse_knobs

    plain = _resolve_values(config, [strangers.MAX_YAML_NODES])
    if not typed.trust:
        strangers.check_plain(plain)
        strangers.check_cluster(plain, typed.typed)
        strangers.check_places(plain, typed.typed)
    _refuse_unknown(config, choices, typed)
    words = list(typed.typed)
    named = {"space": parse_knobs(plain.get("space") or {}), "overrides": words, "choices": choices}
    renamed = renamed_words.rename_config_words(spelling.rename_config({**plain, **named}, typed.overrides))
    settled = peaks.convert_peaks_to_core_rates(renamed, typed.overrides)
    settled |= _as_given(settled, typed)
    settled["model"] = _chosen_models({**plain, **named}, words)
    settled |= settle_engine(settled, typed)
    composed = {**settled, "mapping": drop_leaves_of_other_algorithms(settled, typed.overrides)}
    return with_published_formats(composed, find_study_folder(composed))


def _as_given(config: Mapping[str, Any], typed: CommandLine) -> dict[str, Any]:
    """The chip whose facts its own file says, as that file has it, with the facts that nobody else says; nothing of others.

    A part that is put beside chips, such as the links of a node, is there too: a chip in a node keeps its data sheet.
    Facts that are typed, or that a study's file says, are of the chip that the line or the study makes of it.
    """
    parts = config.get("chip")
    part = parts.get("published") if isinstance(parts, Mapping) else None
    if not isinstance(part, Mapping) or all(part.get(fact) is None for fact in FACTS):
        return {}
    beside = [word for word in typed.overrides if word.lstrip("+").startswith("part@chip=")]
    alone = replace(typed, overrides=(f"chip={config['choices']['chip']}", *beside))
    given = _resolve_values(_by_hydra(replace(alone, usual=_usual_names(alone)))[0].get("chip"), [strangers.MAX_YAML_NODES])
    own = given.get("published") if isinstance(given, Mapping) else None
    words = spelling.overridden_leaves(typed.overrides, [f"chip.published.{fact}" for fact in part])
    facts = [
        fact
        for fact, value in part.items()
        if fact in FACTS
        and isinstance(own, Mapping)
        and own.get(fact) == value
        and not {"chip.published", f"chip.published.{fact}"} & words
    ]
    settled = peaks.convert_peaks_to_core_rates(spelling.rename_config({"chip": given, "mapping": {}, "space": {}}, ()), ())
    return {"as_given": {"chip": settled["chip"], "facts": facts}} if facts else {}


def _refuse_unknown(config: Any, choices: Mapping[str, Any], typed: CommandLine) -> None:
    """Refuse a field that a line adds beside those which a configuration has: nothing would read it.

    A study's files may have fields of their own, to name a value once; what refers to one makes it a field.
    """
    for word in typed.overrides:
        root = word.partition("=")[0].lstrip("+").partition(".")[0]
        if word[:1] != "+" or "@" in root or root in (*CONFIGURATION_FIELDS, "hydra", *choices):
            continue
        from omegaconf import OmegaConf

        if not _refers_to(root, OmegaConf.to_container(config, resolve=False)):
            raise DesignError(f"config: no field {root!r}; {suggest_nearest(root, CONFIGURATION_FIELDS)}")


def _refers_to(root: str, value: Any) -> bool:
    """Whether a text in a value names a field, or one below it, as the place of another value."""
    if isinstance(value, dict | list):
        return any(_refers_to(root, inner) for inner in (value.values() if isinstance(value, dict) else value))
    return isinstance(value, str) and re.search(rf"\$\{{{re.escape(root)}\b", value) is not None


def _resolve_values(node: Any, left: list[int]) -> Any:
    """The values of a node with its interpolations resolved; refuses more than are left."""
    from omegaconf import DictConfig, ListConfig, OmegaConf

    if not isinstance(node, DictConfig | ListConfig):
        return _walk_values(node, lambda: node, left)
    return _walk_values(OmegaConf.to_container(node, resolve=False), lambda: node, left)


def _walk_values(value: Any, node: Callable[[], Any], left: list[int]) -> Any:
    """A value as it is written, with what refers to others as its node has it: nodes are slow, and few are asked."""

    def resolve_value(key: Any, inner: Any) -> Any:
        if not (isinstance(inner, str) and ("${" in inner or inner == MISSING)):
            return _walk_values(inner, lambda: node()[key], left)
        node_value = node()[key]
        if not isinstance(node_value, str | int | float | bool | None):
            left[0] -= GROUP
        return _resolve_values(node_value, left)

    left[0] -= 1
    if left[0] < 0:
        raise DesignError(f"configuration: more than {strangers.MAX_YAML_NODES:,} values, interpolations written out")
    if isinstance(value, dict):
        return {key: resolve_value(key, inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [resolve_value(place, inner) for place, inner in enumerate(value)]
    return value


MISSING = "???"
"""A value that has to be said; its node raises."""

GROUP = 100
"""For how many values a group counts that stands at another address too: such groups in groups multiply."""


def _chosen_models(config: Mapping[str, Any], arguments: Sequence[str]) -> Any:
    """The models that were chosen by name, or those of `model.from_hf` in their place."""
    models = config.get("model")
    if not isinstance(models, dict):
        return models
    named = {name: entry for name, entry in models.items() if name not in MODEL_SETTINGS}
    if models.get("from_hf") is not None:
        if any(argument.startswith("model=") for argument in arguments):
            raise DesignError("model: set by name and by model.from_hf; remove one of them")
        named = dict(from_hf.read_model_entries(models["from_hf"], find_study_folder(config)))
    return _graph_models(named, models, config, arguments)


MODEL_SETTINGS = ("from_hf", "from_graph", "max_position", "layers", "vocab")
"""Settings of the group of models that are no model."""

GRAPH_LAYERS = integer_field("layers that a graph of one or a few is repeated for", high=MAX_LAYERS, absent=True)
GRAPH_VOCAB = integer_field("tokens in the vocabulary of a model whose graph has no embedding and no head", absent=True)


def _graph_models(named: dict[str, Any], models: Mapping[str, Any], config: Mapping[str, Any], arguments: Sequence[str]) -> Any:
    """The models, or those of `model.from_graph` in their place."""
    layers = parse_setting(models.get("layers"), GRAPH_LAYERS, "model.layers")
    vocab = parse_setting(models.get("vocab"), GRAPH_VOCAB, "model.vocab")
    for word in ("from_graph", "from_hf"):
        if models.get(word) is None and any(argument.startswith(f"model.{word}=") for argument in arguments):
            raise DesignError(f"model.{word}: null names no file; write model.{word}=FILE, or leave it out")
    if models.get("from_graph") is not None:
        if models.get("from_hf") is not None or any(argument.startswith("model=") for argument in arguments):
            raise DesignError("model: set by model.from_graph and in another way; remove one of them")
        most = parse_setting(models.get("max_position"), MAX_POSITION, "model.max_position")
        declared = {"layers": layers, "vocab": vocab, "max_position": most}
        named = dict(from_graph.read_graph_entries(models["from_graph"], find_study_folder(config), declared))
    elif layers is not None or vocab is not None:
        word = "layers" if layers is not None else "vocab"
        raise DesignError(f"model.{word}: is of graphs only; set model.from_graph=FILE, or leave it out")
    return _extend_models(named, models.get("max_position"))


MAX_POSITION = integer_field("length for which all models are taken to be made", absent=True)


def _extend_models(models: dict[str, Any], least: Any) -> dict[str, Any]:
    """The models, all of which are taken for sequences of so many tokens or more; none is shortened."""
    least = parse_setting(least, MAX_POSITION, "model.max_position")
    if least is None:
        return models

    def is_too_short(model: Any) -> bool:
        own = model.get("max_position") if isinstance(model, dict) else None
        return isinstance(own, int) and own < least

    return {name: model | {"max_position": least} if is_too_short(model) else model for name, model in models.items()}


def _chosen_groups(typed: list[str], *, trust: bool) -> dict[str, Any]:
    """The configuration of a command line without the values that it sets."""
    from hydra.errors import HydraException
    from omegaconf import OmegaConf

    try:
        composed = _compose_line(parse_command_line(typed, trust=trust).choices)[0]
    except HydraException:  # a choice that is wrong as well
        composed = _compose_line(parse_command_line([], trust=trust))[0]
    groups: Any = OmegaConf.to_container(composed, resolve=False)
    return dict(groups)
