#pragma once

#include "lamina/ops/activation/gated_activation.h"
#include "lamina/ops/linear/linear.h"
#include "lamina/ops/norm/rms_norm.h"

namespace lamina::ops {

/// A norm over the last dimension, as rms_norm or layer_norm takes it.
struct RowNorm {
  enum class Kind : uint8_t { rms, layer };
  Kind kind = Kind::rms;
  Tensor weight;           ///< [width], or undefined
  Tensor bias;             ///< [width], or undefined; layer norm's alone
  RmsNormOptions options;  ///< of which layer norm has eps alone
};

/// Their sum, of parts [n, ..., in] of a residual beside x [..., in]; what has x's rank is the sum already.
Tensor sum_of_parts(const Tensor& residual, const Tensor& x);

void check_row_norm(const char* op, const Tensor& x, const Tensor& residual, const RowNorm& norm);

struct NormLinear {
  Tensor h;  ///< x + residual, x's type; x itself without a residual
  Tensor y;
};

/// h = x + residual, y = linear(norm(h), weight, bias, activation): how a sublayer of a residual stream begins.
///   x            [..., in]    any floating type
///   residual     [..., in] of x's type, or [n, ..., in]: n parts of it, added up; may be undefined
///   weight, bias, y           as linear has them
/// It is these operators; where nothing is recorded, few short rows on a GPU take one launch. The normed value is
/// rounded to x's type there, too.
NormLinear norm_linear(const Tensor& x, const Tensor& residual, const RowNorm& norm, const Tensor& weight,
                       const Tensor& bias = {}, Activation activation = Activation::none);

/// The same with y = gated_linear(norm(h), weight, bias, gate, options).
NormLinear norm_gated_linear(const Tensor& x, const Tensor& residual, const RowNorm& norm, const Tensor& weight,
                             const Tensor& bias, Gate gate, const GateOptions& options = {});

/// What the kernel is given.
struct NormLinearForward {
  Tensor x;         ///< [rows, in], dense, at most kFewRows rows
  Tensor residual;  ///< [n, rows, in], dense, or undefined
  RowNorm norm;     ///< weight and bias dense, in the accumulation type, or undefined; no groups
  Tensor weight;    ///< [out, in], for a gated unit [2·out, in]
  Tensor bias;      ///< accumulation type, or undefined
  Activation activation = Activation::none;
  bool gated = false;
  Gate gate = Gate::swiglu;
  GateOptions options;
  Tensor h;  ///< [rows, in], written where there is a residual
  Tensor y;  ///< [rows, out]
};
namespace cuda {
/// One launch. Not `done`, and nothing written, for what its kernel does not take: what linear_few_rows does not take,
/// odd addresses, rows too long for every block to norm them by itself.
void norm_linear_few_rows(const NormLinearForward& args, bool& done);
}  // namespace cuda

}  // namespace lamina::ops
