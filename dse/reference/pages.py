"""Pages of the reference as Markdown: one a kind, in sections, from the entries of the catalogue."""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace

from dse.reference.catalogue import KINDS, list_entries
from dse.reference.entries import Entry, EntryFact, EntryKind
from dse.reference.fidelities import cost_text
from dse.reference.knobs import combination_settings, declared_entries, setting_entries, study_settings, workload_settings
from dse.reference.measure import Measurement, metrics_by_workload, read_measurements
from dse.reference.presets import preset_names
from dse.reference.settings import Setting
from dse.terminal.plain_names import setting_name

COMMAND = "python -m dse.reference.write"

PHASES = ("mapping.prefill.", "mapping.decode.")
"""Settings of phases, which are one row where both have the same."""

BOTH = "mapping.both."

PART_KINDS = ("parts", "links", "drams", "memories", "nodes", "economics", "areas", "days")
"""Kinds on the page of parts."""

SEARCH_KINDS = ("samplers", "verifications", "workers")
"""Kinds on the page of searches."""

MOST_FACTS = 8
"""Columns that a table has beside names and what they are; of more there is a second table."""

SERVED, STATIC = "serving", "static"


def reference_pages() -> dict[str, str]:
    """Pages by their path below `docs/`, as Markdown."""
    pages: dict[str, Callable[[], str]] = {
        "chips": lambda: grouped_page("chips", "kind"),
        "models": lambda: plain_page("models"),
        "mappings": lambda: grouped_page("mappings", "machine"),
        "stacks": lambda: plain_page("stacks"),
        "engines": lambda: plain_page("engines"),
        "workloads": lambda: plain_page("workloads"),
        "chip_knobs": lambda: knobs_page("chip", "Knobs of a chip"),
        "mapping_knobs": lambda: knobs_page("mapping", "Knobs of a mapping"),
        "model_settings": model_page,
        "metrics": metrics_page,
        "options": options_page,
        "fidelities": fidelities_page,
        "studies": lambda: plain_page("studies"),
        "spaces": lambda: plain_page("spaces"),
        "kernels": lambda: plain_page("kernels"),
        "parts": lambda: several_page("Parts", PART_KINDS),
        "searches": lambda: several_page("Searches", SEARCH_KINDS),
    }
    written = {f"reference/{name}.md": page() for name, page in pages.items()}
    return {"reference/index.md": index_page(written), "settings.md": settings_page(), **written}


def index_page(pages: Mapping[str, str]) -> str:
    """First page: the kinds, how many there are of each, and the page that has them."""
    places = dict.fromkeys(PART_KINDS, "parts") | dict.fromkeys(SEARCH_KINDS, "searches") | {"knobs": "chip_knobs"}
    rows = []
    for name, kind in KINDS.items():
        place = "../settings.md" if name == "settings" else f"{places.get(name, name)}.md"
        rows.append((f"[{name}]({place})", str(len(list_entries(name))), kind.line, f"`{kind.use}`" if kind.use else "-"))
    return "\n".join(
        (
            _head(
                "Reference",
                "What a user can name, from the records and presets that hold it. `dse list KIND` prints the same, and "
                "`dse list KIND NAME` one entry.",
            ),
            _table(("kind", "entries", "what", "chosen with"), rows),
            "[Knobs of mappings](mapping_knobs.md) and [settings of a model](model_settings.md) are on pages of their own. "
            "Formulas, with their sources, are on the page on [physics](../physics.md). Functions and classes are on the page "
            "on [Python](../api.md).\n",
        )
    )


def plain_page(kind: str) -> str:
    """Page of a kind in one table."""
    entries = list_entries(kind)
    if len(_shown_facts(entries, KINDS[kind])) <= MOST_FACTS:
        return f"{_kind_head(kind)}\n{_entries_table(entries, KINDS[kind])}"
    return f"{_kind_head(kind)}\n## Overview\n\n{_two_tables(entries, KINDS[kind], '## Further facts')}"


