#include "lamina/text/patterns.h"

#include "lamina/base/error.h"

namespace lamina::text {

namespace {

std::vector<AddedToken> llama3_specials() {
  std::vector<AddedToken> tokens;
  int reserved = 0;
  for (int i = 0; i < 256; ++i) {
    const auto name = [&]() -> std::string {
      switch (i) {
        case 0: return "<|begin_of_text|>";
        case 1: return "<|end_of_text|>";
        case 6: return "<|start_header_id|>";
        case 7: return "<|end_header_id|>";
        case 9: return "<|eot_id|>";
        default: return str("<|reserved_special_token_", reserved++, "|>");
      }
    };
    tokens.push_back({128000 + i, name()});
  }
  return tokens;
}

}  // namespace

const std::vector<Pattern>& patterns() {
  static const std::string contractions = R"((?i:'s|'t|'re|'ve|'m|'ll|'d))";
  static const std::string tail = R"(\s*[\r\n]+|\s+(?!\S)|\s+)";
  static const std::string gpt2 = R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";
  static const std::string cl100k =
      contractions + R"(|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|)" + tail;
  static const std::string one_digit =
      contractions + R"(|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|)" + tail;
  static const std::string o200k = R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+)" +
                                   contractions + "?" +
                                   R"(|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*)" +
                                   contractions + "?" + R"(|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|)" + tail;
  static const std::vector<Pattern> all = {
      {"gpt2", gpt2, {{50256, "<|endoftext|>"}}},
      {"r50k", gpt2, {{50256, "<|endoftext|>"}}},
      {"p50k", gpt2, {{50256, "<|endoftext|>"}}},
      {"cl100k",
       cl100k,
       {{100257, "<|endoftext|>"},
        {100258, "<|fim_prefix|>"},
        {100259, "<|fim_middle|>"},
        {100260, "<|fim_suffix|>"},
        {100276, "<|endofprompt|>"}}},
      {"llama3", cl100k, llama3_specials()},
      {"one-digit", one_digit, {}},
      {"o200k", o200k, {{199999, "<|endoftext|>"}, {200018, "<|endofprompt|>"}}},
  };
  return all;
}

const Pattern& pattern_named(const std::string& name) {
  std::vector<std::string> names;
  for (const Pattern& pattern : patterns()) {
    if (pattern.name == name) return pattern;
    names.push_back(pattern.name);
  }
  std::string list;
  for (const std::string& one : names) list += (list.empty() ? "" : ", ") + one;
  throw Error(str("there is no pattern named \"", name, "\"; known are ", list));
}

std::string name_of_pattern(const std::string& regex) {
  for (const Pattern& pattern : patterns()) {
    if (pattern.regex == regex) return pattern.name;
  }
  return "";
}

SplitStep white_space_split() { return {R"(\s+)", false, SplitStep::Behavior::removed, false}; }

bool is_white_space_split(const SplitStep& step) { return step == white_space_split(); }

std::vector<SplitStep> bert_splits() {
  // ASCII punctuation includes symbols that Unicode does not count as punctuation: $ + < = > ^ ` | ~
  return {white_space_split(), {R"([!-/:-@\[-`{-~]|\p{P})", false, SplitStep::Behavior::isolated, false}};
}

bool are_bert_splits(const std::vector<SplitStep>& steps) { return steps == bert_splits(); }

}  // namespace lamina::text
