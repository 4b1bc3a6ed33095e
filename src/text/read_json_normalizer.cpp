#include "lamina/base/error.h"
#include "lamina/text/base64.h"
#include "lamina/text/charsmap.h"
#include "lamina/text/normalize.h"
#include "lamina/text/read_json.h"
#include "lamina/text/read_steps.h"

namespace lamina::text {
namespace {

using StepKind = NormalizerStep::Kind;

NormalizerStep bert_step(const json& step, const std::string& name) {
  check_keys(step, {"type", "clean_text", "handle_chinese_chars", "strip_accents", "lowercase"}, name);
  NormalizerStep made{StepKind::bert};
  made.clean_text = value_or(step, "clean_text", true, name);
  made.space_cjk = value_or(step, "handle_chinese_chars", true, name);
  made.lowercase = value_or(step, "lowercase", true, name);
  made.strip_accents = value_or(step, "strip_accents", made.lowercase, name);
  return made;
}

NormalizerStep charsmap_step(const json& step, const std::string& name) {
  check_keys(step, {"type", "precompiled_charsmap"}, name);
  const auto bytes = from_base64(value_or(step, "precompiled_charsmap", std::string(), name));
  LAMINA_CHECK(bytes, name, ": precompiled_charsmap is not base64");
  Charsmap(*bytes, name);
  return {StepKind::charsmap_graphemes, "", *bytes};
}

NormalizerStep replace_step(const json& step, const std::string& name) {
  const StepPattern pattern = pattern_of(step, name);
  const std::string content = value_or(step, "content", std::string(), name);
  LAMINA_CHECK(pattern.literal || content.find('$') == std::string::npos, name, ": a Replace of an expression by \"",
               content, "\" could refer to groups, which is not supported");
  return {pattern.literal ? StepKind::replace : StepKind::replace_regex, pattern.text, content};
}

NormalizerStep normalizer_step(const json& step, const std::string& type, const std::string& name) {
  if (type == "Prepend") return {StepKind::prepend, "", value_or(step, "prepend", std::string(), name)};
  if (type == "Replace") return replace_step(step, name);
  if (type == "NFC") return {StepKind::nfc};
  if (type == "NFD") return {StepKind::nfd};
  if (type == "NFKC") return {StepKind::nfkc};
  if (type == "NFKD") return {StepKind::nfkd};
  if (type == "BertNormalizer") return bert_step(step, name);
  if (type == "StripAccents") return {StepKind::strip_accents};
  if (type == "Lowercase") return {StepKind::lowercase};
  if (type == "Nmt") return {StepKind::nmt};
  if (type == "Precompiled") return charsmap_step(step, name);
  if (type == "Strip") {
    check_keys(step, {"type", "strip_left", "strip_right"}, name);
    NormalizerStep made{StepKind::strip};
    made.left = value_or(step, "strip_left", true, name);
    made.right = value_or(step, "strip_right", true, name);
    return made;
  }
  not_understood(name, type);
}

}  // namespace

void for_each_step(const json& node, const char* list, const std::string& name,
                   const std::function<void(const json&, const std::string& type)>& body) {
  if (node.is_null()) return;
  LAMINA_CHECK(node.is_object(), name, ": expected an object or null");
  const std::string type = value_or(node, "type", std::string(), name);
  if (type != "Sequence") {
    body(node, type);
    return;
  }
  const auto steps = node.find(list);
  LAMINA_CHECK(steps != node.end() && steps->is_array(), name, ": a Sequence without \"", list, '"');
  for (const json& step : *steps) {
    LAMINA_CHECK(step.is_object(), name, ": a Sequence holds something else than objects");
    const std::string inner = value_or(step, "type", std::string(), name);
    LAMINA_CHECK(inner != "Sequence", name, ": a Sequence within a Sequence is not supported");
    body(step, inner);
  }
}

void not_understood(const std::string& name, const std::string& type) {
  throw Error(str(name, ": the type \"", type, "\" is not supported, and it could change the tokens"));
}

StepPattern pattern_of(const json& node, const std::string& name) {
  const json pattern = node.value("pattern", json());
  LAMINA_CHECK(pattern.is_object() && pattern.size() == 1 && pattern.begin()->is_string() &&
                   (pattern.contains("String") || pattern.contains("Regex")),
               name, ": expected a pattern {\"String\": …} or {\"Regex\": …}");
  const std::string text = pattern.begin()->get<std::string>();
  LAMINA_CHECK(!text.empty(), name, ": the pattern is empty");
  return {text, pattern.contains("String")};
}

void read_normalizer(const json& node, TokenizerSpec& spec, const std::string& name) {
  const std::string where = name + ": normalizer";
  for_each_step(node, "normalizers", where, [&](const json& step, const std::string& type) {
    spec.normalizers.push_back(normalizer_step(step, type, where));
  });
  LAMINA_CHECK(spec.normalizers.size() <= kMaxNormalizers, where, ": has ", spec.normalizers.size(),
               " steps, expected at most ", kMaxNormalizers);
}

}  // namespace lamina::text
