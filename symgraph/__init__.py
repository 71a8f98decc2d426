"""symgraph: a compiler from PyTorch models to typed symmetry specs."""
