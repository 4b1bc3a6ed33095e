#include "lamina/serve/api/metrics.h"

#include <gtest/gtest.h>

#include <sstream>

namespace lamina::serve {
namespace {

double value_of(const std::string& text, const std::string& name) {
  const size_t at = text.find("\n" + name + " ");
  EXPECT_NE(at, std::string::npos) << name << " in " << text;
  return at == std::string::npos ? -1 : std::stod(text.substr(at + name.size() + 2));
}

TEST(serve_metrics, histograms_are_cumulative_and_exact) {
  Histogram histogram;
  double sum = 0;
  for (int i = 0; i < 1000; ++i) {
    histogram.add(i * 0.1, 3);
    sum += 3 * (i * 0.1);
  }
  histogram.add(3e6);  // weeks of waiting leave the digits of a second
  sum += 3e6;
  const std::string text = "\n" + histogram.text("h", "model=\"a\"");
  EXPECT_NEAR(value_of(text, "h_sum{model=\"a\"}"), sum, 1e-6);
  EXPECT_EQ(value_of(text, "h_count{model=\"a\"}"), 3001);
  EXPECT_EQ(value_of(text, "h_bucket{model=\"a\",le=\"+Inf\"}"), 3001);
  std::istringstream lines(text);
  double last = 0;
  for (std::string line; std::getline(lines, line);) {
    if (!line.starts_with("h_bucket")) continue;
    const double count = std::stod(line.substr(line.rfind(' ')));
    EXPECT_GE(count, last);
    last = count;
  }
}

TEST(serve_metrics, every_model_has_histograms_from_the_start) {
  Metrics metrics;
  metrics.add_first_token("b", 0.2);
  const std::string text = metrics.text({{"a", {}, {}, {}}, {"b", {}, {}, {}}});
  EXPECT_EQ(value_of(text, "lamina_time_to_first_token_seconds_count{model=\"a\"}"), 0);
  EXPECT_EQ(value_of(text, "lamina_time_to_first_token_seconds_count{model=\"b\"}"), 1);
  EXPECT_EQ(value_of(text, "lamina_request_seconds_count{model=\"a\"}"), 0);
}

}  // namespace
}  // namespace lamina::serve
