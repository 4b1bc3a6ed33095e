#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string_view>

namespace lamina {

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
/// Names used in configuration files, in the order of the enumerators. The other names_of() functions are alike.
constexpr auto names_of(Activation) {
  return std::array<std::string_view, 10>{"none", "relu", "gelu",  "gelu_tanh", "silu",
                                          "elu",  "selu", "relu2", "sigmoid",   "tanh"};
}

/// Gated linear units, named by the function of their gate. Shazeer 2020, arXiv:2002.05202.
///   glu σ · reglu relu · geglu gelu (erf) · geglu_tanh gelu (tanh) · swiglu silu · liglu identity (bilinear)
enum class Gate : uint8_t { glu, reglu, geglu, geglu_tanh, swiglu, liglu };
constexpr auto names_of(Gate) {
  return std::array<std::string_view, 6>{"glu", "reglu", "geglu", "geglu_tanh", "swiglu", "liglu"};
}

/// How a router's logits become the weights of the chosen experts.
enum class RouterScore : uint8_t {
  softmax,            ///< softmax over all experts, then top k (Switch)
  softmax_of_chosen,  ///< top k of the logits, then softmax over the k chosen
  sigmoid,            ///< sigmoid of each logit, then top k
  /// Experts are chosen one after the other, by logit. The weight of a choice is its softmax among the experts that
  /// were not chosen earlier and whose logits z are near its own logit z*: (z* − z) / max(|z|, z*) ≤ near. This is
  /// SparseMixer without sampling (arXiv:2409.12136).
  softmax_of_near,
};
constexpr auto names_of(RouterScore) {
  return std::array<std::string_view, 4>{"softmax", "softmax_of_chosen", "sigmoid", "softmax_of_near"};
}

/// The name of an activation, gate or router score.
template <class Kind>
requires requires(Kind kind) { names_of(kind); }
constexpr std::string_view name_of(Kind kind) { return names_of(kind)[static_cast<size_t>(kind)]; }

/// The kind with this name, for example kind_from_name<Activation>("gelu"). Empty if no kind has it.
template <class Kind>
constexpr std::optional<Kind> kind_from_name(std::string_view name) {
  constexpr auto names = names_of(Kind{});
  for (size_t i = 0; i < names.size(); ++i) {
    if (names[i] == name) return static_cast<Kind>(i);
  }
  return {};
}

}  // namespace lamina
