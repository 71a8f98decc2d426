"""Train the pair of networks that ``symgraph demo`` shows, from two seeds, on the digits that come with scikit-learn.

    python examples/train_demo.py                  # writes symgraph/cli/demo_data: two checkpoints and the data
    python examples/train_demo.py --steps 20 --out somewhere

The networks are small vision transformers (patches of 2 x 2 pixels, 3 layers, width 64). The two runs differ in
initialisation and in the order of the data, and share nothing else.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
import torch
from sklearn.datasets import load_digits
from torch.nn.functional import cross_entropy, pad
from transformers import ViTConfig, ViTForImageClassification

DATA = Path(__file__).resolve().parents[1] / "symgraph" / "cli" / "demo_data"
TEST = 500  # images that no network and no matcher trains on


def digits() -> dict[str, np.ndarray]:
    """1,797 images of 8 x 8 pixels with values 0 to 16, in a fixed random order, the last 500 for testing."""
    data = load_digits()
    order = np.random.default_rng(0).permutation(len(data.target))
    images, labels = data.images[order].astype(np.uint8), data.target[order].astype(np.uint8)
    return {
        "train_images": images[:-TEST], "train_labels": labels[:-TEST],
        "test_images": images[-TEST:], "test_labels": labels[-TEST:],
    }  # fmt: skip


def network(seed: int) -> ViTForImageClassification:
    torch.manual_seed(seed)
    config = ViTConfig(
        hidden_size=64, num_hidden_layers=3, num_attention_heads=4, intermediate_size=128,
        image_size=8, patch_size=2, num_channels=1, num_labels=10, hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0, architectures=["ViTForImageClassification"],
    )  # fmt: skip
    return ViTForImageClassification(config)


def pixels(data: dict[str, np.ndarray], split: str) -> torch.Tensor:
    """x[n, 1, 8, 8], with mean 0 and deviation 1 over all training pixels, as ``symgraph match`` reads images."""
    train = data["train_images"].astype(np.float64)
    return (torch.from_numpy(data[f"{split}_images"]).float()[:, None] - train.mean()) / train.std()


def shifted(x: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    """Every image moved by at most one pixel on each axis: 1,297 images alone are learned by heart."""
    padded = pad(x, (1, 1, 1, 1), value=x.min().item())
    rows, columns = torch.randint(0, 3, (2, len(x)), generator=generator)
    return torch.stack([padded[i, :, r : r + 8, c : c + 8] for i, (r, c) in enumerate(zip(rows, columns, strict=True))])


def train(seed: int, data: dict[str, np.ndarray], steps: int, batch: int = 64) -> ViTForImageClassification:
    module = network(seed)
    generator = torch.Generator().manual_seed(1000 + seed)
    x, y = pixels(data, "train"), torch.from_numpy(data["train_labels"]).long()
    optimizer = torch.optim.AdamW(module.parameters(), lr=2e-3, weight_decay=0.05)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=2e-3, total_steps=steps)
    for step in range(steps):
        chosen = torch.randint(len(x), (batch,), generator=generator)
        loss = cross_entropy(module(pixel_values=shifted(x[chosen], generator)).logits, y[chosen])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
        if step % 200 == 0:
            print(f"seed {seed} step {step} loss {loss.item():.3f}", flush=True)
    return module.eval()


@torch.no_grad()
def judge(module: ViTForImageClassification, data: dict[str, np.ndarray], split: str) -> str:
    """Cross-entropy in nats and accuracy on a split."""
    y = torch.from_numpy(data[f"{split}_labels"]).long()
    logits = module(pixel_values=pixels(data, split)).logits
    accuracy = (logits.argmax(-1) == y).float().mean()
    return f"{split} loss {cross_entropy(logits, y):.3f} accuracy {accuracy:.3f}"


@torch.no_grad()
def midpoint(a: ViTForImageClassification, b: ViTForImageClassification) -> ViTForImageClassification:
    middle = network(0)
    other = b.state_dict()
    middle.load_state_dict({name: (value + other[name]) / 2 for name, value in a.state_dict().items()})
    return middle.eval()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=1500)
    parser.add_argument("--out", type=Path, default=DATA)
    arguments = parser.parse_args()
    data = digits()
    arguments.out.mkdir(parents=True, exist_ok=True)
    np.savez_compressed(arguments.out / "digits.npz", **data)
    networks = {name: train(seed, data, arguments.steps) for seed, name in enumerate("ab")}
    for name, module in networks.items():
        module.save_pretrained(arguments.out / name)
        print(name, judge(module, data, "train"), judge(module, data, "test"))
    print("middle of the line:", judge(midpoint(*networks.values()), data, "test"))


if __name__ == "__main__":
    main()