def grouped_page(kind: str, fact: str) -> str:
    """Page of a kind in sections by a fact."""
    groups: dict[str, list[Entry]] = {}
    for entry in list_entries(kind):
        groups.setdefault(entry.facts[fact].text, []).append(entry)
    parts = [_group_section(group, members, KINDS[kind], fact) for group, members in groups.items()]
    return "\n".join((_kind_head(kind), *parts))


def _group_section(group: str, entries: Sequence[Entry], kind: EntryKind, fact: str) -> str:
    """Entries of a group: a table of the columns of a list, and one of all other facts."""
    return f"## {_title(group)}\n\n{_two_tables(entries, kind, f'### Further facts: {group}', (fact,))}"


def _two_tables(entries: Sequence[Entry], kind: EntryKind, heading: str, left_out: Iterable[str] = ()) -> str:
    """Table of the columns of a list, and below a heading one of all other facts."""
    others = [name for name in _shown_facts(entries, kind) if name not in (*left_out, *kind.columns)]
    rows = [(f"`{entry.name}`", *(_fact_text(entry, name) for name in others)) for entry in entries]
    more = f"\n{heading}\n\n{_table(('name', *others), rows)}" if others else ""
    return _entries_table(entries, kind, only=kind.columns) + more


def several_page(title: str, kinds: Iterable[str]) -> str:
    """Page of several small kinds, a section each."""
    parts = [
        f"## {_title(kind)}\n\n{_sentence(KINDS[kind].line)}{_use_text(KINDS[kind])}\n\n"
        f"{_entries_table(list_entries(kind), KINDS[kind])}"
        for kind in kinds
    ]
    return "\n".join((_head(title, "Presets that other presets are made of, or that complete them."), *parts))


def knobs_page(root: str, title: str) -> str:
    """Page of the settings of a chip or a mapping, a section for each part."""
    note = {
        "chip": "The file of a chip (`conf/chip`) gives all settings that are read, each with its source.",
        "mapping": "The file of a mapping (`conf/mapping`) gives all settings that are read. `mapping.both` stands for "
        "`mapping.prefill` and `mapping.decode`, which may also differ.",
    }[root]
    entries = merge_phases(declared_entries(root))
    sections = [_knob_section(address, members) for address, members in _by_part(entries).items()]
    usage = "A knob is set by its address (`chip.l2.size='64 MB'`), and searched as `space.ADDRESS` of a study. "
    return "\n".join((_head(title, usage + note), *sections))


def merge_phases(entries: Iterable[Entry]) -> list[Entry]:
    """Entries of settings, with one for both phases where both have the same."""
    alike: dict[tuple[str, ...], list[Entry]] = {}
    for entry in entries:
        facts = (fact.text for name, fact in entry.facts.items() if name not in ("part", "plain name"))
        alike.setdefault((_phase_free(entry.name), entry.line, *facts), []).append(entry)
    merged = []
    for (name, *_), members in alike.items():
        part = EntryFact(members[0].facts["part"].text.replace("prefill", "a phase"))
        both = replace(
            members[0], name=name, facts={**members[0].facts, "part": part, "plain name": EntryFact(setting_name(name))}
        )
        merged += [both] if len(members) == len(PHASES) else members
    return merged


def _phase_free(address: str) -> str:
    """An address as that of both phases, where it is one of a phase."""
    return next((address.replace(phase, BOTH, 1) for phase in PHASES if address.startswith(phase)), address)


def _by_part(entries: Iterable[Entry]) -> dict[str, list[Entry]]:
    """Settings by the address of the part that has them; those without one by their root."""
    parts: dict[str, list[Entry]] = {}
    for entry in entries:
        parts.setdefault(entry.name.rpartition(".")[0], []).append(entry)
    return parts


