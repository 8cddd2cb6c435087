"""Output of ``dse list KIND [WORD]``: entries of the reference, a line each, or all of one entry."""

from collections.abc import Iterable, Mapping, Sequence

from rich.text import Text

from dse.documents.reference_document import EntryFactRecord, EntryRecord, ReferenceDocument
from dse.reference.catalogue import KINDS, list_entries
from dse.reference.entries import Entry, EntryKind
from dse.terminal.json_text import format_json
from dse.terminal.progress import SafeConsole

WIDTH = 80
"""Characters of a line where no terminal says how many."""

GAP, MORE = "  ", "..."
"""Between columns, and in the place of what a line has no room for."""

LEAST_LINE = 28
"""Characters that the last column, which says what an entry is, has at least; it is left out where columns take them."""

MAX_CELL = 20
"""Characters of a cell where columns stand beside each other."""


def print_reference(kind: str, word: str, *, as_json: bool) -> int:
    """Print the entries of a kind that have a word; all of the one whose name it is.

    Raises:
        DesignError: there is no such kind, or no entry with the word.
    """
    entries = list_entries(kind, word)
    if as_json:
        print(format_json(reference_record(kind, entries), indent=1))
        return 0
    console = SafeConsole(WIDTH)
    is_whole = word == entries[0].name
    for line in format_entry(entries[0], KINDS[kind]) if is_whole else format_table(entries, KINDS[kind], console.width):
        console.print(Text(line), soft_wrap=not is_whole)
    if not is_whole:
        name = entries[0].name
        console.print(Text(f"\n{_count_text(kind, entries, word)}; all of one: dse list {kind} {name}"), soft_wrap=True)
    return 0


def kinds_text() -> str:
    """Line that names the kinds of things that ``dse list`` prints."""
    return f"more: dse list KIND [WORD], with one of {', '.join(KINDS)}"


def reference_record(kind: str, entries: Iterable[Entry]) -> ReferenceDocument:
    """Entries of a kind as a document."""
    return ReferenceDocument(kind=kind, use=KINDS[kind].use, entries=[entry_record(entry) for entry in entries])


def entry_record(entry: Entry) -> EntryRecord:
    """An entry as a record of documents."""
    facts = [
        EntryFactRecord(
            name=name,
            text=fact.text,
            value=None if fact.value is None or isinstance(fact.value, str) else float(fact.value),
            unit=fact.unit,
        )
        for name, fact in entry.facts.items()
    ]
    return EntryRecord(name=entry.name, line=entry.line, text=entry.text, facts=facts)


def format_entry(entry: Entry, kind: EntryKind) -> list[str]:
    """All of one entry, as lines."""
    facts = {name: fact.text for name, fact in entry.facts.items() if fact.value not in (None, "", "-")}
    if kind.use:
        facts["choose with"] = kind.use.replace("NAME", entry.name)
    width = max(map(len, facts), default=0)
    return [f"{entry.name}: {entry.text or entry.line}", "", *(f"{name:{width}}{GAP}{text}" for name, text in facts.items())]


def format_table(entries: Sequence[Entry], kind: EntryKind, width: int) -> list[str]:
    """Entries as lines of at most so many characters: names, columns of facts, and what each is.

    >>> from dse.reference.entries import EntryFact
    >>> chips = [Entry("a100", "an accelerator of NVIDIA", {"node": EntryFact("n7")}, "")]
    >>> format_table(chips, EntryKind("chips", "", lambda: chips, ("node",)), 48)
    ['name  node', 'a100  n7    an accelerator of NVIDIA']
    """
    heads = ("name", *_shown_columns(entries, kind, width))
    cells = [[entry.name, *(_cell(entry, head) for head in heads[1:])] for entry in entries]
    widths = [max(map(len, column)) for column in zip(heads, *cells, strict=True)]
    room = width - sum(widths) - len(GAP) * len(widths)
    lines = {
        id(entry): _join_cells(row, widths, entry.line if room >= LEAST_LINE else "", room)
        for entry, row in zip(entries, cells, strict=True)
    }
    head = _join_cells(heads, widths, "", room)
    if not kind.group:
        return [head, *lines.values()]
    printed = [head]
    for group, members in group_entries(entries, kind.group).items():
        printed += ["", f"{group}:", *(lines[id(entry)] for entry in members)]
    return printed


def group_entries(entries: Iterable[Entry], fact: str) -> Mapping[str, list[Entry]]:
    """Entries by the text of a fact."""
    groups: dict[str, list[Entry]] = {}
    for entry in entries:
        groups.setdefault(entry.facts[fact].text, []).append(entry)
    return groups


def _shown_columns(entries: Sequence[Entry], kind: EntryKind, width: int) -> list[str]:
    """Columns for which there is room beside names, in order."""
    left = width - max(len(entry.name) for entry in entries) - (0 if kind.columns_first else len(GAP) + LEAST_LINE)
    shown = []
    for column in kind.columns:
        left -= len(GAP) + max(len(column), *(len(_cell(entry, column)) for entry in entries))
        if left < 0:
            break
        shown.append(column)
    return shown


def _cell(entry: Entry, column: str) -> str:
    return _cut(entry.facts[column].text, MAX_CELL)


def _join_cells(cells: Sequence[str], widths: Sequence[int], line: str, room: int) -> str:
    columns = GAP.join(f"{cell:{width}}" for cell, width in zip(cells, widths, strict=True))
    return f"{columns}{GAP}{_cut(line, room)}".rstrip()


def _cut(text: str, width: int) -> str:
    """A text in so many characters, with the mark of what is left out."""
    return text if len(text) <= width else f"{text[: width - len(MORE)].rstrip()}{MORE}"


def _count_text(kind: str, entries: Sequence[Entry], word: str) -> str:
    how = f", chosen with {KINDS[kind].use}" if KINDS[kind].use else ""
    return f"{len(entries)} {kind}{f' with {word!r}' if word else ''}{how}"
