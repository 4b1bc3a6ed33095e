#pragma once

#include "lamina/ops/sampling/sample.h"

namespace lamina::ops {

/// Kernel arguments, as in sample().
struct SampleArgs {
  Tensor logits;  ///< contiguous
  Tensor streams;
  Tensor drawn;
  SampleOptions options;
  Tensor ids;
  Tensor clock;
};

namespace cpu {
void sample(const SampleArgs& args);
}  // namespace cpu
namespace cuda {
void sample(const SampleArgs& args);
}  // namespace cuda

}  // namespace lamina::ops
