#pragma once

#include <string>
#include <vector>

#include "lamina/infer/generator.h"
#include "lamina/infer/load.h"

namespace lamina::infer {

/// Called with each piece of generated text as soon as it is final. Pieces are whole characters.
using OnText = std::function<void(const std::string& piece)>;

/// Continues `prompt` (or answers it, if the model is an encoder–decoder; see source_ids) and returns the generated
/// text without the prompt. It ends at options.max_tokens, at a stop token of the model or of options.stop_tokens, or
/// before the first of `stops`.
///
/// Ids that the tokenizer lacks are never sampled. Characters of the prompt that the vocabulary lacks are skipped, or
/// replaced by its unknown token. Throws an Error if the model has no tokenizer.
std::string generate_text(LoadedModel& model, const std::string& prompt, GenerateOptions options = {},
                          const std::vector<std::string>& stops = {}, const OnText& on_text = {});

}  // namespace lamina::infer
