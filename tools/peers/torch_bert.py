"""Times BERT base in PyTorch (1.13 or later) on the CPU, in every way that PyTorch offers, without further packages.

  python3 torch_bert.py [--batch 8] [--length 128] [--shortest N] [--dtype f32|bf16] [--train] [--variants eager,encoder,…]

Prints JSON with the median milliseconds of each variant, and the fastest. Forward passes give the last hidden states:

  eager    modules as people write them: one product for queries, keys and values, PyTorch's fused attention if it has one
  encoder  nn.TransformerEncoder, whose inference path is fused and leaves out padding
  traced   torch.jit: traced, frozen, optimized for inference
  packed   weights packed for oneDNN (torch.utils.mkldnn)
  compile  torch.compile (PyTorch 2)

--shortest N: the rows' lengths spread evenly from N to the length, and padding is masked. --train: a training step with a
masked-language-model head on every token, gradient clipping and AdamW (eager and compile). bf16: bf16 weights, for --train
autocast.
"""
import argparse
import json
import sys
import time

import torch
import torch.nn as nn
import torch.nn.functional as F

WIDTH, HEADS, INNER, VOCABULARY, POSITIONS = 768, 12, 3072, 30522, 512
parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
for key, value in dict(batch=8, length=128, shortest=0, layers=12, steps=10, warmup=3, threads=2).items():
    parser.add_argument("--" + key, type=int, default=value)
parser.add_argument("--dtype", choices=["f32", "bf16"], default="f32")
parser.add_argument("--train", action="store_true")
parser.add_argument("--variants", default="eager,encoder,traced,packed,compile")
args = parser.parse_args()
torch.set_num_threads(args.threads)
torch.manual_seed(0)
HALF = args.dtype == "bf16"


class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.qkv, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.up, self.down = nn.Linear(WIDTH, INNER), nn.Linear(INNER, WIDTH)
        self.norm1, self.norm2 = nn.LayerNorm(WIDTH, eps=1e-12), nn.LayerNorm(WIDTH, eps=1e-12)

    def attend(self, q, k, v, mask):
        if hasattr(F, "scaled_dot_product_attention"):
            return F.scaled_dot_product_attention(q, k, v, attn_mask=mask)
        batch, heads, length, width = q.shape
        k = k.transpose(2, 3).reshape(batch * heads, width, length)
        scores = torch.bmm((q * width**-0.5).reshape(batch * heads, length, width), k)
        if mask is not None:
            scores = (scores.view(batch, heads, length, length) + mask).view_as(scores)
        return torch.bmm(scores.softmax(-1), v.reshape(batch * heads, length, width)).view(batch, heads, length, width)

    def forward(self, x, mask):
        batch, length, _ = x.shape
        q, k, v = self.qkv(x).view(batch, length, 3, HEADS, WIDTH // HEADS).permute(2, 0, 3, 1, 4)
        x = self.norm1(x + self.out(self.attend(q, k, v, mask).transpose(1, 2).reshape(batch, length, WIDTH)))
        return self.norm2(x + self.down(F.gelu(self.up(x))))


class Bert(nn.Module):
    def __init__(self, layers):
        super().__init__()
        self.words, self.positions = nn.Embedding(VOCABULARY, WIDTH), nn.Embedding(POSITIONS, WIDTH)
        self.segments, self.norm = nn.Embedding(2, WIDTH), nn.LayerNorm(WIDTH, eps=1e-12)
        self.layers = layers
        self.transform, self.transform_norm = nn.Linear(WIDTH, WIDTH), nn.LayerNorm(WIDTH, eps=1e-12)
        self.bias = nn.Parameter(torch.zeros(VOCABULARY))

    def embedded(self, ids):
        return self.norm(self.words(ids) + self.positions.weight[: ids.shape[1]] + self.segments.weight[0])

    def forward(self, ids, mask):
        x = self.embedded(ids)
        if isinstance(self.layers, nn.TransformerEncoder):
            return self.layers(x, src_key_padding_mask=mask)
        for layer in self.layers:
            x = layer(x, mask)
        return x

    def loss(self, ids, mask, labels):
        x = self.transform_norm(F.gelu(self.transform(self(ids, mask))))
        return F.cross_entropy(F.linear(x, self.words.weight, self.bias).view(-1, VOCABULARY).float(), labels.view(-1))


def model(encoder=False):
    if not encoder:
        return Bert(nn.ModuleList(Layer() for _ in range(args.layers)))
    layer = nn.TransformerEncoderLayer(WIDTH, HEADS, INNER, 0.0, F.gelu, 1e-12, batch_first=True)
    return Bert(nn.TransformerEncoder(layer, args.layers))


ids = torch.randint(VOCABULARY, (args.batch, args.length))
lengths = torch.linspace(args.shortest or args.length, args.length, args.batch).long()
padding = torch.arange(args.length)[None] >= lengths[:, None] if args.shortest else None
added = padding[:, None, None].to(torch.bfloat16 if HALF else torch.float32) * -1e4 if args.shortest else None


def measured(step):
    times = []
    for _ in range(args.warmup + args.steps):
        start = time.perf_counter()
        step()
        times.append(time.perf_counter() - start)
    return sorted(times[args.warmup :])[args.steps // 2] * 1e3


def forward(variant):
    net = model(variant == "encoder").eval()
    net = net.bfloat16() if HALF else net
    mask = padding if variant == "encoder" else added
    if variant == "packed":
        from torch.utils import mkldnn

        net = mkldnn.to_mkldnn(net, torch.bfloat16) if HALF else mkldnn.to_mkldnn(net)
    if variant == "traced":
        inputs = (ids,) if mask is None else (ids, mask)
        net.forward_of = net.forward
        net.forward = (lambda a: net.forward_of(a, None)) if mask is None else net.forward_of
        net = torch.jit.optimize_for_inference(torch.jit.freeze(torch.jit.trace(net, inputs)))
        return measured(lambda: net(*inputs))
    if variant == "compile":
        net = torch.compile(net)
    return measured(lambda: net(ids, mask))


def train(variant):
    net = model()
    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-4, weight_decay=0.1)
    run = torch.compile(net.loss) if variant == "compile" else net.loss

    def step():
        with torch.autocast("cpu", torch.bfloat16, enabled=HALF):
            loss = run(ids, added, ids)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(net.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

    return measured(step)


times = {}
for variant in args.variants.split(","):
    if (args.train and variant not in ("eager", "compile")) or (variant == "compile" and not hasattr(torch, "compile")):
        continue
    try:
        with torch.enable_grad() if args.train else torch.inference_mode() if variant != "traced" else torch.no_grad():
            times[variant] = train(variant) if args.train else forward(variant)
    except Exception as error:  # a variant that this version or type lacks
        times[variant] = None
        print(f"torch_bert: {variant}: {type(error).__name__}: {str(error)[:300]}", file=sys.stderr)
if not any(times.values()):
    sys.exit("torch_bert: no variant runs with this version of PyTorch; see the errors above")
best = min((ms, name) for name, ms in times.items() if ms)
print(json.dumps(dict(torch=torch.__version__, batch=args.batch, length=args.length, shortest=args.shortest,
                      dtype=args.dtype, train=args.train, ms=best[0], fastest=best[1], variants=times)))
