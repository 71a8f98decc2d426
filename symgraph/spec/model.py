"""The typed symmetry spec: one strict document that everything after discovery reads.

``spaces`` are the index spaces of the model and the group on each; ``tensors`` say how every parameter and buffer
transforms, axis by axis, as words over the spaces (:mod:`symgraph.algebra.words`). ``absorptions`` are the
function-preserving rewrites that the groups are stated *after*; ``shifts`` are translations. A small linear model
``y = W2 relu(W1 x + b1) + b2`` has

    spaces   hidden: 5, positive_monomial, scales: [{name: scale, kind: positive}]
    tensors  W1 (5, 3): ["hidden[scale]", "3"]    b1 (5,): ["hidden[scale]"]
             W2 (2, 5): ["2", "hidden[scale^-1]"] b2 (2,): ["2"]

Loading a spec executes nothing. Unknown fields are refused.
"""

from __future__ import annotations

from math import prod
from typing import Any, Literal

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    SerializerFunctionWrapHandler,
    ValidationInfo,
    field_validator,
    model_serializer,
    model_validator,
)

from symgraph.algebra.groups import Group
from symgraph.algebra.words import Word, parse

SCHEMA_VERSION = 1


class Strict(BaseModel):
    """Frozen; refuses unknown fields and silent conversions."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)


def _tuples(value: object) -> object:
    """JSON has lists where the model has tuples."""
    return tuple(_tuples(item) for item in value) if isinstance(value, list) else value


class Fact(Strict):
    """Why a space has no larger group: the operator that uses a structure of it, and where it stands."""

    structure: str
    operator: str
    source: str = ""
    module: str = ""
    reason: str = ""


class Scale(Strict):
    """One diagonal scale freedom: a number for every index of its space (and of the spaces that one depends on)."""

    name: str
    kind: Literal["positive", "real", "sign"]


class Block(Strict):
    """One isotypic block of a commutant: GL(m, R) on m coordinates, or GL(m, C) on m coordinate planes (re, im)."""

    field: Literal["real", "complex"]
    coordinates: tuple[tuple[int, ...], ...]

    _lists = field_validator("coordinates", mode="before")(_tuples)

    @property
    def dimension(self) -> int:
        """Real dimension of the block's general linear group."""
        return len(self.coordinates) ** 2 * (2 if self.field == "complex" else 1)


class Space(Strict):
    """An index space: its size, its group, the spaces whose index its transformation depends on.

    ``partition`` lists index classes that share one scale value (and sign); empty means every index has its own.
    """

    name: str
    size: int = Field(gt=0)
    group: Group
    per: tuple[str, ...] = ()
    scales: tuple[Scale, ...] = ()
    blocks: tuple[Block, ...] = ()
    partition: tuple[tuple[int, ...], ...] = ()
    role: str = ""
    provenance: tuple[Fact, ...] = ()

    _lists = field_validator("per", "scales", "blocks", "partition", "provenance", mode="before")(_tuples)

    @field_validator("group", mode="before")
    @classmethod
    def _group(cls, value: object, info: ValidationInfo) -> object:
        return Group(value) if isinstance(value, str) else value


class Tensor(Strict):
    """How one parameter or buffer transforms: a word for every axis, and the size-one spaces that scale all of it."""

    name: str
    shape: tuple[int, ...]
    axes: tuple[str, ...]
    scale: str = ""
    kind: Literal["parameter", "buffer"] = "parameter"
    aliases: tuple[str, ...] = ()

    _lists = field_validator("shape", "axes", "aliases", mode="before")(_tuples)

    @property
    def words(self) -> tuple[Word, ...]:
        """The parsed axes."""
        return tuple(parse(axis) for axis in self.axes)

    @property
    def numel(self) -> int:
        """Number of entries."""
        return prod(self.shape)


class Target(Strict):
    """Where a gain is folded to: ``tensor`` is multiplied along ``axis`` by ``gain ** power``.

    The gain of n entries stands on indices ``start .. start + outer * n * inner`` of the axis, tiled ``outer`` times,
    every entry repeated ``inner`` times.
    """

    tensor: str
    axis: int
    power: Literal[1, -1]
    outer: int = 1
    inner: int = 1
    start: int = 0


class Absorption(Strict):
    """A function-preserving rewrite: the gain ``multiplier * source + offset`` becomes one, its targets take it up."""

    source: str
    direction: Literal["readers", "writers"]
    multiplier: float = 1.0
    offset: float = 0.0
    targets: tuple[Target, ...]
    provenance: tuple[Fact, ...] = ()

    _lists = field_validator("targets", "provenance", mode="before")(_tuples)

    @property
    def neutral(self) -> float:
        """Value of the source at which the gain is one."""
        return (1.0 - self.offset) / self.multiplier


