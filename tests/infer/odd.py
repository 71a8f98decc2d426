"""Small modules that are in no library, odd on purpose.

Inputs and readers are wide enough that no null space comes from narrow data or from the kernel of a weight.
"""

from __future__ import annotations

import torch
from torch import nn

from tests.infer.modules import Build, Function, attend, heads, joined, linear, matrix, mean, root, turn, vector

relu, silu, gelu = torch.relu, nn.functional.silu, nn.functional.gelu
CASES: dict[str, Build] = {}


def case(build):
    CASES[build.__name__] = build
    return build


def x(*shape):
    return (torch.randn(*shape),)


def three(m, z, count=2):
    """Queries, keys and values by head."""
    return heads(m.q(z), count), heads(m.k(z), count), heads(m.v(z), count)


def projections(width, keys, values, bias=False):
    return {"q": linear(width, keys, bias), "k": linear(width, keys, bias), "v": linear(width, values)}


@case
def packed_by_head():
    """[head, (q k v)] in one matrix with a bias."""

    def run(m, z):
        q, k, v = heads(m.packed(z), 2).split([3, 3, 4], -1)
        return m.out(joined(attend(q, k, v)))

    return Function(run, packed=linear(6, 20, True), out=linear(8, 9)), x(2, 5, 6)


@case
def packed_by_kind():
    """[(v q k), head] in one matrix: the kinds in another order."""

    def run(m, z):
        v, q, k = m.packed(z).split([8, 6, 6], -1)
        return m.out(joined(attend(heads(q, 2), heads(k, 2), heads(v, 2))))

    return Function(run, packed=linear(6, 20), out=linear(8, 6)), x(2, 5, 6)


@case
def size_before_head():
    """[size, head]: the head is the fast index."""

    def run(m, z):
        q, k, v = (f(z).unflatten(-1, (-1, 2)).permute(0, 3, 1, 2) for f in (m.q, m.k, m.v))
        return m.out(attend(q, k, v).permute(0, 2, 3, 1).flatten(2))

    return Function(run, **projections(6, 6, 8), out=linear(8, 6)), x(2, 5, 6)


@case
def einsum_attention():
    def run(m, z):
        q, k, v = (torch.einsum("btd,hdk->bhtk", z, w) for w in (m.q, m.k, m.v))
        weights = torch.einsum("bhsk,bhtk->bhst", q, k).softmax(-1)
        return torch.einsum("bhst,bhtv,hvd->bsd", weights, v, m.out)

    return Function(run, q=matrix(2, 6, 3), k=matrix(2, 6, 3), v=matrix(2, 6, 4), out=matrix(2, 4, 6)), x(2, 5, 6)


def rotary(interleaved):
    def run(m, z):
        q, k, v = three(m, z)
        return m.out(joined(attend(turn(q, interleaved), turn(k, interleaved), v)))

    return Function(run, **projections(6, 8, 6), out=linear(6, 6)), x(2, 5, 6)


@case
def rotary_split():
    return rotary(False)


@case
def rotary_interleaved():
    return rotary(True)


@case
def rotary_on_a_part():
    def run(m, z):
        q, k, v = three(m, z)
        q, k = (torch.cat([turn(a[..., :2], True, (1.0,)), a[..., 2:]], -1) for a in (q, k))
        return m.out(joined(attend(q, k, v)))

    return Function(run, **projections(7, 10, 6), out=linear(6, 6)), x(2, 6, 7)


@case
def slopes():
    def run(m, z):
        q, k, v = three(m, z)
        place = torch.arange(z.shape[1])
        bias = torch.tensor([0.5, 0.25])[:, None, None] * (place[None] - place[:, None])
        return m.out(joined((q @ k.transpose(-1, -2) + bias).softmax(-1) @ v))

    return Function(run, **projections(6, 6, 8, True), out=linear(8, 6)), x(2, 5, 6)


