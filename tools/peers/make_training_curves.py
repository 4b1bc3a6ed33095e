"""Trains two tiny models for fifty updates in PyTorch: the golden curves for tests of the training loop.

  python3 make_training_curves.py OUT      (needs torch; OUT is tests/golden/training)

For each of gpt2 and llama: CASE.json, a recipe with the loss and gradient norm of every update, and CASE.safetensors, the
initial weights and the batches. Models, schedule and parameter groups are written here from their formulas, in f32 on the
CPU, with torch.optim.AdamW and torch.nn.utils.clip_grad_norm_.
"""
import json
import math
import struct
import sys

import torch
import torch.nn.functional as F

VOCAB, WIDTH, HEADS, LAYERS, CONTEXT, STEPS, BATCH, BATCHES = 40, 16, 2, 2, 16, 50, 4, 10
HEAD = WIDTH // HEADS
SHAPE = {"vocab_size": VOCAB, "d_model": WIDTH, "context": CONTEXT, "layers[0].repeat": LAYERS,
         "layers[0].pattern[0].mixer.n_heads": HEADS}
CASES = {
    "gpt2": dict(
        architecture={"base": "gpt2", "set": SHAPE}, kv=HEADS, ff=4 * WIDTH, accumulation=2, clip=0.6,
        decay_embeddings=False,
        optimizer={"kind": "adamw", "lr": 0.01, "beta1": 0.9, "beta2": 0.95, "eps": 1e-8, "weight_decay": 0.1},
        schedule={"kind": "cosine", "warmup": 10, "min_lr_ratio": 0.1}),
    "llama": dict(
        architecture={"base": "llama-7b", "set": dict(SHAPE, **{"layers[0].pattern[0].mixer.n_kv_heads": 1,
                                                               "layers[0].pattern[0].ffn.d_ff": 24})},
        kv=1, ff=24, accumulation=1, clip=1.0, decay_embeddings=True,
        optimizer={"kind": "adamw", "lr": 0.02, "beta1": 0.9, "beta2": 0.99, "eps": 1e-8, "weight_decay": 0.2},
        schedule={"kind": "cosine", "warmup": 5, "min_lr_ratio": 0.0}),
}


def weights(case, name):
    """Random weights, named as in the toolkit's checkpoints."""
    out = {"embedding.weight": (VOCAB, WIDTH)}
    bias = name == "gpt2"
    if bias:
        out["position.weight"] = (CONTEXT, WIDTH)
    for i in range(LAYERS):
        p = f"layers.{i}."
        linear = {"mixer.q": (WIDTH, WIDTH), "mixer.k": (case["kv"] * HEAD, WIDTH), "mixer.v": (case["kv"] * HEAD, WIDTH),
                  "mixer.o": (WIDTH, WIDTH), "ffn.up": (case["ff"], WIDTH), "ffn.down": (WIDTH, case["ff"])}
        if name == "llama":
            linear["ffn.gate"] = (case["ff"], WIDTH)
        for key, shape in linear.items():
            out[p + key + ".weight"] = shape
            if bias:
                out[p + key + ".bias"] = shape[:1]
        for norm in ("mixer_norm", "ffn_norm"):
            out[p + norm + ".weight"] = (WIDTH,)
            if bias:
                out[p + norm + ".bias"] = (WIDTH,)
    out["final_norm.weight"] = (WIDTH,)
    if bias:
        out["final_norm.bias"] = (WIDTH,)
    else:
        out["head.weight"] = (VOCAB, WIDTH)
    values = {}
    for key, shape in out.items():
        values[key] = 0.1 * torch.randn(shape) + (1.0 if "norm.weight" in key else 0.0)
        values[key].requires_grad_()
    return values


