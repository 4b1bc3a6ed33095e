"""Makes tiny random models with Hugging Face transformers, and the golden values that `lamina check` compares with.

  python3 make_hf_goldens.py OUT [CASE …]      (needs torch and transformers)

Each case is a folder with config.json, model.safetensors and golden.safetensors: input_ids, logits, loss, grad.<name>,
prompt and greedy, all computed in f32 on the CPU with eager attention and without a KV cache. Exception: Falcon with ALiBi
uses sdpa, because its eager attention adds the bias twice (once with the mask).
"""
import os
import sys

import torch
import transformers
from safetensors.torch import save_file

SIZES = dict(vocab_size=96, hidden_size=32, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
             intermediate_size=56, max_position_embeddings=64)
ALIBI = {k: v for k, v in SIZES.items() if k in ("vocab_size", "hidden_size", "num_hidden_layers", "num_attention_heads")}
GPTJ = dict(vocab_size=96, n_embd=32, n_layer=2, n_head=4, n_positions=64, rotary_dim=4, n_inner=56)
YARN = dict(rope_type="yarn", rope_theta=10000.0, factor=4.0, original_max_position_embeddings=16)
CASES = {
    "codegen": ("CodeGen", dict(GPTJ)),
    "gptj_wide": ("GPTJ", dict(GPTJ, rotary_dim=8, tie_word_embeddings=True)),
    "olmo": ("Olmo", dict(SIZES)),
    "olmo_clip": ("Olmo", dict(SIZES, clip_qkv=0.05)),
    "phi": ("Phi", dict(SIZES, partial_rotary_factor=0.5)),
    "phi_qk_norm": ("Phi", dict(SIZES, partial_rotary_factor=0.5, qk_layernorm=True)),
    "phi3": ("Phi3", dict(SIZES, pad_token_id=0)),
    "phi3_longrope": ("Phi3", dict(SIZES, pad_token_id=0, original_max_position_embeddings=16, rope_parameters=dict(
        rope_type="longrope", rope_theta=10000.0, short_factor=[1.0, 1.1, 1.2, 1.3], long_factor=[1.5, 2.0, 3.0, 4.0]))),
    "stablelm": ("StableLm", dict(SIZES, partial_rotary_factor=0.25, use_qkv_bias=True)),
    "stablelm_parallel_qk": ("StableLm", dict(SIZES, partial_rotary_factor=0.5, use_parallel_residual=True, qk_layernorm=True)),
    "mpt": ("Mpt", dict(vocab_size=96, d_model=32, n_heads=4, n_layers=2, max_seq_len=64)),
    "mpt_six_heads": ("Mpt", dict(vocab_size=96, d_model=48, n_heads=6, n_layers=2, max_seq_len=64, no_bias=True)),
    "granite": ("Granite", dict(SIZES, embedding_multiplier=6.0, logits_scaling=4.0, residual_multiplier=0.3,
                                attention_multiplier=0.2, tie_word_embeddings=True)),
    "nemotron": ("Nemotron", dict(SIZES, partial_rotary_factor=0.5)),
    "smollm3": ("SmolLM3", dict(SIZES, num_hidden_layers=4, pad_token_id=0, no_rope_layers=[1, 1, 1, 0])),
    "starcoder2": ("Starcoder2", dict(SIZES, use_bias=True, sliding_window=8)),
    "qwen3_moe": ("Qwen3Moe", dict(SIZES, head_dim=8, num_experts=4, num_experts_per_tok=2, moe_intermediate_size=24,
                                   norm_topk_prob=True, mlp_only_layers=[0])),
    "qwen3_moe_plain": ("Qwen3Moe", dict(SIZES, head_dim=16, num_experts=4, num_experts_per_tok=2, moe_intermediate_size=24)),
    "gpt_oss": ("GptOss", dict(SIZES, head_dim=8, num_local_experts=4, num_experts_per_tok=2, sliding_window=8,
                               rope_parameters=dict(YARN, truncate=False, beta_fast=32.0, beta_slow=1.0))),
    "mamba2": ("Mamba2", dict(vocab_size=96, hidden_size=32, num_hidden_layers=2, state_size=16, head_dim=8, num_heads=8,
                              n_groups=2, chunk_size=8, expand=2)),
    "mamba_bias": ("Mamba", dict(vocab_size=96, hidden_size=32, num_hidden_layers=2, state_size=8, use_bias=True,
                                 use_conv_bias=False, tie_word_embeddings=False)),
    "falcon_rw": ("Falcon", dict(ALIBI, alibi=True, new_decoder_architecture=False, multi_query=False, parallel_attn=False, bias=True)),
    "falcon_alibi_parallel": ("Falcon", dict(ALIBI, alibi=True, new_decoder_architecture=False, multi_query=True, parallel_attn=True)),
    "opt_350m_style": ("OPT", dict(vocab_size=96, hidden_size=32, num_hidden_layers=2, num_attention_heads=4, ffn_dim=56,
                                   max_position_embeddings=64, word_embed_proj_dim=16, do_layer_norm_before=False)),
    "bloom_six_heads": ("Bloom", dict(vocab_size=96, hidden_size=48, n_layer=2, n_head=6)),
    "bloom_residual_after_norm": ("Bloom", dict(vocab_size=96, hidden_size=32, n_layer=2, n_head=4,
                                                apply_residual_connection_post_layernorm=True)),
    "gpt_neox_serial": ("GPTNeoX", dict(vocab_size=96, hidden_size=32, num_hidden_layers=2, num_attention_heads=4,
                                        intermediate_size=56, max_position_embeddings=64, use_parallel_residual=False,
                                        rope_parameters=dict(rope_type="default", rope_theta=10000.0, partial_rotary_factor=0.5))),
    "gpt_bigcode_mha": ("GPTBigCode", dict(vocab_size=96, n_embd=32, n_layer=2, n_head=4, n_positions=64, multi_query=False)),
    "llama_biases": ("Llama", dict(SIZES, attention_bias=True, mlp_bias=True, head_dim=16)),
    "llama_dynamic_beyond": ("Llama", dict(SIZES, max_position_embeddings=16, rope_parameters=dict(
        rope_type="dynamic", rope_theta=10000.0, factor=2.0))),
    "llama_bf16": ("Llama", dict(SIZES)),
    "llama_shards": ("Llama", dict(SIZES)),
    "qwen2_windows": ("Qwen2", dict(SIZES, num_hidden_layers=4, use_sliding_window=True, sliding_window=8, max_window_layers=2)),
    "gemma_bare": ("Gemma", dict(SIZES, head_dim=16, num_key_value_heads=1)),
    "gemma2_wide": ("Gemma2", dict(SIZES, head_dim=16, num_hidden_layers=3, sliding_window=8, query_pre_attn_scalar=24)),
    "gemma3_layers": ("Gemma3Text", dict(SIZES, head_dim=8, num_hidden_layers=7, sliding_window=8, query_pre_attn_scalar=16)),
    "olmo2_mha": ("Olmo2", dict(SIZES, num_key_value_heads=4, attention_bias=True)),
    "cohere_qk_norm": ("Cohere", dict(SIZES, use_qk_norm=True, logit_scale=0.25)),
    "cohere2_layers": ("Cohere2", dict(SIZES, num_hidden_layers=5, sliding_window=8)),
    "glm_biased": ("Glm", dict(SIZES, head_dim=8, attention_bias=True, pad_token_id=0)),
    "mistral_heads": ("Mistral", dict(SIZES, head_dim=16, sliding_window=None)),
    "mixtral_window": ("Mixtral", dict(SIZES, num_local_experts=4, num_experts_per_tok=1, sliding_window=8, tie_word_embeddings=True)),
    "deepseek_v3_direct_q": ("DeepseekV3", dict(
        SIZES, num_key_value_heads=4, q_lora_rank=None, kv_lora_rank=8, qk_nope_head_dim=8, qk_rope_head_dim=4, v_head_dim=8,
        n_routed_experts=8, num_experts_per_tok=3, n_group=4, topk_group=2, n_shared_experts=2, moe_intermediate_size=24,
        first_k_dense_replace=1, routed_scaling_factor=1.5, norm_topk_prob=False,
        rope_parameters=dict(YARN, mscale=1.0, mscale_all_dim=0.7))),
    "deepseek_v3_half_split": ("DeepseekV3", dict(
        SIZES, num_key_value_heads=4, q_lora_rank=8, kv_lora_rank=8, qk_nope_head_dim=8, qk_rope_head_dim=4, v_head_dim=12,
        n_routed_experts=4, num_experts_per_tok=2, n_group=1, topk_group=1, n_shared_experts=1, moe_intermediate_size=24,
        first_k_dense_replace=0, attention_bias=True, rope_interleave=False)),
    "gpt_oss_plain": ("GptOss", dict(SIZES, head_dim=8, num_local_experts=4, num_experts_per_tok=1, attention_bias=False,
                                     layer_types=["full_attention", "sliding_attention"], sliding_window=4,
                                     rope_parameters=dict(rope_type="default", rope_theta=10000.0))),
    "gemma3_scaled": ("Gemma3Text", dict(
        SIZES, head_dim=8, num_hidden_layers=3, sliding_window=8, attn_logit_softcapping=2.0, final_logit_softcapping=3.0,
        layer_types=["sliding_attention", "full_attention", "sliding_attention"], rope_parameters=dict(
            full_attention=dict(rope_type="linear", rope_theta=1000000.0, factor=8.0),
            sliding_attention=dict(rope_type="default", rope_theta=10000.0)))),
    "qwen2_layer_types": ("Qwen2", dict(SIZES, num_hidden_layers=3, use_sliding_window=True, sliding_window=6,
                                        layer_types=["sliding_attention", "full_attention", "sliding_attention"])),
    "qwen3_biased": ("Qwen3", dict(SIZES, head_dim=16, attention_bias=True, use_sliding_window=True, sliding_window=6,
                                   max_window_layers=1, tie_word_embeddings=True)),
    "smollm3_windows": ("SmolLM3", dict(SIZES, num_hidden_layers=4, pad_token_id=0, no_rope_layer_interval=2,
                                        use_sliding_window=True, sliding_window=6, attention_bias=True, mlp_bias=True)),
    "falcon_one_norm": ("Falcon", dict(ALIBI, new_decoder_architecture=True, num_kv_heads=2, num_ln_in_parallel_attn=1,
                                       ffn_hidden_size=48, activation="gelu")),
    "falcon_alibi_grouped": ("Falcon", dict(ALIBI, alibi=True, new_decoder_architecture=True, num_kv_heads=2, bias=True)),
    "falcon_alibi_long": ("Falcon", dict(ALIBI, alibi=True, new_decoder_architecture=False, multi_query=False,
                                         parallel_attn=True)),
    "gpt_neox_no_bias": ("GPTNeoX", dict(vocab_size=96, hidden_size=32, num_hidden_layers=2, num_attention_heads=4,
                                         intermediate_size=56, max_position_embeddings=64, attention_bias=False,
                                         hidden_act="relu", tie_word_embeddings=True)),
    "gpt2_scales": ("GPT2", dict(vocab_size=96, n_embd=32, n_layer=3, n_head=4, n_positions=64,
                                 scale_attn_by_inverse_layer_idx=True, reorder_and_upcast_attn=True)),
    "gpt_bigcode_unscaled": ("GPTBigCode", dict(vocab_size=96, n_embd=32, n_layer=2, n_head=4, n_positions=64,
                                                scale_attn_weights=False, scale_attention_softmax_in_fp32=False)),
    "mpt_clipped": ("Mpt", dict(vocab_size=96, d_model=32, n_heads=4, n_layers=2, max_seq_len=64,
                                attn_config=dict(clip_qkv=0.1, softmax_scale=0.5))),
    "stablelm_linear": ("StableLm", dict(SIZES, num_key_value_heads=4, rope_parameters=dict(
        rope_type="linear", rope_theta=10000.0, factor=3.0, partial_rotary_factor=0.5))),
    "phi3_partial": ("Phi3", dict(SIZES, pad_token_id=None, partial_rotary_factor=0.5, sliding_window=8)),
    "olmo_biased": ("Olmo", dict(SIZES, num_key_value_heads=1, attention_bias=True, clip_qkv=0.2)),
    "mamba_rank": ("Mamba", dict(vocab_size=96, hidden_size=32, num_hidden_layers=2, state_size=4, time_step_rank=5,
                                 conv_kernel=3, expand=3)),
    "mamba2_limits": ("Mamba2", dict(vocab_size=96, hidden_size=32, num_hidden_layers=2, state_size=16, head_dim=16,
                                     num_heads=4, n_groups=1, chunk_size=16, time_step_limit=(0.05, 0.5), use_bias=True,
                                     use_conv_bias=False, tie_word_embeddings=True)),
    "granite_biased": ("Granite", dict(SIZES, attention_bias=True, mlp_bias=True, attention_multiplier=0.5)),
    "nemotron_gelu": ("Nemotron", dict(SIZES, head_dim=16, hidden_act="gelu", attention_bias=True, mlp_bias=True,
                                       partial_rotary_factor=0.25)),
    "glm_plain": ("Glm", dict(SIZES, head_dim=8, attention_bias=False, pad_token_id=None, tie_word_embeddings=True)),
    "cohere2_full": ("Cohere2", dict(SIZES, layer_types=["full_attention", "full_attention"], attention_bias=True)),
    "opt_bare": ("OPT", dict(vocab_size=96, hidden_size=32, num_hidden_layers=2, num_attention_heads=4, ffn_dim=56,
                             max_position_embeddings=64, word_embed_proj_dim=32, enable_bias=False,
                             layer_norm_elementwise_affine=False, activation_function="gelu", tie_word_embeddings=False)),
    "starcoder2_bare": ("Starcoder2", dict(SIZES, use_bias=False, hidden_act="relu", tie_word_embeddings=False)),
    "llama_padding_tied": ("Llama", dict(SIZES, pad_token_id=7, tie_word_embeddings=True, hidden_act="gelu")),
    "gpt2_untied": ("GPT2", dict(vocab_size=96, n_embd=32, n_layer=2, n_head=4, n_positions=64, tie_word_embeddings=False,
                                 activation_function="relu", n_inner=48)),
}
LENGTHS = {"falcon_alibi_long": 600, "llama_dynamic_beyond": 40, "phi3_longrope": 40, "gpt_oss": 40, "deepseek_v3_direct_q": 40}


