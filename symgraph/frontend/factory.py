"""Calling a factory that the user names, ``file.py:factory`` or ``package.module:factory``."""

from __future__ import annotations

import importlib
import importlib.util
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

from symgraph.errors import ModelError, SymgraphError


def call_factory(text: str) -> Any:
    """Import the module and call the function without arguments. Its own imports may be of files beside it."""
    place, _, name = text.rpartition(":")
    path = Path(place)
    is_file = path.suffix == ".py"
    if is_file and not path.is_file():
        raise ModelError(f"{place} does not exist")
    with _importing_from(path.resolve().parent if is_file else Path.cwd()):
        module = _import(path, place, is_file)
        factory = getattr(module, name, None)
        if not callable(factory):
            raise ModelError(f"{place} defines no function {name!r}")
        try:
            return factory()
        except SymgraphError:
            raise
        except Exception as error:
            raise ModelError(f"{text} raised {type(error).__name__}: {_first_line(error)}") from error


def _import(path: Path, place: str, is_file: bool) -> ModuleType:
    try:
        return _import_file(path) if is_file else importlib.import_module(place)
    except ModuleNotFoundError as error:
        if not is_file and error.name and (place == error.name or place.startswith(f"{error.name}.")):
            raise ModelError(f"there is no file or module {place!r}") from error
        raise ModelError(f"{place} cannot be imported: {type(error).__name__}: {_first_line(error)}") from error
    except Exception as error:
        raise ModelError(f"{place} cannot be imported: {type(error).__name__}: {_first_line(error)}") from error


def _import_file(path: Path) -> ModuleType:
    name = f"_symgraph_factory_{path.stem}"
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise ModelError(f"{path} cannot be imported")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # dataclasses look their module up there
    spec.loader.exec_module(module)
    return module


@contextmanager
def _importing_from(folder: Path) -> Iterator[None]:
    sys.path.insert(0, str(folder))
    try:
        yield
    finally:
        if str(folder) in sys.path:
            sys.path.remove(str(folder))


def _first_line(error: BaseException) -> str:
    return (str(error).strip().splitlines() or ["no message"])[0]