def rotate(x):
    """RoPE of [batch, heads, length, head]; pairs the first half of a head with the second."""
    angles = torch.outer(torch.arange(x.shape[2]).float(), 10000.0 ** (-torch.arange(0, HEAD, 2).float() / HEAD))
    a, b = x[..., : HEAD // 2], x[..., HEAD // 2:]
    return torch.cat([a * angles.cos() - b * angles.sin(), b * angles.cos() + a * angles.sin()], -1)


def loss_of(w, name, case, ids, targets):
    llama = name == "llama"

    def linear(x, key):
        return F.linear(x, w[key + ".weight"], w.get(key + ".bias"))

    def norm(x, key):
        if llama:
            return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6) * w[key + ".weight"]
        return F.layer_norm(x, (WIDTH,), w[key + ".weight"], w[key + ".bias"], 1e-5)

    def heads(x):
        return x.view(x.shape[0], x.shape[1], -1, HEAD).transpose(1, 2)

    x = F.embedding(ids, w["embedding.weight"])
    if not llama:
        x = x + w["position.weight"][: ids.shape[1]]
    mask = torch.full((ids.shape[1], ids.shape[1]), -math.inf).triu(1)
    for i in range(LAYERS):
        p = f"layers.{i}."
        h = norm(x, p + "mixer_norm")
        q, k, v = (heads(linear(h, p + "mixer." + m)) for m in "qkv")
        if llama:
            q, k = rotate(q), rotate(k)
        k, v = (t.repeat_interleave(HEADS // case["kv"], 1) for t in (k, v))
        scores = (q @ k.transpose(-1, -2) / math.sqrt(HEAD) + mask).softmax(-1)
        x = x + linear((scores @ v).transpose(1, 2).reshape(x.shape), p + "mixer.o")
        h = norm(x, p + "ffn_norm")
        up = linear(h, p + "ffn.up")
        if llama:
            h = F.silu(linear(h, p + "ffn.gate")) * up
        else:
            h = 0.5 * up * (1 + torch.tanh(math.sqrt(2 / math.pi) * (up + 0.044715 * up.pow(3))))
        x = x + linear(h, p + "ffn.down")
    x = norm(x, "final_norm")
    logits = F.linear(x, w["head.weight"] if llama else w["embedding.weight"])
    return F.cross_entropy(logits.view(-1, VOCAB), targets.reshape(-1))


def factor(schedule, step):
    if step < schedule["warmup"]:
        return (step + 1) / schedule["warmup"]
    along = (step - schedule["warmup"]) / (STEPS - schedule["warmup"])
    low = schedule["min_lr_ratio"]
    return low + (1 - low) * 0.5 * (1 + math.cos(math.pi * along))


def batches():
    """Learnable sequences: each token is followed by one of two tokens that depend on it."""
    rows = torch.zeros(BATCHES, BATCH, CONTEXT + 1, dtype=torch.int64)
    rows[..., 0] = torch.randint(VOCAB, rows.shape[:2])
    for t in range(CONTEXT):
        rows[..., t + 1] = (3 * rows[..., t] + 7 + torch.randint(2, rows.shape[:2])) % VOCAB
    return rows


def save(path, tensors):
    header, at, parts = {}, 0, []
    for key, value in tensors.items():
        data = value.detach().contiguous().numpy().tobytes()
        kind = {torch.float32: "F32", torch.int64: "I64"}[value.dtype]
        header[key] = {"dtype": kind, "shape": list(value.shape), "data_offsets": [at, at + len(data)]}
        at += len(data)
        parts.append(data)
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text + b"".join(parts))


def run(name, case, out):
    torch.manual_seed(1)
    w, rows, o = weights(case, name), batches(), case["optimizer"]
    first = {key: value.detach().clone() for key, value in w.items()}
    outer = ("embedding.weight", "position.weight", "head.weight")
    decays = [v for k, v in w.items() if v.dim() > 1 and (case["decay_embeddings"] or k not in outer)]
    others = [v for v in w.values() if not any(v is d for d in decays)]
    groups = [dict(params=decays, weight_decay=o["weight_decay"]), dict(params=others, weight_decay=0.0)]
    optimizer = torch.optim.AdamW(groups, lr=o["lr"], betas=(o["beta1"], o["beta2"]), eps=o["eps"])
    losses, norms = [], []
    for step in range(STEPS):
        optimizer.zero_grad()
        total = 0.0
        for i in range(case["accumulation"]):
            batch = rows[(step * case["accumulation"] + i) % BATCHES]
            loss = loss_of(w, name, case, batch[:, :-1], batch[:, 1:]) / case["accumulation"]
            loss.backward()
            total += loss.item()
        norms.append(torch.nn.utils.clip_grad_norm_(list(w.values()), case["clip"]).item())
        losses.append(total)
        for group in optimizer.param_groups:
            group["lr"] = o["lr"] * factor(case["schedule"], step)
        optimizer.step()
    recipe = {key: case[key] for key in ("architecture", "accumulation", "clip", "decay_embeddings", "optimizer", "schedule")}
    recipe.update(batch=BATCH, length=CONTEXT, steps=STEPS, data={"train": "batches in the other file"})
    with open(f"{out}/{name}.json", "w") as file:
        json.dump({"recipe": recipe, "losses": losses, "grad_norms": norms}, file, indent=1)
        file.write("\n")
    final = {f"after.{key}": value for key, value in w.items()}
    save(f"{out}/{name}.safetensors", dict({f"before.{key}": value for key, value in first.items()}, **final, batches=rows))
    print(name, "loss", losses[0], "->", losses[-1], "norms", min(norms), max(norms))


for case_name, one in CASES.items():
    run(case_name, one, sys.argv[1])
