"""Torch modules whose gradients are compared, tiny. `NETS`: name -> (module, inputs), of torch's default type.

Only make.py reads this; it needs torch, which CI does not have.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional as f

NETS: dict[str, Callable[[], tuple[nn.Module, tuple[Tensor, ...]]]] = {}


def net(make: Callable[[], tuple[nn.Module, tuple[Tensor, ...]]]) -> Callable[[], tuple[nn.Module, tuple[Tensor, ...]]]:
    NETS[make.__name__] = make
    return make


def x(*shape: int) -> Tensor:
    return torch.randn(*shape)


def ids(high: int, *shape: int) -> Tensor:
    return torch.randint(0, high, shape)


class Of(nn.Module):
    """A function of the inputs and parameters made of modules that it holds."""

    def __init__(self, forward: Callable[..., Tensor], **parts: nn.Module | Tensor):
        super().__init__()
        self._forward = forward
        for name, part in parts.items():
            setattr(self, name, part if isinstance(part, nn.Module) else nn.Parameter(part))

    def forward(self, *inputs: Tensor) -> Tensor:
        return self._forward(self, *inputs)


# -- whole nets ------------------------------------------------------------------------------------------------------


@net
def mlp():
    return nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Dropout(0.1), nn.Linear(8, 8), nn.GELU(), nn.Linear(8, 3), nn.LogSoftmax(1)), (
        x(4, 6),
    )


@net
def conv_net():
    parts = [
        nn.Conv2d(2, 4, 3, padding=1, bias=False),
        nn.BatchNorm2d(4),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(4, 6, 3, stride=2, groups=2),
    ]
    model = nn.Sequential(*parts, nn.BatchNorm2d(6), nn.ReLU6(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(6, 3))
    for m in model:
        if isinstance(m, nn.BatchNorm2d):
            m.running_mean.normal_(0, 0.3)
            m.running_var.uniform_(0.5, 1.5)
            m.weight.data.uniform_(0.5, 1.5)
            m.bias.data.normal_()
    return model, (x(2, 2, 10, 10),)


@net
def residual():
    class Block(nn.Module):
        def __init__(self, i, o, stride):
            super().__init__()
            self.a, self.na = nn.Conv2d(i, o, 3, stride, 1, bias=False), nn.BatchNorm2d(o)
            self.b, self.nb = nn.Conv2d(o, o, 3, 1, 1, bias=False), nn.BatchNorm2d(o)
            self.short = nn.Conv2d(i, o, 1, stride, bias=False) if stride > 1 or i != o else nn.Identity()

        def forward(self, v):
            return f.relu(self.nb(self.b(f.relu(self.na(self.a(v))))) + self.short(v))

    return nn.Sequential(Block(2, 4, 1), Block(4, 6, 2), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(6, 3)), (x(2, 2, 7, 7),)


@net
def mobile():
    def block(i, o):
        return nn.Sequential(nn.Conv2d(i, i, 3, 1, 1, groups=i), nn.BatchNorm2d(i), nn.Hardswish(), nn.Conv2d(i, o, 1), nn.SiLU())

    class Squeeze(nn.Module):
        def __init__(self, n):
            super().__init__()
            self.down, self.up = nn.Conv2d(n, 2, 1), nn.Conv2d(2, n, 1)

        def forward(self, v):
            return v * f.hardsigmoid(self.up(f.relu(self.down(v.mean((2, 3), keepdim=True)))))

    return nn.Sequential(block(3, 4), Squeeze(4), block(4, 5), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(5, 3)), (x(2, 3, 6, 6),)


def recurrent(kind, **options):
    def forward(self, v):
        y, h = self.cell(v)
        last = h[0] if isinstance(h, tuple) else h
        return self.out(y).sum() + (last**2).sum().reshape(1)

    width = 4 * (2 if options.get("bidirectional") else 1)
    return Of(forward, cell=kind(3, 4, **options), out=nn.Linear(width, 2)), (x(5, 2, 3),)


@net
def lstm():
    return recurrent(nn.LSTM, num_layers=2)


@net
def lstm_bidirectional():
    return recurrent(nn.LSTM, bidirectional=True)


@net
def gru():
    return recurrent(nn.GRU, num_layers=2)


@net
def gru_bidirectional():
    return recurrent(nn.GRU, bidirectional=True)


@net
def rnn():
    return recurrent(nn.RNN, nonlinearity="tanh", batch_first=False)


class Attention(nn.Module):
    def __init__(self, width, heads, causal=False, fused=False):
        super().__init__()
        self.q, self.k, self.v, self.o = (nn.Linear(width, width) for _ in range(4))
        self.heads, self.causal, self.fused = heads, causal, fused

    def forward(self, h, mask=None):
        b, s, w = h.shape
        q, k, v = (p(h).view(b, s, self.heads, w // self.heads).transpose(1, 2) for p in (self.q, self.k, self.v))
        if self.fused:
            y = f.scaled_dot_product_attention(q, k, v, attn_mask=mask, is_causal=self.causal)
        else:
            a = q @ k.transpose(-2, -1) / math.sqrt(w // self.heads)
            if self.causal:
                a = a.masked_fill(torch.ones(s, s, dtype=torch.bool).triu(1), float("-inf"))
            if mask is not None:
                a = a + mask
            y = a.softmax(-1) @ v
        return self.o(y.transpose(1, 2).reshape(b, s, w))


class Bert(nn.Module):
    def __init__(self, layers=1, width=8, heads=2, words=11, length=6):
        super().__init__()
        self.word = nn.Embedding(words, width)
        self.place, self.kind = nn.Embedding(length, width), nn.Embedding(2, width)
        self.norm = nn.LayerNorm(width)
        self.layers = nn.ModuleList(
            nn.ModuleDict(
                {
                    "attention": Attention(width, heads),
                    "norm1": nn.LayerNorm(width),
                    "up": nn.Linear(width, 2 * width),
                    "down": nn.Linear(2 * width, width),
                    "norm2": nn.LayerNorm(width),
                }
            )
            for _ in range(layers)
        )
        self.pool, self.out = nn.Linear(width, width), nn.Linear(width, 3)

    def forward(self, words, kinds, mask):
        h = self.norm(self.word(words) + self.place(torch.arange(words.shape[1])) + self.kind(kinds))
        bias = (1 - mask[:, None, None, :]) * -1e9
        for layer in self.layers:
            h = layer["norm1"](h + layer["attention"](h, bias))
            h = layer["norm2"](h + layer["down"](f.gelu(layer["up"](h))))
        return self.out(torch.tanh(self.pool(h[:, 0])))


@net
def bert():
    mask = torch.ones(2, 6)
    mask[1, 4:] = 0
    words = ids(11, 2, 6)
    words[0, 2] = 0
    return Bert(), (words, ids(2, 2, 6), mask)


class Gpt(nn.Module):
    def __init__(self, fused, layers=1, width=8, heads=2, words=11, length=7):
        super().__init__()
        self.word, self.place = nn.Embedding(words, width), nn.Embedding(length, width)
        self.layers = nn.ModuleList(
            nn.ModuleDict(
                {
                    "norm1": nn.LayerNorm(width),
                    "attention": Attention(width, heads, True, fused),
                    "norm2": nn.LayerNorm(width),
                    "up": nn.Linear(width, 4 * width),
                    "down": nn.Linear(4 * width, width),
                }
            )
            for _ in range(layers)
        )
        self.norm = nn.LayerNorm(width)

    def forward(self, words):
        h = self.word(words) + self.place(torch.arange(words.shape[1]))
        for layer in self.layers:
            h = h + layer["attention"](layer["norm1"](h))
            h = h + layer["down"](f.gelu(layer["up"](layer["norm2"](h)), approximate="tanh"))
        return f.linear(self.norm(h), self.word.weight)


@net
def gpt():
    return Gpt(fused=False), (ids(11, 2, 7),)


@net
def gpt_fused_attention():
    return Gpt(fused=True), (ids(11, 2, 7),)


class RmsNorm(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.weight = nn.Parameter(torch.rand(width) + 0.5)

    def forward(self, v):
        return self.weight * (v * torch.rsqrt(v.pow(2).mean(-1, keepdim=True) + 1e-6))


class Llama(nn.Module):
    def __init__(self, layers=1, width=16, heads=4, groups=2, words=13, fused=False):
        super().__init__()
        self.heads, self.groups, self.size, self.fused = heads, groups, width // heads, fused
        self.word = nn.Embedding(words, width)
        kv = groups * self.size

        def linear(i, o):
            return nn.Linear(i, o, bias=False)

        self.layers = nn.ModuleList(
            nn.ModuleDict(
                {
                    "norm1": RmsNorm(width),
                    "q": linear(width, width),
                    "k": linear(width, kv),
                    "v": linear(width, kv),
                    "o": linear(width, width),
                    "norm2": RmsNorm(width),
                    "gate": linear(width, 24),
                    "up": linear(width, 24),
                    "down": linear(24, width),
                }
            )
            for _ in range(layers)
        )
        self.norm, self.head = RmsNorm(width), linear(width, words)

    def rotate(self, v, cos, sin):
        a, b = v.chunk(2, -1)
        return v * cos + torch.cat((-b, a), -1) * sin

    def forward(self, words):
        b, s = words.shape
        angles = torch.outer(
            torch.arange(s).to(torch.get_default_dtype()), 1e4 ** (-torch.arange(0, self.size, 2).to(torch.get_default_dtype()) / self.size)
        )
        angles = torch.cat((angles, angles), -1)
        cos, sin = angles.cos(), angles.sin()
        mask = torch.full((s, s), float("-inf")).triu(1)
        h = self.word(words)
        for layer in self.layers:
            u = layer["norm1"](h)
            q = self.rotate(layer["q"](u).view(b, s, self.heads, self.size).transpose(1, 2), cos, sin)
            k = self.rotate(layer["k"](u).view(b, s, self.groups, self.size).transpose(1, 2), cos, sin)
            v = layer["v"](u).view(b, s, self.groups, self.size).transpose(1, 2)
            times = self.heads // self.groups
            k, v = (t[:, :, None].expand(b, self.groups, times, s, self.size).reshape(b, self.heads, s, self.size) for t in (k, v))
            if self.fused:
                y = f.scaled_dot_product_attention(q, k, v, attn_mask=mask)
            else:
                y = (q @ k.transpose(2, 3) / self.size**0.5 + mask).softmax(-1) @ v
            h = h + layer["o"](y.transpose(1, 2).reshape(b, s, -1))
            u = layer["norm2"](h)
            h = h + layer["down"](f.silu(layer["gate"](u)) * layer["up"](u))
        return self.head(self.norm(h))


@net
def llama():
    return Llama(), (ids(13, 2, 5),)


@net
def llama_fused_attention():
    return Llama(fused=True), (ids(13, 2, 5),)


class Vit(nn.Module):
    def __init__(self, width=8):
        super().__init__()
        self.patch = nn.Conv2d(3, width, 4, 4)
        self.token, self.place = nn.Parameter(torch.randn(1, 1, width)), nn.Parameter(torch.randn(1, 5, width))
        self.blocks = nn.ModuleList(
            nn.TransformerEncoderLayer(width, 2, 16, 0.1, "gelu", batch_first=True, norm_first=True) for _ in range(1)
        )
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, 3)

    def forward(self, v):
        h = self.patch(v).flatten(2).transpose(1, 2)
        h = torch.cat((self.token.expand(v.shape[0], -1, -1), h), 1) + self.place
        for block in self.blocks:
            h = block(h)
        return self.head(self.norm(h)[:, 0])


@net
def vit():
    return Vit(), (x(2, 3, 8, 8),)


class Unet(nn.Module):
    def __init__(self, up):
        super().__init__()

        def double(i, o):
            return nn.Sequential(
                nn.Conv2d(i, o, 3, padding=1),
                nn.GroupNorm(2, o),
                nn.SiLU(),
                nn.Conv2d(o, o, 3, padding=1),
                nn.InstanceNorm2d(o, affine=True),
                nn.LeakyReLU(0.1),
            )

        self.first, self.second, self.mid = double(1, 2), double(2, 4), double(4, 4)
        if up == "transposed":
            self.up2, self.up1 = nn.ConvTranspose2d(4, 4, 2, 2), nn.ConvTranspose2d(4, 2, 3, 2, 1, 1)
        else:
            self.up2 = nn.Sequential(nn.Upsample(scale_factor=2, mode="nearest"), nn.Conv2d(4, 4, 1))
            self.up1 = nn.Sequential(nn.Upsample(scale_factor=2, mode="bilinear", align_corners=True), nn.Conv2d(4, 2, 1))
        self.last2, self.last1, self.out = double(8, 4), double(4, 2), nn.Conv2d(2, 2, 1)

    def forward(self, v):
        a = self.first(v)
        b = self.second(f.max_pool2d(a, 2))
        c = self.mid(f.avg_pool2d(b, 2))
        d = self.last2(torch.cat((self.up2(c), b), 1))
        return self.out(self.last1(torch.cat((self.up1(d), a), 1)))


@net
def unet():
    return Unet("transposed"), (x(1, 1, 8, 8),)


@net
def unet_interpolated():
    return Unet("interpolated"), (x(1, 1, 8, 8),)


class Graph(nn.Module):
    """Two rounds of messages along edges, summed where they arrive, and a mean over nodes of each graph."""

    def __init__(self, how):
        super().__init__()
        self.message, self.update, self.out = nn.Linear(8, 6), nn.Linear(10, 4), nn.Linear(4, 2)
        self.how = how

    def forward(self, nodes, edges, graph):
        h = nodes
        for _ in range(2):
            m = f.relu(self.message(torch.cat((h[edges[0]], h[edges[1]]), 1)))
            zero = torch.zeros(h.shape[0], 6)
            if self.how == "scatter_add":
                a = zero.scatter_add(0, edges[1][:, None].expand(-1, 6), m)
            elif self.how == "index_add":
                a = zero.index_add(0, edges[1], m)
            else:
                a = zero.scatter_reduce(0, edges[1][:, None].expand(-1, 6), m, "amax", include_self=True)
            h = torch.tanh(self.update(torch.cat((h, a), 1)))
        total = torch.zeros(2, 4).index_add(0, graph, h)
        return self.out(total)


def graph(how):
    edges = torch.tensor([[0, 1, 2, 3, 4, 4, 2, 0], [1, 2, 0, 4, 3, 3, 1, 2]])
    return Graph(how), (x(5, 4), edges, torch.tensor([0, 0, 0, 1, 1]))


@net
def graph_scatter_add():
    return graph("scatter_add")


@net
def graph_index_add():
    return graph("index_add")


@net
def graph_scatter_max():
    return graph("scatter_max")


@net
def vae():
    def forward(self, v, noise):
        h = torch.tanh(self.encode(v))
        mean, spread = self.mean(h), self.spread(h)
        z = mean + noise * torch.exp(0.5 * spread)
        y = torch.sigmoid(self.decode(f.elu(self.hidden(z))))
        t = torch.sigmoid(v)
        fit = -(t * y.log() + (1 - t) * (1 - y).log()).sum()
        return (fit - 0.5 * (1 + spread - mean**2 - spread.exp()).sum()).reshape(1)

    parts = {
        "encode": nn.Linear(6, 8),
        "mean": nn.Linear(8, 3),
        "spread": nn.Linear(8, 3),
        "hidden": nn.Linear(3, 8),
        "decode": nn.Linear(8, 6),
    }
    return Of(forward, **parts), (x(4, 6), x(4, 3))


@net
def vae_conv():
    def forward(self, v, noise):
        h = f.relu(self.down(v)).flatten(1)
        mean, spread = self.code(h).chunk(2, 1)
        z = mean + noise * torch.exp(spread / 2)
        return torch.sigmoid(self.up(f.softplus(self.back(z)).view(-1, 4, 3, 3)))

    parts = {"down": nn.Conv2d(1, 4, 3, 2, 1), "code": nn.Linear(36, 6), "back": nn.Linear(3, 36), "up": nn.ConvTranspose2d(4, 1, 4, 2, 1)}
    return Of(forward, **parts), (x(2, 1, 6, 6), x(2, 3))


# -- what other nets are made of ---------------------------------------------------------------------------------------


@net
def multihead():
    def forward(self, v):
        return self.a(v, v, v, need_weights=False)[0]

    return Of(forward, a=nn.MultiheadAttention(8, 2, batch_first=True)), (x(2, 5, 8),)


@net
def decoder_layer():
    def forward(self, v, m):
        return self.a(v, m, tgt_mask=torch.full((4, 4), float("-inf")).triu(1))

    return Of(forward, a=nn.TransformerDecoderLayer(8, 2, 12, 0.0, batch_first=True)), (x(2, 4, 8), x(2, 5, 8))


@net
def embedding_bag():
    def forward(self, words):
        e = self.e(words)
        weight = (words != 0).to(torch.get_default_dtype())[..., None]
        return self.o((e * weight).sum(1) / weight.sum(1).clamp(min=1))

    words = ids(9, 3, 5)
    words[:, 3:] = 0
    return Of(forward, e=nn.Embedding(9, 4), o=nn.Linear(4, 2)), (words,)


@net
def tied():
    def forward(self, v):
        return torch.tanh(v @ self.w) @ self.w.T * self.w.sum()

    return Of(forward, w=torch.randn(5, 3)), (x(2, 5),)


@net
def einsums():
    def forward(self, v):
        h = torch.einsum("bsi,hio->bhso", v, self.q)
        k = torch.einsum("bsi,hio->bhso", v, self.k)
        a = torch.einsum("bhso,bhto->bhst", h, k).softmax(-1)
        return torch.einsum("bhst,bti,hio->bso", a, v, self.o)

    return Of(forward, q=torch.randn(2, 4, 3), k=torch.randn(2, 4, 3), o=torch.randn(2, 4, 4)), (x(2, 5, 4),)


@net
def pooling():
    def forward(self, v):
        h = self.c(v)
        a = f.max_pool2d(h, 3, 2, 1, ceil_mode=True)
        b = f.avg_pool2d(h, 3, 2, 1, ceil_mode=True, count_include_pad=False)
        return torch.cat((a.flatten(), b.flatten(), f.adaptive_max_pool2d(h, 4).flatten()))

    return Of(forward, c=nn.Conv2d(1, 2, 3, padding="same", dilation=2)), (x(1, 1, 8, 8),)


@net
def conv1d():
    parts = [nn.Conv1d(2, 4, 5, padding=2, padding_mode="circular"), nn.PReLU(4), nn.ConvTranspose1d(4, 3, 4, 3, 1, dilation=2), nn.Mish()]
    return nn.Sequential(*parts, nn.MaxPool1d(3), nn.Conv1d(3, 2, 1)), (x(2, 2, 9),)


@net
def conv3d():
    parts = [nn.Conv3d(1, 2, 3, padding=1), nn.Softplus(), nn.AvgPool3d(2), nn.ConvTranspose3d(2, 1, 2, 2), nn.Tanhshrink()]
    return nn.Sequential(*parts), (x(1, 1, 4, 4, 4),)


@net
def interpolations():
    def forward(self, v):
        h = self.c(v)
        return torch.cat(
            [
                f.interpolate(h, size=(7, 9), mode="bilinear", align_corners=False).flatten(),
                f.interpolate(h, scale_factor=1.5, mode="nearest").flatten(),
                f.interpolate(h, size=(3, 3), mode="bicubic", align_corners=True).flatten(),
            ]
        )

    return Of(forward, c=nn.Conv2d(1, 2, 1)), (x(1, 1, 5, 4),)


@net
def grid():
    def forward(self, v):
        t = self.t.view(1, 2, 3)
        g = f.affine_grid(t.expand(2, -1, -1), [2, 1, 4, 4], align_corners=False)
        return f.grid_sample(self.c(v), g, align_corners=False)

    return Of(forward, c=nn.Conv2d(1, 1, 1), t=torch.tensor([[0.7, 0.1, 0.13], [0.2, 0.8, -0.11]])), (x(2, 1, 5, 5),)


@net
def index_put():
    def forward(self, v, i):
        h = self.l(v).clone()
        h.index_put_((i,), self.w, accumulate=True)
        return h * h

    # torch's older exporter writes a Scatter without a reduction where one is meant, so no row is put twice
    return Of(forward, l=nn.Linear(3, 3), w=torch.randn(4, 3)), (x(5, 3), torch.tensor([0, 2, 3, 4]))


@net
def set_rows():
    def forward(self, v):
        h = torch.zeros(5, 3)
        h[1:3] = self.l(v)
        h[:, 0] += self.w
        return torch.sin(h)

    return Of(forward, l=nn.Linear(3, 3), w=torch.randn(5)), (x(2, 3),)


@net
def cumulative():
    def forward(self, v):
        h = self.l(v)
        return torch.cumsum(h, 1) * torch.flip(torch.cumsum(torch.sigmoid(h), 0), (0,))

    return Of(forward, l=nn.Linear(3, 4)), (x(5, 3),)


@net
def top():
    def forward(self, v):
        h = self.l(v)
        values, places = torch.topk(h, 2, 1)
        chosen = torch.gather(self.m(v), 1, places)
        return (values.softmax(1) * chosen).sum(1) + torch.sort(h, 1, descending=True)[0][:, 1]

    return Of(forward, l=nn.Linear(3, 5), m=nn.Linear(3, 5)), (x(4, 3),)


@net
def experts():
    def forward(self, v):
        gates = self.g(v).softmax(-1)
        weight, place = torch.topk(gates, 2, -1)
        gate = torch.zeros_like(gates).scatter(1, place, weight / weight.sum(-1, keepdim=True))
        y = torch.einsum("bi,eio->beo", v, self.up)
        y = torch.einsum("beo,eoi->bei", f.gelu(y), self.down)
        return (gate[..., None] * y).sum(1)

    return Of(forward, g=nn.Linear(4, 3), up=torch.randn(3, 4, 5), down=torch.randn(3, 5, 4)), (x(6, 4),)


@net
def masks():
    def forward(self, v, m):
        h = self.l(v)
        h = torch.where(m[:, None], h, h * 0.5 + self.l.bias)
        h = h.masked_fill(h > 1, -1.0)
        return h.clamp(-0.8, 0.9) + torch.tril(h[:3, :3]).sum()

    return Of(forward, l=nn.Linear(3, 4)), (x(5, 3), torch.tensor([True, False, True, True, False]))


@net
def norms():
    def forward(self, v):
        h = self.n(v)
        h = self.g(h.transpose(1, 2)).transpose(1, 2)
        mean, spread = h.mean(-1, keepdim=True), h.std(-1, keepdim=True)
        h = (h - mean) / (spread + 1e-6) * self.w
        return f.normalize(h, dim=-1) + torch.linalg.vector_norm(h, dim=(1, 2), keepdim=True) + h.var(1, unbiased=False)[:, None]

    return Of(forward, n=nn.LayerNorm((5, 4)), g=nn.GroupNorm(2, 4), w=torch.randn(4)), (x(2, 5, 4),)


@net
def activations():
    kinds = [
        nn.ELU(),
        nn.CELU(0.7),
        nn.SELU(),
        nn.Hardtanh(-0.5, 0.6),
        nn.Softsign(),
        nn.Hardshrink(0.3),
        nn.Softshrink(0.2),
        nn.GLU(),
        nn.LogSigmoid(),
        nn.Threshold(0.0, 0.0),
        nn.RReLU(),
        nn.Hardswish(),
        nn.Sigmoid(),
        nn.Softmin(1),
        nn.GELU("tanh"),
    ]

    def forward(self, v):
        h = self.l(v)
        return torch.cat([k(h) for k in self.kinds], 1)

    return Of(forward, l=nn.Linear(3, 6), kinds=nn.ModuleList(kinds)), (x(4, 3),)


@net
def elementary():
    def forward(self, v):
        h = self.l(v)
        p = h * h + 0.3
        one = [p.log(), p.sqrt(), p.rsqrt(), p.reciprocal(), p.log1p(), torch.erf(h), h.sin(), h.cos(), h.atan(), h.sinh(), h**3, h.abs()]
        two = [torch.atan2(h, p), p**h, torch.maximum(h, p - 1), torch.minimum(h, p - 1), torch.fmod(p, 0.7), torch.addmm(h, v, self.w)]
        rows = [torch.logsumexp(h, 1), torch.prod(h, 1), h.amax(1), h.norm(1, 1)]
        parts = [*one, *two, *(r[:, None].expand(-1, 4) for r in rows)]
        return torch.stack(parts)

    return Of(forward, l=nn.Linear(3, 4), w=torch.randn(3, 4)), (x(4, 3),)


@net
def shapes():
    def forward(self, v):
        h = self.l(v)
        a, b = h.split([1, 3], 2)
        h = torch.cat((a.expand(-1, -1, 2), b.roll(1, 2)), 2)
        h = f.pad(h, (1, 2, 0, 1), value=0.5)[:, ::2, 1:-1].permute(2, 0, 1)
        h = h.unfold(1, 2, 1) if False else h.repeat(1, 2, 1).reshape(h.shape[0], -1)
        return torch.stack((h, h.flip(0)), 1).squeeze() @ h.T.tile(1, 1)

    return Of(forward, l=nn.Linear(3, 4)), (x(2, 3, 3),)


@net
def padding():
    def forward(self, v):
        h = self.c(v)
        return torch.cat((f.pad(h, (1, 2, 2, 1), mode="reflect"), f.pad(h, (1, 2, 2, 1), mode="replicate")), 1)

    return Of(forward, c=nn.Conv2d(1, 2, 3)), (x(1, 1, 6, 6),)


@net
def nll():
    def forward(self, v, y):
        return f.nll_loss(f.log_softmax(self.l(v), 1), y, weight=torch.tensor([0.5, 1.0, 2.0])).reshape(1)

    return Of(forward, l=nn.Linear(4, 3)), (x(5, 4), ids(3, 5))


@net
def cross_entropy_ignored():
    def forward(self, v, y):
        return f.cross_entropy(self.l(v).flatten(0, 1), y.flatten(), ignore_index=0, reduction="sum").reshape(1)

    return Of(forward, l=nn.Linear(4, 3)), (x(2, 5, 4), ids(3, 2, 5))


@net
def losses():
    def forward(self, v, y):
        h = self.l(v)
        parts = [f.mse_loss(h, y), f.l1_loss(h, y), f.kl_div(h.log_softmax(1), y.softmax(1)), f.cosine_similarity(h, y).mean()]
        return torch.stack([*parts, f.binary_cross_entropy_with_logits(h, y.sigmoid()), f.pairwise_distance(h, y).sum()])

    return Of(forward, l=nn.Linear(4, 3)), (x(5, 4), x(5, 3))


@net
def pixel_shuffle():
    return nn.Sequential(nn.Conv2d(1, 8, 3, padding=1), nn.PixelShuffle(2), nn.PixelUnshuffle(2), nn.Conv2d(8, 2, 1), nn.ZeroPad2d(1)), (
        x(1, 1, 4, 4),
    )


@net
def local_response():
    return nn.Sequential(nn.Conv2d(1, 6, 3), nn.LocalResponseNorm(3, 0.2), nn.LPPool2d(2, 2)), (x(1, 1, 6, 6) + 2,)


@net
def relative_attention():
    def forward(self, v):
        q, k, u = self.qkv(v).chunk(3, -1)
        i = torch.arange(v.shape[1])
        bias = self.table[(i[:, None] - i[None, :]) + v.shape[1] - 1].permute(2, 0, 1)
        q, k, u = (t.unflatten(-1, (2, 4)).transpose(1, 2) for t in (q, k, u))
        return ((q @ k.transpose(2, 3) / 2 + bias).softmax(-1) @ u).transpose(1, 2).flatten(2)

    return Of(forward, qkv=nn.Linear(8, 24), table=torch.randn(9, 2)), (x(2, 5, 8),)


@net
def lstm_cell():
    def forward(self, v):
        h, c = torch.zeros(2, 4), torch.zeros(2, 4)
        for t in range(v.shape[0]):
            h, c = self.cell(v[t], (h, c))
        return h + self.g(v[0], h)

    return Of(forward, cell=nn.LSTMCell(3, 4), g=nn.GRUCell(3, 4)), (x(4, 2, 3),)


@net
def state_space():
    def forward(self, v):
        a = -torch.exp(self.a)
        h = torch.zeros(v.shape[0], v.shape[2], 3)
        out = []
        step = f.softplus(self.dt(v))
        bs, cs = self.b(v), self.c(v)
        for t in range(v.shape[1]):
            d = step[:, t, :, None]
            h = torch.exp(d * a) * h + d * bs[:, t, None, :] * v[:, t, :, None]
            out.append((h * cs[:, t, None, :]).sum(-1))
        return torch.stack(out, 1) * f.silu(v)

    parts = {"dt": nn.Linear(4, 4), "b": nn.Linear(4, 3), "c": nn.Linear(4, 3)}
    return Of(forward, a=torch.randn(4, 3), **parts), (x(2, 4, 4),)


@net
def mixer():
    def forward(self, v):
        h = self.p(v).flatten(2)
        h = h + self.t2(f.gelu(self.t1(self.n1(h.transpose(1, 2)).transpose(1, 2))))
        return self.o(self.n2(h.transpose(1, 2)).mean(1))

    parts = {
        "p": nn.Conv2d(1, 6, 2, 2),
        "n1": nn.LayerNorm(6),
        "t1": nn.Linear(9, 5),
        "t2": nn.Linear(5, 9),
        "n2": nn.LayerNorm(6),
        "o": nn.Linear(6, 2),
    }
    return Of(forward, **parts), (x(2, 1, 6, 6),)
