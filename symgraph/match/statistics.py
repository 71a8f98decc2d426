"""Running statistics between two networks: they belong to their own weights, so a point of the line needs new ones.

The mean of two running variances is not the variance of the merged channel, and a network judged with it looks far worse
than it is. So a line through such networks is judged with statistics taken anew at every point, and learned with those
of the batch.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from contextlib import contextmanager

from torch import Tensor, nn
from torch.optim.swa_utils import update_bn

from symgraph.match.functional import Batches, Functional, Loss, fresh


def reestimate(model: Functional, loss: Loss, batches: Batches) -> None:
    """Set the running statistics of the model's normalizations to their means over the batches."""
    module = copy.deepcopy(model.module)
    module.load_state_dict(model.state, strict=False)
    update_bn(({"batch": batch} for batch in fresh(batches)), _Judged(module, loss))
    model.state.update({name: value for name, value in module.named_buffers() if name in model.state})


@contextmanager
def of_the_batch(module: nn.Module) -> Iterator[None]:
    """Inside, normalizations with running statistics use those of the batch, and update none."""
    found = [part for part in module.modules() if getattr(part, "track_running_stats", False)]
    modes = [part.training for part in found]
    for part in found:
        part.training, part.track_running_stats = True, False  # type: ignore[assignment]
    try:
        yield
    finally:
        for part, mode in zip(found, modes, strict=True):
            part.training, part.track_running_stats = mode, True  # type: ignore[assignment]


class _Judged(nn.Module):
    """Called on ``{"batch": batch}``: the form in which torch hands on what is not a tensor."""

    def __init__(self, module: nn.Module, loss: Loss) -> None:
        super().__init__()
        self.inner, self.judge = module, loss

    def forward(self, given: dict[str, object]) -> Tensor:
        """The loss of the batch."""
        return self.judge(self.inner, given["batch"])
