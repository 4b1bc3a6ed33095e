#pragma once

#include "lamina/ops/sampling/sample_rows.h"

namespace lamina::ops {

/// Kernel arguments, as in sample_rows(), all contiguous. An undefined option means its default.
struct SampleRows {
  Tensor logits;
  RowSampling options;
  int64_t vocab_size;  ///< 1 to vocab
  int64_t top_logprobs;
  Tensor ids;
  Tensor logprobs;
  Tensor top_ids;
};
struct CountTokens {
  Tensor counts;
  Tensor rows;
  Tensor ids;
};

namespace cpu {
void sample_rows(const SampleRows& args);
void count_tokens(const CountTokens& args);
}  // namespace cpu
namespace cuda {
void sample_rows(const SampleRows& args);
void count_tokens(const CountTokens& args);
}  // namespace cuda

}  // namespace lamina::ops
