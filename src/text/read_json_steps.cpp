#include <functional>

#include "lamina/base/error.h"
#include "lamina/text/normalize.h"
#include "lamina/text/patterns.h"
#include "lamina/text/read_json.h"
#include "lamina/text/read_steps.h"

namespace lamina::text {
namespace {

SplitStep::Behavior behavior_of(const std::string& text, const std::string& name) {
  using Behavior = SplitStep::Behavior;
  if (text == "Isolated") return Behavior::isolated;
  if (text == "Removed") return Behavior::removed;
  if (text == "MergedWithPrevious") return Behavior::merged_with_previous;
  if (text == "MergedWithNext") return Behavior::merged_with_next;
  if (text == "Contiguous") return Behavior::contiguous;
  throw Error(str(name, ": the behavior \"", text, "\" is not supported"));
}

Prefix::When scheme_of(const json& node, const std::string& name) {
  const std::string scheme = value_or(node, "prepend_scheme", std::string(), name);
  if (scheme == "first") return Prefix::When::first;
  if (scheme == "never") return Prefix::When::never;
  if (scheme == "always") return Prefix::When::every_segment;
  LAMINA_CHECK(scheme.empty(), name, ": the prepend_scheme \"", scheme, "\" is not supported");
  return value_or(node, "add_prefix_space", true, name) ? Prefix::When::every_segment : Prefix::When::never;
}

void read_metaspace(const json& node, TokenizerSpec& spec, const std::string& name) {
  check_keys(node, {"type", "replacement", "str_rep", "add_prefix_space", "prepend_scheme", "split"}, name);
  // A split at white space leaves no spaces, so every word gets the prefix.
  const bool words = spec.splits.size() == 1 && is_white_space_split(spec.splits[0]);
  LAMINA_CHECK(spec.splits.empty() || words, name, ": Metaspace after another step is not supported");
  const std::string replacement = value_or(node, "replacement", std::string("▁"), name);
  LAMINA_CHECK(!replacement.empty(), name, ": Metaspace without a replacement");
  spec.prefix = {scheme_of(node, name), replacement};
  if (!words) {
    // A tokenizer.json that Lamina wrote already has this step among its normalizers. Adding it again would change the
    // JSON, and so the tokenizer's identity (data::tokenizer_hash), each time it is read and written.
    const NormalizerStep step{NormalizerStep::Kind::replace, " ", replacement};
    const bool is_there = !spec.normalizers.empty() && spec.normalizers.back().kind == step.kind &&
                          spec.normalizers.back().pattern == step.pattern &&
                          spec.normalizers.back().content == step.content;
    if (!is_there) spec.normalizers.push_back(step);
  } else if (spec.prefix.when != Prefix::When::never) {
    LAMINA_CHECK(spec.prefix.when == Prefix::When::every_segment, name,
                 ": Metaspace with prepend_scheme \"first\" after WhitespaceSplit is not supported");
    spec.prefix.when = Prefix::When::every_piece;
  }
  if (value_or(node, "split", true, name)) {
    spec.splits.push_back({replacement, true, SplitStep::Behavior::merged_with_next, false});
  }
}

void read_byte_level(const json& node, TokenizerSpec& spec, const std::string& name) {
  check_keys(node, {"type", "add_prefix_space", "trim_offsets", "use_regex"}, name);
  spec.symbols = Symbols::bytes;
  if (value_or(node, "add_prefix_space", true, name)) {
    LAMINA_CHECK(spec.splits.empty(), name, ": add_prefix_space after another step is not supported");
    spec.prefix = {Prefix::When::every_segment, " "};
  }
  if (value_or(node, "use_regex", true, name)) spec.splits.push_back({pattern_named("gpt2").regex});
}

void read_pre_tokenizer_step(const json& node, const std::string& type, TokenizerSpec& spec, const std::string& name) {
  LAMINA_CHECK(spec.symbols == Symbols::characters, name, ": \"", type, "\" after ByteLevel is not supported");
  if (type == "ByteLevel") {
    read_byte_level(node, spec, name);
  } else if (type == "Metaspace") {
    read_metaspace(node, spec, name);
  } else if (type == "BertPreTokenizer") {
    for (const SplitStep& split : bert_splits()) spec.splits.push_back(split);
  } else if (type == "WhitespaceSplit") {
    spec.splits.push_back(white_space_split());
  } else if (type == "Digits") {
    check_keys(node, {"type", "individual_digits"}, name);
    spec.splits.push_back({value_or(node, "individual_digits", false, name) ? R"(\p{N})" : R"(\p{N}+)"});
  } else if (type == "Split") {
    check_keys(node, {"type", "pattern", "behavior", "invert"}, name);
    const StepPattern pattern = pattern_of(node, name);
    spec.splits.push_back({pattern.text, pattern.literal,
                           behavior_of(value_or(node, "behavior", std::string(), name), name),
                           value_or(node, "invert", false, name)});
  } else {
    not_understood(name, type);
  }
}

}  // namespace

void read_pre_tokenizer(const json& node, TokenizerSpec& spec, const std::string& name) {
  const std::string where = name + ": pre_tokenizer";
  for_each_step(node, "pretokenizers", where,
                [&](const json& step, const std::string& type) { read_pre_tokenizer_step(step, type, spec, where); });
}

void read_decoder(const json& node, TokenizerSpec& spec, const std::string& name) {
  const std::string where = name + ": decoder";
  for_each_step(node, "decoders", where, [&](const json& step, const std::string& type) {
    if (type == "ByteLevel") {
      LAMINA_CHECK(spec.symbols == Symbols::bytes, where, ": ByteLevel, but no pre_tokenizer makes bytes of the text");
    } else if (type == "Replace") {
      const StepPattern pattern = pattern_of(step, where);
      LAMINA_CHECK(pattern.literal && value_or(step, "content", std::string(), where) == " ", where,
                   ": a Replace by something else than a space is not supported");
      spec.space = pattern.text;
    } else if (type == "Metaspace") {
      spec.space = value_or(step, "replacement", std::string("▁"), where);
      spec.strip_prefix = scheme_of(step, where) != Prefix::When::never;
    } else if (type == "WordPiece") {
      LAMINA_CHECK(spec.algorithm == Algorithm::wordpiece &&
                       value_or(step, "prefix", std::string("##"), where) == spec.continuation,
                   where, ": WordPiece, but the model is none or marks continued words otherwise");
      spec.cleanup = value_or(step, "cleanup", true, where);
    } else if (type == "Strip") {
      const int64_t start = value_or(step, "start", int64_t{0}, where);
      LAMINA_CHECK(value_or(step, "content", std::string(" "), where) == " " && (start == 0 || start == 1) &&
                       value_or(step, "stop", int64_t{0}, where) == 0,
                   where, ": a Strip of anything but one leading space is not supported");
      spec.strip_prefix = start == 1;
    } else {
      LAMINA_CHECK(type == "Fuse" || type == "ByteFallback", where, ": the type \"", type, "\" is not supported");
    }
  });
}

void read_post_processor(const json& node, TokenizerSpec& spec, const std::string& name) {
  const std::string where = name + ": post_processor";
  const auto id_of = [&](const json& entry) -> std::optional<TokenId> {
    if (!entry.is_string()) return {};
    for (const AddedToken& token : spec.added) {
      if (token.content == entry.get_ref<const std::string&>()) return token.id;
    }
    return {};
  };
  for_each_step(node, "processors", where, [&](const json& step, const std::string& type) {
    if (type == "TemplateProcessing") {
      bool before = true;
      const json parts = step.value("single", json::array());
      LAMINA_CHECK(parts.is_array(), where, ": TemplateProcessing without a list \"single\"");
      for (const json& part : parts) {
        if (part.is_object() && part.contains("Sequence")) before = false;
        if (!part.is_object() || !part.contains("SpecialToken") || !part["SpecialToken"].is_object()) continue;
        std::optional<TokenId>& slot = before ? spec.bos : spec.eos;
        slot = id_of(part["SpecialToken"].value("id", json()));
        if (!before) spec.appended = slot;
      }
    } else if (type == "RobertaProcessing" || type == "BertProcessing") {
      const auto first = [&](const char* key) {
        const json pair = step.value(key, json());
        return pair.is_array() && !pair.empty() ? id_of(pair[0]) : std::nullopt;
      };
      spec.bos = first("cls");
      spec.eos = first("sep");
      spec.appended = spec.eos;
    } else {
      LAMINA_CHECK(type == "ByteLevel", where, ": the type \"", type, "\" is not supported");
    }
  });
}

}  // namespace lamina::text
