#pragma once

#include <string>

#include "lamina/infer/load.h"
#include "lamina/search/index_update.h"

namespace lamina::infer {

/// Returns a function that computes vectors of texts: the mean of the final hidden states over a text's tokens, divided
/// by its Euclidean norm. Texts longer than the context are cut off; characters that the vocabulary lacks are skipped;
/// a text without tokens gives zeros. `model` must outlive the function and have a tokenizer.
search::Embedder text_embedder(const LoadedModel& model);

/// The settings of an index whose vectors come from this model.
search::VectorSettings vector_settings(const LoadedModel& model, const std::string& path);

/// Throws an Error unless `model` is the model that computed the vectors of an index.
void check_embedder(const LoadedModel& model, const search::VectorSettings& settings);

}  // namespace lamina::infer
