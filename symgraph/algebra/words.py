"""The type of a tensor axis: a word over index spaces.

An axis is a *factor* (one index space), a *product* of words (what ``view`` splits, row-major, leftmost slowest) or a
*direct sum* of words (what ``cat`` and ``slice`` split). A pinned axis is a number, its size. In text:

    residual                      one space, covariant: transforms with g
    residual'                     contravariant: transforms with g^-T
    head (qk' + qk + ov)          each head holds its query, key and value rows, one after the other
    hidden[up, gate^-1]           carries the scale generators `up` and `gate` with the weights 1 and -1
    40                            nothing may move it

>>> word = parse("head (qk' + qk + ov)")
>>> str(word)
"head (qk' + qk + ov)"
>>> [factor.space for factor in word.factors()]
['head', 'qk', 'qk', 'ov']
>>> word.size({"head": 2, "qk": 4, "ov": 3})
22
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from math import prod

from symgraph.errors import SpecError


class Word:
    """Base of the four forms; immutable and hashable."""

    def size(self, sizes: Mapping[str, int]) -> int:
        """Number of indices, given the size of every space."""
        raise TypeError(type(self).__name__)

    def factors(self) -> Iterator[Factor]:
        """All occurrences of spaces, from left to right."""
        raise TypeError(type(self).__name__)


@dataclass(frozen=True)
class Factor(Word):
    """One occurrence of an index space, with its variance and its weight under each scale generator."""

    space: str
    contravariant: bool = False
    weights: tuple[tuple[str, int], ...] = ()

    def size(self, sizes: Mapping[str, int]) -> int:
        """Number of indices."""
        return sizes[self.space]

    def factors(self) -> Iterator[Factor]:
        """All occurrences of spaces, from left to right."""
        yield self

    def __str__(self) -> str:
        weights = ", ".join(name if power == 1 else f"{name}^{power}" for name, power in self.weights)
        return self.space + ("'" if self.contravariant else "") + (f"[{weights}]" if weights else "")


@dataclass(frozen=True)
class Pinned(Word):
    """Indices that nothing may move."""

    length: int

    def size(self, sizes: Mapping[str, int]) -> int:
        """Number of indices."""
        return self.length

    def factors(self) -> Iterator[Factor]:
        """All occurrences of spaces, from left to right."""
        return iter(())

    def __str__(self) -> str:
        return str(self.length)


@dataclass(frozen=True)
class Product(Word):
    """Row-major product; the leftmost word varies slowest."""

    words: tuple[Word, ...]

    def size(self, sizes: Mapping[str, int]) -> int:
        """Number of indices."""
        return prod(word.size(sizes) for word in self.words)

    def factors(self) -> Iterator[Factor]:
        """All occurrences of spaces, from left to right."""
        for word in self.words:
            yield from word.factors()

    def __str__(self) -> str:
        return " ".join(f"({word})" if isinstance(word, Sum) else str(word) for word in self.words)


@dataclass(frozen=True)
class Sum(Word):
    """Direct sum; the words follow one another along the axis."""

    words: tuple[Word, ...]

    def size(self, sizes: Mapping[str, int]) -> int:
        """Number of indices."""
        return sum(word.size(sizes) for word in self.words)

    def factors(self) -> Iterator[Factor]:
        """All occurrences of spaces, from left to right."""
        for word in self.words:
            yield from word.factors()

    def __str__(self) -> str:
        return " + ".join(str(word) for word in self.words)


_TOKEN = re.compile(r"\s*(?:(?P<number>\d+)|(?P<name>[A-Za-z_][\w.]*)|(?P<mark>[()+'\[\],^])|(?P<minus>-\d+))")


def _tokens(text: str) -> list[str]:
    tokens, position = [], 0
    while position < len(text.rstrip()):
        match = _TOKEN.match(text, position)
        if match is None:
            raise SpecError(f"axis word {text!r}: unexpected {text[position:].strip()[:1]!r} at column {position + 1}")
        tokens.append(match.group().strip())
        position = match.end()
    return tokens


class _Parser:
    """Recursive descent over ``sum := product ('+' product)*``."""

    def __init__(self, text: str) -> None:
        self.text, self.tokens, self.position = text, _tokens(text), 0

    def peek(self) -> str:
        return self.tokens[self.position] if self.position < len(self.tokens) else ""

    def take(self, expected: str = "") -> str:
        token = self.peek()
        if not token or (expected and token != expected):
            raise SpecError(f"axis word {self.text!r}: expected {expected or 'a space'}, found {token or 'the end'!r}")
        self.position += 1
        return token

    def sum(self) -> Word:
        words = [self.product()]
        while self.peek() == "+":
            self.take("+")
            words.append(self.product())
        return words[0] if len(words) == 1 else Sum(tuple(words))

    def product(self) -> Word:
        words = [self.atom()]
        while self.peek() not in ("", "+", ")"):
            words.append(self.atom())
        return words[0] if len(words) == 1 else Product(tuple(words))

    def atom(self) -> Word:
        if self.peek() == "(":
            self.take("(")
            word = self.sum()
            self.take(")")
            return word
        token = self.take()
        if token.isdigit():
            return Pinned(int(token))
        if not (token[0].isalpha() or token[0] == "_"):
            raise SpecError(f"axis word {self.text!r}: expected a space, found {token!r}")
        contravariant = self.peek() == "'"
        if contravariant:
            self.take("'")
        return Factor(token, contravariant, self.weights())

    def weights(self) -> tuple[tuple[str, int], ...]:
        if self.peek() != "[":
            return ()
        self.take("[")
        found: list[tuple[str, int]] = []
        while self.peek() != "]":
            name, power = self.take(), 1
            if self.peek() == "^":
                self.take("^")
                power = self.number()
            found.append((name, power))
            if self.peek() == ",":
                self.take(",")
        self.take("]")
        return tuple(found)

    def number(self) -> int:
        token = self.take()
        if not re.fullmatch(r"-?\d+", token):
            raise SpecError(f"axis word {self.text!r}: expected an integer power, found {token!r}")
        return int(token)


@lru_cache(maxsize=65536)
def parse(text: str) -> Word:
    """The word that ``text`` denotes.

    Raises :class:`~symgraph.errors.SpecError` with the column of what cannot be read.
    """
    parser = _Parser(text)
    word = parser.sum()
    if parser.peek():
        raise SpecError(f"axis word {text!r}: unexpected {parser.peek()!r}")
    return word
