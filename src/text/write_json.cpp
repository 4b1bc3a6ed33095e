#include <nlohmann/json.hpp>

#include "lamina/base/error.h"
#include "lamina/text/base64.h"
#include "lamina/text/byte_alphabet.h"
#include "lamina/text/patterns.h"
#include "lamina/text/spec.h"

namespace lamina::text {
namespace {

using Json = nlohmann::ordered_json;

/// null for no steps, the step itself for one, a Sequence for several.
Json sequence(const char* list, const Json& steps) {
  if (steps.empty()) return nullptr;
  if (steps.size() == 1) return steps[0];
  return {{"type", "Sequence"}, {list, steps}};
}

Json pattern(const std::string& text, bool literal) { return {{literal ? "String" : "Regex", text}}; }

Json normalizer_step(const NormalizerStep& step) {
  using Kind = NormalizerStep::Kind;
  switch (step.kind) {
    case Kind::prepend: return {{"type", "Prepend"}, {"prepend", step.content}};
    case Kind::replace:
    case Kind::replace_regex:
      return {{"type", "Replace"},
              {"pattern", pattern(step.pattern, step.kind == Kind::replace)},
              {"content", step.content}};
    case Kind::nfc: return {{"type", "NFC"}};
    case Kind::nfd: return {{"type", "NFD"}};
    case Kind::nfkc: return {{"type", "NFKC"}};
    case Kind::nfkd: return {{"type", "NFKD"}};
    case Kind::bert:
      return {{"type", "BertNormalizer"},
              {"clean_text", step.clean_text},
              {"handle_chinese_chars", step.space_cjk},
              {"strip_accents", step.strip_accents},
              {"lowercase", step.lowercase}};
    case Kind::strip_accents: return {{"type", "StripAccents"}};
    case Kind::lowercase: return {{"type", "Lowercase"}};
    case Kind::strip: return {{"type", "Strip"}, {"strip_left", step.left}, {"strip_right", step.right}};
    case Kind::nmt: return {{"type", "Nmt"}};
    default: return {{"type", "Precompiled"}, {"precompiled_charsmap", to_base64(step.content)}};
  }
}

Json normalizer(const TokenizerSpec& spec) {
  Json steps = Json::array();
  for (const NormalizerStep& step : spec.normalizers) steps.push_back(normalizer_step(step));
  return sequence("normalizers", steps);
}

const char* behavior_name(SplitStep::Behavior behavior) {
  switch (behavior) {
    case SplitStep::Behavior::isolated: return "Isolated";
    case SplitStep::Behavior::removed: return "Removed";
    case SplitStep::Behavior::merged_with_previous: return "MergedWithPrevious";
    case SplitStep::Behavior::merged_with_next: return "MergedWithNext";
    default: return "Contiguous";
  }
}

Json split_step(const SplitStep& step) {
  if (is_white_space_split(step)) return {{"type", "WhitespaceSplit"}};
  return {{"type", "Split"},
          {"pattern", pattern(step.pattern, step.literal)},
          {"behavior", behavior_name(step.behavior)},
          {"invert", step.invert}};
}

/// A split at white space, then a prefix before every word.
Json prefixed_words(const TokenizerSpec& spec) {
  const bool inner = spec.splits.size() == 2;  // the second split is part of Metaspace
  return sequence(
      "pretokenizers",
      {{{"type", "WhitespaceSplit"}},
       {{"type", "Metaspace"}, {"replacement", spec.prefix.text}, {"prepend_scheme", "always"}, {"split", inner}}});
}

Json pre_tokenizer(const TokenizerSpec& spec) {
  if (are_bert_splits(spec.splits)) return {{"type", "BertPreTokenizer"}};
  if (spec.prefix.when == Prefix::When::every_piece) return prefixed_words(spec);
  Json steps = Json::array();
  const bool bytes = spec.symbols == Symbols::bytes;
  const bool prefixed = spec.prefix.when != Prefix::When::never;
  // A prefix before bytes is an option of ByteLevel. ByteLevel must then come first, and do the GPT-2 split itself.
  const bool own_split = bytes && spec.splits.size() == 1 && !spec.splits[0].literal &&
                         spec.splits[0].behavior == SplitStep::Behavior::isolated && !spec.splits[0].invert &&
                         spec.splits[0].pattern == pattern_named("gpt2").regex;
  if (!bytes && prefixed) {
    steps.push_back({{"type", "Metaspace"},
                     {"replacement", spec.prefix.text},
                     {"prepend_scheme", spec.prefix.when == Prefix::When::first ? "first" : "always"},
                     {"split", false}});
  }
  if (!own_split) {
    for (const SplitStep& step : spec.splits) steps.push_back(split_step(step));
  }
  if (bytes) {
    steps.push_back(
        {{"type", "ByteLevel"}, {"add_prefix_space", prefixed}, {"trim_offsets", true}, {"use_regex", own_split}});
  }
  return sequence("pretokenizers", steps);
}

Json decoder(const TokenizerSpec& spec) {
  if (spec.symbols == Symbols::bytes) {
    return {{"type", "ByteLevel"}, {"add_prefix_space", true}, {"trim_offsets", true}, {"use_regex", true}};
  }
  if (spec.algorithm == Algorithm::wordpiece) {
    return {{"type", "WordPiece"}, {"prefix", spec.continuation}, {"cleanup", spec.cleanup}};
  }
  Json steps = Json::array();
  if (!spec.space.empty()) {
    steps.push_back({{"type", "Replace"}, {"pattern", pattern(spec.space, true)}, {"content", " "}});
  }
  if (spec.byte_fallback) steps.push_back({{"type", "ByteFallback"}});
  steps.push_back({{"type", "Fuse"}});
  if (spec.strip_prefix) steps.push_back({{"type", "Strip"}, {"content", " "}, {"start", 1}, {"stop", 0}});
  return sequence("decoders", steps);
}

const AddedToken* added(const TokenizerSpec& spec, TokenId id) {
  for (const AddedToken& token : spec.added) {
    if (token.id == id) return &token;
  }
  return nullptr;
}

/// A template that adds bos before a text and, for encoders, eos after it. null if there is neither.
Json post_processor(const TokenizerSpec& spec) {
  const AddedToken* bos = spec.bos ? added(spec, *spec.bos) : nullptr;
  const AddedToken* eos = spec.appended ? added(spec, *spec.appended) : nullptr;
  if (bos == nullptr && eos == nullptr) return nullptr;
  Json single = Json::array();
  Json pair = Json::array();
  Json tokens = Json::object();
  const auto put = [&](Json& list, const AddedToken* token, int type) {
    if (token == nullptr) return;
    list.push_back({{"SpecialToken", {{"id", token->content}, {"type_id", type}}}});
    tokens[token->content] = {{"id", token->content}, {"ids", {token->id}}, {"tokens", {token->content}}};
  };
  const auto sequence_of = [](const char* id, int type) -> Json {
    return {{"Sequence", {{"id", id}, {"type_id", type}}}};
  };
  for (Json* list : {&single, &pair}) {
    put(*list, bos, 0);
    list->push_back(sequence_of("A", 0));
    put(*list, eos, 0);
  }
  pair.push_back(sequence_of("B", 1));
  put(pair, eos, 1);
  return {{"type", "TemplateProcessing"}, {"single", single}, {"pair", pair}, {"special_tokens", tokens}};
}

std::string listed(const VocabEntry& entry, Symbols symbols) {
  if (entry.kind == VocabEntry::Kind::byte) return name_of_byte(static_cast<unsigned char>(entry.bytes[0]));
  const bool mapped = symbols == Symbols::bytes && entry.kind == VocabEntry::Kind::ordinary;
  return mapped ? to_byte_alphabet(entry.bytes) : entry.bytes;
}

Json unigram_model(const TokenizerSpec& spec) {
  Json vocab = Json::array();
  for (size_t i = 0; i < spec.vocab.size(); ++i) {
    vocab.push_back(Json::array({listed(spec.vocab[i], spec.symbols), spec.scores[i]}));
  }
  Json unknown = nullptr;
  if (spec.unknown) unknown = *spec.unknown;
  return {{"type", "Unigram"}, {"unk_id", unknown}, {"vocab", std::move(vocab)}, {"byte_fallback", spec.byte_fallback}};
}

Json model(const TokenizerSpec& spec) {
  if (spec.algorithm == Algorithm::unigram) return unigram_model(spec);
  // Ordered, so that the file lists tokens by id. Uses push_back, because searching for each key would be quadratic.
  Json::object_t vocab;
  for (size_t i = 0; i < spec.vocab.size(); ++i) {
    if (spec.vocab[i].kind == VocabEntry::Kind::absent) continue;
    vocab.push_back({listed(spec.vocab[i], spec.symbols), i});
  }
  Json merges = Json::array();
  const auto name = [&](TokenId id) { return listed(spec.vocab[static_cast<size_t>(id)], spec.symbols); };
  for (const MergeRule& rule : spec.merges) merges.push_back(Json::array({name(rule.left), name(rule.right)}));
  Json unknown = nullptr;
  if (spec.unknown) unknown = listed(spec.vocab[static_cast<size_t>(*spec.unknown)], spec.symbols);
  if (spec.algorithm == Algorithm::wordpiece) {
    return {{"type", "WordPiece"},
            {"unk_token", unknown.is_null() ? Json("[UNK]") : unknown},
            {"continuing_subword_prefix", spec.continuation},
            {"max_input_chars_per_word", spec.longest_word},
            {"vocab", Json(std::move(vocab))}};
  }
  return {{"type", "BPE"},
          {"dropout", nullptr},
          {"unk_token", unknown},
          {"continuing_subword_prefix", nullptr},
          {"end_of_word_suffix", nullptr},
          {"fuse_unk", spec.fuse_unknown},
          {"byte_fallback", spec.byte_fallback},
          {"ignore_merges", spec.ignore_merges},
          {"vocab", Json(std::move(vocab))},
          {"merges", std::move(merges)}};
}

}  // namespace

std::string write_json(const TokenizerSpec& spec) {
  Json tokens = Json::array();
  for (const AddedToken& token : spec.added) {
    tokens.push_back({{"id", token.id},
                      {"content", token.content},
                      {"single_word", false},
                      {"lstrip", token.lstrip},
                      {"rstrip", token.rstrip},
                      {"normalized", token.normalized},
                      {"special", token.special}});
  }
  const Json whole = {{"version", "1.0"},
                      {"truncation", nullptr},
                      {"padding", nullptr},
                      {"added_tokens", tokens},
                      {"normalizer", normalizer(spec)},
                      {"pre_tokenizer", pre_tokenizer(spec)},
                      {"post_processor", post_processor(spec)},
                      {"decoder", decoder(spec)},
                      {"model", model(spec)}};
  try {
    return whole.dump(1) + "\n";
  } catch (const Json::exception&) {
    throw Error("a token of this vocabulary is not UTF-8, which a tokenizer.json cannot hold; keep its own file");
  }
}

}  // namespace lamina::text
