#include "lamina/text/read_json.h"

#include <algorithm>
#include <map>

#include "lamina/base/error.h"
#include "lamina/text/byte_alphabet.h"
#include "lamina/text/vocabulary.h"

namespace lamina::text {
namespace {

constexpr int64_t kMostIds = int64_t{1} << 24;

/// The byte of "<0x0A>", or −1.
int byte_of(const std::string& token) {
  if (token.size() != 6 || !token.starts_with("<0x") || token[5] != '>') return -1;
  const auto digit = [](char c) { return c >= '0' && c <= '9' ? c - '0' : c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1; };
  const int high = digit(token[3]);
  const int low = digit(token[4]);
  return high < 0 || low < 0 ? -1 : high * 16 + low;
}

VocabEntry entry_of(const std::string& token, const TokenizerSpec& spec) {
  if (spec.symbols == Symbols::bytes) {
    if (const auto bytes = from_byte_alphabet(token)) return {VocabEntry::Kind::ordinary, *bytes};
    return {VocabEntry::Kind::opaque, token};
  }
  const int byte = spec.byte_fallback ? byte_of(token) : -1;
  if (byte >= 0) return {VocabEntry::Kind::byte, std::string(1, static_cast<char>(byte))};
  return {VocabEntry::Kind::ordinary, token};
}

void read_model(const json& tree, const JsonLists& lists, TokenizerSpec& spec, const std::string& name) {
  const auto found = tree.find("model");
  LAMINA_CHECK(found != tree.end() && found->is_object(), name, ": has no \"model\"; expected a tokenizer.json");
  const json& model = *found;
  const std::string type = value_or(model, "type", std::string("BPE"), name);
  LAMINA_CHECK(type == "BPE", name, ": the model's type is \"", type, "\"; only \"BPE\" is understood");
  check_keys(model,
             {"type", "dropout", "unk_token", "continuing_subword_prefix", "end_of_word_suffix", "fuse_unk",
              "byte_fallback", "ignore_merges", "vocab", "merges"},
             name + ": model");
  LAMINA_CHECK(value_or(model, "dropout", 0.0, name) == 0.0, name,
               ": model.dropout leaves merges out at random, which is for training other models; set it to null");
  for (const char* key : {"continuing_subword_prefix", "end_of_word_suffix"}) {
    const std::string text = value_or(model, key, std::string(), name);
    LAMINA_CHECK(text.empty(), name, ": model.", key, " is \"", text, "\", which is not understood");
  }
  spec.byte_fallback = value_or(model, "byte_fallback", false, name);
  spec.fuse_unknown = value_or(model, "fuse_unk", false, name);
  spec.ignore_merges = value_or(model, "ignore_merges", false, name);
  add_lists(spec, lists, name);
  const std::string unknown = value_or(model, "unk_token", std::string(), name);
  if (!unknown.empty()) {
    const auto entry = std::ranges::find(lists.vocab, unknown, &std::pair<std::string, int64_t>::first);
    LAMINA_CHECK(entry != lists.vocab.end(), name, ": model.unk_token \"", unknown, "\" is not in the vocabulary");
    spec.unknown = static_cast<TokenId>(entry->second);
  }
}

void read_added(const json& list, TokenizerSpec& spec, const std::string& name) {
  LAMINA_CHECK(list.is_array(), name, ": added_tokens is no list");
  for (const json& node : list) {
    LAMINA_CHECK(node.is_object(), name, ": added_tokens: expected objects");
    const std::string where = name + ": added_tokens";
    check_keys(node, {"id", "content", "single_word", "lstrip", "rstrip", "normalized", "special"}, where);
    AddedToken token;
    token.content = value_or(node, "content", std::string(), where);
    LAMINA_CHECK(!token.content.empty(), where, ": a token without content");
    token.id = checked_id(value_or(node, "id", int64_t{-1}, where), token.content, name);
    LAMINA_CHECK(!value_or(node, "single_word", false, where), where, ": \"", token.content,
                 "\" has single_word, which is not understood");
    token.lstrip = value_or(node, "lstrip", false, where);
    token.rstrip = value_or(node, "rstrip", false, where);
    token.special = value_or(node, "special", false, where);
    // Special tokens are never looked for in normalised text unless the file says so; without a normaliser it is one.
    token.normalized = value_or(node, "normalized", !token.special, where) && !spec.normalizers.empty();
    add_token(spec, std::move(token));
  }
}

}  // namespace

TokenId checked_id(int64_t id, const std::string& token, const std::string& name) {
  LAMINA_CHECK(id >= 0 && id < kMostIds, name, ": the token \"", token, "\" has the id ", id, ", expected 0 to ",
               kMostIds - 1);
  return static_cast<TokenId>(id);
}

void add_lists(TokenizerSpec& spec, const JsonLists& lists, const std::string& name) {
  int64_t greatest = -1;
  for (const auto& [token, id] : lists.vocab) greatest = std::max<int64_t>(greatest, checked_id(id, token, name));
  LAMINA_CHECK(greatest < 64 * static_cast<int64_t>(lists.vocab.size()) + 1024, name, ": the vocabulary has ",
               lists.vocab.size(), " tokens, but ids up to ", greatest);
  spec.vocab.resize(static_cast<size_t>(greatest + 1));
  Vocabulary ids(lists.vocab.size());
  for (const auto& [token, id] : lists.vocab) {
    VocabEntry& entry = spec.vocab[static_cast<size_t>(id)];
    LAMINA_CHECK(entry.kind == VocabEntry::Kind::absent, name, ": two tokens have the id ", id, ", one is \"", token,
                 '"');
    LAMINA_CHECK(ids.add(token, static_cast<TokenId>(id)), name, ": the token \"", token, "\" is listed twice");
    entry = entry_of(token, spec);
  }
  spec.merges.reserve(lists.merges.size());
  for (const auto& [left, right] : lists.merges) {
    const MergeRule rule = {ids.find(left), ids.find(right), ids.find(left + right),
                            static_cast<int32_t>(spec.merges.size())};
    LAMINA_CHECK(rule.left >= 0 && rule.right >= 0 && rule.result >= 0, name, ": the merge of \"", left, "\" and \"",
                 right, "\" has a part or a result that is not in the vocabulary");
    spec.merges.push_back(rule);
  }
}

void add_token(TokenizerSpec& spec, AddedToken token) {
  const auto at = static_cast<size_t>(token.id);
  if (token.special && at < spec.vocab.size() && spec.vocab[at].kind != VocabEntry::Kind::absent) {
    spec.vocab[at] = {VocabEntry::Kind::opaque, token.content};
  }
  spec.added.push_back(std::move(token));
}

void guess_eos(TokenizerSpec& spec) {
  if (spec.eos) return;
  for (const char* name : {"<|endoftext|>", "</s>", "<eos>", "<|end_of_text|>", "<｜end▁of▁sentence｜>", "<EOT>"}) {
    for (const AddedToken& token : spec.added) {
      if (token.special && token.content == name) {
        spec.eos = token.id;
        return;
      }
    }
  }
}

TokenizerSpec read_json(std::string_view text, const std::string& name) {
  const JsonLists lists = take_lists(text, name);
  const json tree = parse_object(lists.rest, name);
  // Truncation and padding are settings of a call and no part of what tokens a text has.
  check_keys(tree,
             {"version", "truncation", "padding", "added_tokens", "normalizer", "pre_tokenizer", "post_processor",
              "decoder", "model"},
             name);
  const auto part = [&](const char* key) { return tree.value(key, json()); };
  TokenizerSpec spec;
  spec.symbols = Symbols::characters;  // unless the pre-tokenizer turns text into bytes
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
