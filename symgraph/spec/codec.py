"""Reading and writing specs."""

from __future__ import annotations

import hashlib
import json
import os
import tempfile
from pathlib import Path

from pydantic import ValidationError

from symgraph.errors import SpecError
from symgraph.spec.model import SymmetrySpec


def dumps(spec: SymmetrySpec) -> str:
    """The document as text, the same bytes for equal specs."""
    return json.dumps(spec.model_dump(mode="json"), indent=1) + "\n"


def loads(text: str, origin: str = "spec") -> SymmetrySpec:
    """The spec that ``text`` holds; SpecError names the field that is wrong."""
    try:
        return SymmetrySpec.model_validate(json.loads(text))
    except (ValueError, ValidationError) as error:
        raise SpecError(f"{origin}: {str(error).splitlines()[0]}") from None


def digest(spec: SymmetrySpec) -> str:
    """SHA-256 of the document."""
    return hashlib.sha256(dumps(spec).encode()).hexdigest()


def save_spec(spec: SymmetrySpec, path: str | os.PathLike[str]) -> None:
    """Write the spec; the file appears whole or not at all."""
    write_atomically(Path(path), dumps(spec).encode())


def load_spec(path: str | os.PathLike[str]) -> SymmetrySpec:
    """Read a spec."""
    try:
        return loads(Path(path).read_text(encoding="utf-8"), str(path))
    except OSError as error:
        raise SpecError(f"{path}: {error.strerror}") from None


def write_atomically(path: Path, data: bytes) -> None:
    """Write to a temporary file beside ``path`` and rename it there."""
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
        os.replace(temporary, path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise
