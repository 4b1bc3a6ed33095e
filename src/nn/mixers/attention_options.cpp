#include "lamina/nn/mixers/attention.h"

/// Options of the attention operators from an architecture.
namespace lamina::nn {
namespace {

struct PatternMaker {
  using Pattern = ops::AttentionPattern;
  Pattern operator()(const arch::FullPattern& /*full*/) const { return {}; }
  Pattern operator()(const arch::WindowPattern& p) const { return {.kind = Pattern::Kind::window, .window = p.size}; }
  Pattern operator()(const arch::LongformerPattern& p) const {
    return {.kind = Pattern::Kind::window, .window = p.window, .global_tokens = p.global_tokens};
  }
  Pattern operator()(const arch::BigBirdPattern& p) const {
    return {.kind = Pattern::Kind::blocks,
            .block = p.block,
            .window_blocks = p.window_blocks,
            .global_blocks = p.global_blocks,
            .last_blocks = p.last_blocks,
            .random_blocks = p.random_blocks,
            .seed = static_cast<uint64_t>(p.seed)};
  }
  /// Chunked attention: blocks that attend only within themselves.
  Pattern operator()(const arch::ChunkPattern& p) const {
    return {.kind = Pattern::Kind::blocks, .block = p.size, .window_blocks = 0, .global_blocks = 0};
  }
  Pattern operator()(const arch::StridedPattern& p) const {
    return {.kind = Pattern::Kind::strided, .window = p.window, .stride = p.stride};
  }
};

}  // namespace

ops::AttentionOptions attention_options(double scale, std::optional<double> soft_cap, const arch::Pattern& pattern,
                                        ForwardContext& pass) {
  ops::AttentionOptions options{.scale = scale, .pattern = attention_pattern(pattern)};
  options.soft_cap = soft_cap.value_or(0.0);
  if (pass.training && pass.dropout.attention > 0.0) {
    options.dropout = pass.dropout.attention;
    options.dropout_key = pass.draw();
    // Attention counts the rows of its own batch from 0, so a part of a larger batch needs a different dropout seed.
    options.dropout_key.seed ^= static_cast<uint64_t>(pass.first_row) << 40U;
  }
  return options;
}

ops::AttentionPattern attention_pattern(const arch::Pattern& pattern) { return std::visit(PatternMaker{}, pattern); }

}  // namespace lamina::nn
