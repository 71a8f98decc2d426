"""Matching two checkpoints of one architecture, over any spec; the loss along the line between them.

pieces, blocks          tensors cut to one space per axis; commutants read as complex matrices
gauge, balance, normal  normal forms: free of shifts; of least norm; both
assignment, procrustes  one block solved: permutations and signs; orthogonal matrices
ascent, signs, weights  all blocks in turn: weight matching
activations             the same on what the two compute
parametrizations, charts, line, learned, resume    learning
barrier, merge, functional, statistics, distance   judging
many                    more than two checkpoints
selection, api          what takes part; the way in
"""

from symgraph.match.api import METHODS, MatchResult, match
from symgraph.match.barrier import BarrierCurve, barrier
from symgraph.match.learned import Options
from symgraph.match.many import ManyResult, combine, match_many, simplex
from symgraph.match.merge import interpolate

__all__ = ["METHODS", "BarrierCurve", "ManyResult", "MatchResult", "Options", "barrier", "combine", "interpolate", "match",
           "match_many", "simplex"]  # fmt: skip