@case
def gate_per_head():
    def run(m, z):
        return m.out(joined(attend(*three(m, z)) * m.gate(z).sigmoid().transpose(1, 2)[..., None]))

    return Function(run, **projections(6, 6, 8), gate=linear(6, 2, True), out=linear(8, 6)), x(2, 6, 6)


@case
def gate_per_entry():
    def run(m, z):
        return m.out(joined(attend(*three(m, z))) * m.gate(z).sigmoid())

    return Function(run, **projections(6, 6, 8), gate=linear(6, 8, True), out=linear(8, 6)), x(2, 6, 6)


@case
def shared_layers():
    def run(m, z):
        for _ in range(3):
            z = z + m.down(silu(m.gate(root(z))) * m.up(root(z)))
        return m.head(root(z))

    return Function(run, gate=linear(6, 5), up=linear(6, 5), down=linear(5, 6), head=linear(6, 4)), x(5, 6)


@case
def two_streams():
    """Two residual streams of different widths that write into each other."""

    def run(m, z):
        a, b = m.enter_a(z), m.enter_b(z)
        a, b = a + m.ab(gelu(m.to_b(root(b)))), b + m.ba(gelu(m.to_a(root(a))))
        return m.leave(torch.cat([root(a), root(b)], -1))

    enter = {"enter_a": linear(7, 5), "enter_b": linear(7, 6), "leave": linear(11, 3)}
    return Function(run, **enter, to_b=linear(6, 3), ab=linear(3, 5), to_a=linear(5, 4), ba=linear(4, 6)), x(9, 7)


@case
def value_residual():
    """The second layer mixes in the values of the first one."""

    def run(m, z):
        first = heads(m.v1(z), 2)
        z = z + m.o1(joined(attend(heads(m.q1(z), 2), heads(m.k1(z), 2), first)))
        second = heads(m.v2(z), 2) + m.mix * first
        return m.o2(joined(attend(heads(m.q2(z), 2), heads(m.k2(z), 2), second)))

    parts = {f"{kind}{layer}": linear(7, 6) for layer in (1, 2) for kind in "qkv"}
    return Function(run, **parts, o1=linear(6, 7), o2=linear(6, 5), mix=vector(1)), x(2, 6, 7)


@case
def wide_keys():
    return Function(lambda m, z: m.out(joined(attend(*three(m, z, 3)))), **projections(8, 15, 6), out=linear(6, 8)), x(2, 6, 8)


@case
def one_key_head():
    def run(m, z):
        return m.out(joined(attend(heads(m.q(z), 3), m.k(z)[:, None], m.v(z)[:, None])))

    return Function(run, q=linear(6, 12), k=linear(6, 4), v=linear(6, 5), out=linear(15, 6)), x(2, 6, 6)


@case
def low_rank():
    return Function(lambda m, z: m.c(gelu(m.b(m.a(z)))), a=linear(6, 2), b=linear(2, 5, True), c=linear(5, 4)), x(7, 6)


@case
def low_rank_beside_a_whole():
    return Function(lambda m, z: m.w(z) + m.b(m.a(z)), w=linear(5, 4, True), a=linear(5, 2), b=linear(2, 4)), x(7, 5)


@case
def tied_autoencoder():
    def run(m, z):
        return nn.functional.linear(torch.tanh(nn.functional.linear(z, m.w, m.b)), m.w.T, m.c)

    return Function(run, w=matrix(4, 6), b=vector(4), c=vector(6)), x(7, 6)


@case
def tied_linear_autoencoder():
    return Function(lambda m, z: z @ m.w.T @ m.w, w=matrix(3, 6)), x(9, 6)


@case
def squared_rectifier():
    return Function(lambda m, z: m.b(relu(m.a(z)) ** 2), a=linear(5, 7, True), b=linear(7, 3)), x(4, 5)


