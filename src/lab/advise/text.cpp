#include <cstdio>
#include <nlohmann/json.hpp>

#include "lamina/arch/edit.h"
#include "lamina/base/error.h"
#include "lamina/lab/advise/advise.h"
#include "lamina/lab/advise/guide.h"

namespace lamina::lab {
namespace {

using arch::Json;

double cache_bytes(const Recommendation& advised) {
  double numbers = 0;
  for (const arch::CacheRow& row : advised.plan.cache) numbers += row.at(advised.plan.options.length);
  return numbers * advised.plan.options.bytes_per_number;
}

/// Quotes a text for a shell if it contains characters that may be special.
std::string quoted(const std::string& text) {
  const bool plain = text.find_first_not_of("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._=-/+") ==
                     std::string::npos;
  return plain ? text : "'" + text + "'";
}

std::string sets(const Recommendation& advised, const std::string& below) {
  std::string text;
  for (const std::string& assignment : advised.assignments) text += str(" \\\n  --set ", quoted(below + assignment));
  return text;
}

std::string plan_command(const Recommendation& advised) {
  const std::string what = advised.file.empty() ? advised.base + sets(advised, "") + " \\\n " : quoted(advised.file);
  return str("lamina plan ", what, " --length ", advised.question.context, " --batch ", advised.batch);
}

/// A tokenizer with the advised vocabulary: the user's, or one that training builds from the text.
std::string tokenizer_of(const Recommendation& advised) {
  if (advised.question.vocabulary) return "YOUR-TOKENIZER.json";
  constexpr int64_t kBytes = 256;
  const int64_t vocabulary = advised.plan.spec.vocab_size;
  return vocabulary == kBytes ? "byte" : str("bpe:", vocabulary);
}

/// A command that trains exactly the advised architecture. A tokenizer with fewer tokens does not shrink its
/// vocabulary.
std::string train_command(const Recommendation& advised) {
  const std::string what = advised.file.empty() ? advised.base + sets(advised, "architecture.") : quoted(advised.file);
  return str("lamina train ", advised.recipe, " --data YOUR.txt --set data.tokenizer=", tokenizer_of(advised),
             " --set data.fit_vocab=false --set length=", advised.question.context, " --set batch=", advised.batch,
             " \\\n  --set architecture=", what);
}

/// The parts of a text between which a line may be broken: words, and single Chinese characters, which are two columns
/// wide. Punctuation stays with the character before it.
std::vector<std::string> breakable_parts(const std::string& text) {
  static const std::string kStays = "，。；：、）》”";
  std::vector<std::string> parts{""};
  for (size_t i = 0; i < text.size();) {
    const auto byte = static_cast<unsigned char>(text[i]);
    const size_t length = byte < 0x80 ? 1 : byte < 0xE0 ? 2 : byte < 0xF0 ? 3 : 4;
    const std::string character = text.substr(i, length);
    const bool wide = length >= 3 && byte >= 0xE3;
    if (wide && !parts.back().empty() && kStays.find(character) == std::string::npos) parts.emplace_back();
    parts.back() += character;
    i += length;
    if (character == " " || (wide && i < text.size() && kStays.find(text.substr(i, 3)) == std::string::npos)) {
      parts.emplace_back();
    }
  }
  return parts;
}

size_t columns_of_text(const std::string& text) {
  size_t columns = 0;
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if ((byte & 0xC0U) != 0x80U) columns += byte >= 0xE3 ? 2 : 1;
  }
  return columns;
}

/// Wraps text to 100 columns, each line starting with `indent`.
std::string wrapped(const std::string& text, const std::string& indent) {
  std::string result;
  std::string line;
  const auto end_line = [&] {
    result += indent + line.substr(0, line.find_last_not_of(' ') + 1) + "\n";
    line.clear();
  };
  for (const std::string& part : breakable_parts(text)) {
    const size_t width = columns_of_text(part) - (part.ends_with(' ') ? 1 : 0);
    if (!line.empty() && columns_of_text(line) + width > 100) end_line();
    line += part;
  }
  end_line();
  return result;
}

std::string reasons(const Recommendation& advised) {
  const Words& words = words_of(advised.question.language);
  const std::string colon = words("colon");
  std::string text = words("advise.why") + "\n";
  for (const Reason& reason : advised.reasons) {
    text += wrapped(str(reason.advice, " [", words("advise." + reason.how_sure()), "]"), "  ");
    text += wrapped(reason.reason, "      ");
    for (const Evidence& each : reason.evidence) {
      const std::string where = each.where.empty() ? "" : each.where + colon;
      const std::string verdict =
          each.verdict.empty() ? "" : words.or_else("verdict." + each.verdict, each.verdict) + colon;
      text += wrapped(str(words("advise." + each.kind), colon, where, verdict, each.text), "      ");
    }
  }
  return text;
}

std::string figures(const Recommendation& advised) {
  const arch::Plan& plan = advised.plan;
  const Words& words = words_of(advised.question.language);
  const std::string length = arch::with_commas(plan.options.length);
  const auto line = [](const std::string& name, const std::string& value) {
    constexpr size_t kColumn = 34;
    const size_t width = columns_of_text(name);
    return str("  ", name, std::string(width < kColumn ? kColumn - width : 0, ' '), " ", value, "\n");
  };
  return words("advise.costs") + "\n" + line(words("advise.parameters"), arch::with_commas(plan.parameters.total)) +
         line(words("advise.forward", {{"length", length}}), arch::short_number(plan.flops.forward()) + "FLOP") +
         line(words("advise.cache", {{"length", length}}), arch::short_bytes(cache_bytes(advised))) +
         line(advised.question.generate ? words("advise.memory_generate")
                                        : words("advise.memory_train", {{"batch", str(advised.batch)}}),
              arch::short_bytes(advised.memory_needed));
}

/// Translates a finding of `lamina plan` to the guide's language.
std::string written_found(const Guide& guide, std::string found) {
  for (const auto& [english, translated] : guide.found) {
    for (size_t at = found.find(english); at != std::string::npos; at = found.find(english, at + translated.size())) {
      found.replace(at, english.size(), translated);
    }
  }
  return found;
}

/// Remarks of `lamina plan` about values outside their usual range.
std::string looks(const Recommendation& advised) {
  const Guide& guide_here = guide(advised.question.language);
  const Words& words = words_of(advised.question.language);
  const auto& translated = guide_here.plan;
  std::string text;
  for (const arch::Advice& advice : advised.plan.advice) {
    if (advice.verdict != arch::Advice::Verdict::look) continue;
    const auto found = translated.find(advice.subject);
    const std::string subject = found == translated.end() ? advice.subject : found->second.first;
    const std::string reason = found == translated.end() ? advice.reason : found->second.second;
    text += wrapped(str(subject, words("colon"), written_found(guide_here, advice.found), words("semicolon"), reason),
                    "  ");
  }
  return text.empty() ? "" : "\n" + words("advise.unusual") + "\n" + text;
}

Json reason_json(const Reason& reason) {
  Json evidence = Json::array();
  for (const Evidence& each : reason.evidence) {
    evidence.push_back({{"kind", each.kind}, {"where", each.where}, {"verdict", each.verdict}, {"text", each.text}});
  }
  return {{"subject", reason.subject},
          {"advice", reason.advice},
          {"reason", reason.reason},
          {"how_sure", reason.how_sure()},
          {"evidence", evidence}};
}

}  // namespace

