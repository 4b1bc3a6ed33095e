#include <algorithm>
#include <cstdio>

#include "lamina/arch/plan.h"
#include "lamina/lab/results.h"

namespace lamina::lab {
namespace {

std::string format(const char* pattern, double value) {
  char buffer[64];
  std::snprintf(buffer, sizeof buffer, pattern, value);
  return buffer;
}

/// Columns as wide as their widest cell; the first to the left, the others to the right.
std::string aligned(const std::vector<std::vector<std::string>>& rows) {
  std::vector<size_t> widths(rows[0].size(), 0);
  const auto columns = [](const std::string& text) {
    return static_cast<size_t>(std::count_if(text.begin(), text.end(),
                                             [](char c) { return (static_cast<unsigned char>(c) & 0xC0U) != 0x80U; }));
  };
  for (const auto& row : rows) {
    for (size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], columns(row[i]));
  }
  std::string text;
  for (const auto& row : rows) {
    std::string line;
    for (size_t i = 0; i < row.size(); ++i) {
      const std::string padding(widths[i] - columns(row[i]), ' ');
      line += i == 0 ? row[i] + padding : "  " + padding + row[i];
    }
    text += line.substr(0, line.find_last_not_of(' ') + 1) + "\n";
  }
  return text;
}

const MetricSummary* summary_of(const VariantResult& variant, const char* metric) {
  const auto found = variant.summary.find(metric);
  return found == variant.summary.end() || !found->second.mean ? nullptr : &found->second;
}

std::string mean(const VariantResult& variant, const char* metric, const char* pattern) {
  const MetricSummary* summary = summary_of(variant, metric);
  return summary == nullptr ? "-" : format(pattern, *summary->mean);
}

std::string mean_and_spread(const VariantResult& variant, const char* metric, const char* pattern) {
  const MetricSummary* summary = summary_of(variant, metric);
  if (summary == nullptr) return "-";
  return format(pattern, *summary->mean) + (summary->spread ? " ±" + format(pattern, *summary->spread) : "");
}

std::string p_cell(const MetricSummary* summary) {
  if (summary == nullptr || !summary->p) return "-";
  return *summary->p < 0.001 ? "<0.001" : format("%.3f", *summary->p);
}

std::vector<std::string> row_of(const VariantResult& variant, const char* metric, const char* pattern) {
  const MetricSummary* main = summary_of(variant, metric);
  const MetricSummary* memory = summary_of(variant, "peak_memory_bytes");
  return {variant.variant.name,
          variant.parameters > 0 ? arch::short_number(static_cast<double>(variant.parameters)) : "-",
          mean_and_spread(variant, metric, pattern),
          main != nullptr && main->difference ? format("%+.4f", *main->difference) : "-",
          p_cell(main),
          main != nullptr ? main->mark : "-",
          mean(variant, "final_loss", "%.4f"),
          mean(variant, "bits_per_byte", "%.4f"),
          mean(variant, "steps_to_target", "%.0f"),
          mean(variant, "tokens_per_second", "%.0f"),
          mean(variant, "decode_tokens_per_second", "%.0f"),
          memory == nullptr ? "-" : arch::short_bytes(*memory->mean),
          variant.parameters > 0 ? arch::short_bytes(variant.kv_bytes_per_token) : "-",
          mean(variant, "spikes", "%.1f")};
}

}  // namespace

std::string results_table(const Results& results) {
  const bool accuracy = results.study.metric == Metric::accuracy;
  std::vector<std::vector<std::string>> rows = {{"variant", "params", accuracy ? "accuracy" : "best loss", "difference",
                                                 "p", "mark", "final", "bits/byte", "to target", "tok/s", "decode/s",
                                                 "memory", "KV/token", "spikes"}};
  for (const VariantResult& variant : results.variants) {
    if (variant.cannot.empty()) rows.push_back(row_of(variant, accuracy ? "accuracy" : "best_loss", "%.4f"));
  }
  std::string text = aligned(rows) + "\n";
  for (const VariantResult& variant : results.variants) {
    if (variant.adjusted) {
      text += str(variant.variant.name, ": ", variant.adjusted->field, " ", variant.adjusted->from, " → ",
                  variant.adjusted->to, format(", %+.2f %% of the base remain\n", 100 * variant.adjusted->difference));
    }
    if (variant.highest_stable_learning_rate) {
      text += str(variant.variant.name, ": highest stable learning rate ",
                  format("%.3g", *variant.highest_stable_learning_rate), "\n");
    }
  }
  for (const Finding& finding : results.findings) {
    text += "- " + finding.text + (finding.verdict.empty() ? "" : " " + finding.claim + ": " + finding.verdict) + "\n";
  }
  return text;
}

}  // namespace lamina::lab
