// Reads any bytes as tokenizer.json, SentencePiece model, tiktoken ranks and BERT's vocab.txt: gives a tokenizer or an
// Error. Encodes any bytes as text: tokenizers that cover every byte decode to the same bytes. Trains on any bytes.
#include <cstdint>
#include <memory>
#include <string>

#include "lamina/base/error.h"
#include "lamina/text/formats.h"
#include "lamina/text/load.h"
#include "lamina/text/simple.h"
#include "lamina/text/stream_decoder.h"
#include "lamina/text/train_bpe.h"
#include "lamina/text/train_unigram.h"
#include "lamina/text/train_wordpiece.h"

namespace {

using lamina::text::Tokenizer;

const std::unique_ptr<Tokenizer>& trained(const char* pattern) {
  static const std::string corpus =
      "it's the cat and the hat, and that's that. 12 123 1234\n\n  déjà vu déjà\r\n 漢字 漢字";
  static const auto make = [](const char* name) {
    return lamina::text::train_bpe({corpus, corpus}, {300, name, {"<|endoftext|>"}, {}});
  };
  static const std::unique_ptr<Tokenizer> gpt2 = make("gpt2");
  static const std::unique_ptr<Tokenizer> cl100k = make("cl100k");
  return pattern[0] == 'g' ? gpt2 : cl100k;
}

void check_identity(const Tokenizer& tokenizer, const std::string& text) {
  std::vector<lamina::text::TokenId> ids;
  for (const bool special : {false, true}) {
    ids.clear();
    tokenizer.encode(text, ids, special);
    if (tokenizer.decode(ids) != text) __builtin_trap();
    lamina::text::StreamDecoder decoder(tokenizer, true);
    std::string streamed;
    for (const auto id : ids) streamed += decoder.push(id);
    if (streamed + decoder.finish() != text) __builtin_trap();
  }
}

const std::unique_ptr<Tokenizer>& trained_subwords(bool unigram) {
  static const std::string corpus =
      "the cat and the hat, and that's that. déjà vu déjà 漢字 漢字 unhappy happy happiness";
  static const std::unique_ptr<Tokenizer> words = lamina::text::train_wordpiece({corpus}, {.vocab_size = 120});
  static const std::unique_ptr<Tokenizer> pieces =
      lamina::text::train_unigram({corpus}, {.vocab_size = 320, .byte_fallback = true});
  return unigram ? pieces : words;
}

/// Every id is in the vocabulary, and streamed text equals decoded text. With byte fallback nothing is unknown.
void check_subwords(const Tokenizer& tokenizer, const std::string& text, bool covers_all) {
  for (const bool special : {false, true}) {
    std::vector<lamina::text::TokenId> ids;
    lamina::text::UnknownCharacters unknown;
    tokenizer.encode(text, ids, special, &unknown);
    if (covers_all && unknown.total() > 0) __builtin_trap();
    lamina::text::StreamDecoder decoder(tokenizer, true);
    std::string streamed;
    for (const auto id : ids) streamed += decoder.push(id);
    if (streamed + decoder.finish() != tokenizer.decode(ids)) __builtin_trap();
  }
}

template <class F>
void read_with(const F& read, const std::string& text) {
  try {
    const auto tokenizer = read();
    const std::vector<lamina::text::TokenId> ids = tokenizer->encode(text);
    (void)tokenizer->decode(ids);
    (void)lamina::text::parse_tokenizer(tokenizer->to_json(), "written");
  } catch (const lamina::Error&) {
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string text(reinterpret_cast<const char*>(data), size);
  check_identity(*trained("gpt2"), text);
  check_identity(*trained("cl100k"), text);
  read_with([&] { return lamina::text::parse_tokenizer(text, "fuzz"); }, text);
  read_with([&] { return make_tokenizer(lamina::text::read_sentencepiece(text, "fuzz"), "fuzz"); }, text);
  read_with([&] { return make_tokenizer(lamina::text::read_tiktoken(text, "cl100k", "fuzz"), "fuzz"); }, text);
  read_with([&] { return make_tokenizer(lamina::text::read_bert_vocab(text, "fuzz"), "fuzz"); }, text);
  check_subwords(*trained_subwords(false), text, false);
  check_subwords(*trained_subwords(true), text, true);
  if (size > 512) return 0;
  read_with([&] { return lamina::text::train_wordpiece({text}, {.vocab_size = 60}); }, text);
  read_with([&] { return lamina::text::train_unigram({text}, {.vocab_size = 60}); }, text);
  return 0;
}
