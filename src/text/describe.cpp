#include "lamina/text/patterns.h"
#include "lamina/text/pipeline.h"

namespace lamina::text {
namespace {

std::string joined(const std::string& list, const std::string& next) {
  return list.empty() ? next : list + ", " + next;
}

std::string text_of(const NormalizerStep& step) {
  using Kind = NormalizerStep::Kind;
  switch (step.kind) {
    case Kind::prepend: return "\"" + step.content + "\" before the text";
    case Kind::replace: return "\"" + step.pattern + "\" becomes \"" + step.content + "\"";
    case Kind::replace_regex: return "/" + step.pattern + "/ becomes \"" + step.content + "\"";
    case Kind::nfc: return "NFC";
    case Kind::nfd: return "NFD";
    case Kind::nfkc: return "NFKC";
    case Kind::nfkd: return "NFKD";
    case Kind::strip_accents: return "without accents";
    case Kind::lowercase: return "lower case";
    case Kind::strip: return "white space stripped";
    case Kind::nmt: return "nmt";
    case Kind::bert: break;
    default: return "precompiled map";
  }
  std::string text;
  if (step.clean_text) text = joined(text, "control characters removed");
  if (step.space_cjk) text = joined(text, "spaces around CJK");
  if (step.strip_accents) text = joined(text, "without accents");
  if (step.lowercase) text = joined(text, "lower case");
  return text;
}

}  // namespace

Description Pipeline::describe() const {
  Description result;
  result.merges = static_cast<int64_t>(spec_.merges.size());
  const bool bytes = spec_.symbols == Symbols::bytes;
  result.kind = spec_.merges.empty() ? (bytes ? "bytes" : "characters")
                : bytes              ? "byte-level BPE"
                                     : "BPE of characters";
  if (spec_.algorithm == Algorithm::wordpiece) result.kind = "WordPiece";
  if (spec_.algorithm == Algorithm::unigram) result.kind = "Unigram";
  if (spec_.byte_fallback) result.kind += " with byte fallback";
  if (are_bert_splits(spec_.splits)) result.pattern = "words and punctuation";
  for (const SplitStep& step : spec_.splits) {
    if (!result.pattern.empty() && are_bert_splits(spec_.splits)) break;
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
