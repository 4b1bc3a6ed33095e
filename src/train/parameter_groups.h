#pragma once

#include <functional>
#include <memory>

#include "lamina/nn/model.h"
#include "lamina/train/optimizer.h"
#include "lamina/train/recipe.h"

namespace lamina::train {

/// Role of a parameter; determines its optimizer settings.
enum class ParameterKind {
  matrix,     ///< weight of a linear map inside a layer: [out, in], or [experts, out, in]
  embedding,  ///< token and position tables, and the output head
  vector,     ///< norms, biases, and state-space parameters that are not linear maps
};
ParameterKind parameter_kind(const std::string& name, const Tensor& parameter);

/// Parameters of the model. A tied parameter appears once, under its first name.
NamedTensors distinct_parameters(const nn::Model& model);

/// Builds the recipe's optimizer for distinct_parameters(). Its groups are matrices, embeddings and vectors, with the
/// learning rates of group_rates(). The recipe decides which groups have weight decay. `piece_of` returns the part of a
/// parameter that is updated here, undefined for none; empty: all parameters, whole.
std::unique_ptr<Optimizer> make_optimizer(const nn::Model& model, const Recipe& recipe,
                                          const std::function<Tensor(const NamedTensor&)>& piece_of = {});

/// Peak learning rate of each group of make_optimizer().
std::vector<double> group_rates(const Recipe& recipe);

}  // namespace lamina::train
