#pragma once

#include <array>
#include <optional>

#include "lamina/arch/layers.h"
#include "lamina/nn/mixer.h"
#include "lamina/nn/norm.h"

namespace lamina::nn {

/// The residual stream between sublayers: its value is x + branch. The addition is left to the norm that follows, which
/// does both in one pass over memory.
struct Stream {
  Tensor x;
  Tensor branch;  ///< undefined: nothing is to be added

  /// Adds the branch, and gives the value.
  const Tensor& value();
  /// Adds the branch, and gives the norm of the value.
  Tensor normed(const NormLayer& norm);
};

/// One block: mixer and feed-forward, wired serially or in parallel, normed where the placement says.
class Layer final : public Module {
 public:
  Layer(const arch::ArchSpec& spec, const arch::Block& block, const ParameterFactory& make, PositionTables& positions);

  Stream forward(Stream stream, Pass& pass, LayerCache* cache);
  /// Null for a block without mixer.
  const Mixer* mixer() const { return mixer_.get(); }

 private:
  template <class F>
  void sublayer(Stream& stream, Pass& pass, arch::NormSlot input, arch::NormSlot output, const F& f);
  void parallel(Stream& stream, Pass& pass, LayerCache* cache);
  /// What a branch gives, as it will be added.
  Tensor branch(Tensor output, Pass& pass) const;
  const NormLayer* norm(arch::NormSlot slot) const;
  Tensor output_normed(arch::NormSlot slot, const Tensor& x) const;

  arch::Placement placement_;
  bool parallel_;
  double residual_scale_;
  std::array<std::optional<NormLayer>, 5> norms_;  ///< by NormSlot
  std::unique_ptr<Mixer> mixer_;
  std::unique_ptr<Ffn> ffn_;
};

}  // namespace lamina::nn
