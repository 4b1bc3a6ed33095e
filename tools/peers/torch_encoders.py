"""Times BERT's forward pass or a T5 training step in PyTorch with transformers' models.

  python3 torch_encoders.py bert --batch 32 --length 512 [--device cuda --compile]
  python3 torch_encoders.py t5 --batch 16 --length 114 --source-length 512 [--device cuda --compile]

Prints JSON. bert: forward of the encoder in inference mode, bf16 weights on a GPU. t5: forward, backward, clipping and AdamW
with f32 weights under bf16 autocast, fused AdamW. The sizes are those of the presets bert-base and t5-base.
"""
import argparse
import json
import time

import torch

parser = argparse.ArgumentParser()
parser.add_argument("model", choices=["bert", "t5"])
for key, value in dict(batch=32, length=512, source_length=512, steps=20, warmup=5, threads=2).items():
    parser.add_argument("--" + key.replace("_", "-"), type=int, default=value)
parser.add_argument("--device", default="cpu")
parser.add_argument("--compile", action="store_true")
parser.add_argument("--mode", default="default", help="of torch.compile: default, reduce-overhead or max-autotune")
parser.add_argument("--layers", type=int, default=12)
args = parser.parse_args()
torch.set_num_threads(args.threads)
cuda = args.device != "cpu"
torch.set_float32_matmul_precision("high" if cuda else "highest")
torch.manual_seed(0)


def random_ids(vocab, length):
    return torch.randint(vocab, (args.batch, length), device=args.device)


def measured(step):
    times = []
    for _ in range(args.warmup + args.steps):
        start = time.perf_counter()
        step()
        if cuda:
            torch.cuda.synchronize()
        times.append(time.perf_counter() - start)
    times = sorted(times[args.warmup :])
    return dict(ms=times[len(times) // 2] * 1e3, best_ms=times[0] * 1e3)


def compiled(module):
    return torch.compile(module, mode=args.mode) if args.compile else module


if args.model == "bert":
    from transformers import BertConfig, BertModel

    config = BertConfig(num_hidden_layers=args.layers, attn_implementation="sdpa")
    model = BertModel(config, add_pooling_layer=False).eval().to(args.device, torch.bfloat16 if cuda else torch.float32)
    run = compiled(model)
    ids = random_ids(config.vocab_size, args.length)

    @torch.inference_mode()
    def step():
        run(input_ids=ids).last_hidden_state
else:
    from transformers import T5Config, T5ForConditionalGeneration

    config = T5Config(d_model=768, d_kv=64, d_ff=3072, num_layers=args.layers, num_decoder_layers=args.layers, num_heads=12,
                      dropout_rate=0.0, use_cache=False, decoder_start_token_id=0)
    model = T5ForConditionalGeneration(config).train().to(args.device)
    run = compiled(model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, weight_decay=0.1, **(dict(fused=True) if cuda else {}))
    source, labels = random_ids(config.vocab_size, args.source_length), random_ids(config.vocab_size, args.length)

    def step():
        with torch.autocast(args.device, torch.bfloat16, enabled=cuda):
            loss = run(input_ids=source, labels=labels).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)


print(json.dumps(dict(torch=torch.__version__, model=args.model, batch=args.batch, length=args.length,
                      parameters=sum(p.numel() for p in model.parameters()), compile=args.compile, mode=args.mode, **measured(step))))
