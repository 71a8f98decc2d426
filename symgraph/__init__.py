"""symgraph: a compiler from PyTorch models to typed symmetry specs."""

__version__ = "0.1.0"
