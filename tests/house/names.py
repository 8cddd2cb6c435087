"""Names and docstrings that break the naming rules, read from the sources: what `exceptions.txt` may list, and no more."""

import ast
import re
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

from tests.house.sources import ROOT, SOURCES, parsed, place

SHORTEST_LINE, LONGEST_LINE = 25, 100
"""Length of the first line of a docstring. [characters]"""

EXCEPTIONS = Path(__file__).parent / "exceptions.txt"
"""Breaches that stand since before the rules; a breach that is mended is removed, and none is added."""

FUNCTION_WORDS = frozenset(
    """
    a about above across after again against alike all alone along already also always an and another any apart around as aside
    at away back before behind below beneath beside besides between beyond both but by down each either else enough ever every
    few first from further hence her here hers his how if in inside instead into it its just last later least less like many
    more most much near nearly neither never next no none nor not of off often on once one only onto or other others otherwise
    out outside over own past per quite rather same several since so some soon still such than that their theirs them then there
    these they this those though through throughout thus till to together too toward twice under until up upon us very
    what when where whether which while who whoever whole whom whose why with within without yet
    """.split()  # noqa: SIM905
)
"""Prepositions, pronouns, adverbs, conjunctions and determiners."""

IRREGULAR_PARTICIPLES = frozenset(
    """
    begun bent bought bound broken brought built caught chosen cut done drawn driven dropt fallen felt found given gone grown
    heard held hidden hit kept known laid learnt led left lent lost made meant met paid proven put run said seen sent set shown
    shut sold sought spent split spoken spread stood struck stuck swept swum taken taught thought thrown told torn understood
    woken won worn written
    """.split()  # noqa: SIM905
) - frozenset({"cut", "hit", "led", "lent", "put", "run", "set", "split", "spread"})
"""Participles that do not end in -ed or -ing, those that are verbs or nouns as well left out."""

NOUNS = frozenset(
    """
    bed building feed finding heading king mapping need partitioning pricing reading ring routing scheduling seed setting
    spelling speed spring string thing tiling timing wing wording
    """.split()  # noqa: SIM905
)
"""Words that end as participles do and name something in this field."""

OLD_WORDS = {
    "asked": "evaluated, requested or set",
    "by itself": "single, alone or separately",
    "by themselves": "single, alone or separately",
    "closed form": "analytical model",
    "dear": "expensive",
    "dearer": "more expensive",
    "judge": "decide, or the name of the module",
    "judged": "decided",
    "judges": "decides",
    "nobody": "no user, or no code",
    "nothing reads": "has no effect",
    "play": "simulate",
    "played": "simulated",
    "player": "simulator",
    "players": "simulators",
    "plays": "simulates",
    "reader": "fidelity or cost model",
    "readers": "fidelities or cost models",
    "said": "set or given",
    "shore": "die edge",
    "somebody": "the user",
    "told": "given or reported",
    "who serves": "instance or pool",
    "whoever": "the process, user or module",
}
"""Words that the glossary replaces and that have no other meaning in a message, with what to write instead."""

_OLD_WORD = re.compile(rf"(?<![\w.=/-])(?:{'|'.join(sorted(OLD_WORDS, key=len, reverse=True))})(?![\w=/-]|\.\w)", re.IGNORECASE)

MESSAGE_CALLS = frozenset(
    """
    Caveat ClashError Command CommandFlag DesignError Limit McpTool Metric Table add_column add_row boolean_field integer_field
    option_field part_field print quantity_field refuse refused_field say say_once
    """.split()  # noqa: SIM905
)
"""Classes and functions whose texts users read: refusals, notes, headings, help texts, descriptions of settings and metrics."""

MESSAGE_FUNCTION = re.compile(
    r"^(?:describe|explain|format|propose|suggest)_|(?:^|_)(?:text|texts|note|notes|hint|advice|caveats?|remedy|reason|title|why|verdict)$"
)
"""Names of functions whose own texts users read."""


LOCAL_WORDS = frozenset({"asked", "found", "here", "of", "on", "one", "said", "some", "there", "told"})
"""Function words that no parameter and no local of a function is called by."""

