"""Times the operators of `lamina bench ops` in PyTorch (2.4 or later, CUDA, bf16), under the same names. Prints JSON.

  python3 torch_ops.py > torch.json; lamina bench ops --device cuda --peer torch.json

Each round queues many calls and synchronizes once; the time is the median of several rounds. Backward is timed without the
forward. `by` names the implementation: eager, compile, or the attention library. Unsupported ones are left out.
"""
import argparse
import json
import sys

import torch
import torch.nn.attention
import torch.nn.functional as F

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("--filter", default="", help="only names that contain this")
args = parser.parse_args()
torch.set_float32_matmul_precision("high")
try:  # backward runs repeatedly, so it must not donate its buffers
    import torch._functorch.config

    torch._functorch.config.donated_buffer = False
except (ImportError, AttributeError):
    pass

like = dict(device="cuda", dtype=torch.bfloat16)
rows = []


def median_ms(call):
    def queued(count):
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        begin.record()
        for _ in range(count):
            call()
        end.record()
        torch.cuda.synchronize()
        return begin.elapsed_time(end) / count

    queued(3)
    count = min(1000, max(3, int(20 / queued(3))))
    return sorted(queued(count) for _ in range(7))[3]


def tensor(*shape, **options):
    return torch.randn(*shape, **like, **options)


def leaf(*shape):
    return tensor(*shape, requires_grad=True)


def measure(name, by, leaves, call, ways=("forward", "backward")):
    """Times call(*leaves) and the gradients of all leaves."""
    if args.filter not in name:
        return
    try:
        if "forward" in ways:
            with torch.no_grad():
                rows.append(dict(name=name, way="forward", ms=median_ms(lambda: call(*leaves)), by=by))
        outputs = call(*leaves)
        outputs = outputs if isinstance(outputs, tuple) else (outputs,)
        grads = [torch.randn_like(y) for y in outputs]
        if "backward" in ways:
            play = lambda: torch.autograd.grad(outputs, leaves, grads, retain_graph=True)
            rows.append(dict(name=name, way="backward", ms=median_ms(play), by=by))
        if "forward+backward" in ways:
            both = lambda: torch.autograd.grad(call(*leaves), leaves, grads[0])
            rows.append(dict(name=name, way="forward+backward", ms=median_ms(both), by=by))
    except Exception as error:  # not supported by this version or GPU
        print(f"{name}, {by}: {str(error).splitlines()[0][:150]}", file=sys.stderr)
    torch.cuda.empty_cache()


def eager_and_compiled(name, leaves, call, ways=("forward", "backward")):
    if args.filter not in name:
        return
    measure(name, "eager", leaves, call, ways)
    torch.compiler.reset()
    measure(name, "compile", leaves, torch.compile(call, dynamic=False), ways)


for size, inner, out in [(65536, 768, 2304), (65536, 768, 3072), (65536, 3072, 768), (16384, 384, 1152)]:
    measure(f"linear {size}x{inner}->{out}", "eager", (leaf(size, inner), leaf(out, inner)), F.linear)
for width in (4096, 768):
    at = f"65536x{width}"
    x, r, w, b = leaf(65536, width), leaf(65536, width), leaf(width), leaf(width)
    rms = lambda x, w: F.rms_norm(x, (w.shape[0],), w, 1e-5)
    layer = lambda x, w, b: F.layer_norm(x, (w.shape[0],), w, b, 1e-5)

    def add_rms(x, r, w):
        h = x + r
        return h, rms(h, w)

    def add_layer(x, r, w, b):
        h = x + r
        return h, layer(h, w, b)

    eager_and_compiled(f"rms norm {at}", (x, w), rms)
    eager_and_compiled(f"rms norm + residual {at}", (x, r, w), add_rms)
    eager_and_compiled(f"layer norm {at}", (x, w, b), layer)
    eager_and_compiled(f"layer norm + residual {at}", (x, r, w, b), add_layer)
    del x, r, w, b
for batch, heads, seq, dim, kv_heads in [(64, 12, 1024, 64, 12), (4, 16, 8192, 128, 16), (64, 12, 1024, 64, 4)]:
    qkv = (leaf(batch, heads, seq, dim), leaf(batch, kv_heads, seq, dim), leaf(batch, kv_heads, seq, dim))
    name = f"attention {batch}x{heads}x{seq}x{dim}" + (f", {kv_heads} kv heads" if kv_heads != heads else "")
    for by, backend in [("cuDNN", "CUDNN_ATTENTION"), ("flash", "FLASH_ATTENTION")]:
        if not hasattr(torch.nn.attention.SDPBackend, backend):
            continue
        with torch.nn.attention.sdpa_kernel(getattr(torch.nn.attention.SDPBackend, backend)):
            grouped = dict(enable_gqa=True) if kv_heads != heads else {}
            causal = lambda q, k, v, p=0.0: F.scaled_dot_product_attention(q, k, v, None, p, is_causal=True, **grouped)
            measure(name, by, qkv, causal)
            if name == "attention 64x12x1024x64":
                measure(name + ", dropout 0.1", by, qkv, lambda q, k, v: causal(q, k, v, 0.1))
    del qkv


def gated(function):
    def call(x):
        gate, up = x.chunk(2, -1)
        return function(gate) * up

    return call


eager_and_compiled("swiglu 65536x4096", (leaf(65536, 4096),), gated(F.silu))
eager_and_compiled("geglu 65536x4096", (leaf(65536, 4096),), gated(F.gelu))
eager_and_compiled("gelu 65536x3072", (leaf(65536, 3072),), F.gelu)
eager_and_compiled("softmax 65536x1024", (leaf(65536, 1024),), lambda x: F.softmax(x, -1))
eager_and_compiled("dropout 65536x768", (leaf(65536, 768),), lambda x: F.dropout(x, 0.1))
ids = torch.randint(50304, (65536,), device="cuda")
eager_and_compiled("embedding 65536 of 50304x768", (leaf(50304, 768),), lambda table: F.embedding(ids, table))
targets = torch.randint(50304, (16384,), device="cuda")
eager_and_compiled("cross entropy 16384x50304", (leaf(16384, 50304),), lambda z: F.cross_entropy(z.float(), targets))
eager_and_compiled("linear cross entropy 16384x768->50304", (leaf(16384, 768), leaf(50304, 768)),
                   lambda x, w: F.cross_entropy(F.linear(x, w).float(), targets), ("forward", "forward+backward"))
if args.filter in "adamw 124000000":
    weights = torch.randn(124_000_000, device="cuda", requires_grad=True)
    weights.grad = torch.randn_like(weights)
    update = torch.optim.AdamW([weights], lr=1e-4, weight_decay=0.1, fused=True)
    rows.append(dict(name="adamw 124000000", way="forward", ms=median_ms(update.step), by="fused, f32 weights"))
print(json.dumps(dict(torch=torch.__version__, device=torch.cuda.get_device_name(), rows=rows), indent=1))
