#pragma once

#include <array>
#include <optional>

#include "lamina/arch/layers.h"
#include "lamina/nn/chunked_cross_attention.h"
#include "lamina/nn/cross_attention.h"
#include "lamina/nn/mixer.h"

namespace lamina::nn {

/// Caches of one layer; null if the layer has none.
struct LayerCaches {
  LayerCache* mixer = nullptr;
  LayerCache* cross = nullptr;
};

/// One Transformer block: mixer, cross-attention and feed-forward, in sequence or in parallel. Its placement says where
/// the norms are.
class Layer final : public Module {
 public:
  Layer(const arch::ArchSpec& spec, const arch::Block& block, const ParameterFactory& make, PositionTables& positions);

  ResidualStream forward(ResidualStream stream, ForwardContext& pass, const LayerCaches& caches);
  /// Null for a block without mixer.
  const Mixer* mixer() const { return mixer_.get(); }
  /// Null for a block without cross-attention.
  const CrossAttention* cross() const { return cross_ ? &*cross_ : nullptr; }
  /// Null for a block without chunked cross-attention.
  const ChunkedCrossAttention* chunked_cross() const { return chunked_cross_ ? &*chunked_cross_ : nullptr; }

 private:
  template <class F, class Normed>
  void sublayer(ResidualStream& stream, ForwardContext& pass, arch::NormSlot input, arch::NormSlot output, const F& f,
                const Normed& f_normed);
  /// f(norm(residual stream)); backward recomputes the norm's output instead of storing it.
  template <class F>
  Tensor recomputing_norm(ResidualStream& stream, const NormLayer& norm, ForwardContext& pass, const F& f);
  void parallel(ResidualStream& stream, ForwardContext& pass, LayerCache* cache);
  /// Cross-attention to an encoder or to neighbours, if this pass has them.
  void cross_sublayer(ResidualStream& stream, ForwardContext& pass, LayerCache* cache);
  /// Adds a sublayer's output to the residual stream: applies dropout and both residual scales. The addition is
  /// deferred.
  void add(ResidualStream& stream, Tensor output, ForwardContext& pass) const;
  const NormLayer* norm(arch::NormSlot slot) const;
  Tensor output_normed(arch::NormSlot slot, const Tensor& x) const;

  arch::Placement placement_;
  bool parallel_;
  double residual_scale_;
  double skip_scale_;
  std::array<std::optional<NormLayer>, 7> norms_;  ///< indexed by NormSlot
  std::unique_ptr<Mixer> mixer_;
  std::optional<CrossAttention> cross_;
  std::optional<ChunkedCrossAttention> chunked_cross_;
  std::unique_ptr<Ffn> ffn_;
};

}  // namespace lamina::nn
