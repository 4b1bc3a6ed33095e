#pragma once

#include <string>

#include "lamina/nn/model.h"
#include "lamina/nn/weight_format.h"
#include "lamina/text/tokenizer.h"

namespace lamina::infer {

/// Sixteen hexadecimal digits that identify a model: equal for equal architecture, weights, tokenizer, and `formats` to
/// which the weights will be converted. Call it before Module::store_weights, which may drop the original weights.
///
/// To be cheap for any size and device, tensors above 1 MiB are only sampled at evenly spaced places. So a change of a
/// few numbers in a large tensor may stay unnoticed; training changes all of them.
std::string model_fingerprint(const nn::Model& model, const text::Tokenizer* tokenizer,
                              const nn::WeightFormats& formats);
/// model_fingerprint() computed from the whole tensors in the model's order. For a rank that holds only shards of the
/// model.
std::string model_fingerprint(const arch::ArchSpec& spec, const nn::StateDict& tensors,
                              const text::Tokenizer* tokenizer, const nn::WeightFormats& formats);

/// Eight hexadecimal digits that identify a tokenizer.
std::string tokenizer_fingerprint(const text::Tokenizer& tokenizer);

}  // namespace lamina::infer
