"""Consistency of a spec."""

from symgraph.spec.model import SymmetrySpec


def check(spec: SymmetrySpec) -> None:
    """Raise SpecError if the spec contradicts itself."""
