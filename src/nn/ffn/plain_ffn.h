#pragma once

#include "lamina/nn/mixer.h"
#include "lamina/nn/projection.h"

namespace lamina::nn {

/// down(act(up(x)))
///   up [d_ff, d_model], down [d_model, d_ff]
class PlainFfn final : public Ffn {
 public:
  PlainFfn(int64_t d_model, const arch::PlainFfn& spec, const ParameterFactory& make);

  Tensor forward(const Tensor& x, Pass& pass) override;
  Tensor forward_normed(Stream& stream, const NormLayer& norm, Pass& pass) override;

 private:
  bool is_plain() const { return up_.is_plain() && down_.is_plain(); }

  ops::Activation activation_;
  Linear up_;
  Linear down_;
};

}  // namespace lamina::nn
