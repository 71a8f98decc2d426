"""symgraph on a module of one's own: discover, verify, and align two copies that were trained apart.

    python examples/own_module.py

The same factory serves the command line: ``symgraph discover examples/own_module.py:factory``.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import mse_loss

import symgraph as sg


class Block(nn.Module):
    """``x + down(silu(gate(n)) * up(n))`` with ``n`` the normalised x."""

    def __init__(self, width: int, hidden: int) -> None:
        super().__init__()
        self.norm = nn.RMSNorm(width)
        self.gate, self.up = nn.Linear(width, hidden, bias=False), nn.Linear(width, hidden, bias=False)
        self.down = nn.Linear(hidden, width, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        normal = self.norm(x)
        return x + self.down(nn.functional.silu(self.gate(normal)) * self.up(normal))


class Gated(nn.Module):
    """Gated blocks on a residual stream."""

    def __init__(self, width: int = 16, hidden: int = 24, depth: int = 2) -> None:
        super().__init__()
        self.enter, self.norm, self.leave = nn.Linear(4, width), nn.RMSNorm(width), nn.Linear(width, 3)
        self.blocks = nn.Sequential(*(Block(width, hidden) for _ in range(depth)))

    def forward(self, x: Tensor) -> Tensor:
        return self.leave(self.norm(self.blocks(self.enter(x))))


def factory(seed: int = 0) -> tuple[nn.Module, dict[str, Tensor]]:
    """What ``file.py:factory`` has to return: a module and the keyword arguments of one call."""
    torch.manual_seed(seed)
    return Gated(), {"x": torch.randn(8, 4)}


def data(count: int = 2048) -> tuple[Tensor, Tensor]:
    """Inputs x[n, 4] and targets y[n, 3]."""
    x = torch.randn(count, 4, generator=torch.Generator().manual_seed(0))
    return x, torch.stack([x[:, 0] * x[:, 1], (x[:, 2] - x[:, 3]).abs(), x.prod(-1).sin()], -1)


def train(seed: int, steps: int = 600) -> nn.Module:
    module, _ = factory(seed)
    x, y = data()
    optimizer = torch.optim.Adam(module.parameters(), lr=1e-2)
    for step in range(steps):
        rows = torch.randint(len(x), (128,), generator=torch.Generator().manual_seed(10_000 * seed + step))
        optimizer.zero_grad()
        loss(module, (x[rows], y[rows])).backward()
        optimizer.step()
    return module.eval()


def loss(model: Any, batch: Any) -> Tensor:
    x, y = batch
    return mse_loss(model(x=x), y)


def main() -> None:
    module, kwargs = factory()
    graph = sg.trace(module, kwargs=kwargs)
    spec = sg.discover(graph)
    print(sg.explain(spec, "residual"))
    print(sg.verify(graph, spec).summary)

    a, b = train(1).state_dict(), train(2).state_dict()
    x, y = data()
    batches = list(zip(x.split(128), y.split(128), strict=True))
    learned = {"module": module, "loss": loss, "batches": batches}
    canonical = sg.canonicalize(spec, a), sg.canonicalize(spec, b)
    print(f"barrier in normal form {sg.barrier(module, *canonical, loss=loss, batches=batches).barrier:.4f}")
    for method, options in (("weights", {}), ("dual", {**learned, "steps": 200})):
        result = sg.match(spec, a, b, method=method, **options)
        print(f"after {method:8}        {sg.barrier(module, result.a, result.b, loss=loss, batches=batches).barrier:.4f}")


if __name__ == "__main__":
    main()
