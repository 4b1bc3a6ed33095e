#include "lamina/lab/report/effects.h"

#include <algorithm>
#include <cmath>

#include "lamina/base/error.h"
#include "lamina/lab/report/columns.h"
#include "lamina/lab/run/findings.h"
#include "lamina/lab/run/format.h"
#include "lamina/lab/study/matching.h"

namespace lamina::lab::report {
namespace {

Style quality_style(const Study& study) { return study.lower_is_better() ? Style::loss : Style::percent; }

/// The size of an effect relative to the reference's mean, for example "2.1 %". Empty if that mean is 0.
std::string share_of(const Effect& effect) {
  if (!effect.mean || *effect.mean == 0) return "";
  return percent_of(std::abs(effect.difference / *effect.mean));
}

const Effect* with_mark(const std::vector<Effect>& effects, const std::string& mark, bool lower_is_better) {
  const Effect* best = nullptr;
  for (const Effect& effect : effects) {
    if (effect.mark != mark) continue;
    const bool ahead = best == nullptr ||
                       (lower_is_better ? effect.difference < best->difference : effect.difference > best->difference);
    if (ahead) best = &effect;
  }
  return best;
}

Number relative_size(const Study& study, const Variant& variant, const Variant& reference) {
  const char* key = study.matching == "compute" ? "flops_per_token" : "parameters";
  const auto size = [&](const Variant& v) {
    const auto found = v.costs.find(key);
    return found == v.costs.end() ? Number() : found->second;
  };
  const Number own = size(variant);
  const Number other = size(reference);
  return own && other && *own > 0 && *other > 0 ? Number(*own / *other - 1) : Number();
}

/// ", at equal parameters" or ", with 9.1 % fewer parameters". Empty if sizes are unknown.
std::string sizes_of(const Study& study, const Effect& effect) {
  if (!effect.size) return "";
  const Words& words = study.words();
  const std::string what = words(study.matching == "compute" ? "answer.sizes.compute" : "answer.sizes.parameters");
  if (std::abs(*effect.size) <= kEqualSize) return words("answer.sizes.equal", {{"what", what}});
  return words(*effect.size < 0 ? "answer.sizes.fewer" : "answer.sizes.more",
               {{"what", what}, {"share", percent_of(std::abs(*effect.size))}});
}

/// ", at equal training FLOPs": what the budget makes equal. Empty for equal updates, the default.
std::string equal_budget(const Study& study) {
  if (!study.budget || study.budget->unit == "updates") return "";
  return study.words().or_else("answer.budget." + study.budget->unit, "");
}

/// A sentence about one effect, for example "RoPE is better than Learned: best validation loss 0.031 lower (2.1 %), 95
/// % confidence interval −0.041 to −0.021, at equal parameters."
std::string sentence(const Study& study, const Effect& effect, const std::string& key) {
  const Words& words = study.words();
  const std::string interval = written_interval(study, effect);
  const Style style = quality_style(study);
  const char* direction = effect.difference < 0 ? "answer.lower" : "answer.higher";
  const double distance = std::abs(effect.difference);
  // The difference of two percentages is given in percentage points.
  const std::string size =
      style == Style::percent ? words("answer.points", {{"size", fixed(100 * distance, 1)}}) : written(distance, style);
  const std::string share = style == Style::percent || share_of(effect).empty() ? "" : " (" + share_of(effect) + ")";
  return words(key, {{"variant", effect.label},
                     {"reference", effect.reference},
                     {"metric", words("measure." + study.quality())},
                     {"size", size},
                     {"direction", words(direction)},
                     {"share", share},
                     {"seeds", str(effect.seeds)},
                     {"margin", study.margin ? percent_of(*study.margin) : ""},
                     {"sizes", sizes_of(study, effect) + equal_budget(study)},
                     {"interval", interval.empty() ? words("answer.no_interval")
                                                   : words("answer.interval", {{"range", interval}})}});
}

std::string sentence(const Study& study, const Effect& effect) {
  return sentence(study, effect,
                  effect.mark == "better"          ? "answer.better"
                  : effect.mark == "worse"         ? "answer.worse"
                  : effect.mark == "no difference" ? "answer.same"
                                                   : "answer.open");
}

/// For a study of scaling laws: the fitted laws with the intervals of their exponents. Empty if there is none.
Answer scaling_answer(const Study& study) {
  std::string laws;
  for (const ScalingGroup& group : study.scaling->groups) {
    if (!group.fitted) continue;
    const Words& words = study.words();
    const bool interval = group.exponent_low && group.exponent_high;
    laws +=
        (laws.empty() ? "" : words("semicolon")) +
        words(group.determined ? "answer.law" : "answer.law_open",
              {{"group", group.name},
               {"exponent", fixed(group.exponent, 3)},
               {"interval", interval ? words("answer.interval",
                                             {{"range", words("interval", {{"low", fixed(*group.exponent_low, 3)},
                                                                           {"high", fixed(*group.exponent_high, 3)}})}})
                                     : words("answer.no_interval")}});
  }
  if (laws.empty()) return {};
  const char* size = study.scaling->against == "compute" ? "C" : "N";
  return {
      study.words()("answer.scaling",
                    {{"size", study.words()("scaling." + study.scaling->against)}, {"symbol", size}, {"laws", laws}}),
      "", ""};
}

/// For example "Of 8 variants 2 are better than the base, 1 is worse, …". Mentions only groups that are not empty.
std::string counts(const Study& study, const std::vector<Effect>& effects) {
  const Words& words = study.words();
  std::string parts;
  for (const char* mark : {"better", "worse", "no difference", "cannot tell"}) {
    const auto number = std::count_if(effects.begin(), effects.end(), [&](const Effect& e) { return e.mark == mark; });
    if (number == 0) continue;
    parts += (parts.empty() ? "" : words("list.separator")) +
             words("answer.count", {{"number", str(number)}, {"mark", written_mark(study, mark)}});
  }
  return words("answer.counts", {{"variants", str(effects.size())}, {"parts", parts}});
}

/// The row with the lowest perplexity at the longest length.
Answer stretch_answer(const Study& study) {
  const Stretch& stretch = *study.stretch;
  const StretchRow* best = nullptr;
  for (const StretchRow& row : stretch.rows) {
    const bool sliding = row.reading == "sliding";
    if (row.perplexity.empty() || !row.perplexity.back() || !row.perplexity.front() || !sliding) continue;
    if (best == nullptr || *row.perplexity.back() < *best->perplexity.back()) best = &row;
  }
  if (best == nullptr) return {};
  return {study.words()("answer.stretch", {{"variant", study.label_of(best->variant)},
                                           {"length", written(stretch.lengths.back(), Style::count)},
                                           {"perplexity", fixed(*best->perplexity.back(), 2)},
                                           {"trained", written(stretch.trained_length, Style::count)},
                                           {"before", fixed(*best->perplexity.front(), 2)}}),
          "", ""};
}

}  // namespace

std::vector<Effect> effects_of(const Study& study) {
  std::vector<Effect> effects;
  // A study of mode stretch is about lengths; with one seed its losses compare nothing.
  if (study.mode == "stretch" && study.most_seeds() < 2) return effects;
  for (const Variant& variant : study.variants) {
    const Variant* reference = study.reference_of(variant);
    if (reference == nullptr) continue;
    const Measure measure = measure_of(variant, study.quality());
    if (!measure.difference || measure.mark.empty()) continue;
    Effect effect{variant.label,
                  reference->label,
                  *measure.difference,
                  {},
                  {},
                  measure.margin,
                  measure_of(*reference, study.quality()).mean,
                  relative_size(study, variant, *reference),
                  measure.p,
                  measure.mark,
                  measure.seeds_needed,
                  std::min(variant.runs.size(), reference->runs.size())};
    if (measure.ci95_half_width) {
      effect.low = effect.difference - *measure.ci95_half_width;
      effect.high = effect.difference + *measure.ci95_half_width;
    }
    effects.push_back(std::move(effect));
  }
  return effects;
}

std::string written_interval(const Study& study, const Effect& effect) {
  if (!effect.low || !effect.high) return "";
  const Style style = quality_style(study);
  return study.words()(
      "interval", {{"low", written_difference(*effect.low, style)}, {"high", written_difference(*effect.high, style)}});
}

std::string written_effect(const Study& study, const Effect& effect) {
  const std::string interval = written_interval(study, effect);
  return written_difference(effect.difference, quality_style(study)) + (interval.empty() ? "" : " (" + interval + ")");
}

std::string written_mark(const Study& study, const std::string& mark) {
  return mark.empty() ? "" : study.words().or_else("mark." + mark, mark);
}

std::string written_verdict(const Study& study, const std::string& verdict) {
  return verdict.empty() ? "" : study.words().or_else("verdict." + verdict, verdict);
}

Answer answer_of(const Study& study) {
  const std::vector<Effect> effects = effects_of(study);
  const bool stretched = study.stretch && !study.stretch->lengths.empty();
  if (stretched && (study.mode == "stretch" || effects.empty())) return stretch_answer(study);
  if (study.scaling) {
    Answer answer = scaling_answer(study);
    if (!answer.text.empty()) return answer;
  }
  if (effects.empty()) return {};
  const Effect* chosen = nullptr;
  for (const char* mark : {"better", "no difference", "cannot tell", "worse"}) {
    if (chosen == nullptr) chosen = with_mark(effects, mark, study.lower_is_better());
  }
  if (chosen == nullptr) return {};
  const bool ladder = study.compared_with != "base" && effects.size() > 1 && chosen->mark == "better";
  Answer answer{sentence(study, *chosen), effects.size() > 1 ? counts(study, effects) : "", chosen->mark};
  if (effects.size() > 1 && chosen->mark != "better") {
    const Variant* base = study.compared_with == "base" ? study.find(study.base) : nullptr;
    const std::string reference = base != nullptr ? base->label : study.words()("reference." + study.compared_with);
    const std::string closest =
        chosen->mark == "cannot tell" ? sentence(study, *chosen, "answer.closest") : answer.text;
    answer.text = study.words()("answer.none_better", {{"reference", reference}, {"sentence", closest}});
  }
  if (ladder) answer.text = study.words()("answer.ladder", {{"sentence", answer.text}});
  return answer;
}

std::string written_law(const Scaling& scaling, const ScalingGroup& group) {
  return str("L = ", fixed(group.irreducible, 3), " + ", printed("%.3g", group.coefficient), " · ",
             scaling.against == "compute" ? "C" : "N", "^−", fixed(group.exponent, 3));
}

std::string written_exponent(const Study& study, const ScalingGroup& group) {
  std::string text = fixed(group.exponent, 3);
  if (!group.exponent_low || !group.exponent_high) return text;
  return text + " (" +
         study.words()("interval", {{"low", fixed(*group.exponent_low, 3)}, {"high", fixed(*group.exponent_high, 3)}}) +
         ")";
}

}  // namespace lamina::lab::report