VERBS = frozenset(
    """
    accept add adopt advance allocate allow answer append apply ask assert assign attach average balance begin bind
    bound build calibrate call can cap carry catch check choose clip close collapse collect combine compare compile
    compose compute connect convert convolve copy count cover create cross cut decide decode defer deliver deploy
    dequantize dequeue derive describe dispatch draw drop embed emit enable encode end enqueue ensure enumerate escape
    estimate evaluate evict expand explain export extend extract extrapolate fetch fill filter find finish fit flatten
    fold follow format gather generate get give group guess handle has hash hold import index inject insert install
    interpolate is issue iterate join keep label leave limit list load lock log look lower make map mark match measure
    memoize merge minimise move multiply name needs normalise normalize note offer open order pack pad parse partition
    perform pick place plan play plot pop predict prepare price print probe propose prune publish pull push put quote
    raise rank read rebuild receive recommend record reduce refresh refuse register relay release remove rename render
    repeat replace replay report request require reset resolve restore restrict return rotate route run sample save say
    scale scatter schedule score screen search select send serve set settle shift shorten show shrink simulate size skip
    solve sort split spread squeeze start stop store stream strip suggest sum summarise swap tabulate take tally tell
    test thin time trace track transfer translate try tune unpack unroll update use validate verify wait walk warm watch
    weigh wrap write
    """.split()  # noqa: SIM905
)
"""Verbs that functions begin with."""

Breach = tuple[str, str, str]
"""A rule, the place of a source, and the name that breaks the rule there."""


def breaches() -> list[Breach]:
    """Breaches of the naming rules in all sources, sorted by rule, place and name."""
    return sorted({*_names(), *_class_names(), *_first_lines(), *_old_words(), *_local_names()})


def exceptions() -> list[Breach]:
    """Breaches that `exceptions.txt` lists, in its order."""
    lines = (line.split() for line in EXCEPTIONS.read_text().splitlines() if line and not line.startswith("#"))
    return [(rule, source, name) for rule, source, name in lines]


def is_function_word(name: str) -> bool:
    """Whether a public name is a bare participle, pronoun, preposition or adverb.

    >>> [is_function_word(name) for name in ("told", "beside", "priced", "Priced", "mapping", "measured_rate", "TypedSetting")]
    [True, True, True, True, False, False, False]
    """
    if not re.fullmatch(r"[A-Z]?[a-z0-9]+", name):
        return False  # several words
    word = name.lower()
    ending = bool(re.fullmatch(r"[a-z]{2,}(ed|ing)", word)) and word not in NOUNS
    return word in FUNCTION_WORDS or word in IRREGULAR_PARTICIPLES or ending


def _names() -> Iterator[Breach]:
    """Public functions, methods and classes that are called by a function word."""
    for path in SOURCES:
        for name, _ in _public(path):
            if is_function_word(name.rpartition(".")[2]):
                yield "function-word", place(path), name


def _local_names() -> Iterator[Breach]:
    """Parameters and locals of functions that are called by one of `LOCAL_WORDS`."""
    for path in SOURCES:
        for function in ast.walk(parsed(path)):
            if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
                for node in ast.walk(function):
                    local = isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)
                    name = node.id if local else node.arg if isinstance(node, ast.arg) else ""
                    if name in LOCAL_WORDS:
                        yield "local-word", place(path), f"{getattr(function, 'name', 'lambda')}.{name}"


def one_word_share() -> float:
    """Share of private functions, and of methods, whose name is one word."""
    names = [name.rpartition(".")[2] for path in SOURCES for name in _functions(path)]
    names = [name for name in names if not name.startswith("__")]
    return sum("_" not in name.strip("_") for name in names) / len(names)


def verb_first_share() -> float:
    """Share of public module-level functions whose name begins with a verb."""
    names = [
        node.name
        for path in SOURCES
        for node in parsed(path).body
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and not node.name.startswith("_")
    ]
    return sum(name.split("_")[0] in VERBS for name in names) / len(names)


def _functions(path: Path) -> Iterator[str]:
    """Private module-level functions of a source, and methods of its classes by ``Class.method``."""
    for node in parsed(path).body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith("_"):
            yield node.name
        for inner in node.body if isinstance(node, ast.ClassDef) else ():
            if isinstance(inner, ast.FunctionDef | ast.AsyncFunctionDef):
                yield f"{node.name}.{inner.name}"


