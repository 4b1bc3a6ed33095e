#pragma once

#include <memory>

#include "lamina/nn/model.h"
#include "lamina/train/optimizer.h"
#include "lamina/train/recipe.h"

namespace lamina::train {

/// What a parameter is to an optimizer.
enum class ParameterKind {
  matrix,     ///< a product inside a layer: [out, in], or [experts, out, in]
  embedding,  ///< tables of tokens and positions, and the head
  vector,     ///< norms, biases, and what state-space layers hold besides their products
};
ParameterKind parameter_kind(const std::string& name, const Tensor& parameter);

/// The model's parameters; those that share their memory once, under their first name.
std::vector<NamedTensor> distinct_parameters(const nn::Model& model);

/// The optimizer a recipe asks for, over the model's distinct parameters. Its groups, whose rates are group_rates():
/// matrices, embeddings, vectors; what decays follows the recipe's switches.
std::unique_ptr<Optimizer> make_optimizer(const nn::Model& model, const Recipe& recipe);

/// The highest learning rate of each group of that optimizer.
std::vector<double> group_rates(const Recipe& recipe);

}  // namespace lamina::train
