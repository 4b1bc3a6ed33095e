"""Checks that Hugging Face transformers loads folders written by `lamina convert --to hf` and computes the golden logits.

  python3 check_hf_folders.py WRITTEN GOLDENS      (needs torch and transformers)

Every folder in WRITTEN must load without warnings and give the logits in golden.safetensors of the folder with the same
name under GOLDENS.
"""
import os
import sys

import torch
import transformers
from safetensors.torch import load_file

transformers.logging.set_verbosity_error()
failed = 0
for case in sorted(os.listdir(sys.argv[1])):
    try:
        model, info = transformers.AutoModelForCausalLM.from_pretrained(
            os.path.join(sys.argv[1], case), output_loading_info=True, attn_implementation="eager", dtype=torch.float32)
        golden = load_file(os.path.join(sys.argv[2], case, "golden.safetensors"))
        logits = model.eval()(input_ids=golden["input_ids"], use_cache=False).logits
        worst = ((logits - golden["logits"]).abs().max() / golden["logits"].abs().max()).item()
        strange = [f"{key}: {sorted(value)[:3]}" for key, value in info.items() if value]
        good = worst < 1e-5 and not strange
        print("ok  " if good else "BAD ", case, f"{worst:.1e}", *strange, flush=True)
    except Exception as error:
        good = False
        print("BAD ", case, type(error).__name__, str(error)[:300], flush=True)
    failed += not good
sys.exit(1 if failed else 0)