def _knob_section(address: str, entries: Sequence[Entry]) -> str:
    """Settings of a part; below a heading for each set of machines where these differ."""
    part = entries[0].facts["part"].text
    parts = [f"## `{address}`\n", *([f"{_sentence(part)}\n"] if part != "-" else [])]
    readers: dict[tuple[str, str], list[Entry]] = {}
    for entry in entries:
        readers.setdefault((entry.facts["machines"].text, entry.facts["workloads"].text), []).append(entry)
    for (machines, workloads), members in readers.items():
        heading = f"### `{address}`: {machines}\n\n" if len(readers) > 1 else f"Machines: {machines}. "
        parts.append(f"{heading}Workloads: {workloads}.\n\n{_knob_table(members)}")
    return "\n".join(parts)


def _knob_table(entries: Sequence[Entry]) -> str:
    columns = [
        fact for fact in ("plain name", "unit", "values", "default") if any(entry.facts[fact].text != "-" for entry in entries)
    ]
    rows = [(f"`{entry.name}`", entry.line, *(_linked(entry.facts[fact].text) for fact in columns)) for entry in entries]
    return _table(("setting", "meaning", *columns), rows)


def _linked(values: str) -> str:
    """Values of a setting, with a link in the place of the command that lists options."""
    return re.sub(r"dse list options (\w+)=", r"[options](options.md#\1)", values)


def model_page() -> str:
    """Page of the settings of a model."""
    entries = [entry for entry in list_entries("settings") if entry.name.startswith("model.")]
    sections = [f"## `{address}`\n\n{_settings_table(members)}" for address, members in _by_part(entries).items()]
    text = (
        "A model is a file of `conf/model`, whose name stands for NAME. Others are read from Hugging Face "
        "(`model.from_hf=FOLDER/config.json`), or from a graph (`model.from_graph=FILE.onnx`)."
    )
    return "\n".join((_head("Settings of a model", text), *sections))


def settings_page() -> str:
    """Page of the settings of workloads and studies, with the values of their presets."""
    head = _head(
        "Settings of workloads and studies",
        "A setting is set by its address, as in `workload.batch=[1,32]` or `search.budget=300`. Text with a unit is accepted "
        "wherever a unit stands. Defaults are those of the presets of `conf/`.",
    )
    parts = [head, "## Workloads\n"]
    for name in preset_names("workload"):
        parts.append(_settings_section(f"workload={name}", workload_settings(name)))
    parts += [_settings_section("Every workload", combination_settings()), "## Studies\n"]
    parts += [_settings_section(group, settings) for group, settings in study_settings().items()]
    return "\n".join(parts)


def _settings_section(title: str, settings: Sequence[Setting]) -> str:
    text = str(settings[0].record.__doc__).strip().splitlines()[0]
    title = title if title.startswith("Every") else f"`{title}`"
    return f"### {title}\n\n{text}\n\n{_settings_table(setting_entries(settings))}"


def _settings_table(entries: Iterable[Entry]) -> str:
    rows = [
        (f"`{entry.name}`", f"`{entry.facts['default'].text}`", entry.facts["values"].text, entry.line) for entry in entries
    ]
    return _table(("setting", "default", "values", "meaning"), rows)


def metrics_page() -> str:
    """Page of metrics, in sections by the workloads that have them."""
    workloads = metrics_by_workload()
    titles = {
        (True, True): "Static batches and serving",
        (True, False): "Static batches",
        (False, True): "Serving",
        (False, False): "Kernels, memories and networks by themselves",
    }
    sections: dict[str, list[Entry]] = {title: [] for title in titles.values()}
    for entry in list_entries("metrics"):
        own = workloads.get(entry.name, {})
        sections[titles[STATIC in own, SERVED in own]].append(entry)
    parts = [_metric_section(title, entries) for title, entries in sections.items()]
    return "\n".join((_kind_head("metrics"), *parts))


def _metric_section(title: str, entries: Iterable[Entry]) -> str:
    rows = [
        (f"`{entry.name}`", *(entry.facts[fact].text for fact in ("unit", "better")), entry.line, _made_of(entry))
        for entry in entries
    ]
    return f"## {title}\n\n{_table(('metric', 'unit', 'better', 'definition', 'workloads'), rows)}"


