// Numbers that pages and advice quote from studies equal the stored results. tests/golden/lab/quoted_numbers.json lists
// the quotes. A quote has the page, its words, and the source of each number as "STUDY VARIANT AGAINST METRIC KIND".
// "-" as a source means that the number is not a result; "-" as AGAINST means the base.
#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>
#include <regex>
#include <set>
#include <sstream>

#include "lamina/base/error.h"
#include "lamina/base/files.h"
#include "lamina/lab/run/metrics.h"
#include "lamina/lab/run/statistics.h"

namespace lamina::lab {
namespace {

using Json = nlohmann::ordered_json;

std::string source(const std::string& path) { return read_text(std::string(LAMINA_SOURCE_DIR) + "/" + path); }

std::vector<std::string> numbers_in(const std::string& text, const char* pattern = "[0-9]+(,[0-9]{3})*(\\.[0-9]+)?") {
  const std::regex number(pattern);
  std::vector<std::string> all;
  for (std::sregex_iterator at(text.begin(), text.end(), number), end; at != end; ++at) all.push_back(at->str());
  return all;
}

std::string with_single_spaces(const std::string& text) { return std::regex_replace(text, std::regex("\\s+"), " "); }

const Json& results_of_study(const std::string& name) {
  static std::map<std::string, Json> read;
  if (!read.contains(name)) read[name] = Json::parse(source("docs/studies/" + name + "/results.json"));
  return read[name];
}

const Json& named(const Json& list, const char* key, const std::string& name) {
  for (const Json& each : list) {
    if (each.at(key) == name) return each;
  }
  throw Error("no " + name);
}

double metric_of(const Json& run, const std::string& metric) {
  return metric == "perplexity" ? std::exp(run.at("best_loss").get<double>()) : run.at(metric).get<double>();
}

double stretch_value(const Json& stretch, const std::string& variant, const std::string& what, double length) {
  if (what == "passkey") {
    for (const Json& row : stretch.at("passkey")) {
      if (row.at("variant") != variant || row.at("length") != length) continue;
      return 100 * mean_of(row.at("accuracy").get<std::vector<double>>());
    }
  }
  for (const Json& row : stretch.at("rows")) {
    if (row.at("variant") != variant || row.at("reading") != what) continue;
    const auto lengths = stretch.at("lengths").get<std::vector<double>>();
    const auto at = std::find(lengths.begin(), lengths.end(), length);
    return row.at("perplexity")[static_cast<size_t>(at - lengths.begin())].get<double>();
  }
  throw Error("no " + variant + ", " + what);
}

/// The value of "STUDY VARIANT AGAINST METRIC KIND". Gains are in percent; a gain is less loss or more speed.
double value_of(const std::string& expression) {
  std::istringstream words(expression);
  std::string study, name, against, metric, kind;
  words >> study >> name >> against >> metric >> kind;
  const Json& file = results_of_study(study);
  if (metric == "sliding" || metric == "passkey")
    return stretch_value(file.at("stretch"), name, metric, std::stod(kind));
  const Json& variant = named(file.at("variants"), "name", name);
  if (kind == "millions") return variant.at("parameters").get<double>() / 1e6;
  if (kind == "p") return variant.at("summary").at(metric).at("p").get<double>();
  const Json& other = named(file["variants"], "name", against == "-" ? file.at("base").get<std::string>() : against);
  std::vector<double> own, reference, differences;
  for (const Json& run : variant.at("runs")) {
    own.push_back(metric_of(run, metric));
    for (const Json& partner : other.at("runs")) {
      if (partner.at("seed") != run.at("seed")) continue;
      reference.push_back(metric_of(partner, metric));
      differences.push_back(own.back() - reference.back());
    }
  }
  const double mean = mean_of(own);
  if (kind == "mean") return mean;
  if (kind == "percent") return 100 * mean;
  if (kind == "milliseconds") return 1e3 / mean;
  if (kind == "update_ms") return 1e3 * variant.at("runs")[0].at("tokens_per_step").get<double>() / mean;
  if (kind == "ratio") return mean / mean_of(reference);
  if (kind == "longer") return 100 * (mean_of(reference) / mean - 1);
  const PairedTest test = paired_test(differences);
  if (kind == "difference") return test.difference;
  const double scale = (find_metric(metric)->higher_better ? 100 : -100) / mean_of(reference);
  const double half = *test.ci95_half_width * std::abs(scale);
  if (kind == "gain") return test.difference * scale;
  if (kind == "gain_low") return test.difference * scale - half;
  if (kind == "gain_high") return test.difference * scale + half;
  throw Error("unknown kind " + kind);
}

/// Whether `text` is the value's magnitude, rounded to as many decimals as it has.
bool rounds_to(double value, std::string text) {
  std::erase(text, ',');
  const size_t point = text.find('.');
  const double unit = std::pow(10.0, point == std::string::npos ? 0 : -static_cast<double>(text.size() - point - 1));
  return std::abs(std::abs(value) - std::stod(text)) <= 0.5005 * unit;
}

TEST(QuotedNumbersTest, EqualTheResults) {
  const Json quotes = Json::parse(source("tests/golden/lab/quoted_numbers.json"));
  size_t checked = 0;
  for (const Json& quote : quotes) {
    const auto page = quote.at("page").get<std::string>();
    const auto text = quote.at("text").get<std::string>();
    EXPECT_NE(with_single_spaces(source(page)).find(text), std::string::npos)
        << page << " no longer says: " << text << "; update tests/golden/lab/quoted_numbers.json";
    const std::vector<std::string> numbers = numbers_in(text);
    ASSERT_EQ(numbers.size(), quote.at("numbers").size()) << text;
    for (size_t i = 0; i < numbers.size(); ++i) {
      const auto expression = quote["numbers"][i].get<std::string>();
      if (expression == "-") continue;
      const double value = value_of(expression);
      EXPECT_TRUE(rounds_to(value, numbers[i])) << page << ": \"" << text << "\" says " << numbers[i]
                                                << ", the results say " << value << " (" << expression << ")";
      ++checked;
    }
  }
  EXPECT_GE(checked, 110U);
}

TEST(QuotedNumbersTest, AWrongNumberIsFound) {
  EXPECT_TRUE(rounds_to(-0.0423, "0.042"));
  EXPECT_FALSE(rounds_to(0.0428, "0.042"));
  EXPECT_FALSE(rounds_to(value_of("headline gpt2-pre - best_loss mean"), "1.489"));
}

// Every measured rule of the guide is quoted above, so that none goes unchecked.
TEST(QuotedNumbersTest, EveryMeasuredRuleOfTheGuideIsListed) {
  const Json quotes = Json::parse(source("tests/golden/lab/quoted_numbers.json"));
  const Json guide = Json::parse(source("presets/advice/guide.json"));
  for (const Json& rule : guide.at("rules")) {
    for (const Json& evidence : rule.at("evidence")) {
      if (!evidence.contains("study")) continue;
      const auto text = evidence.at("text").get<std::string>();
      const bool listed = std::any_of(quotes.begin(), quotes.end(), [&](const Json& quote) {
        return quote.at("page") == "presets/advice/guide.json" &&
               text.find(quote.at("text").get<std::string>()) != std::string::npos;
      });
      EXPECT_TRUE(listed) << "add to tests/golden/lab/quoted_numbers.json: " << text;
    }
  }
}

// The Chinese texts quote the same decimal numbers.
TEST(QuotedNumbersTest, ChineseTextsQuoteTheSameNumbers) {
  constexpr const char* kDecimal = "[0-9]+\\.[0-9]+";
  const std::vector<std::string> known = numbers_in(source("docs/studies/README.md"), kDecimal);
  for (const std::string& number : numbers_in(source("docs/zh/claims.md"), kDecimal)) {
    EXPECT_NE(std::find(known.begin(), known.end(), number), known.end()) << "docs/zh/claims.md: " << number;
  }
  const Json english = Json::parse(source("presets/advice/guide.json"));
  const Json chinese = Json::parse(source("presets/advice/guide-zh.json"));
  for (const Json& rule : english.at("rules")) {
    for (size_t i = 0; i < rule.at("evidence").size(); ++i) {
      const auto numbers = [](const std::string& text) {
        const std::vector<std::string> all = numbers_in(text, "[0-9]+\\.[0-9]+(?!M)");
        return std::multiset<std::string>(all.begin(), all.end());
      };
      // Chinese counts parameters in units of ten thousand: 10.7M is 1070 万.
      const std::multiset<std::string> expected = numbers(rule["evidence"][i].at("text").get<std::string>());
      const auto said = chinese.at("rules").at(rule.at("id").get<std::string>()).at("evidence")[i].get<std::string>();
      EXPECT_EQ(expected, numbers(said)) << said;
    }
  }
}

}  // namespace
}  // namespace lamina::lab
