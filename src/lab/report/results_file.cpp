#include "lamina/lab/report/results_file.h"

#include <algorithm>
#include <cmath>

#include "lamina/arch/plan.h"
#include "lamina/base/error.h"
#include "lamina/lab/report/read_recipe.h"

namespace lamina::lab::report {
namespace {

/// A JSON value and its path for messages, for example "results.json: variants[2].runs[0].seed".
class Place {
 public:
  Place(const Json& value, std::string path, const char* joint = ".")
      : value_(&value), path_(std::move(path)), joint_(joint) {}

  const Json& value() const { return *value_; }
  bool is_null() const { return value_->is_null(); }
  [[noreturn]] void fail(const std::string& expected) const {
    std::string given = value_->dump(-1, ' ', false, Json::error_handler_t::replace);
    if (given.size() > 60) given = given.substr(0, 57) + "...";
    throw Error(str(path_, " is ", given, "; expected ", expected, " (format: docs/reference/results-file.md)"));
  }

  Place at(const std::string& key) const {
    object();
    const auto found = value_->find(key);
    LAMINA_CHECK(found != value_->end(), path_, " has no ", key,
                 "; write the results file again, or see its format in docs/reference/results-file.md");
    return {*found, path_ + joint_ + key};
  }
  /// Returns null if the key is missing.
  Place maybe(const std::string& key) const {
    static const Json kNull;
    object();
    const auto found = value_->find(key);
    return {found == value_->end() ? kNull : *found, path_ + joint_ + key};
  }
  void object() const {
    if (!value_->is_object()) fail("an object");
  }
  std::vector<Place> list() const {
    std::vector<Place> places;
    if (is_null()) return places;
    if (!value_->is_array()) fail("a list");
    for (size_t i = 0; i < value_->size(); ++i) places.emplace_back((*value_)[i], str(path_, "[", i, "]"));
    return places;
  }
  std::string text() const {
    if (is_null()) return "";
    if (!value_->is_string()) fail("a string");
    return value_->get<std::string>();
  }
  /// A number; empty if it is null, or too large to draw.
  Number number() const {
    if (is_null()) return {};
    if (!value_->is_number()) fail("a number or null");
    const double value = value_->get<double>();
    return std::abs(value) <= 1e100 ? Number(value) : Number();
  }
  double given_number() const {
    const Number value = number();
    if (!value) fail("a number");
    return *value;
  }
  double number_within(double low, double high) const {
    const double value = given_number();
    if (value < low || value > high) fail(str("a number from ", low, " to ", high));
    return value;
  }
  int64_t whole_number() const {
    if (!value_->is_number_integer()) fail("a whole number");
    return value_->get<int64_t>();
  }
  bool truth() const {
    if (is_null()) return false;
    if (!value_->is_boolean()) fail("true or false");
    return value_->get<bool>();
  }
  std::string one_of(const std::vector<std::string>& names) const {
    std::string given = text();
    if (std::find(names.begin(), names.end(), given) != names.end()) return given;
    std::string all;
    for (const std::string& name : names) all += (all.empty() ? "\"" : ", \"") + name + "\"";
    fail("one of " + all);
  }