def _made_of(entry: Entry) -> str:
    workloads = entry.facts["workloads"].text
    made = entry.facts["computed from"]
    return f"{workloads}; computed from {made.text}" if made.value else workloads


def options_page() -> str:
    """Page of options, a section for each field."""
    fields: dict[str, list[Entry]] = {}
    for entry in list_entries("options"):
        fields.setdefault(entry.name.partition("=")[0], []).append(entry)
    parts = [f"## `{name}`\n\n{_option_table(entries)}" for name, entries in fields.items()]
    return "\n".join((_kind_head("options"), *parts))


def _option_table(entries: Sequence[Entry]) -> str:
    options = ((entry.name.partition("=")[2], entry) for entry in entries)
    rows = [(f"`{name}`", entry.line, _short_list(entry.facts["settings"].text.split(", "))) for name, entry in options]
    return _table(("option", "meaning", "settings"), rows)


def _short_list(addresses: Sequence[str]) -> str:
    """Addresses as code, those of both phases once."""
    names = dict.fromkeys(_phase_free(address) for address in addresses)
    return ", ".join(f"`{name}`" for name in names)


def fidelities_page() -> str:
    """Page of fidelities: what each computes, where there is each, and its cost."""
    parts = [
        _kind_head("fidelities"),
        _table(
            ("fidelity", "what it computes", "CPU time"),
            [(f"`{entry.name}`", entry.line, entry.facts["CPU time"].text) for entry in list_entries("fidelities")],
        ),
        "Costs are CPU seconds of the first evaluation in a process, with compiled code on disk, as measured by "
        "`python -m dse.reference.measure`. The overrides below name the design and the workload. The tables have what was "
        "measured; a command refuses a fidelity that a machine or a workload does not have, and names those that there are. "
        "`fidelity=cycles@8` simulates kernels on a submesh of 8 x 8 cores.\n",
    ]
    for entry in list_entries("fidelities"):
        rows = [row for row in read_measurements() if row.fidelity == entry.name]
        table = _table(("machine", "workload", "overrides", "CPU time"), [_cost_row(row) for row in rows])
        parts.append(f"## `{entry.name}`\n\n{_sentence(entry.line)}\n\n{table}")
    return "\n".join(parts)


def _cost_row(row: Measurement) -> tuple[str, ...]:
    return row.machine.removeprefix("a "), row.workload, f"`{row.overrides}`", cost_text([row])


def _entries_table(entries: Sequence[Entry], kind: EntryKind, only: Sequence[str] = ()) -> str:
    """Entries with their facts, or with some of them."""
    shown = [name for name in _shown_facts(entries, kind) if not only or name in only]
    rows = [(f"`{entry.name}`", entry.text or entry.line, *(_fact_text(entry, name) for name in shown)) for entry in entries]
    return _table(("name", "what", *shown), rows)


def _shown_facts(entries: Sequence[Entry], kind: EntryKind) -> list[str]:
    """Facts that some entry has, columns of the list first."""
    facts = dict.fromkeys((*kind.columns, *(name for entry in entries for name in entry.facts)))
    return [name for name in facts if any(_fact_text(entry, name) != "-" for entry in entries)]


def _fact_text(entry: Entry, name: str) -> str:
    return entry.facts[name].text if name in entry.facts else "-"


def _kind_head(kind: str) -> str:
    chosen = KINDS[kind]
    return _head(_title(kind), f"{_sentence(chosen.line)}{_use_text(chosen)} `dse list {kind}` prints the same.")


def _use_text(kind: EntryKind) -> str:
    return f" Chosen with `{kind.use}`." if kind.use else ""


def _head(title: str, text: str) -> str:
    return f"# {title}\n\n{text}\n\nWritten by `{COMMAND}`; change the records and presets, not this page.\n"


def _title(text: str) -> str:
    return "All machines" if text == "-" else text[:1].upper() + text[1:]


def _sentence(text: str) -> str:
    return f"{text[:1].upper()}{text[1:]}."


def _table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [heads, ["---"] * len(heads), *rows]
    return "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines) + "\n"
