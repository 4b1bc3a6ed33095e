#include <cstdio>
#include <nlohmann/json.hpp>

#include "lamina/arch/edit.h"
#include "lamina/base/error.h"
#include "lamina/lab/advise/advise.h"

namespace lamina::lab {
namespace {

using arch::Json;

double cache_bytes(const Recommendation& advised) {
  double numbers = 0;
  for (const arch::CacheRow& row : advised.plan.cache) numbers += row.at(advised.plan.options.length);
  return numbers * advised.plan.options.bytes_per_number;
}

/// Quotes text for a shell if it has characters that may be special.
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

/// Tokenizer with the advised vocabulary: the user's, or one that training builds from the text.
std::string tokenizer_of(const Recommendation& advised) {
  if (advised.question.vocabulary) return "YOUR-TOKENIZER.json";
  constexpr int64_t kBytes = 256;
  const int64_t vocabulary = advised.plan.spec.vocab_size;
  return vocabulary == kBytes ? "byte" : str("bpe:", vocabulary);
}

/// Trains the advised architecture exactly. A tokenizer with fewer tokens does not shrink the vocabulary.
std::string train_command(const Recommendation& advised) {
  const std::string what = advised.file.empty() ? advised.base + sets(advised, "architecture.") : quoted(advised.file);
  return str("lamina train ", advised.recipe, " --data YOUR.txt --set data.tokenizer=", tokenizer_of(advised),
             " --set data.fit_vocab=false --set length=", advised.question.context, " --set batch=", advised.batch,
             " \\\n  --set architecture=", what);
}

/// Wraps text to 100 columns, each line starting with `indent`.
std::string wrapped(const std::string& text, const std::string& indent) {
  std::string result;
  std::string line;
  size_t begin = 0;
  while (begin < text.size()) {
    const size_t end = std::min(text.find(' ', begin), text.size());
    const std::string word = text.substr(begin, end - begin);
    if (!line.empty() && line.size() + 1 + word.size() > 100) {
      result += indent + line + "\n";
      line.clear();
    }
    line += (line.empty() ? "" : " ") + word;
    begin = end + 1;
  }
  return result + indent + line + "\n";
}

std::string reasons(const Recommendation& advised) {
  std::string text = "WHY\n";
  for (const Reason& reason : advised.reasons) {
    text += wrapped(str(reason.advice, " [", reason.how_sure(), "]"), "  ");
    text += wrapped(reason.reason, "      ");
    for (const Evidence& each : reason.evidence) {
      const std::string where = each.where.empty() ? "" : each.where + ": ";
      const std::string verdict = each.verdict.empty() ? "" : each.verdict + ": ";
      text += wrapped(str(each.kind, ": ", where, verdict, each.text), "      ");
    }
  }
  return text;
}

std::string figures(const Recommendation& advised) {
  const arch::Plan& plan = advised.plan;
  const std::string length = arch::with_commas(plan.options.length);
  const auto line = [](const std::string& name, const std::string& value) {
    char text[256];
    std::snprintf(text, sizeof text, "  %-34s %s\n", name.c_str(), value.c_str());
    return std::string(text);
  };
  return "COSTS (details: `lamina plan`)\n" + line("parameters", arch::with_commas(plan.parameters.total)) +
         line("forward pass per token at " + length, arch::short_number(plan.flops.forward()) + "FLOP") +
         line("KV cache of " + length + " tokens", arch::short_bytes(cache_bytes(advised))) +
         line(advised.question.generate ? std::string("memory to generate, bf16")
                                        : str("memory to train, f32, batch ", advised.batch),
              arch::short_bytes(advised.memory_needed));
}

/// Remarks of `lamina plan` that need a look.
std::string looks(const Recommendation& advised) {
  std::string text;
  for (const arch::Advice& advice : advised.plan.advice) {
    if (advice.verdict != arch::Advice::Verdict::look) continue;
    text += wrapped(str(advice.subject, ": ", advice.found, "; ", advice.reason), "  ");
  }
  return text.empty() ? "" : "\nUNUSUAL\n" + text;
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
  std::string text = str("ADVISED: ", advised.name, ", ", arch::with_commas(advised.plan.parameters.total),
                         " parameters (", advised.question.first, " first)\n  from preset ", advised.base, " with\n");
  for (const std::string& assignment : advised.assignments) text += "    " + assignment + "\n";
  text += "\n" + reasons(advised) + "\n" + figures(advised) + looks(advised);
  if (!advised.similar.empty()) {
    text += "\nPRESETS OF SIMILAR SIZE\n ";
    for (const std::string& name : advised.similar) text += " " + name;
    text += "\n";
  }
  return text + "\nNEXT\n" + plan_command(advised) + "\n" + train_command(advised) + "\n";
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
