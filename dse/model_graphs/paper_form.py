"""Layers written in YAML: products by named dimensions, attention, norms and elements.

    name: two_attentions
    sizes: {h: 1024, a: 8, k: 2, d: 64, f: 2816}
    operators:
      normed: {norm: x}
      q: {einsum: "b t h, h a d -> b t a d", of: normed}

Dimensions b, t and s are the batch, new tokens, and all positions. An operand that `of` does not name is a stored weight.
"""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from dse.model_graphs.graph import INPUT, WEIGHT, GraphNode, GraphTensor, ModelGraph
from dse.model_graphs.sizes import BATCH, PAST, TOKENS, Size
from dse.space.errors import DesignError, suggest_nearest
from dse.space.model import MAX_LAYERS

MAX_FILE_BYTES = 1 << 20
"""A layer has some kilobytes."""

LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
"""Parser of YAML; the one in C where it is installed."""

MAX_OPERATORS = 10_000
MAX_DEPTH = 20
MAX_SIZE = 1 << 40

RESERVED = {"b": Size.symbol(BATCH), "t": Size.symbol(TOKENS), "s": Size.symbol(PAST) + Size.symbol(TOKENS)}
"""Names of dimensions that have their size from a step."""

FIELDS = ("name", "sizes", "input", "operators", "layers", "vocab", "max_position", "tied")
FORMS = ("einsum", "norm", "attention", "elements", "add", "rotary", "take", "concat")
"""Keys that say what an operator is; one of them in each."""

OPTIONS = {
    "einsum": ("of", "routed", "bias"),
    "norm": (),
    "attention": ("window",),
    "elements": ("of", "operations", "shape"),
    "add": (),
    "rotary": ("part",),
    "take": ("shape",),
    "concat": ("shape",),
}  # fmt: skip

Names = tuple[str, ...]


def read_paper_form(path: Path, where: str) -> ModelGraph:
    """Graph of a layer in a YAML file.

    Raises:
        DesignError: no such file, or an operator that does not fit, with its name.
    """
    try:
        with path.open("rb") as stream:
            content = stream.read(MAX_FILE_BYTES + 1)
        if len(content) > MAX_FILE_BYTES:
            raise DesignError(f"{where}: over {MAX_FILE_BYTES >> 20} MB of YAML; a layer has some kilobytes")
        document = _parse_yaml(content.decode("utf-8-sig"), where)
    except OSError as error:
        raise DesignError(f"{where}: cannot be read: {error.strerror}") from None
    except DesignError:
        raise
    except UnicodeDecodeError as error:
        raise DesignError(f"{where}: no YAML: byte {error.start:,} is no text in UTF-8; save it in UTF-8") from None
    except yaml.MarkedYAMLError as error:
        line = "" if error.problem_mark is None else f", line {error.problem_mark.line + 1}"
        raise DesignError(f"{where}{line}: no YAML: {_in_one_line(error.problem or error.context or 'unreadable')}") from None
    except Exception as error:  # of the YAML parser, and of numbers and dates that are none
        raise DesignError(f"{where}: no YAML: {_in_one_line(getattr(error, 'reason', None) or error)}") from None
    if not isinstance(document, dict) or not isinstance(document.get("operators"), dict):
        raise DesignError(f"{where}: no operators; write operators: {{NAME: {{einsum: ..., of: ...}}, ...}}")
    return _LayerForm(document, path, where).read_graph()


def _in_one_line(reason: object) -> str:
    return " ".join(str(reason).split())[:100].rstrip(" ,")


def _parse_yaml(text: str, where: str) -> Any:
    """Values of a text, without aliases, keys that are set twice, and values in many others.

    Raises:
        DesignError: one of these, with its line.
        yaml.YAMLError: no YAML.
    """
    keys: list[set[str] | None] = []
    awaits_key: list[bool] = []
    for event in yaml.parse(text, Loader=LOADER):
        line = 1 if event.start_mark is None else event.start_mark.line + 1
        if isinstance(event, yaml.AliasEvent):
            raise DesignError(f"{where}, line {line}: aliases are not read; write the value again")
        if isinstance(event, yaml.CollectionEndEvent):
            keys.pop()
            awaits_key.pop()
            continue
        if keys and keys[-1] is not None:
            if awaits_key[-1] and isinstance(event, yaml.ScalarEvent):
                if event.value in keys[-1]:
                    raise DesignError(f"{where}, line {line}: {event.value[:40]!r} is set twice; remove one of them")
                keys[-1].add(event.value)
            awaits_key[-1] = not awaits_key[-1]
        if isinstance(event, yaml.CollectionStartEvent):
            keys.append(set() if isinstance(event, yaml.MappingStartEvent) else None)
            awaits_key.append(True)
        if len(keys) > MAX_DEPTH:
            raise DesignError(f"{where}, line {line}: over {MAX_DEPTH} values in one another")
    return yaml.load(text, Loader=LOADER)