def make(name, folder):
    family, arguments = CASES[name]
    torch.manual_seed(sum(name.encode()))
    config = getattr(transformers, family + "Config")(**arguments)
    attention = "sdpa" if arguments.get("alibi") else "eager"
    model = transformers.AutoModelForCausalLM.from_config(config, attn_implementation=attention).float().eval()
    with torch.no_grad():
        for key, value in list(model.named_parameters()) + [b for b in model.named_buffers() if "correction_bias" in b[0]]:
            if key.endswith(("A_log", ".D", "dt_bias")):
                value.add_(torch.randn_like(value) * 0.1)
            elif value.dim() == 1:
                value.add_(torch.randn_like(value) * 0.2)
            else:
                value.copy_(torch.randn_like(value) * 0.15)
    if name.endswith("bf16"):
        model = model.bfloat16()
    model.save_pretrained(folder, max_shard_size="20KB" if name.endswith("shards") else "5GB")
    if name.endswith("bf16"):  # reload: the cast also rounded the RoPE buffers
        model = transformers.AutoModelForCausalLM.from_pretrained(
            folder, dtype=torch.float32, attn_implementation=attention).eval()
    length = LENGTHS.get(name, 24)
    ids = torch.randint(0, 96, (2, length))
    logits = model(input_ids=ids, use_cache=False).logits
    loss = torch.nn.functional.cross_entropy(logits[:, :-1].reshape(-1, 96), ids[:, 1:].reshape(-1))
    loss.backward()
    out = dict(input_ids=ids, logits=logits.detach(), loss=loss.detach().reshape(1))
    for key, value in model.named_parameters():
        if value.grad is not None:
            out["grad." + key] = value.grad
    prompt = torch.randint(0, 96, (1, 8))
    text = prompt
    with torch.no_grad():
        for _ in range(16):
            text = torch.cat([text, model(input_ids=text, use_cache=False).logits[:, -1:].argmax(-1)], 1)
    out.update(prompt=prompt, greedy=text[:, 8:].contiguous())
    save_file({key: value.contiguous().clone() for key, value in out.items()}, os.path.join(folder, "golden.safetensors"))


for case in sys.argv[2:] or CASES:
    try:
        make(case, os.path.join(sys.argv[1], case))
        print("made", case, flush=True)
    except Exception as error:  # report a case that this version of transformers does not support; continue
        print("FAILED", case, type(error).__name__, str(error)[:300], flush=True)
