#pragma once

#include <string>
#include <string_view>

#include "lamina/text/spec.h"

namespace lamina::text {

// Vocabularies in other files than tokenizer.json. `name` stands in messages.

/// GPT-2's: a JSON object of tokens and ids (vocab.json, encoder.json), and lines of two tokens (merges.txt,
/// vocab.bpe).
TokenizerSpec read_gpt2_files(std::string_view vocab, std::string_view merges, const std::string& name);

/// tiktoken's: lines of a token in base64 and its rank. How text is cut and which special tokens there are the file
/// does not say: `pattern` does (patterns.h), or where that is empty a known name within `name`.
TokenizerSpec read_tiktoken(std::string_view text, const std::string& pattern, const std::string& name);
bool is_tiktoken(std::string_view text);

/// SentencePiece's tokenizer.model, of type BPE, with its text unchanged but for spaces.
TokenizerSpec read_sentencepiece(std::string_view bytes, const std::string& name);
bool is_sentencepiece(std::string_view bytes);

/// llama2.c's tokenizer.bin: a SentencePiece vocabulary as (score, length, bytes).
TokenizerSpec read_llama2c(std::string_view bytes, const std::string& name);

}  // namespace lamina::text
