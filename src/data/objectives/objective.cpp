#include "lamina/data/objectives/objective.h"

#include <algorithm>
#include <cmath>
#include <set>

#include "lamina/base/error.h"

namespace lamina::data {
namespace {

constexpr const char* kNumber = "{}";

void check_share(double share, const char* name) {
  LAMINA_CHECK(share >= 0 && share <= 1, name, " is ", share, "; expected a share from 0 to 1");
}

void check_one(const CausalObjective&, int64_t) {}

void check_one(const PrefixObjective& o, int64_t) {
  check_share(o.shortest, "shortest");
  check_share(o.longest, "longest");
  LAMINA_CHECK(o.shortest <= o.longest, "shortest is ", o.shortest, ", longest is ", o.longest,
               "; expected shortest to be at most longest");
}

void check_one(const FimObjective& o, int64_t length) {
  check_share(o.rate, "rate");
  check_share(o.spm_share, "spm_share");
  LAMINA_CHECK(length >= 5, "sequences of ", length, " tokens; fim needs at least 5");
}

void check_one(const MaskedObjective& o, int64_t length) {
  LAMINA_CHECK(o.rate > 0 && o.rate <= 1, "rate is ", o.rate, "; expected above 0 and at most 1");
  check_share(o.mask_share, "mask_share");
  check_share(o.random_share, "random_share");
  LAMINA_CHECK(o.mask_share + o.random_share <= 1 + 1e-9, "mask_share and random_share sum to ",
               o.mask_share + o.random_share, "; expected at most 1");
  LAMINA_CHECK(length >= 2, "sequences of ", length, " tokens; masked needs at least 2");
}

void check_one(const SpanObjective& o, int64_t length) {
  LAMINA_CHECK(o.density > 0 && o.density <= 0.9, "density is ", o.density, "; expected above 0 and at most 0.9");
  LAMINA_CHECK(o.mean_length >= 1, "mean_length is ", o.mean_length, "; expected at least 1");
  LAMINA_CHECK(o.sentinels > 0 && o.sentinels <= 1 << 20, "sentinels is ", o.sentinels, "; expected at least 1");
  LAMINA_CHECK(o.sentinel_token.find(kNumber) != std::string::npos, "sentinel_token is \"", o.sentinel_token,
               "\"; expected a name with {} for the number");
  LAMINA_CHECK(length >= 8, "sequences of ", length, " tokens; span needs at least 8");
  const int64_t spans = span_counts(o, length).spans;
  LAMINA_CHECK(spans < o.sentinels, "a sequence of ", length, " tokens has ", spans, " spans, and ", o.sentinels,
               " sentinels; raise sentinels above the spans");
}

void check_one(const DenoiseObjective& o, int64_t length) {
  LAMINA_CHECK(o.rate > 0 && o.rate <= 0.9, "rate is ", o.rate, "; expected above 0 and at most 0.9");
  LAMINA_CHECK(o.mean_length > 0, "mean_length is ", o.mean_length, "; expected above 0");
  LAMINA_CHECK(length >= 8, "sequences of ", length, " tokens; denoise needs at least 8");
}

std::string with_number(const std::string& name, int64_t number) {
  std::string result = name;
  return result.replace(result.find(kNumber), 2, std::to_string(number));
}

std::vector<std::string> names_in(const CausalObjective&) { return {}; }
std::vector<std::string> names_in(const PrefixObjective&) { return {}; }
std::vector<std::string> names_in(const FimObjective& o) { return {o.prefix_token, o.suffix_token, o.middle_token}; }
std::vector<std::string> names_in(const MaskedObjective& o) { return {o.mask_token}; }
std::vector<std::string> names_in(const SpanObjective& o) {
  std::vector<std::string> names;
  if (o.sentinel_token.find(kNumber) == std::string::npos) return {o.sentinel_token};
  for (int64_t i = 0; i < o.sentinels; ++i) names.push_back(with_number(o.sentinel_token, i));
  return names;
}
std::vector<std::string> names_in(const DenoiseObjective& o) { return {o.mask_token, o.start_token}; }

}  // namespace

std::string_view objective_name(const Objective& objective) {
  return std::visit([](const auto& one) { return one.kKind; }, objective);
}

bool is_causal(const Objective& objective) { return std::holds_alternative<CausalObjective>(objective); }

std::vector<std::string> objective_tokens(const Objective& objective) {
  return std::visit([](const auto& one) { return names_in(one); }, objective);
}

void check_objective(const Objective& objective, int64_t length) {
  std::visit([&](const auto& one) { check_one(one, length); }, objective);
  std::set<std::string> seen;
  for (const std::string& name : objective_tokens(objective)) {
    LAMINA_CHECK(!name.empty() && seen.insert(name).second, "the special token \"", name,
                 "\" is empty or named twice; give each a name of its own");
  }
}

ObjectiveVocabulary vocabulary_for(const Objective& objective, const text::Tokenizer& tokenizer) {
  ObjectiveVocabulary result;
  const auto size = static_cast<size_t>(tokenizer.vocab_size());
  result.is_special.resize(size);
  result.ends_sentence.resize(size);
  for (size_t i = 0; i < size; ++i) {
    const auto id = static_cast<text::TokenId>(i);
    const std::string text = tokenizer.token(id);
    result.is_special[i] = tokenizer.is_special(id);
    if (!result.is_special[i] && !text.empty()) result.texts.push_back(static_cast<int64_t>(i));
    const size_t last = text.find_last_not_of(' ');
    result.ends_sentence[i] = !result.is_special[i] && last != std::string::npos &&
                              std::string_view(".!?\n").find(text[last]) != std::string::npos;
  }
  for (const std::string& name : objective_tokens(objective)) {
    const auto id = tokenizer.id_of(name);
    LAMINA_CHECK(id && tokenizer.is_special(*id), "the objective ", objective_name(objective),
                 " needs the special token \"", name,
                 "\", which the tokenizer lacks; train one with it (lamina tokenizer train --special ", name,
                 " …), name another token in the recipe's objective, or give the text itself and let the run learn its "
                 "tokenizer");
    result.tokens.push_back(*id);
  }
  if (tokenizer.eos()) {
    result.padding = *tokenizer.eos();
    result.end = *tokenizer.eos();
  }
  if (tokenizer.bos()) result.begin = *tokenizer.bos();
  return result;
}

}  // namespace lamina::data
