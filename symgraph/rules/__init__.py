"""Laws of operators, one registry. Importing the package registers every family."""

from symgraph.rules import composites, contraction, elementwise, indexing, reduction, routing, shape
from symgraph.rules.law import Cat, Law, Power, Structure, Term, Use
from symgraph.rules.registry import COMPOSITES, RULES, Call, Operand, composite, find_rule, rule

__all__ = [
    "COMPOSITES", "RULES", "Call", "Cat", "Law", "Operand", "Power", "Structure", "Term", "Use", "composite",
    "composites", "find_rule", "routing", "contraction", "elementwise", "indexing", "reduction", "rule", "shape",
]  # fmt: skip
