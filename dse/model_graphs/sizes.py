"""Sizes of tensors as sums of products of batch, tokens and past positions."""

import ast
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

BATCH, TOKENS, PAST = "batch", "tokens", "past"
"""Symbols that a size may have: sequences, new tokens of each, and positions cached before these."""

MAX_EXPRESSION = 500
"""Characters of an expression that is still read."""

Terms = tuple[tuple[tuple[str, ...], int], ...]


@dataclass(frozen=True, slots=True)
class Size:
    """A size as a polynomial: coefficients of products of symbols.

    >>> Size.constant(2) * Size.symbol("batch") * (Size.symbol("tokens") + Size.constant(1))
    Size(terms=((('batch',), 2), (('batch', 'tokens'), 2)))
    """

    terms: Terms

    @staticmethod
    def constant(number: int) -> "Size":
        """The size that is a number."""
        return Size((((), number),) if number else ())

    @staticmethod
    def symbol(name: str) -> "Size":
        """The size that is a symbol."""
        return Size((((name,), 1),))

    def __add__(self, other: "Size") -> "Size":
        return _collect((*self.terms, *other.terms))

    def __mul__(self, other: "Size") -> "Size":
        return _collect((tuple(sorted(a + b)), n * m) for a, n in self.terms for b, m in other.terms)

    @property
    def number(self) -> int | None:
        """The size as a number; None if it has symbols."""
        if not self.terms:
            return 0
        return self.terms[0][1] if len(self.terms) == 1 and not self.terms[0][0] else None

    @property
    def symbols(self) -> set[str]:
        """Symbols that the size has: batch, tokens, past or others."""
        return {name for names, _ in self.terms for name in names}

    def rename(self, names: Mapping[str, str]) -> "Size":
        """The size with other symbols, where `names` has some."""
        return _collect((tuple(sorted(names.get(name, name) for name in product)), n) for product, n in self.terms)

    @property
    def grows_with(self) -> str:
        """What the size grows with: query-key pairs, tokens, sequences, or nothing ("step")."""
        products = [names for names, _ in self.terms]
        if any(names.count(TOKENS) > 1 or PAST in names for names in products):
            return "pair"
        if any(TOKENS in names for names in products):
            return "token"
        return "sequence" if any(BATCH in names for names in products) else "step"

    @property
    def coefficient(self) -> int:
        """Largest number before a product of the most symbols, for each of what the size grows with."""
        most = max((len(names) for names, _ in self.terms), default=0)
        return max((n for names, n in self.terms if len(names) == most), default=0)


def growth_order(size: Size) -> tuple[int, int]:
    """Order of sizes by how fast they grow, then by their largest coefficients."""
    return max((len(names) for names, _ in size.terms), default=0), size.coefficient


def product_of(sizes: Iterable[Size]) -> Size:
    """Product of some sizes; 1 of none."""
    total = Size.constant(1)
    for size in sizes:
        total = total * size
    return total


def parse_size(text: str) -> Size | None:
    """Size of an expression as exporters write it; None if it is of another form.

    >>> parse_size("Mul(Integer(2), Symbol('s0', positive=True))") == parse_size("2*s0")
    True
    >>> parse_size("floor(s0/2)") is None
    True
    """
    if len(text) > MAX_EXPRESSION:
        return None
    try:
        return _expression(ast.parse(text.strip(), mode="eval").body)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None


def _expression(node: ast.expr) -> Size | None:
    if isinstance(node, ast.Constant):
        return Size.constant(node.value) if type(node.value) is int else None
    if isinstance(node, ast.Name):
        return Size.symbol(node.id)
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        operand = _expression(node.operand)
        return None if operand is None else operand * Size.constant(-1)
    if isinstance(node, ast.BinOp):
        return _operation(type(node.op).__name__, [_expression(node.left), _expression(node.right)])
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
        return _call(node.func.id, node.args)
    return None


def _call(name: str, arguments: list[ast.expr]) -> Size | None:
    first = arguments[0] if arguments else None
    if name == "Symbol" and isinstance(first, ast.Constant) and isinstance(first.value, str):
        return Size.symbol(first.value)
    if name == "Integer" and first is not None:
        return _expression(first)
    if name in ("Mul", "Add"):
        return _operation("Mult" if name == "Mul" else "Add", [_expression(argument) for argument in arguments])
    return None


def _operation(name: str, operands: list[Size | None]) -> Size | None:
    known = [operand for operand in operands if operand is not None]
    if len(known) < len(operands) or not known or name not in ("Add", "Sub", "Mult"):
        return None
    total, sign = known[0], Size.constant(-1 if name == "Sub" else 1)
    for operand in known[1:]:
        total = total * operand if name == "Mult" else total + operand * sign
    return total


def _collect(terms: Iterable[tuple[tuple[str, ...], int]]) -> Size:
    totals: dict[tuple[str, ...], int] = {}
    for names, number in terms:
        totals[names] = totals.get(names, 0) + number
    return Size(tuple(sorted((names, number) for names, number in totals.items() if number)))
