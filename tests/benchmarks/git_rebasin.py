"""Weight matching against a plain Git Re-Basin (arXiv 2209.04836, Algorithm 1), on an MLP with four hidden layers.

    python -m tests.benchmarks.git_rebasin --width 4096

Both match with permutations alone and get the same two random networks. Printed are the objective ``sum <A, P B>`` and the
wall time of each, and their ratio; the exit status is 1 where the objective is lower than Git Re-Basin's.
"""

from __future__ import annotations

import argparse
import sys
import time
from itertools import pairwise

import torch
from scipy.optimize import linear_sum_assignment
from torch import Tensor, nn

import symgraph as sg

State = dict[str, Tensor]


def network(width: int, seed: int) -> nn.Sequential:
    torch.manual_seed(seed)
    widths = [784, *[width] * 4, 10]
    layers: list[nn.Module] = []
    for a, b in pairwise(widths):
        layers += [nn.Linear(a, b), nn.ReLU()]
    return nn.Sequential(*layers[:-1])


def rebasin(a: State, b: State, seed: int = 0) -> list[Tensor]:
    """Permutations of the hidden layers by coordinate descent in random order, from the identity."""
    weights = [key for key in a if key.endswith("weight")]
    orders = [torch.arange(len(a[key])) for key in weights[:-1]]
    generator = torch.Generator().manual_seed(seed)
    moving = True
    while moving:
        moving = False
        for layer in torch.randperm(len(orders), generator=generator).tolist():
            here, bias, after = weights[layer], weights[layer].replace("weight", "bias"), weights[layer + 1]
            before = orders[layer - 1] if layer else torch.arange(a[here].shape[1])
            following = orders[layer + 1] if layer + 1 < len(orders) else torch.arange(len(a[after]))
            profit = a[here] @ b[here][:, before].T + torch.outer(a[bias], b[bias]) + a[after].T @ b[after][following]
            order = torch.from_numpy(linear_sum_assignment(profit.numpy(), maximize=True)[1])
            old = float(profit[torch.arange(len(order)), orders[layer]].sum())
            new = float(profit[torch.arange(len(order)), order].sum())
            if new > old + 1e-12 * abs(old):
                orders[layer], moving = order, True
    return orders


def permuted(b: State, orders: list[Tensor]) -> State:
    result, weights = dict(b), [key for key in b if key.endswith("weight")]
    for order, here, after in zip(orders, weights, weights[1:], strict=False):
        bias = here.replace("weight", "bias")
        result[here], result[bias] = result[here][order], result[bias][order]
        result[after] = result[after][:, order]
    return result


def objective(a: State, b: State) -> float:
    return sum(float((a[key].double() * b[key].double()).sum()) for key in a)


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--width", type=int, default=4096)
    width = parser.parse_args(arguments).width
    a, b = (network(width, seed).double().state_dict() for seed in (0, 1))
    spec = sg.discover(network(width, 0), args=(torch.randn(3, 784),))
    started = time.perf_counter()
    plain = objective(a, permuted(b, rebasin(a, b)))
    between = time.perf_counter()
    found = sg.match(spec, a, b, "weights", only=["permutation"])
    ours, ended = objective(found.a, found.b), time.perf_counter()
    print(f"Git Re-Basin: objective {plain:.4f} in {between - started:.1f} s")
    print(f"symgraph:     objective {ours:.4f} in {ended - between:.1f} s")
    print(f"objective {ours / plain:.4f} of Git Re-Basin's, time {(ended - between) / (between - started):.2f}")
    return int(ours < plain * (1 - 1e-9))


if __name__ == "__main__":
    sys.exit(main())
