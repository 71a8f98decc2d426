"""Tracing modules and loading models and checkpoints."""
