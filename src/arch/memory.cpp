#include "lamina/arch/cost.h"
#include "lamina/arch/count.h"
#include "lamina/arch/layers.h"

namespace lamina::arch {
namespace {

double number(int64_t value) { return static_cast<double>(value); }

/// Numbers per token that backward needs of a mixer, beside its input: q, k, v, the result and its log-sum-exp, …
double kept(const Attention& a, int64_t /*d_model*/) {
  return number(a.n_heads) * number(*a.head_dim + *a.v_head_dim + 1) +
         number(*a.n_kv_heads) * number(*a.head_dim + *a.v_head_dim);
}
double kept(const Mla& a, int64_t /*d_model*/) {
  const double latents = 2 * number(a.q_lora_rank.value_or(0)) + 2 * number(a.kv_lora_rank) + number(a.qk_rope);
  return latents + number(a.n_heads) * number(2 * (a.qk_nope + a.qk_rope) + 2 * a.v_head_dim + 1);
}
double kept(const Mamba& m, int64_t /*d_model*/) { return number(*m.d_inner) * 6 + number(*m.dt_rank + 2 * m.state); }
double kept(const Mamba2& m, int64_t /*d_model*/) { return number(*m.d_inner) * 5 + number(4 * m.groups * m.state); }
double kept(const S4d& /*m*/, int64_t d_model) { return 4 * number(d_model); }
double kept(const NoMixer& /*m*/, int64_t /*d_model*/) { return 0; }

double kept(const PlainFfn& f, int64_t /*d_model*/) { return 2 * number(*f.d_ff); }
double kept(const GatedFfn& f, int64_t /*d_model*/) { return 3 * number(*f.d_ff); }
double kept(const Moe& f, int64_t d_model) {
  const double expert = std::visit([d_model](const auto& e) { return kept(e, d_model); }, f.expert);
  const bool gated = std::holds_alternative<GatedFfn>(f.expert);
  const double shared = f.shared_experts > 0 ? (gated ? 3 : 2) * number(*f.shared_d_ff) : 0;
  return number(f.experts) + number(f.top_k) * (expert + 2 * number(d_model)) + shared;
}
double kept(const NoFfn& /*f*/, int64_t /*d_model*/) { return 0; }

double kept_by_block(const ArchSpec& spec, const Block& block) {
  // The input of each norm and of the products behind it; both sublayers add one residual each.
  const double norms = 2 * number(static_cast<int64_t>(norm_slots(block).size())) * number(spec.d_model);
  return norms + std::visit([&](const auto& mixer) { return kept(mixer, spec.d_model); }, block.mixer) +
         std::visit([&](const auto& ffn) { return kept(ffn, spec.d_model); }, block.ffn);
}

}  // namespace

TrainingMemory training_memory(const ArchSpec& spec, int64_t batch, int64_t length, int bytes_per_number) {
  const double parameters = number(count_parameters(spec).total);
  TrainingMemory memory;
  memory.weights = parameters * bytes_per_number;
  memory.gradients = parameters * bytes_per_number;
  memory.optimizer = parameters * (bytes_per_number < 4 ? 12 : 8);
  double per_token = 3 * number(spec.d_model);
  for (const WrittenBlock& written : written_blocks(spec)) {
    per_token += number(written.times) * kept_by_block(spec, *written.block);
  }
  memory.activations = number(batch) * number(length) * per_token * bytes_per_number;
  return memory;
}

}  // namespace lamina::arch
