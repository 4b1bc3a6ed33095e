"""Times a training step of the two benchmark models in PyTorch (1.13 or later): forward, backward, clipping, AdamW.

  python3 torch_train.py gpt2|llama [--batch 12] [--length 256] [--steps 10] [--threads 2]
  python3 torch_train.py gpt2|llama --device cuda --compile [--layers 12 --heads 12 --kv-heads 4 --width 768 --vocab 50304]

Prints JSON. On a GPU: bf16 autocast with f32 weights, PyTorch's fused attention and AdamW, optionally torch.compile.
"""
import argparse
import json
import math
import time

import torch
import torch.nn as nn
import torch.nn.functional as F

parser = argparse.ArgumentParser()
parser.add_argument("style", choices=["gpt2", "llama"])
for key, value in dict(layers=6, heads=6, width=384, vocab=65, batch=12, length=256, steps=10, warmup=3, threads=2).items():
    parser.add_argument("--" + key, type=int, default=value)
parser.add_argument("--kv-heads", type=int, default=0)
parser.add_argument("--device", default="cpu")
parser.add_argument("--compile", action="store_true")
args = parser.parse_args()
args.kv_heads = args.kv_heads or args.heads
torch.set_num_threads(args.threads)
torch.set_float32_matmul_precision("high")
torch.manual_seed(0)
llama = args.style == "llama"
head_dim = args.width // args.heads
d_ff = (8 * args.width // 3 + 7) // 8 * 8 if llama else 4 * args.width


class RmsNorm(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(args.width))

    def forward(self, x):
        if hasattr(F, "rms_norm"):
            return F.rms_norm(x, (args.width,), self.weight, 1e-5)
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-5) * self.weight


class Norm(nn.Module):  # layer norm without bias
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(args.width))

    def forward(self, x):
        return F.layer_norm(x, (args.width,), self.weight, None, 1e-5)


make_norm = RmsNorm if llama else Norm


def attend(q, k, v):
    if hasattr(F, "scaled_dot_product_attention"):
        grouped = dict(enable_gqa=True) if args.kv_heads != args.heads else {}
        return F.scaled_dot_product_attention(q, k, v, is_causal=True, **grouped)
    mask = torch.full((args.length, args.length), float("-inf")).triu(1)
    scores = q @ k.transpose(-2, -1) * (1 / math.sqrt(head_dim)) + mask
    return scores.softmax(-1) @ v


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm1, self.norm2 = make_norm(), make_norm()
        self.widths = [args.heads * head_dim, args.kv_heads * head_dim, args.kv_heads * head_dim]
        self.qkv = nn.Linear(args.width, sum(self.widths), bias=False)
        self.out = nn.Linear(args.width, args.width, bias=False)
        self.up = nn.Linear(args.width, 2 * d_ff if llama else d_ff, bias=False)
        self.down = nn.Linear(d_ff, args.width, bias=False)

    def forward(self, x, cos, sin):
        batch, length, width = x.shape
        q, k, v = (t.view(batch, length, -1, head_dim).transpose(1, 2) for t in self.qkv(self.norm1(x)).split(self.widths, 2))
        if llama:
            turn = lambda t: torch.cat([-t[..., head_dim // 2 :], t[..., : head_dim // 2]], -1)
            q, k = q * cos + turn(q) * sin, k * cos + turn(k) * sin
        x = x + self.out(attend(q, k, v).transpose(1, 2).reshape(batch, length, width))
        h = self.up(self.norm2(x))
        if llama:
            gate, up = h.split(d_ff, 2)
            return x + self.down(F.silu(gate) * up)
        return x + self.down(F.gelu(h))


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.tokens = nn.Embedding(args.vocab, args.width)
        self.positions = None if llama else nn.Embedding(args.length, args.width)
        self.blocks = nn.ModuleList(Block() for _ in range(args.layers))
        self.norm = make_norm()
        self.head = nn.Linear(args.width, args.vocab, bias=False)
        angles = torch.outer(torch.arange(args.length).float(), 1e4 ** (-torch.arange(0, head_dim, 2).float() / head_dim))
        self.register_buffer("cos", torch.cat([angles, angles], -1).cos())
        self.register_buffer("sin", torch.cat([angles, angles], -1).sin())

    def forward(self, ids, targets):
        x = self.tokens(ids)
        if self.positions is not None:
            x = x + self.positions.weight[: ids.shape[1]]
        for block in self.blocks:
            x = block(x, self.cos, self.sin)
        return F.cross_entropy(self.head(self.norm(x)).view(-1, args.vocab), targets.view(-1))


cuda = args.device != "cpu"
model = Model().to(args.device)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, weight_decay=0.1, **(dict(fused=True) if cuda else {}))
run = torch.compile(model) if args.compile else model
ids = torch.randint(args.vocab, (args.batch, args.length), device=args.device)
times = []
for step in range(args.warmup + args.steps):
    start = time.perf_counter()
    with torch.autocast(args.device, torch.bfloat16, enabled=cuda):
        loss = run(ids, ids)
    loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
    if cuda:
        torch.cuda.synchronize()
    times.append(time.perf_counter() - start)
times = sorted(times[args.warmup :])
print(json.dumps(dict(torch=torch.__version__, style=args.style, parameters=sum(p.numel() for p in model.parameters()), ms=times[len(times) // 2] * 1e3, best_ms=times[0] * 1e3)))