std::string Recommendation::architecture_file() const {
  Json set = Json::object();
  for (const std::string& assignment : assignments) {
    const auto [path, value] = arch::parse_assignment(assignment);
    set[path] = value;
  }
  const Json json = {{"base", base},
                     {"about", str("Advised: ", name, ", ", arch::with_commas(plan.parameters.total),
                                   " parameters, context ", question.context, ", ", question.first, " first",
                                   question.extrapolate ? ", extrapolates beyond its context" : "")},
                     {"set", set}};
  return json.dump(2) + "\n";
}

std::string to_text(const Recommendation& advised) {
  const Words& words = words_of(advised.question.language);
  std::string text = words("advise.advised", {{"name", advised.name},
                                              {"parameters", arch::with_commas(advised.plan.parameters.total)},
                                              {"first", words("advise.first." + advised.question.first)}}) +
                     "\n  " + words("advise.preset", {{"base", advised.base}}) + "\n";
  for (const std::string& assignment : advised.assignments) text += "    " + assignment + "\n";
  text += "\n" + reasons(advised) + "\n" + figures(advised) + looks(advised);
  if (!advised.similar.empty()) {
    text += "\n" + words("advise.similar") + "\n ";
    for (const std::string& name : advised.similar) text += " " + name;
    text += "\n";
  }
  return text + "\n" + words("advise.next") + "\n" + plan_command(advised) + "\n" + train_command(advised) + "\n";
}

std::string to_json_text(const Recommendation& advised) {
  Json why = Json::array();
  for (const Reason& reason : advised.reasons) why.push_back(reason_json(reason));
  const Json json = {{"name", advised.name},
                     {"base", advised.base},
                     {"set", advised.assignments},
                     {"reasons", why},
                     {"parameters", advised.plan.parameters.total},
                     {"layers", advised.plan.layers},
                     {"context", advised.question.context},
                     {"flops_per_token", advised.plan.flops.forward()},
                     {"cache_bytes", cache_bytes(advised)},
                     {"batch", advised.batch},
                     {"memory_bytes", advised.memory_needed},
                     {"memory_is_for", advised.question.generate ? "generation" : "training"},
                     {"similar_presets", advised.similar},
                     {"next", {plan_command(advised), train_command(advised)}}};
  return json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace lamina::lab