class View(Strict):
    """A window of a tensor: reshaped to ``shape``, then ``start .. stop`` on every axis; what is read of it is
    ``(entry + offset) ** power`` (one over a gain, a variance and its epsilon to the power -1/2).

    A window that is all of the tensor is left out of the document.
    """

    tensor: str
    shape: tuple[int, ...]
    window: tuple[tuple[int, int], ...]
    power: float = 1.0
    offset: float = 0.0

    _lists = field_validator("shape", "window", mode="before")(_tuples)

    @model_validator(mode="before")
    @classmethod
    def _whole(cls, document: Any) -> Any:
        shape = document.get("shape") if isinstance(document, dict) else None
        if isinstance(shape, (list, tuple)) and "window" not in document:
            return {**document, "window": tuple((0, size) for size in shape)}
        return document

    @model_serializer(mode="wrap")
    def _without_whole(self, handler: SerializerFunctionWrapHandler) -> dict[str, Any]:
        document: dict[str, Any] = handler(self)
        if self.window == tuple((0, size) for size in self.shape):
            del document["window"]
        return document


class ShiftTerm(Strict):
    """``target += coefficient * einsum(equation, value, *reads)``; a size of one is broadcast to the target's.

    ``divided``: with the value over one plus the sum of its entries.
    """

    target: View
    equation: str
    reads: tuple[View, ...] = ()
    coefficient: float = 1.0
    divided: bool = False

    _lists = field_validator("reads", mode="before")(_tuples)


class Shift(Strict):
    """A translation of parameters that the function does not see, with a free vector of the given shape.

    A ``projective`` one is the group of maps ``I + v 1^T``, which reads what it changes: its inverse has the vector
    ``-v / (1 + sum(v))``. It stands where a mean subtraction makes ``1^T x`` zero.
    """

    name: str
    shape: tuple[int, ...]
    terms: tuple[ShiftTerm, ...]
    kind: str
    dimension: int
    projective: bool = False
    provenance: tuple[Fact, ...] = ()

    _lists = field_validator("shape", "terms", "provenance", mode="before")(_tuples)

    @property
    def depends_on_weights(self) -> bool:
        """Whether the translation of some tensor is a function of the weights."""
        return any(term.reads for term in self.terms)


class Pin(Strict):
    """An axis that nothing may move because an operator has no rule, or its rule allows nothing."""

    node: str
    operator: str
    reason: str
    source: str = ""
    module: str = ""


class Approximate(Strict):
    """A scale that only an epsilon breaks: tensor ``t`` is multiplied by ``s ** weights[t]`` under the condition.

    Of a tensor in ``offsets`` (a gain kept as its difference from one), it is ``t + offset`` that is multiplied.
    """

    name: str
    condition: str
    weights: dict[str, int]
    offsets: dict[str, float] = Field(default_factory=dict)
    provenance: tuple[Fact, ...] = ()

    _lists = field_validator("provenance", mode="before")(_tuples)


class Dimension(Strict):
    """Independent continuous directions, exact ones only."""

    by_space: dict[str, int]
    by_kind: dict[str, int]
    total: int


class Identity(Strict):
    """Which model this is the spec of."""

    model: str
    config_digest: str = ""
    untied: bool = False
    versions: dict[str, str] = Field(default_factory=dict)


class SymmetrySpec(Strict):
    """The whole document. See the module's head for a worked example."""

    schema_version: Literal[1] = 1
    identity: Identity
    spaces: tuple[Space, ...]
    tensors: tuple[Tensor, ...]
    absorptions: tuple[Absorption, ...] = ()
    shifts: tuple[Shift, ...] = ()
    pins: tuple[Pin, ...] = ()
    approximate: tuple[Approximate, ...] = ()
    dimension: Dimension

    _lists = field_validator("spaces", "tensors", "absorptions", "shifts", "pins", "approximate", mode="before")(
        _tuples
    )

    def space(self, name: str) -> Space:
        """The space of that name; KeyError if there is none."""
        return self.space_map[name]

    @property
    def space_map(self) -> dict[str, Space]:
        """Spaces by name."""
        return {space.name: space for space in self.spaces}

    @property
    def tensor_map(self) -> dict[str, Tensor]:
        """Tensors by name."""
        return {tensor.name: tensor for tensor in self.tensors}

    @property
    def sizes(self) -> dict[str, int]:
        """Size of every space by name."""
        return {space.name: space.size for space in self.spaces}
