import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from symgraph.algebra.action import act
from symgraph.algebra.elements import Matrix, Monomial, compose, identity, inverse
from symgraph.algebra.words import parse
from symgraph.errors import SpecError
from tests.algebra.samples import SIZES, SPACES, WORDS, element

TOLERANCE = 1e-12
seeds = st.integers(0, 2**31)
subsets = st.sets(st.sampled_from(sorted(SPACES)), min_size=1)
axes = st.sampled_from(WORDS)


def tensor(words, seed):
    shape = [word.size(SIZES) for word in words]
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def close(a, b):
    return (a - b).abs().max() <= TOLERANCE * (1 + b.abs().max())


@settings(deadline=None, max_examples=60)
@given(axes, seeds, seeds, subsets, subsets)
def test_the_action_is_a_homomorphism(axes, one, other, left, right):
    words = tuple(map(parse, axes))
    a, b, x = element(one, left), element(other, right), tensor(words, 3)
    assert close(act(x, words, compose(a, b, SPACES), SPACES), act(act(x, words, b, SPACES), words, a, SPACES))


@settings(deadline=None, max_examples=60)
@given(axes, seeds, subsets)
def test_the_inverse_undoes(axes, seed, only):
    words = tuple(map(parse, axes))
    a, x = element(seed, only), tensor(words, 3)
    assert close(act(act(x, words, a, SPACES), words, inverse(a, SPACES), SPACES), x)
    assert close(act(x, words, compose(a, inverse(a, SPACES), SPACES), SPACES), x)


@settings(deadline=None, max_examples=20)
@given(seeds, seeds, seeds, subsets, subsets, subsets)
def test_composition_is_associative(one, two, three, first, second, third):
    a, b, c = element(one, first), element(two, second), element(three, third)
    left = compose(compose(a, b, SPACES), c, SPACES)
    right = compose(a, compose(b, c, SPACES), SPACES)
    assert left.keys() == right.keys()
    for name, x in left.items():
        y = right[name]
        if isinstance(x, Matrix):
            assert close(x.matrix, y.matrix)
        else:
            assert torch.equal(x.permutation, y.permutation)
            assert all(close(x.log[k], y.log[k]) and torch.equal(x.sign[k], y.sign[k]) for k in x.log)


@pytest.mark.parametrize("axes", WORDS)
def test_the_identity_does_nothing(axes):
    words = tuple(map(parse, axes))
    x = tensor(words, 1)
    unit = {name: identity(space, SPACES) for name, space in SPACES.items()}
    assert torch.equal(act(x, words, unit, SPACES), x)
    assert act(x, words, {}, SPACES) is x


def test_hidden_units_of_an_expert_move_before_the_expert():
    """new[e, f] = s[e', p[e'][f]] * old[e', p[e'][f]] with e' = perm[e], as the contract of the spec says."""
    words = tuple(map(parse, ("expert", "hidden[b]")))
    g, x = element(5), tensor(words, 2)
    outer, inner = g["expert"], g["hidden"]
    moved = act(x, words, g, SPACES)
    for e in range(3):
        source = outer.permutation[e]
        for f in range(5):
            unit = inner.permutation[source, f]
            assert torch.isclose(moved[e, f], inner.log["b"][source, unit].exp() * x[source, unit])


def test_contraction_of_both_variances_is_invariant():
    g = element(7, {"qk", "head", "expert"})
    q, k = tuple(map(parse, ("expert head qk'",))), tuple(map(parse, ("expert head qk",)))
    x, y = tensor(q, 1), tensor(k, 2)
    assert close((act(x, q, g, SPACES) * act(y, k, g, SPACES)).sum(), (x * y).sum())


def test_differentiable_in_matrix_log_and_tensor():
    words = tuple(map(parse, ("expert head (qk' + qk + ov[a, b^-2])", "residual")))
    g = element(11)
    values = (g["qk"].matrix, g["residual"].matrix, g["ov"].log["a"], tensor(words, 1))

    def run(qk, residual, log, x):
        ov = Monomial(g["ov"].permutation, {**g["ov"].log, "a": log}, g["ov"].sign)
        return act(x, words, {**g, "qk": Matrix(qk), "residual": Matrix(residual), "ov": ov}, SPACES)[:4]

    inputs = tuple(value.clone().requires_grad_() for value in values)
    assert torch.autograd.gradcheck(run, inputs, fast_mode=True)


def test_inputs_are_not_changed():
    words = tuple(map(parse, WORDS[0]))
    x = tensor(words, 1)
    before = x.clone()
    act(x, words, element(1), SPACES)
    assert torch.equal(x, before)


@pytest.mark.parametrize(
    ("axes", "message"),
    [
        (("head[s]",), "space 'head' depends on 'expert', which does not stand on the same tensor"),
        (
            ("expert", "expert", "head"),
            "space 'head' depends on 'expert', which stands on several axes of the same tensor",
        ),
    ],
)
def test_a_dependent_space_needs_its_outer_space_once(axes, message):
    words = tuple(map(parse, axes))
    with pytest.raises(SpecError, match="^" + message + "$"):
        act(tensor(words, 1), words, element(1), SPACES)


def test_an_outer_space_on_the_own_axis_is_meant_first():
    words = tuple(map(parse, ("expert head", "expert")))
    g = element(3, {"head", "expert"})
    x = tensor(words, 1)
    alone = tuple(map(parse, ("expert head", "3")))
    expected = act(act(x, alone, g, SPACES), tuple(map(parse, ("6", "expert"))), g, SPACES)
    assert torch.equal(act(x, words, g, SPACES), expected)
