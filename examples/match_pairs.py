"""The loss on the line between pairs of trained networks: as they are, and after every way of matching.

    python examples/match_pairs.py                                  # every pair of the zoo, every row: hours
    python examples/match_pairs.py llama --json llama.json          # one pair; what is in the file is not run again
    python examples/match_pairs.py vit --method dual --without qk   # one row of one's own: an ablation

The zoo is a directory with a ``zoo.py`` that has ``NAMES``, ``load(name, seed)``, ``batches(name, split, n, size)`` and
``loss(module, kwargs, targets)``. Matching learns on the split ``train``; the line is judged on ``test``, 2,000 images or
256 windows of text, in nats. Lines run in normal form, but for the first. Where there are batch norms, statistics
are taken anew at every point.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

import symgraph as sg

ROWS: dict[str, dict[str, Any]] = {
    "as they are": {},
    "naive": {"method": "naive"},
    "weights, permutations": {"method": "weights", "only": ["permutation"]},
    "weights": {"method": "weights"},
    "activations": {"method": "activations"},
    "weights from activations": {"method": "weights", "start": "activations"},
    "learned": {"method": "learned"},
    "dual": {"method": "dual"},
    "dual from activations": {"method": "dual", "start": "activations"},
}
LEARNING = ("learned", "dual")
JUDGED = {True: (256, 32), False: (2000, 100)}  # whether it is text: examples, and how many at a time
LEARNED = {True: 16, False: 64}  # examples in a step
SHOWN = (0, 3, 6, 9, 12)  # of 13 points
EVERYTHING = 10**9


def open_zoo(folder: Path) -> Any:
    found = importlib.util.spec_from_file_location("zoo", folder / "zoo.py")
    assert found is not None
    assert found.loader is not None
    module = importlib.util.module_from_spec(found)
    found.loader.exec_module(module)
    return module


class Pair:
    """One pair: the module, both state dicts, the spec, and the data."""

    def __init__(self, zoo: Any, name: str) -> None:
        self.zoo, self.name = zoo, name
        self.module: nn.Module = zoo.load(name, 0)
        self.states = [zoo.load(name, seed).state_dict() for seed in (0, 1)]
        kwargs, _ = next(zoo.batches(name, "train", 2, 2))
        self.text = not any(value.is_floating_point() for value in kwargs.values())
        self.spec = sg.discover(sg.trace(self.module, kwargs=kwargs))
        self.running = any(getattr(part, "track_running_stats", False) for part in self.module.modules())

    def loss(self, model: Any, batch: Any) -> Tensor:
        return self.zoo.loss(model, *batch)

    def train(self) -> Callable[[], Iterator[Any]]:
        """Passes over the training data, each in another order."""
        batches = list(self.zoo.batches(self.name, "train", EVERYTHING, LEARNED[self.text]))
        generator = torch.Generator().manual_seed(0)
        return lambda: (batches[k] for k in torch.randperm(len(batches), generator=generator).tolist())

    def run(self, row: dict[str, Any], options: dict[str, Any]) -> dict[str, Any]:
        """Match, and measure the line."""
        (a, b), started = self.states, time.monotonic()
        if row:
            result = sg.match(self.spec, a, b, batch_statistics=self.running, **self.data(), **row, **options)
            a, b = result.a, result.b
        seconds, (count, size) = time.monotonic() - started, JUDGED[self.text]
        curve = sg.barrier(
            self.module, a, b, loss=self.loss, batches=list(self.zoo.batches(self.name, "test", count, size)), points=13,
            statistics=list(self.zoo.batches(self.name, "train", count, size)) if self.running else None,
        )  # fmt: skip
        return {"alphas": curve.alphas, "losses": curve.losses, "barrier": curve.barrier, "seconds": round(seconds, 1)}

    def data(self) -> dict[str, Any]:
        def report(step: int, steps: int, loss: float) -> None:
            if step % 50 == 0:
                print(f"  {self.name}: step {step} of {steps}, loss {loss:.3f}", file=sys.stderr, flush=True)

        return {"module": self.module, "loss": self.loss, "batches": self.train(), "callback": report}


def line(cells: list[str]) -> None:
    print(f"| {' | '.join(cells)} |", flush=True)


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", help="pairs of the zoo; all of them if none is given")
    parser.add_argument("--zoo", type=Path, default=Path(__file__).resolve().parents[2] / "shared" / "zoo")
    parser.add_argument("--json", type=Path, help="read and written: results; beside it the state of a run that was cut off")
    parser.add_argument("--rows", nargs="+", choices=ROWS, default=list(ROWS), help="rows of the table")
    parser.add_argument("--method", help="one row of one's own instead: naive, weights, activations, learned or dual")
    parser.add_argument("--start", default="weights", help="with --method: weights, activations or naive")
    parser.add_argument("--only", action="append", help="with --method: a kind, role or space that takes part")
    parser.add_argument("--without", action="append", help="with --method: one that does not")
    parser.add_argument("--parametrization", action="append", metavar="KIND=NAME", default=[], help="as orthogonal=exp")
    parser.add_argument("--steps", type=int, default=600)
    parser.add_argument("--lr", type=float, default=3e-3)
    given = parser.parse_args(arguments)
    if not (given.zoo / "zoo.py").is_file():
        print(f"there is no zoo in {given.zoo}: nothing was run")
        return
    rows = {name: ROWS[name] for name in given.rows}
    if given.method:
        own = {"method": given.method, "start": given.start, "only": given.only, "without": given.without}
        words = [given.method, *([] if given.start == "weights" else [f"from {given.start}"]), *given.parametrization]
        words += [*(f"only {one}" for one in given.only or ()), *(f"without {one}" for one in given.without or ())]
        rows = {", ".join(words): own}
    zoo = open_zoo(given.zoo)
    done = json.loads(given.json.read_text(encoding="utf-8")) if given.json and given.json.is_file() else {}
    line(["pair", "path", *(f"α = {k / 12:g}" for k in SHOWN), "barrier", "matched in (s)"])
    line(["---"] * (len(SHOWN) + 4))
    for name in given.names or zoo.NAMES:
        pair = None
        for title, row in rows.items():
            learns = row.get("method") in LEARNING
            options: dict[str, Any] = {"steps": given.steps, "lr": given.lr} if learns else {}
            if learns and given.parametrization:
                options["parametrizations"] = dict(one.split("=") for one in given.parametrization)
            key = "; ".join([name, title, *(f"{option} {value}" for option, value in options.items())])
            if key not in done:
                pair = pair or Pair(zoo, name)
                if given.json and learns:
                    options["checkpoint"] = given.json.with_name(f"{given.json.stem}.{key.replace('; ', '.')}.safetensors")
                done[key] = pair.run(row, options)
                if given.json:
                    given.json.write_text(json.dumps(done, indent=1) + "\n", encoding="utf-8")
            found = done[key]
            losses = (f"{found['losses'][k]:.3f}" for k in SHOWN)
            line([name, title, *losses, f"{found['barrier']:.3f}", f"{found['seconds']:.0f}"])


if __name__ == "__main__":
    main()
