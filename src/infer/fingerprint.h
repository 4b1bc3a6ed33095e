#pragma once

#include <string>

#include "lamina/nn/model.h"
#include "lamina/nn/weight_format.h"
#include "lamina/text/tokenizer.h"

namespace lamina::infer {

/// Sixteen hexadecimal digits that identify a model: equal for equal architecture, weights, tokenizer and `formats`, to
/// which the weights will be converted. Call it before Module::store_weights, which may drop the original weights. To
/// be cheap for models of any size and on any device, tensors above 1 MiB are sampled at evenly spaced places, so a
/// change of a few numbers in a large tensor can stay unnoticed; training changes all of them.
std::string model_fingerprint(const nn::Model& model, const text::Tokenizer* tokenizer,
                              const nn::WeightFormats& formats);
/// The same from the whole tensors of the model, in its order. A rank that holds a part of a model has only shards.
std::string model_fingerprint(const arch::ArchSpec& spec, const nn::StateDict& tensors,
                              const text::Tokenizer* tokenizer, const nn::WeightFormats& formats);

/// Eight hexadecimal digits that identify a tokenizer.
std::string tokenizer_fingerprint(const text::Tokenizer& tokenizer);

}  // namespace lamina::infer