class _LayerForm:
    """The operators of a layer in a file, and the named dimensions of their results."""

    def __init__(self, document: Mapping[Any, Any], path: Path, where: str) -> None:
        self._document, self._path, self._where = document, path, where
        self._sizes: dict[str, Size] = dict(RESERVED)
        self._routed: dict[str, Size] = {}
        self._dims: dict[str, Names] = {}
        self._tensors: dict[str, GraphTensor] = {}
        self._nodes: list[GraphNode] = []

    def read_graph(self) -> ModelGraph:
        document = self._document
        for key in document:
            if key not in FIELDS:
                raise self._error(f"no field {str(key)[:40]!r}; {suggest_nearest(str(key), FIELDS)}")
        for name, size in self._group("sizes").items():
            self._sizes[self._new_dimension(name)] = Size.constant(self._whole(size, f"sizes.{name}"))
        inputs = self._group("input") or {"x": "b t h"}
        for name, dims in inputs.items():
            self._dims[str(name)] = self._named_dims(dims, f"input.{name}")
            self._tensors[str(name)] = GraphTensor(self._shape(self._dims[str(name)]), INPUT)
        operators = document["operators"]
        if len(operators) > MAX_OPERATORS:
            raise self._error(f"over {MAX_OPERATORS:,} operators")
        for name, operator in operators.items():
            self._read_operator(str(name), operator)
        limits = {"layers": MAX_LAYERS, "vocab": MAX_SIZE, "max_position": MAX_SIZE}
        declared = {key: self._whole(document[key], key, most=most) for key, most in limits.items() if key in document}
        declared["tied"] = document.get("tied", False)
        if not isinstance(declared["tied"], bool):
            raise self._error(f"tied: {str(declared['tied'])[:40]!r} is neither true nor false")
        self._check_ends(tuple(map(str, inputs)))
        title = document.get("name")
        last = (self._nodes[-1].outputs[0],) if self._nodes else ()
        return ModelGraph(
            self._where, title if isinstance(title, str) and title else self._path.stem, self._tensors, self._nodes,
            tuple(map(str, inputs)), last, "operators in YAML", declared,
        )  # fmt: skip

    def _check_ends(self, inputs: Names) -> None:
        """Refuse results that nothing takes, and a last one that the next layer cannot begin with."""
        if not self._nodes:
            return
        taken = {name for node in self._nodes for name in node.inputs}
        last = self._nodes[-1].name
        for node in self._nodes[:-1]:
            if node.name not in taken:
                raise self._error(f"operators.{node.name}: no operator takes its result, and it is not the last; remove it")
        ours, first = (" ".join(self._dims[name]) for name in (last, inputs[0]))
        if ours != first:
            raise self._error(
                f"operators.{last}: the last result has dimensions {ours!r}, but the next layer takes {first!r}; give it those"
            )

    def _read_operator(self, name: str, operator: Any) -> None:
        if name in self._dims:
            raise self._error(f"operators.{name}: has the name of an input; choose another one")
        forms = [key for key in operator if key in FORMS] if isinstance(operator, dict) else []
        if len(forms) != 1:
            raise self._error(f"operators.{name}: needs one of {', '.join(FORMS)}, as in {{norm: x}}")
        (form,) = forms
        for key in operator:
            if key != form and key not in OPTIONS[form]:
                raise self._error(f"operators.{name}: no field {str(key)[:40]!r}; {suggest_nearest(str(key), OPTIONS[form])}")
        read = {
            "einsum": self._read_einsum, "norm": self._read_norm, "attention": self._read_attention,
            "elements": self._read_elements, "add": self._read_elements, "rotary": self._read_rotary,
            "take": self._read_view, "concat": self._read_view,
        }[form]  # fmt: skip
        read(name, operator)

    def _read_einsum(self, name: str, operator: Mapping[str, Any]) -> None:
        terms, result = self._equation(name, operator["einsum"])
        given = self._operands(name, operator.get("of"))
        if not 0 < len(given) <= len(terms) or len(terms) > 2:
            raise self._error(f"operators.{name}.of: names {len(given)} operands of {len(terms)}; name 1 or 2 results")
        for operand, term in zip(given, terms, strict=False):
            if self._dims[operand] != term:
                has = " ".join(self._dims[operand])
                raise self._error(f"operators.{name}: {operand} has dimensions {has!r}, but einsum says {' '.join(term)!r}")
        inputs = list(given)
        target, attributes = "einsum", self._einsum_attributes(name, terms, result)
        if len(given) < len(terms):
            inputs.append(self._weight(f"{name}.weight", terms[1]))
        if "routed" in operator:
            target = "grouped_mm"
            self._route(name, operator["routed"], terms, result, stored=len(given) < len(terms))
        bias = operator.get("bias", False)
        if not isinstance(bias, bool):
            raise self._error(f"operators.{name}.bias: {str(bias)[:40]!r} is neither true nor false")
        if bias:
            inputs.append(self._weight(f"{name}.bias", tuple(dim for dim in result if dim in terms[-1])))
        self._add(name, target, tuple(inputs), result, attributes)

    def _einsum_attributes(self, name: str, terms: list[Names], result: Names) -> dict[str, Any]:
        known = {dim for term in terms for dim in term}
        strange = [dim for dim in result if dim not in known]
        if strange:
            raise self._error(f"operators.{name}: {strange[0]!r} is in the result, but in no operand")
        inner, apart = Size.constant(1), Size.constant(1)
        for dim in sorted(known - set(result)):
            inner = inner * self._sizes[dim]
        if len(terms) > 1:
            for dim in set(terms[0]) & set(terms[1]) & set(result) - {"b", "t", "s"}:
                apart = apart * self._sizes[dim]
        attributes: dict[str, Any] = {"apart": apart.number or 1}
        return attributes | ({"inner": inner.number} if inner.number else {"inner_size": inner})

    def _route(self, name: str, routed: Any, terms: list[Names], result: Names, *, stored: bool) -> None:
        """Note that tokens meet some of the matrices of a weight alone, along its first dimension."""
        dim = terms[1][0] if stored and len(terms) > 1 else ""
        if dim not in result:
            raise self._error(
                f"operators.{name}.routed: needs a weight whose first dimension is in the result, as e in 'e h f'"
            )
        size = Size.constant(self._whole(routed, f"operators.{name}.routed"))
        if self._routed.setdefault(dim, size) != size:
            raise self._error(f"operators.{name}.routed: {routed}, but an earlier operator has another number for {dim!r}")

    def _read_norm(self, name: str, operator: Mapping[str, Any]) -> None:
        (operand,) = self._operands(name, operator["norm"], count=1)
        dims = self._dims[operand]
        self._add(name, "rms_norm", (operand, self._weight(f"{name}.weight", dims[-1:])), dims, {})

    def _read_attention(self, name: str, operator: Mapping[str, Any]) -> None:
        queries, keys, values = self._operands(name, operator["attention"], count=3)
        dims, others = self._dims[queries], (self._dims[keys], self._dims[values])
        if dims[:2] != ("b", "t") or any(other[:2] != ("b", "t") for other in others) or len(dims) != 4:
            raise self._error(
                f"operators.{name}: queries need dimensions 'b t HEADS DIM', and keys and values begin with 'b t'"
            )
        if others[0][-1] != dims[-1]:
            raise self._error(f"operators.{name}: queries have {dims[-1]!r} last, but keys {others[0][-1]!r}")
        counts = [self._heads(other) for other in others]
        if counts[0] != counts[1] or not counts[0]:
            raise self._error(f"operators.{name}: keys of {counts[0]} heads, but values of {counts[1]}; give both as many")
        window = operator.get("window", 0)
        window = self._whole(window, f"operators.{name}.window") if window else 0
        self._add(name, "attention", (queries, keys, values), (*dims[:-1], others[1][-1]), {"window": window})

    def _heads(self, dims: Names) -> int | None:
        """Heads of keys or values: one, or as many as the dimensions between tokens and the last one have values."""
        count = Size.constant(1)
        for dim in dims[2:-1]:
            count = count * self._sizes[dim]
        return count.number

    def _read_elements(self, name: str, operator: Mapping[str, Any]) -> None:
        word = "add" if "add" in operator else operator["elements"]
        if not isinstance(word, str) or not re.fullmatch(r"[A-Za-z_]\w*", word):
            raise self._error(f"operators.{name}.elements: {str(word)[:40]!r} is no name, as silu")
        operands = self._operands(name, operator["add"] if "add" in operator else operator.get("of"))
        dims = max((self._dims[operand] for operand in operands), key=len)
        for operand in operands:
            own = self._dims[operand]
            if own != dims and ("add" in operator or ("shape" not in operator and not set(own) <= set(dims))):
                widest, other = " ".join(dims), " ".join(own)
                raise self._error(
                    f"operators.{name}: operands of dimensions {widest!r} and {other!r}; name results of the same"
                )
        if "shape" in operator:
            dims = self._named_dims(operator["shape"], f"operators.{name}.shape")
        attributes = {}
        if "operations" in operator:
            attributes["operations"] = float(self._whole(operator["operations"], f"operators.{name}.operations"))
        self._add(name, word, tuple(operands), dims, attributes)

    def _read_rotary(self, name: str, operator: Mapping[str, Any]) -> None:
        """Rotation of the last dimension by positions, or of the first columns of it alone."""
        (operand,) = self._operands(name, operator["rotary"], count=1)
        dims = self._dims[operand]
        part = self._named_dims(operator["part"], f"operators.{name}.part") if "part" in operator else dims[-1:]
        turned, whole = self._sizes[part[0]].number, self._sizes[dims[-1]].number
        if len(part) > 1 or turned is None or whole is None or turned > whole:
            raise self._error(
                f"operators.{name}.part: {' '.join(part)[:40]!r} is no dimension of at most the columns of {dims[-1]!r}"
            )
        self._add(name, "rotary", (operand,), dims, {"turned": turned})

    def _read_view(self, name: str, operator: Mapping[str, Any]) -> None:
        """A part of a result, or several results side by side; neither takes time."""
        form = "take" if "take" in operator else "concat"
        operands = self._operands(name, operator[form], count=1 if form == "take" else 0)
        if "shape" not in operator:
            raise self._error(f"operators.{name}.shape: missing; name the dimensions of the result, as in 'b t h'")
        target = "slice" if form == "take" else "concat"
        self._add(name, target, tuple(operands), self._named_dims(operator["shape"], f"operators.{name}.shape"), {})

    def _add(self, name: str, target: str, inputs: Names, dims: Names, attributes: dict[str, Any]) -> None:
        self._dims[name] = dims
        self._tensors[name] = GraphTensor(self._shape(dims))
        self._nodes.append(GraphNode(name, target, inputs, (name,), attributes))

    def _weight(self, name: str, dims: Names) -> str:
        self._tensors[name] = GraphTensor(tuple(self._sizes[dim] for dim in dims), WEIGHT)
        return name

    def _shape(self, dims: Names) -> tuple[Size | None, ...]:
        return tuple(self._routed.get(dim, self._sizes[dim]) for dim in dims)

    def _equation(self, name: str, text: Any) -> tuple[list[Names], Names]:
        left, arrow, right = text.partition("->") if isinstance(text, str) else ("", "", "")
        if not arrow:
            raise self._error(f"operators.{name}.einsum: {str(text)[:40]!r} is none; write as 'b t h, h f -> b t f'")
        place = f"operators.{name}.einsum"
        return [self._named_dims(term, place) for term in left.split(",")], self._named_dims(right, place)

    def _operands(self, name: str, given: Any, *, count: int = 0) -> list[str]:
        operands = [given] if isinstance(given, str) else list(given) if isinstance(given, list) else []
        for operand in operands:
            if operand not in self._dims:
                known = suggest_nearest(str(operand)[:40], tuple(self._dims))
                raise self._error(f"operators.{name}: no result {str(operand)[:40]!r} above it; {known}")
        if not operands or (count and len(operands) != count):
            raise self._error(f"operators.{name}: names {len(operands)} operands, but needs {count or 'one or more'}")
        return operands

    def _named_dims(self, text: Any, place: str) -> Names:
        dims = tuple(text.split()) if isinstance(text, str) else ()
        strange = next((dim for dim in dims if dim not in self._sizes), None)
        if not dims or strange is not None:
            what = f"dimension {strange[:40]!r} has no size" if strange else "no dimensions"
            raise self._error(f"{place}: {what}; set sizes, as in {{h: 1024}}")
        return dims

    def _new_dimension(self, name: Any) -> str:
        if not isinstance(name, str) or not re.fullmatch(r"[A-Za-z]\w*", name) or name in RESERVED:
            raise self._error(f"sizes: {str(name)[:40]!r} cannot name a dimension; choose a word other than b, t and s")
        return name

    def _group(self, key: str) -> Mapping[Any, Any]:
        group = self._document.get(key, {})
        if not isinstance(group, dict):
            raise self._error(f"{key}: {str(group)[:40]!r} is not a group of fields")
        return group

    def _whole(self, value: Any, place: str, *, most: int = MAX_SIZE) -> int:
        if isinstance(value, bool) or not isinstance(value, int) or not 0 < value <= most:
            limit = "" if most == MAX_SIZE else f" and at most {most:,}"
            raise self._error(f"{place}: {str(value)[:40]!r} is not a whole number above 0{limit}")
        return value

    def _error(self, text: str) -> DesignError:
        return DesignError(f"{self._where}: {text}")
