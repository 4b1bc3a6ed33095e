#include "lamina/lab/study/matching.h"

#include <cmath>
#include <numeric>

#include "lamina/arch/cost.h"
#include "lamina/arch/count.h"
#include "lamina/arch/layers.h"
#include "lamina/arch/resolve.h"

namespace lamina::lab {
namespace {

constexpr int64_t kStep = 8;

int64_t in_steps(double width) { return std::max<int64_t>(kStep, std::llround(width / kStep) * kStep); }

/// Calls use(d_ff) for every FFN and expert that has a d_ff.
template <class F>
void each_d_ff(arch::ArchSpec& spec, const F& use) {
  for (arch::LayerGroup& group : spec.layers) {
    for (arch::Block& block : group.pattern) {
      if (auto* gated = std::get_if<arch::GatedFfn>(&block.ffn)) use(gated->d_ff);
      if (auto* plain = std::get_if<arch::PlainFfn>(&block.ffn)) use(plain->d_ff);
      if (auto* moe = std::get_if<arch::Moe>(&block.ffn)) {
        std::visit([&](auto& expert) { use(expert.d_ff); }, moe->expert);
        if (moe->shared_experts > 0) use(moe->shared_d_ff);
      }
    }
  }
}

class Matcher {
 public:
  Matcher(const arch::ArchSpec& spec, double wanted, Matching matching, int64_t length)
      : spec_(spec), resolved_(arch::resolve(spec)), wanted_(wanted), matching_(matching), length_(length) {}

  Matched best() {
    Matched result{resolved_, {}};
    const double unchanged = difference(resolved_);
    if (unchanged == 0) return result;
    best_ = std::abs(unchanged);
    by_d_ff(result);
    if (best_ > kEqualSize) by_d_model(result);
    return result;
  }

 private:
  double difference(const arch::ArchSpec& resolved) const {
    return matched_size(resolved, matching_, length_) / wanted_ - 1;
  }

  void offer(const arch::ArchSpec& resolved, const char* field, int64_t from, int64_t to, Matched& result) {
    const double remaining = difference(resolved);
    if (std::abs(remaining) >= best_) return;
    best_ = std::abs(remaining);
    result = {resolved, Adjustment{field, from, to, remaining}};
  }

  arch::ArchSpec with_d_ff(int64_t first, int64_t width) const {
    arch::ArchSpec spec = resolved_;
    const double factor = static_cast<double>(width) / static_cast<double>(first);
    each_d_ff(spec, [&](std::optional<int64_t>& d_ff) { d_ff = in_steps(static_cast<double>(*d_ff) * factor); });
    return spec;
  }

  /// Adjusts d_ff. The size is linear in d_ff, except for rounding: solves for the target size, and tries the widths
  /// around it.
  void by_d_ff(Matched& result) {
    int64_t first = 0;
    arch::ArchSpec copy = resolved_;
    each_d_ff(copy, [&](std::optional<int64_t>& d_ff) { first = first == 0 ? d_ff.value_or(0) : first; });
    if (first == 0) return;
    const double here = matched_size(resolved_, matching_, length_);
    const double slope =
        (matched_size(with_d_ff(first, first + 64 * kStep), matching_, length_) - here) / (64.0 * kStep);
    if (!(slope > 0)) return;
    const double meets = static_cast<double>(first) + (wanted_ - here) / slope;
    if (meets > 64.0 * static_cast<double>(resolved_.d_model)) return;
    for (int64_t shift = -2; shift <= 2; ++shift) {
      const int64_t width = in_steps(meets) + shift * kStep;
      if (width >= kStep) offer(with_d_ff(first, width), "d_ff", first, width, result);
    }
  }

  /// The step of d_model that keeps heads whole in every mixer, with an even head_dim if that follows from d_model.
  int64_t d_model_step() const {
    int64_t step = kStep;
    for (const arch::LayerGroup& group : resolved_.layers) {
      for (const arch::Block& block : group.pattern) {
        const auto* attention = arch::attention_of(block.mixer);
        const bool follows = attention != nullptr && *attention->head_dim * attention->n_heads == resolved_.d_model;
        if (follows) step = std::lcm(step, 2 * attention->n_heads);
        if (const auto* mamba = arch::mamba2_of(block.mixer)) step = std::lcm(step, mamba->head_dim);
      }
    }
    return step;
  }

  arch::ArchSpec with_d_model(int64_t width) const {
    arch::ArchSpec spec = spec_;
    const double factor = static_cast<double>(width) / static_cast<double>(spec.d_model);
    each_d_ff(spec, [&](std::optional<int64_t>& d_ff) {
      if (d_ff) d_ff = in_steps(static_cast<double>(*d_ff) * factor);
    });
    for (arch::LayerGroup& group : spec.layers) {
      for (arch::Block& block : group.pattern) {
        auto* attention = arch::attention_of(block.mixer);
        if (attention == nullptr || !attention->head_dim) continue;
        if (*attention->head_dim * attention->n_heads == spec.d_model) attention->head_dim = width / attention->n_heads;
      }
    }
    spec.d_model = width;
    return spec;
  }

  void by_d_model(Matched& result) {
    const int64_t step = d_model_step();
    const int64_t last = 4 * resolved_.d_model;
    for (int64_t width = step; width <= last; width += step) {
      if (width == resolved_.d_model) continue;
      try {
        offer(arch::resolve(with_d_model(width)), "d_model", resolved_.d_model, width, result);
      } catch (const arch::SpecError&) {
        continue;  // skip widths that violate a rule
      }
    }
  }

  const arch::ArchSpec& spec_;
  arch::ArchSpec resolved_;
  double wanted_;
  Matching matching_;
  int64_t length_;
  double best_ = 0;
};

}  // namespace

double matched_size(const arch::ArchSpec& resolved, Matching matching, int64_t length) {
  if (matching == Matching::compute) return arch::flops_per_token(resolved, length).forward();
  return static_cast<double>(arch::count_parameters(resolved).total);
}

Matched match(const arch::ArchSpec& spec, double wanted, Matching matching, int64_t length) {
  if (matching == Matching::none) return {arch::resolve(spec), {}};
  return Matcher(spec, wanted, matching, length).best();
}

}  // namespace lamina::lab
