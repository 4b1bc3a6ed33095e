#include "lamina/lab/advise/guide.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>

#include "lamina/arch/json.h"
#include "lamina/base/error.h"

namespace lamina::lab {
namespace {

using arch::Json;

constexpr const char* kName = "presets/advice/guide.json";

void only_keys(const Json& json, const std::vector<std::string>& known, const std::string& where) {
  for (const auto& [key, value] : json.items()) {
    LAMINA_CHECK(std::find(known.begin(), known.end(), key) != known.end(), kName, ": ", where, " has the unknown key ",
                 key);
  }
}

Evidence read_evidence(const Json& json, const std::string& where) {
  only_keys(json, {"kind", "text", "study", "page", "verdict"}, where);
  Evidence evidence{
      json.at("kind").get<std::string>(), json.at("text").get<std::string>(),
      json.contains("study") ? "docs/studies/" + json["study"].get<std::string>() : json.value("page", ""),
      json.value("verdict", "")};
  LAMINA_CHECK(evidence.kind == "published" || evidence.kind == "measured here", kName, ": ", where,
               " has evidence of kind ", evidence.kind, "; expected published or measured here");
  LAMINA_CHECK(evidence.kind == "published" || !evidence.where.empty(), kName, ": ", where,
               " has evidence \"measured here\" without a source; add study or page");
  return evidence;
}

Reason read_reason(const Json& json, const std::string& subject) {
  Reason reason{subject, json.value("advice", ""), json.at("reason").get<std::string>(), {}};
  for (const Json& item : json.at("evidence")) reason.evidence.push_back(read_evidence(item, subject));
  return reason;
}

Rule read_rule(const Json& json) {
  const std::string id = json.at("id").get<std::string>();
  only_keys(json,
            {"id", "when", "base", "style", "set", "d_ff_ratio", "queries_per_kv_head", "advice", "reason", "evidence"},
            id);
  Rule rule;
  rule.said = read_reason(json, id);
  for (const auto& [key, value] : json.at("when").items()) rule.when.emplace_back(key, value.dump());
  rule.base = json.value("base", "");
  rule.style = json.value("style", "");
  LAMINA_CHECK(rule.base.empty() == rule.style.empty(), kName, ": ", id,
               " has a base without a style or a style without a base; set both");
  if (json.contains("set")) {
    for (const auto& [path, value] : json["set"].items()) {
      rule.assignments.push_back(path + "=" + (value.is_string() ? value.get<std::string>() : value.dump()));
    }
  }
  if (json.contains("d_ff_ratio")) rule.d_ff_ratio = json["d_ff_ratio"].get<double>();
  if (json.contains("queries_per_kv_head")) rule.queries_per_kv_head = json["queries_per_kv_head"].get<double>();
  return rule;
}

bool condition_holds(const std::string& name, const Json& value, const Facts& facts) {
  if (name == "first") return value == facts.first;
  if (name == "extrapolate") return value == facts.extrapolate;
  if (name == "generate") return value == facts.generate;
  if (name == "context_above") return facts.context > value.get<double>();
  if (name == "context_up_to") return facts.context <= value.get<double>();
  if (name == "parameters_above") return facts.parameters > value.get<double>();
  if (name == "parameters_up_to") return facts.parameters <= value.get<double>();
  const std::optional<double> share = facts.tokens_per_parameter;
  if (name == "tokens_per_parameter_below") return share && *share < value.get<double>();
  if (name == "tokens_per_parameter_above") return share && *share > value.get<double>();
  throw Error(str(kName, ": ", name, " is not a condition; the file's `about` lists all"));
}

}  // namespace

std::string Reason::how_sure() const {
  const auto has = [this](const char* kind) {
    return std::any_of(evidence.begin(), evidence.end(), [kind](const Evidence& each) { return each.kind == kind; });
  };
  return has("measured here") ? "measured here" : has("published") ? "published" : "rule of thumb";
}

bool Rule::holds(const Facts& facts) const {
  return std::all_of(when.begin(), when.end(), [&facts](const auto& condition) {
    return condition_holds(condition.first, parse_json<Json>(condition.second, kName), facts);
  });
}

Guide read_guide(std::string_view text) {
  try {
    const Json json = parse_json<Json>(text, kName);
    only_keys(json, {"about", "recipe", "rules", "sizing"}, "the file");
    Guide guide;
    guide.recipe = json.at("recipe").get<std::string>();
    for (const Json& rule : json.at("rules")) guide.rules.push_back(read_rule(rule));
    for (const auto& [subject, reason] : json.at("sizing").items())
      guide.sizing[subject] = read_reason(reason, subject);
    for (const Rule& rule : guide.rules) rule.holds({});  // throws if a condition is unknown
    return guide;
  } catch (const Json::exception&) {
    throw Error(str(kName, ": a rule has a missing key or a value of the wrong type"));
  }
}

namespace {

/// The placeholder names (in braces) in a text, sorted.
std::multiset<std::string> placeholders(const std::string& text) {
  std::multiset<std::string> names;
  for (size_t open = text.find('{'); open != std::string::npos; open = text.find('{', open + 1)) {
    names.insert(text.substr(open, text.find('}', open) - open));
  }
  return names;
}

void translate_text(std::string& text, const Json& json, const char* key, const std::string& where) {
  LAMINA_CHECK(text.empty() != json.contains(key), "the translated guide: ", where, ".", key, " is ",
               text.empty() ? "not in the guide; remove it" : "missing; add it");
  if (text.empty()) return;
  const auto translated = json.at(key).get<std::string>();
  LAMINA_CHECK(placeholders(text) == placeholders(translated), "the translated guide: ", where, ".", key,
               " has other placeholders than the guide");
  text = translated;
}

void translate_reason(Reason& reason, const Json& json, const std::string& where) {
  translate_text(reason.advice, json, "advice", where);
  translate_text(reason.reason, json, "reason", where);
  const Json& evidence = json.at("evidence");
  LAMINA_CHECK(evidence.size() == reason.evidence.size(), "the translated guide: ", where, " has ", evidence.size(),
               " pieces of evidence, the guide has ", reason.evidence.size());
  for (size_t i = 0; i < evidence.size(); ++i) reason.evidence[i].text = evidence[i].get<std::string>();
}

std::string_view advice_file(const std::string& name) {
  for (const AdviceFile& file : advice_files()) {
    if (file.name == name) return file.text;
  }
  throw Error("presets/advice/" + name + ".json is not built in (internal error, please report it)");
}

}  // namespace

void translate(Guide& guide, std::string_view text) {
  try {
    const Json json = parse_json<Json>(text, "the translated guide");
    LAMINA_CHECK(json.at("rules").size() == guide.rules.size() && json.at("sizing").size() == guide.sizing.size(),
                 "the translated guide has ", json["rules"].size(), " rules, the guide has ", guide.rules.size());
    for (Rule& rule : guide.rules) {
      const std::string& id = rule.said.subject;
      LAMINA_CHECK(json["rules"].contains(id), "the translated guide has no rule ", id);
      translate_reason(rule.said, json["rules"][id], id);
      translate_text(rule.style, json["rules"][id], "style", id);
    }
    for (auto& [subject, reason] : guide.sizing) translate_reason(reason, json["sizing"].at(subject), subject);
    for (const auto& [subject, words] : json.at("plan").items()) {
      guide.plan[subject] = {words.at(0).get<std::string>(), words.at(1).get<std::string>()};
    }
    for (const Json& words : json.at("found")) {
      guide.found.emplace_back(words.at(0).get<std::string>(), words.at(1).get<std::string>());
    }
  } catch (const Json::exception&) {
    throw Error("the translated guide has a missing key or a value of the wrong type");
  }
}

const Guide& guide(Language language) {
  static const Guide english = read_guide(advice_file("guide"));
  static const Guide chinese = [] {
    Guide translated = english;
    translate(translated, advice_file("guide-zh"));
    return translated;
  }();
  return language == Language::zh ? chinese : english;
}

}  // namespace lamina::lab