@case
def learned_temperature():
    def run(m, z):
        q, k, v = three(m, z)
        return m.out(joined((root(q) @ root(k).transpose(-1, -2) * m.heat[:, None, None]).softmax(-1) @ v))

    return Function(run, **projections(6, 6, 8), heat=vector(2), out=linear(8, 6)), x(2, 6, 6)


@case
def layer_scale():
    def run(m, z):
        z = m.enter(z)
        return m.leave(root(z + m.scale * m.down(gelu(m.up(root(z))))))

    parts = {"enter": linear(7, 6), "up": linear(6, 5), "down": linear(5, 6), "leave": linear(6, 3)}
    return Function(run, **parts, scale=vector(6)), x(9, 7)


@case
def weight_norm():
    first = nn.utils.parametrizations.weight_norm(nn.Linear(5, 6))
    return Function(lambda m, z: m.b(gelu(m.a(z))), a=first, b=linear(6, 3)), x(7, 5)


@case
def group_norm():
    return nn.Sequential(nn.Conv2d(2, 6, 3), nn.GroupNorm(2, 6, eps=0.0), nn.GELU(), nn.Conv2d(6, 3, 2)), x(2, 2, 6, 6)


@case
def convolution_and_batch_norm():
    norm = nn.BatchNorm2d(5, eps=1e-3)
    nn.init.uniform_(norm.running_var, 0.5, 2.0)
    nn.init.normal_(norm.running_mean)
    return nn.Sequential(nn.Conv2d(2, 5, 3, bias=False), norm, nn.ReLU(), nn.Conv2d(5, 3, 2)), x(2, 2, 6, 6)


@case
def parallel_branches():
    """Two sublayers with biases side by side behind one LayerNorm."""

    def run(m, z):
        z = m.enter(z)
        n = mean(z, m.gain, m.shift)
        return m.leave(mean(z + m.b1(gelu(m.a1(n))) + m.b2(torch.tanh(m.a2(n)))))

    parts = {"enter": linear(4, 6, True), "leave": linear(6, 4), "gain": vector(6), "shift": vector(6)}
    first = {"a1": linear(6, 3, True), "b1": linear(3, 6, True)}
    return Function(run, **parts, **first, a2=linear(6, 5, True), b2=linear(5, 6, True)), x(9, 4)


@case
def bilinear_form():
    def run(m, z):
        return torch.einsum("bi,ijo,bj->bo", m.a(z), m.w, m.b(z))

    return Function(run, a=linear(9, 3), b=linear(9, 4), w=matrix(3, 4, 2)), x(30, 9)


@case
def squeeze_and_excite():
    def run(m, z):
        z = relu(m.one(z))
        return m.two(z * m.up(gelu(m.down(z.mean((2, 3))))).sigmoid()[:, :, None, None])

    parts = {"one": nn.Conv2d(2, 5, 3), "two": nn.Conv2d(5, 3, 2)}
    return Function(run, **parts, down=linear(5, 3), up=linear(3, 5, True)), x(2, 2, 6, 6)


@case
def mixer():
    """A map over tokens between two over channels."""

    def run(m, z):
        z = m.enter(z)
        z = z + m.back(gelu(m.over(root(z).transpose(1, 2)))).transpose(1, 2)
        return m.leave(root(z))

    return Function(run, enter=linear(4, 5), over=linear(6, 3), back=linear(3, 6), leave=linear(5, 4)), x(3, 6, 4)


@case
def maxout():
    return Function(lambda m, z: m.b(m.a(z).unflatten(-1, (4, 3)).amax(-1)), a=linear(5, 12), b=linear(4, 6)), x(9, 5)


@case
def gated_recurrence():
    def run(m, z):
        state = z.new_zeros(z.shape[0], 4)
        for step in range(z.shape[1]):
            state = m.decay.sigmoid() * state + m.enter(z[:, step])
        return m.leave(torch.tanh(state))

    return Function(run, decay=vector(4), enter=linear(3, 4), leave=linear(4, 2)), x(5, 4, 3)
