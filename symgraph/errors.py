"""What can go wrong, in words a person can act on.

Every error that a user can cause is a :class:`SymgraphError` whose message is one line: it names the file, the field or
the tensor, says what was expected and what to do. The command line prints that line and exits with status 2.
"""

from __future__ import annotations


class SymgraphError(Exception):
    """Base of all errors that bad input can cause."""


class ModelError(SymgraphError):
    """A model reference that cannot be resolved, or a module that cannot be built."""


class TraceError(SymgraphError):
    """A module that ``torch.export`` cannot trace, or a graph that is not the module."""


class CheckpointError(SymgraphError):
    """A checkpoint that is cut short, lacks tensors, or does not fit the spec."""


class SpecError(SymgraphError):
    """A spec document that is malformed, inconsistent, or belongs to another model."""


class UnsupportedOperator(SymgraphError):
    """An operator without a rule, under ``strict=True``."""


class MatchError(SymgraphError):
    """Options or checkpoints that cannot be matched."""
