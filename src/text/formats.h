#pragma once

#include <string>
#include <string_view>

#include "lamina/text/spec.h"

namespace lamina::text {

// Readers of vocabulary formats other than tokenizer.json. `name` is the file's name in messages.

/// GPT-2: a JSON object of tokens and ids (vocab.json, encoder.json), and lines with two tokens each (merges.txt,
/// vocab.bpe).
TokenizerSpec read_gpt2_files(std::string_view vocab, std::string_view merges, const std::string& name);

/// tiktoken: lines with a base64 token and its rank. The file contains neither the split pattern nor the special
/// tokens. `pattern` selects them (patterns.h). If it is empty, a known pattern name within `name` does.
TokenizerSpec read_tiktoken(std::string_view text, const std::string& pattern, const std::string& name);
bool is_tiktoken(std::string_view text);

/// BERT's vocab.txt: one WordPiece token per line. The options come from tokenizer_config.json.
struct BertVocabOptions {
  bool lowercase = true;
  std::optional<bool> strip_accents;  ///< unset: like `lowercase`
  bool space_cjk = true;
};
TokenizerSpec read_bert_vocab(std::string_view text, const std::string& name, const BertVocabOptions& options = {});
bool is_bert_vocab(std::string_view text);
/// Marks [PAD], [UNK], [CLS], [SEP] and [MASK] of a WordPiece vocabulary as special tokens.
void add_bert_specials(TokenizerSpec& spec, const std::string& name);

/// SentencePiece's tokenizer.model of type BPE (only with normalization of spaces) or Unigram.
TokenizerSpec read_sentencepiece(std::string_view bytes, const std::string& name);
bool is_sentencepiece(std::string_view bytes);

/// llama2.c's tokenizer.bin: a SentencePiece vocabulary as (score, length, bytes).
TokenizerSpec read_llama2c(std::string_view bytes, const std::string& name);

}  // namespace lamina::text
