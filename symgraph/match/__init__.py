"""Matching two checkpoints of one architecture, over any spec; the loss along the line between them.

pieces, blocks          tensors cut to one space per axis; commutants read as complex matrices
gauge, balance          normal forms: free of shifts; of least norm
assignment, procrustes  one block solved: permutations and signs; orthogonal matrices
ascent, signs, weights  all blocks in turn: weight matching
activations             the same on what the two compute
parametrizations, charts, line, learned, resume    learning
barrier, merge, functional, statistics, distance   judging
selection, api          what takes part; the way in
"""

from symgraph.match.api import METHODS, MatchResult, match
from symgraph.match.barrier import BarrierCurve, barrier
from symgraph.match.learned import Options
from symgraph.match.merge import interpolate

__all__ = ["METHODS", "BarrierCurve", "MatchResult", "Options", "barrier", "interpolate", "match"]
