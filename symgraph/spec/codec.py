"""Reading and writing specs.

A spec is one JSON object, laid out for people: one line per space, tensor, absorption, shift and pin, defaults left
out, repeated layers written once as loops (:mod:`symgraph.spec.folding`). A two-headed attention layer of 32 reads

    {
      "schema_version": 1,
      "identity": {"model": "..."},
      "spaces": [
        {"name": "residual", "size": 4096, "group": "orthogonal"},
        {"for i in 0..31": [
          {"name": "layers.{i}.head", "size": 2, "group": "permutation"},
          {"name": "layers.{i}.qk", "size": 64, "group": "general_linear", "per": ["layers.{i}.head"]}
        ]}
      ],
      "tensors": [
        {"for i in 0..31": [
          {"name": "layers.{i}.q.weight", "shape": [128, 4096], "axes": ["layers.{i}.head layers.{i}.qk'", "residual'"]}
        ]}
      ],
      "dimension": {"by_space": {..}, "by_kind": {..}, "total": 270336}
    }

Equal specs give equal bytes. Reading is strict: unknown fields, repeated keys, wrong types and specs that contradict
themselves (:mod:`symgraph.spec.checks`) are refused with one line that names the field.
"""

from __future__ import annotations

import hashlib
import json
import os
import tempfile
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from symgraph.errors import SpecError
from symgraph.spec.checks import check
from symgraph.spec.folding import fold, unfold
from symgraph.spec.model import SymmetrySpec


def dumps(spec: SymmetrySpec) -> str:
    """The document as text, the same bytes for equal specs."""
    document = {"schema_version": spec.schema_version} | spec.model_dump(mode="json", exclude_defaults=True)
    return _document({key: value if key == "identity" else fold(value) for key, value in document.items()})


def loads(text: str, origin: str = "spec") -> SymmetrySpec:
    """The spec that ``text`` holds; SpecError names what is wrong, after ``origin``."""
    try:
        document = json.loads(text, object_pairs_hook=_object, parse_constant=_refuse)
        if not isinstance(document, dict):
            raise SpecError("expected a JSON object")
        unfolded = {key: value if key == "identity" else unfold(value) for key, value in document.items()}
        spec = SymmetrySpec.model_validate(unfolded)
        check(spec)
    except json.JSONDecodeError as error:
        raise SpecError(f"{origin}: not JSON: {error.msg} (line {error.lineno}, column {error.colno})") from None
    except ValidationError as error:
        raise SpecError(f"{origin}: {_field_error(error, unfolded)}") from None
    except SpecError as error:
        error.args = (f"{origin}: {error}",)
        raise
    except RecursionError:
        raise SpecError(f"{origin}: nested too deeply") from None
    except ValueError as error:
        raise SpecError(f"{origin}: {error}") from None
    return spec


def digest(spec: SymmetrySpec) -> str:
    """SHA-256 of the document."""
    return hashlib.sha256(dumps(spec).encode()).hexdigest()


def save_spec(spec: SymmetrySpec, path: str | os.PathLike[str]) -> None:
    """Write the spec; the file appears whole or not at all."""
    write_atomically(Path(path), dumps(spec).encode())


def load_spec(path: str | os.PathLike[str]) -> SymmetrySpec:
    """Read and check a spec; SpecError says in one line what is wrong with it."""
    try:
        text = Path(path).read_text(encoding="utf-8")
    except OSError as error:
        raise SpecError(f"{path}: {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise SpecError(f"{path}: not a text file (byte {error.start})") from None
    return loads(text, str(path))


def write_atomically(path: Path, data: bytes) -> None:
    """Write to a temporary file beside ``path`` and rename it there."""
    try:
        handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    except OSError as error:
        raise SpecError(f"{path}: {error.strerror}") from None
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
        os.chmod(temporary, 0o644)
        os.replace(temporary, path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


def _document(sections: dict[str, Any]) -> str:
    """JSON with a line for every section, and for every entry of a section."""
    texts = {name: _text(value) if name == "identity" else _section(value) for name, value in sections.items()}
    return "{\n" + ",\n".join(f"  {_text(name)}: {text}" for name, text in texts.items()) + "\n}\n"


def _section(value: Any) -> str:
    if isinstance(value, list):
        return _lines(value, "  ")
    if isinstance(value, dict):
        return "{\n" + ",\n".join(f"    {_text(key)}: {_text(item)}" for key, item in value.items()) + "\n  }"
    return _text(value)


def _lines(entries: list[Any], indent: str) -> str:
    """A list with one entry a line; the entries of loops are indented further."""
    lines = []
    for entry in entries:
        text = _text(entry)
        if len(entry) == 1 and (header := next(iter(entry))).startswith("for "):
            text = f"{{{_text(header)}: {_lines(entry[header], indent + '  ')}}}"
        lines.append(f"{indent}  {text}")
    return "[\n" + ",\n".join(lines) + f"\n{indent}]"


def _text(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, allow_nan=False)


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    result = dict(pairs)
    if len(result) < len(pairs):
        keys = [key for key, _ in pairs]
        raise SpecError(f"{next(key for key in keys if keys.count(key) > 1)!r} is written twice")
    return result


def _refuse(constant: str) -> Any:
    raise SpecError(f"{constant} is not a number that a spec may hold")


def _field_error(error: ValidationError, document: dict[str, Any]) -> str:
    """The first error with the name of its entry: ``spaces 'hidden', size: Input should be greater than 0``."""
    first, *others = error.errors()
    section, *rest = first["loc"] or ("document",)
    where, entry = str(section), document.get(str(section))
    if rest and isinstance(rest[0], int) and isinstance(entry, (list, tuple)):
        named = entry[rest[0]] if isinstance(entry[rest[0]], dict) else {}
        name = next((named[key] for key in ("name", "source", "node") if key in named), rest[0])
        where, rest = f"{section} {name!r}", rest[1:]
    field = ".".join(map(str, rest))
    more = f" (and {len(others)} more)" if others else ""
    return f"{where}{', ' + field if field else ''}: {first['msg']}{more}"
