// The dispatch tables of attention on CUDA: forward, backward and decode. The first row that supports a call and is
// preferred for it runs; the comment on a row says what it is for. ForcedKernel (ops/kernel_dispatch.h) forces a row.
#include <optional>

#ifdef LAMINA_CUDNN
#include "lamina/ops/attention/cuda/cudnn/attention_cudnn.h"
#endif
#include "lamina/ops/attention/attention_step_kernel.h"
#include "lamina/ops/attention/cuda/rotated.cuh"
#include "lamina/ops/attention/cuda/row_sums.cuh"
#include "lamina/ops/attention/decode/decode_cuda.h"
#include "lamina/ops/attention/rotary_attention_kernel.h"
#include "lamina/ops/kernel_dispatch.h"

namespace lamina::ops::cuda {
namespace {

using lamina::cuda::stream_of;
using lamina::cuda::visit_floating;

constexpr const char* kOp = "attention";

#ifndef LAMINA_CUDNN
bool supports_cudnn(const AttentionForward& /*args*/) { return false; }
bool forward_by_cudnn(const AttentionForward& /*args*/) { return false; }
bool backward_by_cudnn(const AttentionBackward& /*args*/) { return false; }
#endif

template <class Call>
bool always(Call& /*call*/) {
  return true;
}

bool is_half(const Tensor& x) { return x.dtype() == DType::bf16 || x.dtype() == DType::f16; }

/// True for bf16 without pattern, ALiBi, T5 bias, sinks or packed documents.
bool is_plain_bf16_attention(const AttentionForward& args) {
  const AttentionExtras& extras = args.extras;
  return args.q.dtype() == DType::bf16 && args.options.pattern.kind == AttentionPattern::Kind::full &&
         !extras.alibi_slopes.defined() && !extras.t5_bias.defined() && !extras.sinks.defined() &&
         !extras.document_starts.defined() && args.y.numel() > 0;
}

/// A forward call. The kernel arguments are built on first use, because cuDNN needs none of their tables.
struct ForwardCall {
  AttentionForward& args;
  std::optional<AttentionWorkspace> workspace = {};

  const Device& device() const { return args.q.device(); }
  const AttentionParams& params() {
    if (!workspace) workspace = attention_workspace(args);
    return workspace->params;
  }
};

const KernelRow<ForwardCall> kForwardTable[] = {
    // The fastest forward of plain attention. With ALiBi it is slower than our kernels.
    {"cudnn", [](ForwardCall& call) { return supports_cudnn(call.args); },
     [](ForwardCall& call) { return !call.args.extras.alibi_slopes.defined(); },
     [](ForwardCall& call) { return call.args.saved_log_sum_exp = forward_by_cudnn(call.args); }},
    // Hopper's tensor cores. Declines layouts without a TMA descriptor, and few queries with wide heads.
    {"wgmma", [](ForwardCall& call) { return is_half(call.args.q) && supports_mma(call.params()); }, always,
     [](ForwardCall& call) {
       return call.args.q.dtype() == DType::bf16 ? forward_by_wgmma<bf16>(call.params(), call.device())
                                                 : forward_by_wgmma<f16>(call.params(), call.device());
     }},
    // Tensor cores of any GPU, by mma.sync.
    {"mma", [](ForwardCall& call) { return is_half(call.args.q) && supports_mma(call.params()); }, always,
     [](ForwardCall& call) {
       call.args.q.dtype() == DType::bf16 ? forward_by_mma<bf16>(call.params(), stream_of(call.device()))
                                          : forward_by_mma<f16>(call.params(), stream_of(call.device()));
       return true;
     }},
    // Supports every call: f32, narrow or wide heads, few scores.
    {"tiles", always, always,
     [](ForwardCall& call) {
       visit_floating(kOp, call.args.q.dtype(), [&](auto tag) {
         forward_by_tiles<typename decltype(tag)::type>(call.params(), stream_of(call.device()));
       });
       return true;
     }},
};

struct BackwardCall {
  const AttentionBackward& args;
  RotaryAngles angles = {};  ///< if given, dq and dk are the gradients of the queries and keys before rotation
  std::optional<AttentionWorkspace> workspace = {};