def _class_names() -> Iterator[Breach]:
    """Public classes whose name a class of another module has."""
    places: dict[str, set[str]] = defaultdict(set)
    for path in SOURCES:
        for node in parsed(path).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                places[node.name].add(place(path))
    for name, sources in places.items():
        for source in sources if len(sources) > 1 else ():
            yield "shared-class", source, name


def _first_lines() -> Iterator[Breach]:
    """Modules, classes, functions and methods whose docstring has a first line that is too short or too long."""
    for path in SOURCES:
        for name, node in (("-", parsed(path)), *_public(path)):
            docstring = ast.get_docstring(node)
            if docstring is not None and not SHORTEST_LINE <= len(docstring.split("\n")[0]) <= LONGEST_LINE:
                yield "first-line", place(path), name


def _old_words() -> Iterator[Breach]:
    """Old words in messages, by the function, class or constant that has the message, as ``NAME:WORD``."""
    for path in SOURCES:
        if place(path).startswith("tests/"):
            continue
        for owner in parsed(path).body:
            name = getattr(owner, "name", "-")
            for text in message_texts(owner):
                for word in old_words(text):
                    yield "old-word", place(path), f"{name}:{word.replace(' ', '-')}"


def old_words(text: str) -> list[str]:
    """Words of a message that the glossary replaces; parts of addresses, options and paths do not count.

    >>> old_words("requests are played by the closed form"), old_words("chip.boxes is missing; set chip=h800_boxes")
    (['played', 'closed form'], [])
    """
    return [found.lower() for found in _OLD_WORD.findall(text)]


def message_texts(node: ast.AST) -> Iterator[str]:
    """Texts below a node that users read: in a raise, in a call of `MESSAGE_CALLS`, of a `MESSAGE_FUNCTION`, beside a type."""
    for inner in ast.walk(node):
        if isinstance(inner, ast.Raise) and inner.exc is not None:
            yield from _texts(inner.exc)
        elif isinstance(inner, ast.Call) and _called(inner) in MESSAGE_CALLS:
            yield from _texts(inner)
        elif isinstance(inner, ast.Subscript) and getattr(inner.value, "id", "") == "Annotated":
            yield from _texts(inner.slice)
        elif isinstance(inner, ast.FunctionDef) and MESSAGE_FUNCTION.search(inner.name):
            for statement in inner.body[ast.get_docstring(inner) is not None :]:
                yield from _texts(statement)


def _called(node: ast.Call) -> str:
    """Name of a called function or method."""
    return node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")


def _texts(node: ast.AST) -> Iterator[str]:
    """Strings below a node of two words or more, with formatted values as ``{}``; keys and names are no text."""
    formatted = {id(part) for inner in ast.walk(node) if isinstance(inner, ast.JoinedStr) for part in inner.values}
    for inner in ast.walk(node):
        text = ""
        if isinstance(inner, ast.JoinedStr):
            text = "".join(str(part.value) if isinstance(part, ast.Constant) else "{}" for part in inner.values)
        elif isinstance(inner, ast.Constant) and isinstance(inner.value, str) and id(inner) not in formatted:
            text = inner.value
        if len(text.split()) > 1:
            yield text


def _public(path: Path) -> Iterator[tuple[str, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef]]:
    """Public functions and classes of a module, and public methods of these by ``Class.method``."""
    for node in parsed(path).body:
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) or node.name.startswith("_"):
            continue
        yield node.name, node
        for inner in node.body if isinstance(node, ast.ClassDef) else ():
            if isinstance(inner, ast.FunctionDef | ast.AsyncFunctionDef) and not inner.name.startswith("_"):
                yield f"{node.name}.{inner.name}", inner


def prune() -> int:
    """Remove from `exceptions.txt` what no longer breaks a rule; returns how many lines are left."""
    standing = {*breaches()}
    kept = [line for line in exceptions() if line in standing]
    head = [line for line in EXCEPTIONS.read_text().splitlines() if line.startswith("#")]
    EXCEPTIONS.write_text("\n".join((*head, *map(" ".join, sorted(kept)))) + "\n")
    return len(kept)


if __name__ == "__main__":
    print(f"{EXCEPTIONS.relative_to(ROOT)}: {prune():,} breaches are left")
