#pragma once

#include <functional>
#include <string>
#include <vector>

#include "lamina/io/safetensors.h"
#include "lamina/nn/model.h"

namespace lamina::infer {

/// How far one quantity of ours is from the golden one.
struct Comparison {
  std::string name;   ///< "logits", "loss", "grad.<parameter>", "greedy"
  double absolute;    ///< the largest difference; for tokens, how many differ
  double relative;    ///< that, over the largest magnitude of the golden
  double tolerance;   ///< what `relative` may be
  std::string error;  ///< why it could not be compared, or empty
  bool ok() const { return error.empty() && relative <= tolerance; }
};

struct GoldenOptions {
  double logits_tolerance = 1e-4;
  double gradient_tolerance = 1e-3;
  /// Gradients below this share of the largest one are held to that magnitude: there rounding is all there is.
  double smallest_share = 1e-4;
  /// A token counts as the golden's whose logit is greater than that one's by at most this share of the largest.
  double tie = 0;
};

/// Gradients under the names of the golden's file, made from those of state_dict().
using NameGradients = std::function<io::NamedTensors(const nn::StateDict& gradients)>;

/// Holds a model against what another implementation computed from the same weights. The golden's tensors, of which
/// those that are there are compared:
///   input_ids [batch, seq], logits [batch, seq, vocab], loss [1]: the mean next-token cross entropy over positions
///   0 … seq − 2, grad.<parameter>: of that loss, prompt [1, n], greedy [1, m]: the likeliest tokens behind the prompt,
///   which ours takes one by one through its cache.
std::vector<Comparison> compare_with_golden(nn::Model& model, const io::SafetensorsFile& golden,
                                            const NameGradients& name_gradients, const GoldenOptions& options = {});

/// What a model of bf16 may be off: twice what moving the parameters of a model of f32 by a rounding, each to a side of
/// chance, changes. They are put back.
GoldenOptions bf16_tolerances(nn::Model& model, const io::SafetensorsFile& golden, const NameGradients& name_gradients);

}  // namespace lamina::infer
