#pragma once

#include <memory>

#include "lamina/infer/engine/token_mask.h"
#include "lamina/text/grammar/grammar_state.h"

namespace lamina::infer {

/// The token mask for a text under `grammar`, at its start (for Request::mask). `tokenizer` encodes forced text; it
/// must outlive the mask.
std::shared_ptr<const TokenMask> grammar_mask(std::shared_ptr<text::TokenGrammar> grammar,
                                              const text::Tokenizer& tokenizer);

}  // namespace lamina::infer
