"""symgraph: a compiler from PyTorch models to typed symmetry specs.

    import symgraph as sg
    spec  = sg.discover(module, kwargs={"input_ids": ids})     # which changes of the weights the function does not see
    canon = sg.canonicalize(spec, module.state_dict())
    moved = sg.sample(spec, seed=0).apply(canon)               # other weights, the same function

Names are imported on first use: ``import symgraph`` alone loads nothing heavy.
"""

from __future__ import annotations

import sys
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from symgraph.errors import SymgraphError
    from symgraph.frontend.graph import Graph
    from symgraph.frontend.models import LoadedModel, load_model
    from symgraph.frontend.trace import trace
    from symgraph.infer.discover import discover
    from symgraph.match.api import MatchResult, match
    from symgraph.match.barrier import BarrierCurve, barrier
    from symgraph.match.many import ManyResult, match_many
    from symgraph.spec.codec import load_spec, save_spec
    from symgraph.spec.model import SymmetrySpec
    from symgraph.spec.operations import canonicalize, sample, tangents
    from symgraph.spec.render import explain_text as explain
    from symgraph.spec.transform import Transform, identity_transform
    from symgraph.verify.audit import AuditReport, audit
    from symgraph.verify.preservation import VerifyReport, verify

__version__ = "0.1.0"

_PLACES = {
    "errors": ("SymgraphError",),
    "frontend.graph": ("Graph",),
    "frontend.models": ("LoadedModel", "load_model"),
    "frontend.trace": ("trace",),
    "infer.discover": ("discover",),
    "spec.codec": ("load_spec", "save_spec"),
    "spec.model": ("SymmetrySpec",),
    "spec.operations": ("canonicalize", "sample", "tangents"),
    "spec.transform": ("Transform", "identity_transform"),
    "verify": ("AuditReport", "VerifyReport", "audit", "verify"),
    "match": ("BarrierCurve", "ManyResult", "MatchResult", "barrier", "match", "match_many"),
}
_EXPORTS = {name: (module, name) for module, names in _PLACES.items() for name in names}
_EXPORTS["explain"] = ("spec.render", "explain_text")

__all__ = [
    "AuditReport", "BarrierCurve", "Graph", "LoadedModel", "ManyResult", "MatchResult", "SymgraphError", "SymmetrySpec",
    "Transform", "VerifyReport", "audit", "barrier", "canonicalize", "discover", "explain", "identity_transform", "load_model",
    "load_spec", "match", "match_many", "sample", "save_spec", "tangents", "trace", "verify",
]  # fmt: skip


def __getattr__(name: str) -> Any:
    if name not in _EXPORTS:
        raise AttributeError(f"module 'symgraph' has no attribute {name!r}")
    module, attribute = _EXPORTS[name]
    value = getattr(import_module(f"symgraph.{module}"), attribute)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


class _Package(ModuleType):
    """``sg.match`` and ``sg.verify`` are functions, also after the subpackages of these names have been imported."""

    def __setattr__(self, name: str, value: Any) -> None:
        if not (name in _EXPORTS and isinstance(value, ModuleType)):
            super().__setattr__(name, value)


sys.modules[__name__].__class__ = _Package
