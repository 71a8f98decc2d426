"""Write the golden specs in ``specs/``: real architectures at their real sizes, from their configurations alone.

    python examples/make_specs.py                 # all of them, and the index
    python examples/make_specs.py gpt2 t5-base    # some

No weights are needed or read: every model is traced on the meta device.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Sequence
from pathlib import Path

import symgraph as sg
from symgraph.spec.codec import dumps
from symgraph.spec.render import group_text

SPECS = Path(__file__).resolve().parents[1] / "specs"
CONFIGS = SPECS / "configs"


def compile_spec(name: str) -> sg.SymmetrySpec:
    """The spec of the model that ``specs/configs/NAME.json`` describes."""
    loaded = sg.load_model(CONFIGS / f"{name}.json", weights=False)
    return sg.discover(loaded.module, kwargs=loaded.kwargs)


def row(name: str) -> str:
    """One line of the index."""
    spec = sg.load_spec(SPECS / f"{name}.json")
    parameters = sum(tensor.numel for tensor in spec.tensors if tensor.kind == "parameter")
    streams = [space for space in spec.spaces if space.name.split(".")[-1].startswith("residual")]
    groups = ", ".join(dict.fromkeys(short(group_text(space, spec.space_map)) for space in streams))
    size = (SPECS / f"{name}.json").stat().st_size
    cells = (f"[{name}]({name}.json)", f"{parameters:,}", groups, f"{spec.dimension.total:,}", len(spec.pins), f"{size:,}")
    return f"| {' | '.join(map(str, cells))} |"


def short(group: str) -> str:
    """``S_8, sign {±1}, sign_2 {±1}`` as ``S_8, 2 signs``."""
    first, *scales = group.split(", ")
    return ", ".join([first, *([f"{len(scales)} signs"] if len(scales) > 1 else scales)])


def index() -> str:
    names = [path.stem for path in sorted(SPECS.glob("*.json")) if (CONFIGS / path.name).exists()]
    return "\n".join((
        "# Golden specs",
        "",
        "Made by `python examples/make_specs.py` from the configurations in `configs/`, without weights. The tests make",
        "some of them anew and compare byte for byte (under other releases of the libraries than a spec names, all but the",
        "source lines). `symgraph explain specs/NAME.json SPACE` says why a space has its group.",
        "",
        "| spec | parameters | residual streams | continuous dimensions | pins | bytes |",
        "|---|---:|---|---:|---:|---:|",
        *(row(name) for name in names),
        "",
    ))  # fmt: skip


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("names", nargs="*", help="stems of the files in specs/configs; all if none are given")
    known = sorted(path.stem for path in CONFIGS.glob("*.json"))
    for name in parser.parse_args(arguments).names or known:
        started = time.monotonic()
        document = dumps(compile_spec(name))
        (SPECS / f"{name}.json").write_text(document, encoding="utf-8")
        total = json.loads(document)["dimension"]["total"]
        print(f"{name}: {time.monotonic() - started:.1f} s, {len(document):,} bytes, dimension {total:,}", flush=True)
    (SPECS / "README.md").write_text(index(), encoding="utf-8")


if __name__ == "__main__":
    main()
