"""The symmetry spec: the document, and everything that needs nothing but the document."""

from symgraph.spec.codec import load_spec, save_spec
from symgraph.spec.model import SymmetrySpec
from symgraph.spec.operations import canonicalize, dimension_of, sample, tangents
from symgraph.spec.transform import Transform, identity_transform

__all__ = [
    "SymmetrySpec",
    "Transform",
    "canonicalize",
    "dimension_of",
    "identity_transform",
    "load_spec",
    "sample",
    "save_spec",
    "tangents",
]