  const Device& device() const { return args.dy.device(); }
  bool rotates() const { return angles.cos != nullptr; }
  AttentionParams& params() {
    if (workspace) return workspace->params;
    workspace = attention_workspace(args.forward);
    AttentionParams& params = workspace->params;
    params.dy = args.dy.raw();
    params.dq = args.dq.raw();
    params.dk = args.dk.raw();
    params.dv = args.dv.raw();
    params.dq_at = strides_of(args.dq);
    params.dk_at = strides_of(args.dk);
    params.dv_at = strides_of(args.dv);
    params.vectorized &= is_16_byte_aligned(args.dy) && is_16_byte_aligned(args.dq) && is_16_byte_aligned(args.dk) &&
                         is_16_byte_aligned(args.dv);
    if (args.dt5_bias.defined()) params.t5_buckets = narrow(args.dt5_bias.dim(0));
    return params;
  }
  /// Computes params().delta and base. The result owns their memory and must outlive the kernels.
  Tensor make_row_sums() {
    if (args.forward.q.dim(0) * args.forward.q.dim(1) == 0) return {};
    Tensor delta = make_delta(args);
    params().delta = delta.data<float>();
    params().base = params().delta + delta.numel() / 2;
    return delta;
  }
};

/// Runs kernels that need delta and write dt5 in parts, one per `rows` queries. Computes delta before them and sums the
/// parts after them.
template <class F>
bool backward_between_sums(BackwardCall& call, int64_t rows, const F& kernels) {
  const AttentionBackward& args = call.args;
  const AttentionSizes sizes = attention_sizes(args.forward);
  cudaStream_t stream = stream_of(call.device());
  AttentionParams& params = call.params();
  const Tensor delta = call.make_row_sums();
  const int64_t tiles = (sizes.seq_q + rows - 1) / rows;
  Tensor parts;
  if (args.dt5_bias.defined()) {
    parts = Tensor::empty({sizes.batch * sizes.n_heads * tiles, args.dt5_bias.dim(0)}, DType::f32, call.device());
    params.dt5 = parts.data<float>();
  }
  kernels(params, stream);
  if (args.dt5_bias.defined()) sum_bucket_gradients(params, tiles, args.dt5_bias, stream);
  if (args.dsinks.defined()) sum_sink_gradients(params, args.dsinks, stream);
  return true;
}

bool supports_short(BackwardCall& call) {
  return is_plain_bf16_attention(call.args.forward) && supports_short_backward(call.params(), call.device());
}
bool supports_one_pass(BackwardCall& call) {
  return is_plain_bf16_attention(call.args.forward) && supports_one_pass_backward(call.params(), call.device());
}
/// The two-pass tensor-core kernels exist only for bf16. f16 is meant for inference, so its backward runs on tiles,
/// which saves compile time.
bool supports_two_pass_mma(BackwardCall& call) {
  return !call.rotates() && call.args.dy.dtype() == DType::bf16 && supports_mma(call.params());
}
bool supports_two_pass_wgmma(BackwardCall& call) {
  return supports_two_pass_mma(call) && supports_wgmma_backward(call.params(), call.device());
}

/// Up to this many keys, the two-pass wgmma backward of plain causal attention is faster than cuDNN's.
constexpr int64_t kMaxOwnKeys = 1024;

bool prefers_cudnn_backward(BackwardCall& call) {
  const AttentionForward& in = call.args.forward;
  const bool own = is_plain_bf16_attention(in) && in.options.causal && in.k.dim(1) <= kMaxOwnKeys &&
                   score_features(call.params()) == ScoreFeatures::plain && supports_two_pass_wgmma(call);
  return !call.device().deterministic() && (in.saved_log_sum_exp || in.extras.alibi_slopes.defined()) && !own;
}

const KernelRow<BackwardCall> kBackwardTable[] = {
    // Causal heads of 129 to 256 positions without other options: a whole head in one block and one launch.
    {"short", supports_short, always,
     [](BackwardCall& call) {
       AttentionParams params = call.params();
       if (call.args.forward.saved_log_sum_exp) params.row_inv_sum = nullptr;
       short_backward<bf16>(params, call.angles, call.device());
       return true;
     }},
    // Computes the scores once for all gradients. dq accumulates with atomics, so it is not deterministic.
    {"one_pass", supports_one_pass, [](BackwardCall& call) { return !call.device().deterministic(); },
     [](BackwardCall& call) {
       const Tensor delta = call.make_row_sums();
       one_pass_backward<bf16>(call.params(), call.angles, call.device());
       return true;
     }},
    // Also accumulates dq with atomics. Faster than two passes, except for plain causal attention with few keys.
    {"cudnn", [](BackwardCall& call) { return !call.rotates() && supports_cudnn(call.args.forward); },
     prefers_cudnn_backward, [](BackwardCall& call) { return backward_by_cudnn(call.args); }},
    // Two passes over the scores: dk and dv per key tile, dq per query tile. Deterministic. Hopper's tensor cores.
    {"wgmma", supports_two_pass_wgmma, always,
     [](BackwardCall& call) {
       return backward_between_sums(call, kWgmmaQueries, [](const AttentionParams& params, cudaStream_t stream) {
         key_gradients_by_wgmma<bf16>(params, stream);
         query_gradients_by_wgmma<bf16>(params, stream);
       });
     }},
    // Two passes with mma.sync: for every GPU, and for heads wider than 64. Deterministic.
    {"mma", supports_two_pass_mma, always,
     [](BackwardCall& call) {
       const int rows = mma_query_rows(call.params());
       return backward_between_sums(call, rows, [](const AttentionParams& params, cudaStream_t stream) {
         key_gradients_by_mma<bf16>(params, stream);
         query_gradients_by_mma<bf16>(params, stream);
       });
     }},
    // Supports every call except rotation: f32, f16, narrow or wide heads, few scores. Deterministic.
    {"tiles", [](BackwardCall& call) { return !call.rotates(); }, always,
     [](BackwardCall& call) {
       if (call.args.forward.saved_log_sum_exp) Tensor(call.args.forward.row_inv_sum).fill_(1.0);
       return backward_between_sums(call, kTileQueries, [&](const AttentionParams& params, cudaStream_t stream) {
         visit_floating(kOp, call.args.dy.dtype(),
                        [&](auto tag) { backward_by_tiles<typename decltype(tag)::type>(params, stream); });
       });
     }},
};

const KernelRow<DecodeCall> kDecodeTable[] = {
    // One launch: a thread block cluster merges the splits of a KV cache in shared memory. Needs compute capability
    // 9.0.
    {"clusters", always, always, [](DecodeCall& call) { return decode_in(DecodeForm::clusters, call); }},
    // Splits the KV cache into enough parts to fill the GPU; a second launch merges them.
    {"splits", always, always, [](DecodeCall& call) { return decode_in(DecodeForm::splits, call); }},
    // Supports every head width and alignment; does not use 16-byte loads.
    {"any_width", always, always, [](DecodeCall& call) { return decode_in(DecodeForm::any_width, call); }},
};

}  // namespace

void attention_forward(AttentionForward& args) {
  args.saved_log_sum_exp = false;
  if (args.row_max.numel() == 0) return;
  ForwardCall call{args};
  dispatch("attention_forward", kForwardTable, args.q.device(), call);
}

void attention_backward(const AttentionBackward& args) {
  if (args.forward.q.dim(2) == 0) return;
  BackwardCall call{args};
  dispatch("attention_backward", kBackwardTable, args.dy.device(), call);
}

void has_rotary_backward(const AttentionForward& args, bool& known) {
  known = false;
  if (args.q.dim(3) != RotaryAngles::kWidth || !is_plain_bf16_attention(args)) return;
  const AttentionParams params = attention_workspace(args).params;
  const Device& device = args.q.device();
  const bool forced = !device.forced_kernel("attention_backward").empty();
  const auto allows = [&](const char* kernel) { return allows_kernel(device, "attention_backward", kernel); };
  known = (allows("short") && supports_short_backward(params, device)) ||
          (allows("one_pass") && (forced || !device.deterministic()) && supports_one_pass_backward(params, device));
}

void rotary_attention_backward(const RotaryAttentionBackward& args) {
  AttentionBackward attention = args.attention;
  if (!is_16_byte_aligned(attention.dy)) attention.dy = attention.dy.clone();
  BackwardCall call{attention, {args.cos.data<float>(), args.sin.data<float>()}};
  dispatch("attention_backward", kBackwardTable, attention.dy.device(), call);
}

void attention_decode(const AttentionDecode& args) {
  if (args.y.numel() == 0) return;
  DecodeCall call{args};
  dispatch("attention_decode", kDecodeTable, args.q.device(), call);
}

void attention_step(const AttentionStep& args) {
  if (args.decode.y.numel() == 0) return;
  DecodeCall call{args.decode, &args.rotation};
  dispatch("attention_decode", kDecodeTable, args.decode.q.device(), call);
}

}  // namespace lamina::ops::cuda
