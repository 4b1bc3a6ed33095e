#include <cstdio>

#include "lamina/arch/plan.h"
#include "lamina/base/error.h"

namespace lamina::arch {
namespace {

template <class... Args>
std::string line(const char* format, Args... args) {
  char text[512];
  std::snprintf(text, sizeof text, format, args...);
  return std::string(text) + "\n";
}

std::string parameter_table(const Plan& plan) {
  std::string text =
      line("%-26s %18s %8s %22s %22s", "PARAMETERS", "in a layer", "layers", "total", "active per token");
  std::string where;
  for (const CountRow& row : plan.parameters.rows) {
    if (row.where != where && !row.where.empty()) text += row.where + "\n";
    where = row.where;
    const std::string name = (row.where.empty() ? "" : "  ") + row.component;
    text +=
        line("%-26s %18s %8s %22s %22s", name.c_str(), with_commas(row.each).c_str(), with_commas(row.layers).c_str(),
             with_commas(row.total).c_str(), row.active == row.total ? "" : with_commas(row.active).c_str());
  }
  const ParameterCount& count = plan.parameters;
  return text + line("%-26s %18s %8s %22s %22s", "all", "", with_commas(plan.layers).c_str(),
                     with_commas(count.total).c_str(),
                     count.active == count.total ? "" : with_commas(count.active).c_str());
}

std::string work_table(const Plan& plan) {
  std::string text = line("WORK per token, averaged over %s tokens", with_commas(plan.options.length).c_str());
  const auto row = [&text](const char* name, double value) {
    text += line("  %-24s %18s", name, (short_number(value) + "FLOP").c_str());
  };
  row("products", plan.flops.products);
  row("attention and scans", plan.flops.mixing);
  row("forward", plan.flops.forward());
  row("training, 3 x forward", plan.flops.training());
  return text;
}

std::string cache_table(const Plan& plan) {
  if (plan.cache.empty()) return "CACHE: none, because attention is not causal\n";
  const double bytes = plan.options.bytes_per_number;
  std::string text = line("%-26s %-32s %8s %14s %14s", "CACHE of one sequence", "kind", "layers", "a token adds",
                          str("at ", with_commas(plan.options.length)).c_str());
  double per_token = 0;
  double whole = 0;
  for (const CacheRow& row : plan.cache) {
    const double adds = row.per_token * static_cast<double>(row.layers) * bytes;
    const double holds = row.at(plan.options.length) * bytes;
    per_token += adds;
    whole += holds;
    const std::string kind =
        row.kind + (row.max_tokens > 0 ? str(", at most ", with_commas(static_cast<int64_t>(row.max_tokens))) : "");
    text += line("  %-24s %-32s %8s %14s %14s", row.where.c_str(), kind.c_str(), with_commas(row.layers).c_str(),
                 short_bytes(adds).c_str(), short_bytes(holds).c_str());
  }
  return text +
         line("  %-24s %-32s %8s %14s %14s", "all", "", "", short_bytes(per_token).c_str(), short_bytes(whole).c_str());
}

std::string memory_table(const Plan& plan) {
  if (!plan.memory) return "";
  std::string text = line("MEMORY to train with AdamW on a CPU, batch %s x %s tokens, %d bytes a number",
                          with_commas(plan.options.batch).c_str(), with_commas(plan.options.length).c_str(),
                          plan.options.bytes_per_number);
  const auto row = [&text](const char* name, double value) {
    text += line("  %-24s %18s", name, short_bytes(value).c_str());
  };
  row("weights", plan.memory->weights);
  row("gradients", plan.memory->gradients);
  row("optimizer", plan.memory->optimizer);
  row("activations", plan.memory->activations);
  row("copy to save", plan.memory->saving);
  row("all", plan.memory->total());
  return text + "\n";
}

std::string advice_list(const Plan& plan) {
  std::string text = "ADVICE\n";
  for (const Advice& item : plan.advice) {
    text += str(item.verdict == Advice::Verdict::usual ? "  usual  " : "  look   ", item.subject, ": ", item.found,
                "\n", "         ", item.reason, "\n");
  }
  return text;
}

std::string scaled(double value, const char* const* units, int count) {
  int unit = 0;
  while (value >= 999.5 && unit + 1 < count) {  // the next unit, if the number would round to 1000
    value /= 1000;
    ++unit;
  }
  char text[64];
  std::snprintf(text, sizeof text, unit == 0 ? "%.0f%s" : "%.3g%s", value, units[unit]);
  return text;
}

}  // namespace

std::string with_commas(int64_t value) {
  std::string digits = std::to_string(value);
  const size_t first = value < 0 ? 1 : 0;
  for (size_t at = digits.size(); at > first + 3;) {
    at -= 3;
    digits.insert(at, 1, ',');
  }
  return digits;
}

std::string short_number(double value) {
  static constexpr const char* kUnits[] = {" ", " k", " M", " G", " T", " P", " E"};
  return scaled(value, kUnits, 7);
}

std::string short_bytes(double value) {
  static constexpr const char* kUnits[] = {" B", " kB", " MB", " GB", " TB", " PB", " EB"};
  return scaled(value, kUnits, 7);
}

std::string to_text(const Plan& plan) {
  const std::string title = plan.spec.about.empty() ? plan.name : plan.name + ": " + plan.spec.about;
  return title + "\n\n" + parameter_table(plan) + "\n" + work_table(plan) + "\n" + cache_table(plan) + "\n" +
         memory_table(plan) + advice_list(plan);
}

}  // namespace lamina::arch
