#pragma once

#include <memory>

#include "lamina/infer/engine/token_mask.h"
#include "lamina/text/grammar/grammar_state.h"

namespace lamina::infer {

/// The start of a text under `grammar`, as the engine's limit on tokens (Request::mask). `tokenizer` encodes forced
/// text and must outlive the mask.
std::shared_ptr<const TokenMask> grammar_mask(std::shared_ptr<text::TokenGrammar> grammar,
                                              const text::Tokenizer& tokenizer);

}  // namespace lamina::infer
