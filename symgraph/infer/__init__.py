"""From a traced graph to a spec: interpretation, unification, solving, lowering. Names no operator's law."""
