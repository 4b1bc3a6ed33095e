#pragma once

#include "lamina/lab/study/study.h"
#include "lamina/tensor/device.h"

namespace lamina::lab {

/// The loss of an untrained model at one length, or the reason why it cannot read that many tokens.
struct UntrainedLoss {
  std::optional<double> loss;
  std::string cannot;
};

/// An architecture of a study that was built, but not trained.
struct UntrainedVariant {
  std::string name;
  int64_t parameters = 0;
  std::vector<UntrainedLoss> losses;  ///< one per length
};

/// Builds every variant of the study with the first seed, and runs a forward pass over random tokens at each length.
/// `vocabulary` is used if the architecture leaves the vocabulary to the data. Throws an Error if a variant cannot be
/// built.
std::vector<UntrainedVariant> run_untrained(const Study& study, const std::vector<int64_t>& lengths, int64_t vocabulary,
                                            const Device& device);

/// A table with parameters, their difference to the base, and the loss at each length. Reasons are listed below it.
std::string untrained_text(const std::vector<UntrainedVariant>& variants, const std::vector<int64_t>& lengths);

}  // namespace lamina::lab
