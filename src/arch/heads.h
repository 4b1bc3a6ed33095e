#pragma once

#include "lamina/arch/ffn.h"
#include "lamina/arch/norm.h"

namespace lamina::arch {

/// A dense layer before the output projection, used by masked language models: norm(act(dense(x))).
struct HeadTransform {
  Activation activation = Activation::gelu;
  bool bias = true;
  std::optional<Norm> norm;
  static void visit_fields(auto& self, auto&& field) {
    field("activation", self.activation, "activation after the dense layer");
    field("bias", self.bias, "bias of the dense layer");
    field("norm", self.norm, "norm after the activation; default the model's");
  }
  bool operator==(const HeadTransform&) const = default;
};

/// How the hidden states of a sequence become one vector.
enum class PoolingKind : uint8_t {
  mean,   ///< the mean over all tokens
  first,  ///< the first token, such as [CLS]; in a causal model it sees nothing else
  last,   ///< the last token, which in a causal model sees the whole text
  max,    ///< the largest value of each dimension
};
constexpr auto names_of(PoolingKind) { return std::array<std::string_view, 4>{"mean", "first", "last", "max"}; }

/// One vector per sequence, computed from the hidden states after the final norm: act(dense(pool(x))).
struct Pooling {
  PoolingKind of = PoolingKind::mean;
  bool dense = false;
  Activation activation = Activation::tanh;
  bool unit_length = false;
  static void visit_fields(auto& self, auto&& field) {
    field("of", self.of,
          "mean: the mean over the tokens of a sequence; first or last: that token; max: the largest value of each "
          "dimension");
    field("dense", self.dense, "a dense layer d_model x d_model with bias after pooling, then the activation");
    field("activation", self.activation, "activation of the dense layer");
    field("unit_length", self.unit_length, "divide the vector by its length");
  }
  bool operator==(const Pooling&) const = default;
};

/// A linear layer with bias on the pooled vector: one logit per class.
struct Classifier {
  int64_t classes = 2;
  static void visit_fields(auto& self, auto&& field) { field("classes", self.classes, "number of classes"); }
  bool operator==(const Classifier&) const = default;
};

}  // namespace lamina::arch
