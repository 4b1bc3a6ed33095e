#pragma once

#include <array>
#include <cstdint>
#include <span>

namespace lamina::ops {

/// Samples a token without filters: the same one as normalise() and sample_from() of all tokens (candidates.h), but
/// without a list. `logits` has the logits after the temperature, −inf for tokens that may not be sampled; it is
/// overwritten. `words` are the random bits. Returns −1 if all logits are −inf.
int64_t sample_unfiltered(std::span<double> logits, const std::array<uint32_t, 4>& words);

}  // namespace lamina::ops
