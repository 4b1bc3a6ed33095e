#include "lamina/arch/cluster/cluster_plan.h"

#include <algorithm>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "lamina/arch/plan.h"
#include "lamina/arch/value_json.h"

namespace lamina::arch {
namespace {

constexpr const char* kPrefixes[] = {"layout.", "training.", "cluster."};

/// The assignments that begin with this prefix, with the prefix removed.
std::vector<std::string> with_prefix(const std::vector<std::string>& assignments, const std::string& prefix) {
  std::vector<std::string> found;
  for (const std::string& assignment : assignments) {
    if (assignment.starts_with(prefix)) found.push_back(assignment.substr(prefix.size()));
  }
  return found;
}

/// Number of sequences in a batch of about 4 million tokens. If that is at least one per device, it is rounded up to a
/// multiple of the devices.
int64_t usual_batch(int64_t length, int64_t devices) {
  const int64_t sequences = std::max<int64_t>(1, (int64_t{4} << 20) / length);
  return devices > sequences ? sequences : (sequences + devices - 1) / devices * devices;
}

template <class... Args>
std::string formatted(const char* format, Args... args) {
  char text[512];
  std::snprintf(text, sizeof text, format, args...);
  return text;
}

std::string layout_table(const ClusterPlan& plan) {
  std::string text =
      formatted("%3s %6s %4s %4s %4s %4s %5s %10s %6s %-10s %10s %12s %6s %9s\n", "", "dp", "tp", "pp", "cp", "ep",
                "zero", "interleave", "micro", "recompute", "s/step", "tokens/s", "MFU", "memory");
  for (size_t i = 0; i < plan.search.best.size(); ++i) {
    const StepEstimate& estimate = plan.search.best[i];
    const Layout& l = estimate.layout;
    const auto number = [](int64_t value) { return static_cast<long long>(value); };
    text += formatted("%3zu %6lld %4lld %4lld %4lld %4lld %5lld %10lld %6lld %-10s %10.4g %12s %5.1f%% %9s\n", i + 1,
                      number(l.dp), number(l.tp), number(l.pp), number(l.cp), number(l.ep), number(l.zero),
                      number(l.interleave), number(l.micro_batch),
                      std::string(names_of(l.recompute)[static_cast<size_t>(l.recompute)]).c_str(),
                      estimate.seconds.total(), short_number(estimate.tokens_per_second).c_str(),
                      100 * estimate.utilisation, short_bytes(estimate.memory.total()).c_str());
    text += "      limited by " + plan.search.limits[i] + "\n";
  }
  return text;
}

std::string memory_lines(const StepEstimate& best) {
  const DeviceMemory& m = best.memory;
  std::string text =
      str("MEMORY of the device that needs most: ", short_bytes(m.total()), " of ", short_bytes(m.capacity), "\n");
  const std::pair<const char*, double> rows[] = {{"weights", m.weights},     {"gradients", m.gradients},
                                                 {"optimizer", m.optimizer}, {"activations", m.activations},
                                                 {"temporary", m.temporary}, {"free", m.capacity - m.total()}};
  for (const auto& [name, bytes] : rows) text += formatted("  %-34s %12s\n", name, short_bytes(bytes).c_str());
  return text;
}

/// Parts of a step with their names, in the order used by the text, the JSON and the picture.
std::vector<std::pair<const char*, double>> named_parts(const StepSeconds& s) {
  return {{"matrix products", s.passes.products},
          {"attention and scans", s.passes.mixing},
          {"norms, activations, accumulation", s.passes.memory},
          {"recomputation", s.passes.recompute},
          {"tensor-parallel communication", s.passes.tensor},
          {"context-parallel communication", s.passes.context},
          {"expert exchange", s.passes.exchange},
          {"pipeline sends", s.pipeline},
          {"data-parallel communication", s.data},
          {"optimizer", s.optimizer},
          {"pipeline bubble", s.bubble}};
}

std::string time_lines(const StepEstimate& best) {
  const double total = best.seconds.total();
  std::string text = formatted("TIME of a step on the slowest stage: %.4g s\n", total);
  for (const auto& [name, seconds] : named_parts(best.seconds)) {
    if (seconds > 0) text += formatted("  %-34s %10.4g s %5.1f%%\n", name, seconds, 100 * seconds / total);
  }
  return text;
}

Json estimate_json(const StepEstimate& estimate, const std::string& limit) {
  Json seconds = Json::object();
  for (const auto& [name, value] : named_parts(estimate.seconds)) seconds[name] = value;
  seconds["total"] = estimate.seconds.total();
  const DeviceMemory& m = estimate.memory;
  return {{"layout", value_to_json(estimate.layout, Defaults::write)},
          {"seconds", seconds},
          {"tokens_per_second", estimate.tokens_per_second},
          {"flops_per_device", estimate.flops_per_device},
          {"mfu", estimate.utilisation},
          {"micro_batches", estimate.micro_batches},
          {"memory",
           {{"weights", m.weights},
            {"gradients", m.gradients},
            {"optimizer", m.optimizer},
            {"activations", m.activations},
            {"temporary", m.temporary},
            {"total", m.total()},
            {"capacity", m.capacity}}},
          {"limit", names_of(Limit{})[static_cast<size_t>(limit_of(estimate))]},
          {"limited_by", limit}};
}

}  // namespace

bool is_cluster_override(const std::string& assignment) {
  return std::any_of(std::begin(kPrefixes), std::end(kPrefixes),
                     [&](const char* prefix) { return assignment.starts_with(prefix); });
}

ClusterPlan make_cluster_plan(const std::string& name, const ArchSpec& resolved, const ClusterPlanOptions& options) {
  ClusterPlan plan;
  plan.name = name;
  plan.cluster_name = options.cluster;
  plan.devices = options.devices;
  plan.cluster = with_cluster_overrides(load_cluster(options.cluster), with_prefix(options.overrides, "cluster."));
  plan.setup = options.setup;
  if (plan.setup.length == 0) plan.setup.length = std::min<int64_t>(resolved.context, 8192);
  if (plan.setup.batch == 0) plan.setup.batch = usual_batch(plan.setup.length, options.devices);
  plan.setup = with_setup_overrides(plan.setup, with_prefix(options.overrides, "training."));
  plan.model = model_shape(resolved, plan.setup.length);
  const LayoutWish wish = read_layout_wish(with_prefix(options.overrides, "layout."));
  plan.search = find_layouts(plan.cluster, plan.model, plan.setup, wish, plan.devices, options.most);
  if (!plan.search.best.empty()) return plan;
  const StepEstimate& smallest = plan.search.smallest;
  const DeviceMemory& m = smallest.memory;
  throw Error(str("none of ", with_commas(plan.search.considered), " layouts fits into ", short_bytes(m.capacity),
                  " per device; the smallest needs ", short_bytes(m.total()), ", ", short_bytes(m.total() - m.capacity),
                  " too much: ", to_text(smallest.layout), " (weights ", short_bytes(m.weights), ", gradients ",
                  short_bytes(m.gradients), ", optimizer ", short_bytes(m.optimizer), ", activations ",
                  short_bytes(m.activations), ", temporary ", short_bytes(m.temporary),
                  "); use more devices, a shorter length, or fix fewer fields of the layout"));
}

std::string to_text(const ClusterPlan& plan) {
  const StepEstimate& best = plan.search.best.at(0);
  std::string text = str(plan.name, ", ", short_number(plan.model.parameters), " parameters, on ",
                         with_commas(plan.devices), " devices of ", plan.cluster_name, ", batch ",
                         with_commas(plan.setup.batch), " x ", with_commas(plan.setup.length), " tokens, ",
                         names_of(plan.setup.dtype)[static_cast<size_t>(plan.setup.dtype)], "\n");
  if (!plan.cluster.about.empty()) text += plan.cluster.about + "\n";
  text += str("\nLAYOUTS, fastest first; ", with_commas(plan.search.fitting), " of ",
              with_commas(plan.search.considered), " possible ones fit into memory\n");
  return text + layout_table(plan) + "\nTHE FASTEST: " + to_text(best.layout) + "\n" + time_lines(best) +
         memory_lines(best);
}

std::string to_json_text(const ClusterPlan& plan) {
  Json layouts = Json::array();
  for (size_t i = 0; i < plan.search.best.size(); ++i) {
    layouts.push_back(estimate_json(plan.search.best[i], plan.search.limits[i]));
  }
  const Json json = {{"name", plan.name},
                     {"parameters", plan.model.parameters},
                     {"devices", plan.devices},
                     {"cluster", value_to_json(plan.cluster, Defaults::write)},
                     {"training", value_to_json(plan.setup, Defaults::write)},
                     {"considered", plan.search.considered},
                     {"fitting", plan.search.fitting},
                     {"layouts", layouts}};
  return json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace lamina::arch
