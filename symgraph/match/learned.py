"""Learned matching: move the continuous parts of the groups so that the models between the two ends get good.

The loss of ``(1 - x) gA A + x gB B`` is minimised over gA and gB (``dual``) or gB alone (``learned``); x is drawn anew
every step. One step is one forward and backward pass of the interpolated model, and the action of the elements: the
gradient with respect to the interpolated weights is taken once and pulled back through the action.

As g acts affinely, the line between gA A and gB B has the losses of the line between A and gA^-1 gB B: moving both ends
reaches no more lines, it only makes the search better conditioned.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import nullcontext
from dataclasses import dataclass, field, fields
from functools import cached_property
from math import cos, pi
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from symgraph.errors import MatchError
from symgraph.match.barrier import mean_loss
from symgraph.match.charts import charts
from symgraph.match.functional import Batches, Functional, Loss, fresh
from symgraph.match.line import Line, Point
from symgraph.match.resume import Progress, chained, load, save
from symgraph.match.selection import Selection, kind
from symgraph.match.statistics import of_the_batch
from symgraph.spec.model import SymmetrySpec
from symgraph.spec.stages import Stage
from symgraph.spec.state import State
from symgraph.spec.transform import Transform

NOT_COMPARED = frozenset({"callback", "checkpoint", "checkpoint_every", "held_out"})  # a run may be resumed with others


@dataclass(frozen=True)
class Options:
    """How to learn. ``line`` is the interval that the interpolation point is drawn from, uniformly."""

    steps: int = 600
    lr: float = 3e-3
    rates: Mapping[str, float] = field(default_factory=dict)  # factors on lr, by kind of group
    parametrizations: Mapping[str, str] = field(default_factory=dict)  # names, by kind of group
    line: tuple[float, float] = (0.45, 0.55)
    clip: float = 1.0
    warmup: float = 0.02  # part of the steps
    accumulate: int = 1
    autocast: bool = False  # run the model in bfloat16 where torch's autocast does; float32 models only
    batch_statistics: bool = False  # running statistics do not count: norms use those of the batch, buffers are not scaled
    seed: int = 0
    callback: Callable[[int, int, float], None] | None = None  # step, steps, loss
    checkpoint: str | Path | None = None  # written there, and resumed from there if it exists
    checkpoint_every: int = 100
    held_out: Batches | None = None  # the best judged step is returned
    judge_every: int = 100
    patience: int = 0  # judgements without a better middle; zero: never stop early


@dataclass(frozen=True)
class Learned:
    """The two transforms, the loss of every step, and the judged losses of the middle by step."""

    transform_a: Transform
    transform_b: Transform
    history: tuple[float, ...]
    judged: tuple[tuple[int, float], ...]


def learn(
    spec: SymmetrySpec,
    a: State,
    b: State,
    selection: Selection,
    module: nn.Module,
    loss: Loss,
    batches: Batches,
    *,
    both: bool = True,
    options: Options | None = None,
) -> Learned:
    """Learn from the balanced, matched ends ``a`` and ``b`` on."""
    chosen = options or Options()
    moving = charts(spec.space_map, selection.spaces, chosen.parametrizations)
    if not moving:
        raise MatchError("there is nothing to learn: no space that takes part has a continuous group")
    learner = _Learner(Line(spec, a, b, module, moving), Functional(module, {}), loss, batches, both, chosen)
    with of_the_batch(module) if chosen.batch_statistics else nullcontext():
        learner.run()
    stages = []
    for point in learner.points:
        wide = (
            None
            if point is None
            else {
                name: {key: value.detach().double().cpu() for key, value in latents.items()} for name, latents in point.items()
            }
        )
        stages.append(() if wide is None else (Stage(learner.line.elements(wide)),))
    progress = learner.progress
    return Learned(Transform(spec, stages[0]), Transform(spec, stages[1]), tuple(progress.history), tuple(progress.judged))


class _Learner:
    """One run: the points of both sides (None: stays), optimizer, random stream, progress."""

    def __init__(self, line: Line, model: Functional, loss: Loss, batches: Batches, both: bool, options: Options) -> None:
        self.line, self.model, self.loss, self.batches, self.options = line, model, loss, batches, options
        dtype = torch.float64 if _widest(line) is torch.float64 else torch.float32
        self.points: list[Point | None] = [line.start(dtype) if both else None, line.start(dtype)]
        self.generator = torch.Generator().manual_seed(options.seed)
        groups: dict[float, list[Tensor]] = {}
        for name, value in self._latents().items():
            space = name.split("|")[1]
            if line.charts[space].learned(name.split("|")[2]):
                rate = options.rates.get(kind(line.spaces[space]) if line.spaces[space].group.is_matrix else "scale", 1.0)
                groups.setdefault(rate, []).append(value.requires_grad_())
        self.optimizer = torch.optim.Adam([{"params": values, "rate": rate} for rate, values in groups.items()], lr=options.lr)
        self.progress = Progress()

    def run(self) -> None:
        """All steps; from the checkpoint on if there is one."""
        options, progress = self.options, self.progress
        path = None if options.checkpoint is None else Path(options.checkpoint)
        if path is not None and path.exists():
            progress = self.progress = load(path, self._latents(), self.optimizer, self.generator, self._fingerprint)
        stream = self._resumed(path)
        while progress.step < options.steps and not self._exhausted():
            value = self._step(stream)
            progress.history.append(value)
            progress.step += 1
            last = progress.step == options.steps
            if options.held_out is not None and (last or progress.step % options.judge_every == 0):
                self._judge(options.held_out)
            if path is not None and (last or progress.step % options.checkpoint_every == 0):
                save(path, self._latents(), self.optimizer, self.generator, self._fingerprint, progress)
            if options.callback is not None:
                options.callback(progress.step, options.steps, value)
        if progress.best:
            with torch.no_grad():
                for name, latent in self._latents().items():
                    latent.copy_(progress.best[name])

    def _resumed(self, path: Path | None) -> Iterator[Any]:
        """The batches that are left; MatchError if those already seen were others."""
        stream, expected, self.progress.seen = self._endless(), self.progress.seen, ""
        for _ in range(self.progress.step * self.options.accumulate):
            next(stream)
        if self.progress.seen != expected:
            raise MatchError(f"{path} was learned on other batches: give the same ones in the same order, or another file")
        return stream

    def _step(self, stream: Iterator[Any]) -> float:
        """One gradient step; the mean loss of its batches."""
        low, high = self.options.line
        x = low + (high - low) * float(torch.rand((), generator=self.generator, dtype=torch.float64))
        moving = self.line.moving(self.points, x)
        leaves = {name: value.detach().requires_grad_() for name, value in moving.items()}
        self.model.state = self.line.state(leaves, x)
        total = 0.0
        for _ in range(self.options.accumulate):
            with torch.autocast(self.line.device.type, torch.bfloat16, enabled=self.options.autocast):
                loss = self.loss(self.model, next(stream)) / self.options.accumulate
            loss.backward()  # type: ignore[no-untyped-call]
            total += float(loss.detach())
        used = [name for name, leaf in leaves.items() if leaf.grad is not None and moving[name].requires_grad]
        torch.autograd.backward([moving[name] for name in used], [leaves[name].grad for name in used])
        self._update()
        return total

    def _update(self) -> None:
        factor = self._schedule(self.progress.step)
        for group in self.optimizer.param_groups:
            group["lr"] = self.options.lr * group["rate"] * factor
            if self.options.clip > 0:
                torch.nn.utils.clip_grad_norm_(group["params"], self.options.clip)
        self.optimizer.step()
        self.optimizer.zero_grad()

    def _schedule(self, step: int) -> float:
        """Linear warmup, then a cosine to zero."""
        warm = max(1, round(self.options.warmup * self.options.steps))
        if step < warm:
            return (step + 1) / warm
        return (1 + cos(pi * (step - warm) / max(1, self.options.steps - warm))) / 2

    def _judge(self, held_out: Batches) -> None:
        """The loss of the middle on held-out data; the best latents so far are kept."""
        with torch.no_grad():
            self.model.state = self.line.state(self.line.moving(self.points, 0.5), 0.5)
        value, _ = mean_loss(self.model, self.loss, held_out)
        if not self.progress.judged or value < min(one for _, one in self.progress.judged):
            self.progress.best = {name: latent.detach().clone() for name, latent in self._latents().items()}
        self.progress.judged.append((self.progress.step, value))

    def _exhausted(self) -> bool:
        judged = [value for _, value in self.progress.judged]
        return (
            bool(self.options.patience) and len(judged) - judged.index(min(judged)) > self.options.patience if judged else False
        )

    def _latents(self) -> dict[str, Tensor]:
        """All latents by ``side|space|key``."""
        return {
            f"{side}|{space}|{key}": value
            for side, point in enumerate(self.points)
            if point is not None
            for space, latents in point.items()
            for key, value in latents.items()
        }

    def _endless(self) -> Iterator[Any]:
        while True:
            empty = True
            for batch in fresh(self.batches):
                empty = False
                if self.options.checkpoint is not None:
                    self.progress.seen = chained(self.progress.seen, batch)
                yield batch
            if empty:
                raise MatchError("there are no batches to learn on: give a list, or a function that returns a fresh iterator")

    @cached_property
    def _fingerprint(self) -> str:
        """What a checkpoint must have been made with."""
        chosen = {one.name: getattr(self.options, one.name) for one in fields(Options) if one.name not in NOT_COMPARED}
        ends = chained("", [[end[name] for name in sorted(end)] for end in self.line.ends])
        return repr((chosen, sorted(self._latents()), ends))


def _widest(line: Line) -> torch.dtype:
    widest = torch.float32
    for name in line.words:
        widest = torch.promote_types(widest, line.ends[0][name].dtype)
    return widest
