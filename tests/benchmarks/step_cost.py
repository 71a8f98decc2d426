"""What a step of dual learned matching costs, against a plain training step of one model on the same batch.

    python -m tests.benchmarks.step_cost                 # a Llama-shaped model of width 512, 4,096 tokens a step
    python -m tests.benchmarks.step_cost --width 128 --tokens 2048

Printed are CPU seconds (medians) of a forward and backward pass with an Adam update, of a step of ``dual``, and their ratio;
and the peak of resident memory after each. Weights are random: only the cost is looked at.
"""

from __future__ import annotations

import argparse
import resource
import statistics
import time
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import torch
import transformers
from torch.nn.functional import cross_entropy

import symgraph as sg

CONTEXT, VOCABULARY = 256, 1024


def build(width: int, layers: int, seed: int) -> Any:
    torch.manual_seed(seed)
    config = transformers.LlamaConfig(
        hidden_size=width, num_hidden_layers=layers, num_attention_heads=width // 64, num_key_value_heads=width // 128,
        intermediate_size=width * 11 // 4, vocab_size=VOCABULARY, max_position_embeddings=CONTEXT, tie_word_embeddings=False,
    )  # fmt: skip
    return transformers.LlamaForCausalLM(config).eval()


def loss(model: Any, ids: torch.Tensor) -> torch.Tensor:
    logits = model(input_ids=ids[:, :-1], use_cache=False).logits
    return cross_entropy(logits.flatten(0, 1), ids[:, 1:].flatten())


def seconds(step: Callable[[], object], steps: int) -> float:
    """CPU seconds of the median step, after one to warm up."""
    step()
    found = []
    for _ in range(steps):
        started = time.process_time()
        step()
        found.append(time.process_time() - started)
    return statistics.median(found)


def plain(module: Any, ids: torch.Tensor, steps: int) -> float:
    optimizer = torch.optim.Adam(module.parameters(), lr=1e-5)

    def step() -> None:
        optimizer.zero_grad()
        loss(module, ids).backward()  # type: ignore[no-untyped-call]
        optimizer.step()

    return seconds(step, steps)


def dual(modules: list[Any], ids: torch.Tensor, steps: int) -> float:
    spec = sg.discover(modules[0], kwargs={"input_ids": ids[:1, :-1], "use_cache": False})
    marks: list[float] = []
    states = [module.state_dict() for module in modules]
    sg.match(
        spec, *states, "dual", module=modules[0], loss=loss, batches=[ids], steps=steps + 2, start="naive",
        callback=lambda step, total, value: marks.append(time.process_time()),
    )  # fmt: skip
    return statistics.median(later - earlier for earlier, later in pairwise(marks[1:]))


def peak() -> float:
    """GB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, value in (("width", 512), ("layers", 4), ("tokens", 4096), ("steps", 5)):
        parser.add_argument(f"--{name}", type=int, default=value)
    given = parser.parse_args(arguments)
    ids = torch.randint(VOCABULARY, (given.tokens // CONTEXT, CONTEXT + 1), generator=torch.Generator().manual_seed(0))
    modules = [build(given.width, given.layers, seed) for seed in (0, 1)]
    count = sum(parameter.numel() for parameter in modules[0].parameters())
    print(f"{count / 1e6:.1f} million parameters, width {given.width}, {given.tokens} tokens a step")
    one, before = plain(modules[0], ids, given.steps), peak()
    two, after = dual(modules, ids, given.steps), peak()
    print(f"training: {one:.2f} s a step, {before:.2f} GB; dual: {two:.2f} s a step, {after:.2f} GB; ratio {two / one:.2f}")


if __name__ == "__main__":
    main()
