#include "lamina/text/patterns.h"
#include "lamina/text/pipeline.h"

namespace lamina::text {
namespace {

std::string joined(const std::string& list, const std::string& next) {
  return list.empty() ? next : list + ", " + next;
}

std::string text_of(const NormalizerStep& step) {
  switch (step.kind) {
    case NormalizerStep::Kind::prepend: return "\"" + step.content + "\" before the text";
    case NormalizerStep::Kind::replace: return "\"" + step.pattern + "\" becomes \"" + step.content + "\"";
    case NormalizerStep::Kind::nfc: return "NFC";
    case NormalizerStep::Kind::nfd: return "NFD";
    case NormalizerStep::Kind::nfkc: return "NFKC";
    default: return "NFKD";
  }
}

}  // namespace

Description Pipeline::describe() const {
  Description result;
  result.merges = static_cast<int64_t>(spec_.merges.size());
  const bool bytes = spec_.symbols == Symbols::bytes;
  result.kind = spec_.merges.empty() ? (bytes ? "bytes" : "characters")
                : bytes              ? "byte-level BPE"
                                     : "BPE of characters";
  if (spec_.byte_fallback) result.kind += " with byte fallback";
  for (const SplitStep& step : spec_.splits) {
    const std::string name = step.literal ? "\"" + step.pattern + "\"" : name_of_pattern(step.pattern);
    result.pattern = joined(result.pattern, name.empty() ? step.pattern : name);
  }
  for (const NormalizerStep& step : spec_.normalizers) result.normalizer = joined(result.normalizer, text_of(step));
  if (spec_.prefix.when != Prefix::When::never) {
    result.normalizer = joined(result.normalizer, "\"" + spec_.prefix.text + "\" before the text unless there");
  }
  return result;
}

}  // namespace lamina::text
