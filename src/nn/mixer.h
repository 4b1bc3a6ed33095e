#pragma once

#include <memory>

#include "lamina/arch/spec.h"
#include "lamina/nn/forward_context.h"
#include "lamina/nn/layer_cache.h"
#include "lamina/nn/module.h"
#include "lamina/nn/parameter_factory.h"
#include "lamina/nn/residual_stream.h"
#include "lamina/nn/sequence_cache.h"

namespace lamina::nn {

class PositionTables;

/// A layer that moves information between positions: attention or a state-space layer. Its parameters have the names
/// and shapes that arch::block_weights lists under "mixer.".
class Mixer : public Module {
 public:
  /// x [batch, seq, d_model] → the same shape, without norm and residual addition.
  /// - Without a cache, the seq tokens are the whole sequence, and gradients are tracked.
  /// - With a cache, they follow the cached tokens (pass.offset or pass.offsets), and the mixer appends to the cache.
  /// The result equals a forward pass over all tokens so far. Gradients are off.
  /// - With pass.rows, x [1, tokens, d_model] holds the new tokens of several sequences, whose caches are in
  /// pass.memory.
  virtual Tensor forward(const Tensor& x, ForwardContext& pass, LayerCache* cache) = 0;
  /// forward(norm(residual stream)); may fuse the norm and return unsummed partial outputs (see
  /// ResidualStream::branch).
  virtual Tensor forward_normed(ResidualStream& stream, const NormLayer& norm, ForwardContext& pass,
                                LayerCache* cache) {
    return forward(stream.normed(norm), pass, cache);
  }

  /// Layout of this mixer's cached data in pass.memory.
  virtual CacheLayout cache_layout() const = 0;

  /// Allocates a cache of `capacity` tokens for each of `batch` rows.
  virtual std::unique_ptr<LayerCache> make_cache(int64_t batch, int64_t capacity, DType dtype,
                                                 const Device& device) const = 0;
};

/// A feed-forward layer, applied to each position independently. arch::block_weights lists its parameters under "ffn.".
class Ffn : public Module {
 public:
  /// x [batch, seq, d_model] → the same shape. Routers append their losses to pass.losses.
  virtual Tensor forward(const Tensor& x, ForwardContext& pass) = 0;
  /// forward(norm(residual stream)); may fuse the norm into its first projection and return unsummed partial outputs.
  virtual Tensor forward_normed(ResidualStream& stream, const NormLayer& norm, ForwardContext& pass) {
    return forward(stream.normed(norm), pass);
  }
};

/// Builds the mixer or feed-forward of a block; null if the block has none. `spec` is resolved and contains `block`.
/// `make` adds the prefix of the mixer to parameter names ("q.weight"). `positions` must outlive the mixer.
std::unique_ptr<Mixer> make_mixer(const arch::ArchSpec& spec, const arch::Block& block, const ParameterFactory& make,
                                  PositionTables& positions);
std::unique_ptr<Ffn> make_ffn(const arch::ArchSpec& spec, const arch::Block& block, const ParameterFactory& make);

}  // namespace lamina::nn
