"""Greedy decoding of a LLaMA-style model in PyTorch (2.4 or later, CUDA), one token at a time. Prints JSON.

  python3 torch_decode.py --layers 12 --heads 12 --width 768 --ff 2048 [--kv-heads 4] [--vocab 32000] [--batch 1] [--tokens 128]

The whole step (layers, KV cache, argmax) is compiled and captured as a CUDA graph; weights and KV cache are bf16. Prints the
time per step, the best of several runs of --tokens steps after a one-token prompt. The first run is a warm-up.
"""
import argparse
import json
import time

import torch
import torch.nn as nn
import torch.nn.functional as F

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
for key, value in dict(layers=12, heads=12, width=768, ff=2048, vocab=32000, batch=1, tokens=128, rounds=4).items():
    parser.add_argument("--" + key, type=int, default=value)
parser.add_argument("--kv-heads", type=int, default=0)
parser.add_argument("--eager", action="store_true", help="without torch.compile and CUDA graph")
args = parser.parse_args()
kv_heads = args.kv_heads or args.heads
head_dim = args.width // args.heads
like = dict(device="cuda", dtype=torch.bfloat16)
torch.manual_seed(0)


def turn(x, cos, sin):
    a, b = x.chunk(2, -1)
    return x * cos + torch.cat([-b, a], -1) * sin


class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.norms = nn.ParameterList(nn.Parameter(torch.ones(args.width)) for _ in range(2))
        self.qkv = nn.Linear(args.width, (args.heads + 2 * kv_heads) * head_dim, bias=False)
        self.out = nn.Linear(args.heads * head_dim, args.width, bias=False)
        self.gate_up = nn.Linear(args.width, 2 * args.ff, bias=False)
        self.down = nn.Linear(args.ff, args.width, bias=False)

    def forward(self, x, position, seen, cos, sin, keys, values):
        h = self.qkv(F.rms_norm(x, (args.width,), self.norms[0], 1e-5))
        h = h.view(args.batch, 1, args.heads + 2 * kv_heads, head_dim).transpose(1, 2)
        q, k, v = h.split([args.heads, kv_heads, kv_heads], 1)
        keys.index_copy_(2, position, turn(k, cos, sin))
        values.index_copy_(2, position, v)
        y = F.scaled_dot_product_attention(turn(q, cos, sin), keys, values, attn_mask=seen, enable_gqa=kv_heads != args.heads)
        x = x + self.out(y.transpose(1, 2).reshape(args.batch, 1, args.heads * head_dim))
        gate, up = self.gate_up(F.rms_norm(x, (args.width,), self.norms[1], 1e-5)).chunk(2, -1)
        return x + self.down(F.silu(gate) * up)


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.table = nn.Parameter(torch.randn(args.vocab, args.width) * 0.02)
        self.layers = nn.ModuleList(Layer() for _ in range(args.layers))
        self.norm = nn.Parameter(torch.ones(args.width))

    def forward(self, ids, position, seen, cos, sin, caches):
        x = F.embedding(ids, self.table)
        for layer, (keys, values) in zip(self.layers, caches):
            x = layer(x, position, seen, cos, sin, keys, values)
        return F.linear(F.rms_norm(x, (args.width,), self.norm, 1e-5), self.table)


with torch.no_grad():
    model = Model().to(**like).eval()
    angles = torch.outer(torch.arange(args.tokens).float(), 1e4 ** (-torch.arange(0, head_dim, 2).float() / head_dim))
    cos_table, sin_table = (torch.cat([f, f], -1).to(**like) for f in (angles.cos(), angles.sin()))
    caches = [tuple(torch.zeros(args.batch, kv_heads, args.tokens, head_dim, **like) for _ in range(2)) for _ in range(args.layers)]
    everywhere = torch.arange(args.tokens, device="cuda")
    ids = torch.ones(args.batch, 1, dtype=torch.long, device="cuda")
    position = torch.zeros(1, dtype=torch.long, device="cuda")

    def best(ids, position):
        seen = (everywhere <= position)[None, None, None]
        return model(ids, position, seen, cos_table[position], sin_table[position], caches).argmax(-1)

    net = best if args.eager else torch.compile(best)

    def step():
        ids.copy_(net(ids, position))
        position.add_(1)

    go = step
    if not args.eager:
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(3):
                step()
        torch.cuda.current_stream().wait_stream(side)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            step()
        go = graph.replay
    times = []
    for _ in range(1 + args.rounds):
        position.zero_()
        torch.cuda.synchronize()
        start = time.perf_counter()
        for _ in range(args.tokens):
            go()
        torch.cuda.synchronize()
        times.append((time.perf_counter() - start) / args.tokens)
ms = min(times[1:]) * 1e3
print(json.dumps(dict(torch=torch.__version__, parameters=sum(p.numel() for p in model.parameters()), batch=args.batch, ms=ms,
                      tokens_per_second=args.batch * 1e3 / ms)))
