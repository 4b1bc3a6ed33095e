#include "lamina/text/read_json.h"

#include <algorithm>

#include "lamina/base/error.h"
#include "lamina/text/normalize.h"
#include "lamina/text/spec_build.h"

namespace lamina::text {
namespace {

/// Sets the unknown token of a model, which the file gives by its text.
void read_unknown(const json& model, const JsonLists& lists, TokenizerSpec& spec, const std::string& name) {
  const std::string unknown = value_or(model, "unk_token", std::string(), name);
  if (unknown.empty()) return;
  const auto entry = std::ranges::find(lists.vocab, unknown, &std::pair<std::string, int64_t>::first);
  LAMINA_CHECK(entry != lists.vocab.end(), name, ": model.unk_token \"", unknown, "\" is not in the vocabulary");
  spec.unknown = static_cast<TokenId>(entry->second);
}

void read_bpe(const json& model, const JsonLists& lists, TokenizerSpec& spec, const std::string& name) {
  check_keys(model,
             {"type", "dropout", "unk_token", "continuing_subword_prefix", "end_of_word_suffix", "fuse_unk",
              "byte_fallback", "ignore_merges", "vocab", "merges"},
             name + ": model");
  LAMINA_CHECK(value_or(model, "dropout", 0.0, name) == 0.0, name,
               ": model.dropout leaves merges out at random, which is for training other models; set it to null");
  for (const char* key : {"continuing_subword_prefix", "end_of_word_suffix"}) {
    const std::string text = value_or(model, key, std::string(), name);
    LAMINA_CHECK(text.empty(), name, ": model.", key, " is \"", text, "\", which is not supported");
  }
  spec.byte_fallback = value_or(model, "byte_fallback", false, name);
  spec.fuse_unknown = value_or(model, "fuse_unk", false, name);
  spec.ignore_merges = value_or(model, "ignore_merges", false, name);
  add_lists(spec, lists, name);
  read_unknown(model, lists, spec, name);
}

void read_wordpiece(const json& model, const JsonLists& lists, TokenizerSpec& spec, const std::string& name) {
  check_keys(model, {"type", "unk_token", "continuing_subword_prefix", "max_input_chars_per_word", "vocab"},
             name + ": model");
  spec.algorithm = Algorithm::wordpiece;
  spec.continuation = value_or(model, "continuing_subword_prefix", std::string("##"), name);
  spec.longest_word = value_or(model, "max_input_chars_per_word", int64_t{100}, name);
  LAMINA_CHECK(spec.longest_word >= 0, name, ": model.max_input_chars_per_word is ", spec.longest_word,
               "; expected a count of characters");
  add_lists(spec, lists, name);
  read_unknown(model, lists, spec, name);
}

void read_unigram(const json& model, const JsonLists& lists, TokenizerSpec& spec, const std::string& name) {
  check_keys(model, {"type", "unk_id", "vocab", "byte_fallback"}, name + ": model");
  spec.algorithm = Algorithm::unigram;
  spec.fuse_unknown = true;
  spec.byte_fallback = value_or(model, "byte_fallback", false, name);
  add_scored(spec, lists.scored, name);
  const int64_t unknown = value_or(model, "unk_id", int64_t{-1}, name);
  LAMINA_CHECK(unknown < static_cast<int64_t>(spec.vocab.size()), name, ": model.unk_id is ", unknown,
               ", the vocabulary has ", spec.vocab.size(), " tokens");
  if (unknown >= 0) spec.unknown = static_cast<TokenId>(unknown);
}

void read_model(const json& tree, const JsonLists& lists, TokenizerSpec& spec, const std::string& name) {
  const auto found = tree.find("model");
  LAMINA_CHECK(found != tree.end() && found->is_object(), name, ": has no \"model\"; expected a tokenizer.json");
  const json& model = *found;
  // Old files omit the type. Only a Unigram model has scores, and only a BPE model has merges.
  const std::string guess = !lists.scored.empty()                        ? "Unigram"
                            : model.contains("max_input_chars_per_word") ? "WordPiece"
                                                                         : "BPE";
  const std::string type = value_or(model, "type", guess, name);
  LAMINA_CHECK(type == "BPE" || spec.symbols == Symbols::characters, name, ": a ", type,
               " model with a ByteLevel pre_tokenizer is not supported");
  if (type == "WordPiece") return read_wordpiece(model, lists, spec, name);
  if (type == "Unigram") return read_unigram(model, lists, spec, name);
  LAMINA_CHECK(type == "BPE", name, ": the model's type is \"", type,
               "\"; \"BPE\", \"WordPiece\" and \"Unigram\" are supported");
  read_bpe(model, lists, spec, name);
}

void read_added(const json& list, TokenizerSpec& spec, const std::string& name) {
  const Normalizer normalizer(spec.normalizers, name);
  LAMINA_CHECK(list.is_array(), name, ": added_tokens is not a list");
  for (const json& node : list) {
    LAMINA_CHECK(node.is_object(), name, ": added_tokens: expected objects");
    const std::string where = name + ": added_tokens";
    check_keys(node, {"id", "content", "single_word", "lstrip", "rstrip", "normalized", "special"}, where);
    AddedToken token;
    token.content = value_or(node, "content", std::string(), where);
    LAMINA_CHECK(!token.content.empty(), where, ": a token without content");
    token.id = checked_id(value_or(node, "id", int64_t{-1}, where), token.content, name);
    LAMINA_CHECK(!value_or(node, "single_word", false, where), where, ": \"", token.content,
                 "\" has single_word, which is not supported");
    token.lstrip = value_or(node, "lstrip", false, where);
    token.rstrip = value_or(node, "rstrip", false, where);
    token.special = value_or(node, "special", false, where);
    token.normalized = value_or(node, "normalized", !token.special, where);
    if (token.normalized) token.pattern = normalizer(token.content);
    add_token(spec, std::move(token));
  }
}

}  // namespace

TokenizerSpec read_json(std::string_view text, const std::string& name) {
  const JsonLists lists = take_lists(text, name);
  const json tree = parse_object(lists.rest, name);
  // Truncation and padding are settings of a call. They do not change the tokens of a text.
  check_keys(tree,
             {"version", "truncation", "padding", "added_tokens", "normalizer", "pre_tokenizer", "post_processor",
              "decoder", "model"},
             name);
  const auto part = [&](const char* key) { return tree.value(key, json()); };
  TokenizerSpec spec;
  spec.symbols = Symbols::characters;  // a ByteLevel pre-tokenizer changes this to bytes
  read_normalizer(part("normalizer"), spec, name);
  read_pre_tokenizer(part("pre_tokenizer"), spec, name);
  read_model(tree, lists, spec, name);
  if (const json added = part("added_tokens"); !added.is_null()) read_added(added, spec, name);
  read_decoder(part("decoder"), spec, name);
  read_post_processor(part("post_processor"), spec, name);
  guess_eos(spec);
  return spec;
}

}  // namespace lamina::text
