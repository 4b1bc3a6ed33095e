#pragma once

#include <memory>

#include "lamina/arch/spec.h"
#include "lamina/nn/layer_cache.h"
#include "lamina/nn/module.h"
#include "lamina/nn/parameter_factory.h"
#include "lamina/nn/pass.h"
#include "lamina/nn/stream.h"

namespace lamina::nn {

class PositionTables;

/// What moves information between positions: attention or a state-space layer. Its parameters have the names and shapes
/// that arch::block_weights lists behind "mixer.".
class Mixer : public Module {
 public:
  /// x [batch, seq, d_model] → the same shape; neither norm nor residual addition.
  /// Without a cache the seq tokens are the whole sequence and gradients are followed. With one they come behind the
  /// tokens it holds (pass.offset or pass.offsets), and the mixer writes itself into it; the result is that of a
  /// forward over all tokens so far. Recording is off then.
  virtual Tensor forward(const Tensor& x, Pass& pass, LayerCache* cache) = 0;
  /// forward() of the stream's norm, which a mixer may leave to its first product; perhaps in parts (Stream::branch).
  virtual Tensor forward_normed(Stream& stream, const NormLayer& norm, Pass& pass, LayerCache* cache) {
    return forward(stream.normed(norm), pass, cache);
  }

  /// Whether a step follows the device's clock (Pass::clock), with nothing on the host that changes from step to step.
  virtual bool follows_clock() const { return false; }

  /// Room for `capacity` tokens of each of `batch` rows, in the type and on the device given.
  virtual std::unique_ptr<LayerCache> make_cache(int64_t batch, int64_t capacity, DType dtype,
                                                 const Device& device) const = 0;
};

/// What transforms each position by itself. Its parameters are those listed behind "ffn.".
class Ffn : public Module {
 public:
  /// x [batch, seq, d_model] → the same shape. Routers put their losses into pass.losses.
  virtual Tensor forward(const Tensor& x, Pass& pass) = 0;
  /// forward() of the stream's norm, which a feed-forward may leave to its first product; perhaps in parts.
  virtual Tensor forward_normed(Stream& stream, const NormLayer& norm, Pass& pass) {
    return forward(stream.normed(norm), pass);
  }
};

/// The block's mixer or feed-forward, null where it has none. `spec` is resolved, `block` one of its own; `make` names
/// parameters inside the mixer ("q.weight"); `positions` outlives the mixer.
std::unique_ptr<Mixer> make_mixer(const arch::ArchSpec& spec, const arch::Block& block, const ParameterFactory& make,
                                  PositionTables& positions);
std::unique_ptr<Ffn> make_ffn(const arch::ArchSpec& spec, const arch::Block& block, const ParameterFactory& make);

}  // namespace lamina::nn
