#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "lamina/tensor/tensor.h"

namespace lamina::ops {

/// Element-wise activation functions.
///   relu       max(x, 0)
///   gelu       x · Φ(x) = x/2 · (1 + erf(x/√2))                          Hendrycks & Gimpel 2016, arXiv:1606.08415
///   gelu_tanh  x/2 · (1 + tanh(√(2/π) · (x + 0.044715 x³)))              approximation from the same paper
///   silu       x · σ(x)                                                  Ramachandran et al. 2017, arXiv:1710.05941
///   elu        x for x > 0, otherwise exp(x) − 1                         Clevert et al. 2015, arXiv:1511.07289
///   selu       λ·x for x > 0, otherwise λ·α·(exp(x) − 1)                 Klambauer et al. 2017, arXiv:1706.02515
///   relu2      max(x, 0)²                                                So et al. 2021, arXiv:2109.08668
///   sigmoid    σ(x) = 1 / (1 + exp(−x))
///   tanh
enum class Activation : uint8_t { none, relu, gelu, gelu_tanh, silu, elu, selu, relu2, sigmoid, tanh };

/// The enumerator's name, as used in configuration files.
std::string_view name_of(Activation activation);
/// The function of this name; empty if there is none.
std::optional<Activation> activation_from_name(std::string_view name);

/// y = f(x), element-wise; `none` returns x itself.
///   x, y  any shape, any floating type
/// Computed in f32 (f64 for f64). Backward, from the saved x: dx = dy · f'(x).
Tensor activation(const Tensor& x, Activation function);

}  // namespace lamina::ops