 private:
  const Json* value_;
  std::string path_;
  const char* joint_;  ///< separator between path and key
};

std::vector<Number> numbers(const Place& place) {
  std::vector<Number> values;
  for (const Place& item : place.list()) values.push_back(item.number());
  return values;
}

std::vector<double> given_numbers(const Place& place) {
  std::vector<double> values;
  for (const Place& item : place.list()) values.push_back(item.given_number());
  return values;
}

void same_length(const Place& place, size_t given, size_t expected) {
  if (given != expected) place.fail(str(expected, " values, not ", given));
}

Series read_series(const Place& place) {
  Series series;
  if (place.is_null()) return series;
  series.step = given_numbers(place.at("step"));
  series.loss = numbers(place.at("loss"));
  same_length(place.at("loss"), series.loss.size(), series.step.size());
  series.seconds = numbers(place.maybe("seconds"));
  if (!series.seconds.empty()) same_length(place.at("seconds"), series.seconds.size(), series.step.size());
  return series;
}

/// All members that are numbers or null, except those in `not_these`.
std::map<std::string, Number> number_members(const Place& place, const std::vector<std::string>& not_these) {
  std::map<std::string, Number> values;
  for (const auto& [key, value] : place.value().items()) {
    if (std::find(not_these.begin(), not_these.end(), key) != not_these.end()) continue;
    if (value.is_number() || value.is_null()) values[key] = place.at(key).number();
  }
  return values;
}

Run read_run(const Place& place) {
  place.object();
  Run run;
  run.seed = place.at("seed").whole_number();
  run.values = number_members(place, {"seed", "diverged", "stopped_early", "curve", "evaluations"});
  run.folder = place.maybe("run").text();
  run.diverged = place.maybe("diverged").truth();
  run.stopped_early = place.maybe("stopped_early").truth();
  run.curve = read_series(place.maybe("curve"));
  run.evaluations = read_series(place.maybe("evaluations"));
  run.tokens_per_step = place.maybe("tokens_per_step").number();
  run.values.erase("tokens_per_step");
  return run;
}

Measure read_measure(const Place& place) {
  if (place.is_null()) return {};
  place.object();
  Measure measure;
  measure.mean = place.maybe("mean").number();
  measure.spread = place.maybe("spread").number();
  measure.difference = place.maybe("difference").number();
  measure.p = place.maybe("p").number();
  measure.mark = place.maybe("mark").is_null()
                     ? ""
                     : place.at("mark").one_of({"", "better", "worse", "no difference", "cannot tell", "base"});
  // Each comparison has one p value: that of the test which decided.
  const Number equivalence = place.maybe("p_equivalence").number();
  if (measure.mark == "no difference" && equivalence && measure.difference.value_or(0) != 0) measure.p = equivalence;
  measure.ci95_half_width = place.maybe("reach").number();
  measure.p_alone = place.maybe("p_alone").number();
  measure.runs = place.maybe("runs").number();
  measure.margin = place.maybe("margin").number();
  measure.seeds_needed = place.maybe("seeds_needed").number();
  return measure;
}

Variant read_variant(const Place& place) {
  place.object();
  Variant variant;
  variant.name = place.at("name").text();
  variant.label = place.maybe("label").text();
  if (variant.label.empty()) variant.label = variant.name;
  for (const Place& item : place.maybe("switches").list()) variant.switches.push_back(item.text());
  // "norm=null" only makes room for another value, so it is not shown.
  const auto unsets = [](const std::string& assignment) { return assignment.ends_with("=null"); };
  if (!std::all_of(variant.switches.begin(), variant.switches.end(), unsets)) std::erase_if(variant.switches, unsets);
  variant.diagram_svg = place.maybe("diagram_svg").text();
  const Place architecture = place.maybe("architecture");
  if (!architecture.is_null()) variant.architecture = architecture.value().dump(2);
  variant.costs = number_members(place, {"adjusted", "cannot"});
  if (const Place adjusted = place.maybe("adjusted"); !adjusted.is_null()) {
    variant.adjusted = {adjusted.at("field").text(), adjusted.at("from").given_number(),
                        adjusted.at("to").given_number(), adjusted.maybe("difference").number()};
  }
  for (const Place& trial : place.maybe("tuning").list()) {
    if (!trial.at("chosen").truth()) continue;
    for (const Place& change : trial.at("changes").list()) {
      variant.tuned += (variant.tuned.empty() ? "" : ", ") + change.text();
    }
  }
  if (const Place cannot = place.maybe("cannot"); !cannot.is_null()) variant.cannot = cannot.text();
  for (const Place& item : place.maybe("runs").list()) variant.runs.push_back(read_run(item));
  if (const Place summary = place.maybe("summary"); !summary.is_null()) {
    summary.object();
    for (const auto& [key, value] : summary.value().items()) variant.summary[key] = read_measure(summary.at(key));
  }
  return variant;
}

std::vector<Claim> read_claims(const Place& description) {
  std::vector<Claim> claims;
  if (description.is_null() || !description.value().is_object() || !description.maybe("claims").value().is_array()) {
    return claims;
  }
  for (const Place& item : description.at("claims").list()) {
    claims.push_back({item.at("text").text(), item.at("variant").text(), item.maybe("against").text(),
                      item.maybe("metric").text(), item.maybe("from").number().value_or(0), item.maybe("to").number()});
    if (claims.back().metric.empty()) claims.back().metric = "best_loss";
  }
  return claims;
}

ScalingGroup read_scaling_group(const Place& place) {
  ScalingGroup group;
  group.name = place.at("name").text();
  for (const Place& item : place.at("points").list()) {
    group.points.push_back(
        {item.at("size").number_within(1e-300, 1e100), item.at("seed").whole_number(), item.at("loss").given_number()});
  }
  const Place fit = place.maybe("fit");
  if (fit.is_null()) return group;
  group.fitted = true;
  group.irreducible = fit.at("irreducible").given_number();
  group.coefficient = fit.at("coefficient").given_number();
  group.exponent = fit.at("exponent").given_number();
  group.exponent_low = fit.maybe("exponent_low").number();
  group.exponent_high = fit.maybe("exponent_high").number();
  group.determined = fit.at("determined").truth();
  group.sizes = fit.at("sizes").given_number();
  group.seeds = fit.at("seeds").given_number();
  const Place curve = fit.at("curve");
  for (const Place& item : curve.at("size").list()) group.curve_size.push_back(item.number_within(1e-300, 1e100));
  group.curve_loss = given_numbers(curve.at("loss"));
  group.curve_low = given_numbers(curve.at("low"));
  group.curve_high = given_numbers(curve.at("high"));
  same_length(curve.at("loss"), group.curve_loss.size(), group.curve_size.size());
  same_length(curve.at("high"), group.curve_high.size(), group.curve_low.size());
  if (!group.curve_low.empty()) same_length(curve.at("low"), group.curve_low.size(), group.curve_size.size());
  return group;
}

Scaling read_scaling(const Place& place) {
  Scaling scaling{place.at("against").one_of({"parameters", "compute"}), {}};
  for (const Place& item : place.at("groups").list()) scaling.groups.push_back(read_scaling_group(item));
  return scaling;
}

/// The kind of a finding in files without `kind`. A sentence "LABEL: best validation loss …" compares a variant with
/// its reference.
std::string kind_of(const Study& study, const Finding& finding) {
  if (!finding.verdict.empty() || !finding.claim.empty()) return "claim";
  for (const Variant& variant : study.variants) {
    for (const char* measure : {": best validation loss", ": accuracy"}) {
      if (finding.text.starts_with(variant.label + measure)) return "comparison";
    }
  }
  return "note";
}

/// Reads the depths of passkeys, or the shares of passkeys found.
std::vector<Number> shares(const Place& place) {
  std::vector<Number> values;
  for (const Place& item : place.list()) values.push_back(item.is_null() ? Number() : item.number_within(0, 1));
  return values;
}

Stretch read_stretch(const Place& place) {
  constexpr double kLongest = 1e12;
  Stretch stretch;
  stretch.trained_length = place.at("trained_length").number_within(1, kLongest);
  for (const Place& item : place.at("lengths").list()) stretch.lengths.push_back(item.number_within(1, kLongest));
  for (const Place& item : place.maybe("rows").list()) {
    StretchRow row{item.at("variant").text(), item.at("reading").text(), numbers(item.maybe("perplexity")),
                   item.maybe("cannot").text()};
    row.perplexity.resize(row.perplexity.empty() ? stretch.lengths.size() : row.perplexity.size());
    same_length(item.maybe("perplexity"), row.perplexity.size(), stretch.lengths.size());
    stretch.rows.push_back(std::move(row));
  }
  for (const Place& item : place.maybe("passkey").list()) {
    PasskeyRow row{
        item.at("variant").text(), item.at("length").number_within(1, kLongest), {}, shares(item.at("accuracy"))};
    for (const Place& depth : item.at("depths").list()) row.depths.push_back(depth.number_within(0, 1));
    same_length(item.at("accuracy"), row.accuracy.size(), row.depths.size());
    stretch.passkey.push_back(std::move(row));
  }
  return stretch;
}

/// The machine's properties with their display names. Unknown keys are shown as they are.
std::vector<std::pair<std::string, std::string>> read_machine(const Place& place) {
  std::vector<std::pair<std::string, std::string>> shown;
  if (place.is_null()) return shown;
  place.object();
  for (const auto& [key, value] : place.value().items()) {
    if (value.is_null()) continue;
    if (key == "memory_bytes" && value.is_number()) {
      shown.emplace_back("memory", arch::short_bytes(value.get<double>()));
    } else {
      shown.emplace_back(key, value.is_string() ? value.get<std::string>() : value.dump());
    }
  }
  return shown;
}

/// Variant names must be unique. Equal labels are made unique with the name.
void make_labels_unique(std::vector<Variant>& variants, const std::string& file) {
  std::map<std::string, int> names;
  std::map<std::string, int> labels;
  for (const Variant& variant : variants) {
    LAMINA_CHECK(++names[variant.name] == 1, file, ": two variants are named ", variant.name,
                 "; give each a unique name");
    ++labels[variant.label];
  }
  for (Variant& variant : variants) {
    if (labels[variant.label] > 1) variant.label += " (" + variant.name + ")";
  }
}

/// Keeps the comparison with the reference only for the judged measure. Otherwise loss, perplexity and bits per byte
/// would show three p values for the same comparison.
void keep_one_comparison(Study& study) {
  for (Variant& variant : study.variants) {
    for (auto& [key, measure] : variant.summary) {
      if (key == study.quality()) continue;
      measure.mark.clear();
      measure.p = measure.p_alone = {};
    }
  }
}

}  // namespace

std::string Study::label_of(const std::string& variant) const {
  for (const Variant& each : variants) {
    if (each.name == variant) return each.label;
  }
  return variant;
}

const Variant* Study::find(const std::string& variant) const {
  for (const Variant& each : variants) {
    if (each.name == variant) return &each;
  }
  return nullptr;
}

const Variant* Study::reference_of(const Variant& variant) const {
  const size_t place = static_cast<size_t>(&variant - variants.data());
  if (place == 0 || variant.name == base) return nullptr;
  if (compared_with == "base") return base.empty() ? variants.data() : find(base);
  size_t before = place - 1;
  while (before > 0 && variants[before].runs.empty()) --before;
  return &variants[before];
}

size_t Study::most_seeds() const {
  size_t most = 0;
  for (const Variant& variant : variants) most = std::max(most, variant.runs.size());
  return most;
}

Study read_study(const std::string& text, const std::string& name, Language language) {
  const Json json = parse_json<Json>(text, name);
  const Place file(json, name, ": ");
  if (!json.is_object()) file.fail("an object, the results of `lamina compare` or `lamina stretch`");
  if (file.at("schema").given_number() != 1) file.at("schema").fail("1, the only version this program reads");
  Study study;
  study.language = language;
  study.name = file.at("name").text();
  study.question = file.maybe("question").text();
  study.mode = file.maybe("mode").text();
  if (const Place description = file.maybe("description"); !description.is_null()) {
    study.description = description.value().dump(2);
  }
  study.command = file.maybe("command").text();
  study.version = file.maybe("version").text();
  study.complete = file.maybe("complete").is_null() || file.maybe("complete").truth();
  study.machine = read_machine(file.maybe("machine"));
  study.metric = file.at("metric").one_of({"loss", "accuracy"});
  study.target = file.maybe("target").number();
  study.base = file.maybe("base").text();
  study.matching = file.maybe("matching").text();
  if (const Place reference = file.maybe("compared_with"); !reference.is_null()) {
    study.compared_with = reference.one_of({"base", "previous rung"});
  }
  for (const Place& item : file.at("variants").list()) study.variants.push_back(read_variant(item));
  keep_one_comparison(study);
  make_labels_unique(study.variants, name);
  for (const Place& item : file.maybe("findings").list()) {
    Finding finding{item.maybe("kind").text(), item.at("text").text(), "", item.maybe("claim").text()};
    if (const Place verdict = item.maybe("verdict"); !verdict.is_null()) {
      finding.verdict =
          verdict.one_of({"holds", "does not", "cannot tell", "at our size: holds", "at our size: does not"});
    }
    if (finding.kind.empty()) finding.kind = kind_of(study, finding);
    study.findings.push_back(std::move(finding));
  }
  if (const Place stretch = file.maybe("stretch"); !stretch.is_null()) study.stretch = read_stretch(stretch);
  if (const Place scaling = file.maybe("scaling"); !scaling.is_null()) study.scaling = read_scaling(scaling);
  study.claims = read_claims(file.maybe("description"));
  study.margin = file.maybe("margin").number();
  study.equal_seconds = file.maybe("equal_seconds").number();
  read_recipe(study, json);
  if (!study.margin) judge_again(study);
  return study;
}

}  // namespace lamina::lab::report
