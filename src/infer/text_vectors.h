#pragma once

#include <string>

#include "lamina/infer/embed.h"
#include "lamina/infer/load.h"
#include "lamina/search/index_update.h"

namespace lamina::infer {

/// Returns a function that computes vectors of texts by the model's recipe, divided by their Euclidean norm. Texts
/// longer than the context are cut off and counted in `cut`, if given; characters that the vocabulary lacks are
/// skipped; a text without tokens gives zeros. `role` chooses the prompt, if the model has prompts. `model` must
/// outlive the function and have a tokenizer.
search::Embedder text_embedder(const LoadedModel& model, TextRole role, int64_t* cut = nullptr);

/// Loads the model that an index names, or the one at `given` if that is not empty, and checks it (check_embedder).
LoadedModel load_embedder(const search::VectorSettings& settings, const std::string& given, const Device& device,
                          const std::string& option);

/// The settings of an index whose vectors come from this model.
search::VectorSettings vector_settings(const LoadedModel& model, const std::string& path);

/// Throws an Error unless `model` is the model that computed the vectors of an index; `option` would give that model.
void check_embedder(const LoadedModel& model, const search::VectorSettings& settings, const std::string& option);

}  // namespace lamina::infer
