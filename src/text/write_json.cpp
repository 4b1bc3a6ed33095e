#include <nlohmann/json.hpp>

#include "lamina/base/error.h"
#include "lamina/text/byte_alphabet.h"
#include "lamina/text/patterns.h"
#include "lamina/text/spec.h"

namespace lamina::text {
namespace {

using Json = nlohmann::ordered_json;

/// null for no step, the step itself for one, a Sequence for several.
Json sequence(const char* list, const Json& steps) {
  if (steps.empty()) return nullptr;
  if (steps.size() == 1) return steps[0];
  return {{"type", "Sequence"}, {list, steps}};
}

Json pattern(const std::string& text, bool literal) { return {{literal ? "String" : "Regex", text}}; }

Json normalizer(const TokenizerSpec& spec) {
  Json steps = Json::array();
  for (const NormalizerStep& step : spec.normalizers) {
    switch (step.kind) {
      case NormalizerStep::Kind::prepend: steps.push_back({{"type", "Prepend"}, {"prepend", step.content}}); break;
      case NormalizerStep::Kind::replace:
        steps.push_back({{"type", "Replace"}, {"pattern", pattern(step.pattern, true)}, {"content", step.content}});
        break;
      case NormalizerStep::Kind::nfc: steps.push_back({{"type", "NFC"}}); break;
      case NormalizerStep::Kind::nfd: steps.push_back({{"type", "NFD"}}); break;
      case NormalizerStep::Kind::nfkc: steps.push_back({{"type", "NFKC"}}); break;
      case NormalizerStep::Kind::nfkd: steps.push_back({{"type", "NFKD"}}); break;
    }
  }
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

Json pre_tokenizer(const TokenizerSpec& spec) {
  Json steps = Json::array();
  const bool bytes = spec.symbols == Symbols::bytes;
  const bool prefixed = spec.prefix.when != Prefix::When::never;
  // A prefix before bytes belongs to ByteLevel. It must then come first and do the GPT-2 split itself.
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
    for (const SplitStep& step : spec.splits) {
      steps.push_back({{"type", "Split"},
                       {"pattern", pattern(step.pattern, step.literal)},
                       {"behavior", behavior_name(step.behavior)},
                       {"invert", step.invert}});
    }
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

Json post_processor(const TokenizerSpec& spec) {
  const AddedToken* bos = spec.bos ? added(spec, *spec.bos) : nullptr;
  if (bos == nullptr) return nullptr;
  const Json token = {{"SpecialToken", {{"id", bos->content}, {"type_id", 0}}}};
  const Json a = {{"Sequence", {{"id", "A"}, {"type_id", 0}}}};
  const Json b = {{"Sequence", {{"id", "B"}, {"type_id", 1}}}};
  return {{"type", "TemplateProcessing"},
          {"single", {token, a}},
          {"pair", {token, a, b}},
          {"special_tokens", {{bos->content, {{"id", bos->content}, {"ids", {bos->id}}, {"tokens", {bos->content}}}}}}};
}

std::string listed(const VocabEntry& entry, Symbols symbols) {
  if (entry.kind == VocabEntry::Kind::byte) return name_of_byte(static_cast<unsigned char>(entry.bytes[0]));
  const bool mapped = symbols == Symbols::bytes && entry.kind == VocabEntry::Kind::ordinary;
  return mapped ? to_byte_alphabet(entry.bytes) : entry.bytes;
}

Json model(const TokenizerSpec& spec) {
  // Ordered, so that the file lists tokens by id. push_back, because a search for the key would be quadratic.
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
