"""Laws of operators, one registry. Importing the package registers every family."""

from symgraph.rules import (
    arithmetic,
    composites,
    contraction,
    elementwise,
    indexing,
    recurrent,
    reduction,
    routing,
    shape,
    summands,
    synonyms,
    windows,
)  # fmt: skip
from symgraph.rules.law import Cat, Law, Power, Structure, Term, Use
from symgraph.rules.registry import COMPOSITES, RULES, Call, Operand, composite, find_rule, rule

__all__ = [
    "COMPOSITES",
    "RULES",
    "Call",
    "Cat",
    "Law",
    "Operand",
    "Power",
    "Structure",
    "Term",
    "Use",
    "arithmetic",
    "composite",
    "composites",
    "contraction",
    "elementwise",
    "find_rule",
    "indexing",
    "recurrent",
    "reduction",
    "routing",
    "rule",
    "shape",
    "summands",
    "synonyms",
    "windows",
]  # fmt: skip
