"""A catalogue of architectures: a directory with ``architectures.jsonl`` and ``architectures.py``, which builds its entries."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path
from typing import Any

DATA, LOADER = "architectures.jsonl", "architectures.py"
USUAL = Path(__file__).resolve().parents[2].parent / "shared"
"""Where the catalogue is looked for when no directory is given."""


class CatalogError(Exception):
    """There is no catalogue, or it cannot be read: one line that names the file."""


class Catalog:
    """Entries by model type, in the order of the file, and the module that builds them."""

    def __init__(self, directory: Path) -> None:
        for name in (DATA, LOADER):
            if not (directory / name).is_file():
                raise CatalogError(f"{directory} has no {name}: give the directory of the catalogue")
        spec = importlib.util.spec_from_file_location("architectures", directory / LOADER)
        assert spec is not None
        assert spec.loader is not None
        self._module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(self._module)
        try:
            entries = self._module.load(directory / DATA, exportable=False)
        except json.JSONDecodeError as error:
            raise CatalogError(f"{directory / DATA} is no file of JSON lines: {error}") from error
        self.entries: dict[str, dict[str, Any]] = {entry["model_type"]: entry for entry in entries}

    def build(self, model_type: str) -> tuple[Any, dict[str, Any]]:
        """The module, with seeded weights, and the keyword arguments of one call."""
        module, kwargs = self._module.build(self.entries[model_type])
        return module, kwargs
