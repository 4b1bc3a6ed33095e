#pragma once

#include <string>

#include "lamina/infer/load.h"
#include "lamina/search/index_update.h"

namespace lamina::infer {

/// Makes vectors of texts: the mean of the final hidden states over a text's tokens, divided by its length. Texts
/// longer than the context are cut; characters that the vocabulary lacks are skipped. `model` must outlive the function
/// and have a tokenizer. A text without tokens gives zeros.
search::Embedder text_embedder(const LoadedModel& model);

/// Settings for an index with vectors of this model.
search::VectorSettings vector_settings(const LoadedModel& model, const std::string& path);

/// Throws Error if `model` is not the model that made the vectors of an index.
void check_embedder(const LoadedModel& model, const search::VectorSettings& settings);

}  // namespace lamina::infer
