#pragma once

#include <memory>

#include "lamina/nn/cross_projections.h"
#include "lamina/nn/layer_cache.h"

namespace lamina::nn {

/// Attention of a decoder layer to the encoder's output. Its parameters have the names that arch::block_weights lists
/// under "cross.".
class CrossAttention final : public Module {
 public:
  CrossAttention(const arch::ArchSpec& spec, const arch::CrossAttention& cross, const ParameterFactory& make,
                 PositionTables& positions);

  /// x [batch, seq, d_model] → the same shape. Keys and values come from pass.source or, if `cache` is not null, from
  /// the cache, where a row sees its first pass.source_lengths tokens. If the source has fewer rows than x, each source
  /// row serves the same number of consecutive rows of x.
  Tensor forward(const Tensor& x, ForwardContext& pass, LayerCache* cache) const;

  /// Allocates keys and values for `capacity` tokens of the source for each of `batch` rows.
  std::unique_ptr<LayerCache> make_cache(int64_t batch, int64_t capacity, DType dtype, const Device& device) const;
  /// Computes and stores keys and values of the source [batch, seq, d_model], once for all tokens to decode.
  void store(const Tensor& source, LayerCache& cache) const;

 private:
  Tensor attend_source(const Tensor& q, ForwardContext& pass) const;
  Tensor attend_cached(const Tensor& q, ForwardContext& pass, const LayerCache& cache) const;

  CrossProjections projections_;
};

}  // namespace lamina::nn
