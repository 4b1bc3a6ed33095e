#include "lamina/arch/cluster/search.h"

#include <algorithm>
#include <cstdio>
#include <map>
#include <nlohmann/json.hpp>
#include <tuple>

#include "lamina/arch/edit.h"
#include "lamina/arch/plan.h"
#include "lamina/arch/value_json.h"
#include "lamina/arch/value_range.h"
#include "lamina/arch/value_read.h"

namespace lamina::arch {
namespace {

std::vector<int64_t> divisors_of(int64_t number) {
  std::vector<int64_t> low;
  std::vector<int64_t> high;
  for (int64_t i = 1; i * i <= number; ++i) {
    if (number % i != 0) continue;
    low.push_back(i);
    if (i * i != number) high.push_back(number / i);
  }
  low.insert(low.end(), high.rbegin(), high.rend());
  return low;
}

/// Values to try for a field of the layout: the fixed one, if the wish fixes it, otherwise `all`.
std::vector<int64_t> choices(const LayoutWish& wish, const char* field, int64_t fixed, std::vector<int64_t> all) {
  if (wish.has(field)) return {fixed};
  return all;
}

/// Layouts with the same dp, tp, pp, cp and ep count as variants of one layout.
using Sizes = std::tuple<int64_t, int64_t, int64_t, int64_t, int64_t>;

/// Enumerates layouts. The outer loops are over the fields on which the costs of a layer depend.
class LayoutFinder {
 public:
  LayoutFinder(const Cluster& cluster, const ModelShape& model, const TrainingSetup& setup, const LayoutWish& wish,
               int64_t devices)
      : cluster_(cluster), model_(model), setup_(setup), wish_(wish), devices_(devices) {
    for (const LayerShape& kind : model.kinds) most_experts_ = std::max(most_experts_, kind.experts);
  }

  void run() {
    const Layout& fixed = wish_.layout;
    for (const int64_t tp : choices(wish_, "tp", fixed.tp, divisors_of(devices_))) {
      if (devices_ % tp != 0) continue;
      for (const int64_t cp : choices(wish_, "cp", fixed.cp, context_sizes(devices_ / tp))) {
        if (devices_ / tp % cp != 0) continue;
        for (const int64_t ep : choices(wish_, "ep", fixed.ep, expert_sizes(devices_ / tp))) {
          Layout layout = fixed;
          layout.tp = tp;
          layout.cp = cp;
          layout.ep = ep;
          if (!wish_.has("sequence")) layout.sequence = tp > 1;
          try_micro_batches(layout);
        }
      }
    }
  }

  LayoutSearch take(size_t most) {
    std::vector<StepEstimate> all;
    for (auto& [sizes, estimate] : fastest_) all.push_back(std::move(estimate));
    std::stable_sort(all.begin(), all.end(), [](const StepEstimate& a, const StepEstimate& b) {
      return a.seconds.total() < b.seconds.total();
    });
    if (all.size() > most) all.resize(most);
    found_.best = std::move(all);
    for (const StepEstimate& estimate : found_.best) found_.limits.push_back(limit_sentence(estimate));
    return std::move(found_);
  }

 private:
  /// Context-parallel sizes whose pieces have at least 256 tokens. Smaller pieces are not worth their communication.
  std::vector<int64_t> context_sizes(int64_t devices) const {
    std::vector<int64_t> sizes;
    for (const int64_t size : divisors_of(devices)) {
      if (size == 1 || setup_.length / size >= 256) sizes.push_back(size);
    }
    return sizes;
  }
  std::vector<int64_t> expert_sizes(int64_t devices) const {
    std::vector<int64_t> sizes{1};
    for (const int64_t size : divisors_of(devices)) {
      if (size > 1 && size <= most_experts_) sizes.push_back(size);
    }
    return sizes;
  }

  void try_micro_batches(Layout layout) {
    std::vector<int64_t> powers;
    for (int64_t size = 1; size <= std::min<int64_t>(setup_.batch, 64); size *= 2) powers.push_back(size);
    for (const int64_t micro : choices(wish_, "micro_batch", wish_.layout.micro_batch, powers)) {
      layout.micro_batch = micro;
      costs_.reset();
      try_pipelines(layout);
    }
  }

  void try_pipelines(Layout layout) {
    const int64_t rest = devices_ / layout.tp / layout.cp;
    for (const int64_t pp : choices(wish_, "pp", wish_.layout.pp, divisors_of(rest))) {
      if (rest % pp != 0 || pp > static_cast<int64_t>(model_.layers.size())) continue;
      layout.pp = pp;
      layout.dp = rest / pp;
      if (wish_.has("dp") && layout.dp != wish_.layout.dp) continue;
      for (const int64_t chunks : choices(wish_, "interleave", wish_.layout.interleave, chunk_counts(pp))) {
        layout.interleave = chunks;
        layout.schedule = chunks > 1 ? PipelineSchedule::interleaved : PipelineSchedule::one_forward_one_backward;
        if (wish_.has("schedule") && layout.schedule != wish_.layout.schedule) continue;
        if (is_possible(model_, setup_, layout, devices_)) try_memory_savings(layout);
      }
    }
  }

  /// Numbers of chunks per stage for which chunks have equal numbers of layers. Embedding and head may each count as a
  /// layer.
  std::vector<int64_t> chunk_counts(int64_t pp) const {
    std::vector<int64_t> counts{1};
    const auto layers = static_cast<int64_t>(model_.layers.size());
    for (int64_t chunks = 2; pp > 1 && chunks * pp <= layers + 2; ++chunks) {
      if (layers % (chunks * pp) == 0 || (layers + 2) % (chunks * pp) == 0) counts.push_back(chunks);
    }
    return counts;
  }

  void try_memory_savings(Layout layout) {
    const bool copies = layout.dp * layout.cp > 1;
    if (!costs_) costs_ = cost_table(cluster_, model_, setup_, layout);
    for (const int64_t zero : choices(wish_, "zero", wish_.layout.zero, copies ? kAllStages : kNoStage)) {
      layout.zero = zero;
      for (const Recompute recompute : {Recompute::none, Recompute::selective, Recompute::full}) {
        if (wish_.has("recompute") && recompute != wish_.layout.recompute) continue;
        layout.recompute = recompute;
        note(estimate_step(cluster_, model_, setup_, layout, *costs_));
      }
    }
  }

  void note(const StepEstimate& estimate) {
    if (found_.considered++ == 0 || estimate.memory.total() < found_.smallest.memory.total()) {
      found_.smallest = estimate;
    }
    const Layout& l = estimate.layout;
    const Sizes sizes{l.dp, l.tp, l.pp, l.cp, l.ep};
    auto& table = estimate.memory.fits() ? fastest_ : too_large_;
    if (estimate.memory.fits()) ++found_.fitting;
    const auto [found, fresh] = table.emplace(sizes, estimate);
    if (!fresh && estimate.seconds.total() < found->second.seconds.total()) found->second = estimate;
  }

  /// Says what limits a layout. That is memory if a variant with another micro-batch, ZeRO stage or recomputation would
  /// be 5 % faster but does not fit.
  std::string limit_sentence(const StepEstimate& estimate) const {
    const Layout& l = estimate.layout;
    const auto found = too_large_.find({l.dp, l.tp, l.pp, l.cp, l.ep});
    if (found == too_large_.end() || found->second.seconds.total() > 0.95 * estimate.seconds.total())
      return limit_text(estimate);
    const StepEstimate& larger = found->second;
    const double gain = 100 * (1 - larger.seconds.total() / estimate.seconds.total());
    char percent[16];
    std::snprintf(percent, sizeof percent, "%.0f", gain);
    return str("memory: ", to_text(larger.layout), " would be ", percent, " % faster but needs ",
               short_bytes(larger.memory.total()), " of ", short_bytes(larger.memory.capacity));
  }

  static inline const std::vector<int64_t> kAllStages{0, 1, 2, 3};
  static inline const std::vector<int64_t> kNoStage{0};

  const Cluster& cluster_;
  const ModelShape& model_;
  const TrainingSetup& setup_;
  const LayoutWish& wish_;
  int64_t devices_;
  int64_t most_experts_ = 0;
  std::optional<CostTable> costs_;  ///< costs for the current tp, cp, ep and micro-batch
  std::map<Sizes, StepEstimate> fastest_;
  std::map<Sizes, StepEstimate> too_large_;
  LayoutSearch found_;
};

/// Applies assignments to a value: writes it as JSON, changes the JSON, and reads it back.
template <class T>
T overridden(const T& value, const std::vector<std::string>& assignments, const SchemaNode& schema, const char* whole,
             std::vector<Problem>& problems, std::vector<std::string>* keys = nullptr) {
  Json json = value_to_json(value, Defaults::write);
  for (const std::string& assignment : assignments) {
    try {
      const auto [path, given] = parse_assignment(assignment);
      set_value(json, path, given, schema, whole);
      if (keys != nullptr) keys->push_back(path);
    } catch (const Error& error) {
      problems.push_back({"read", "", error.what(), ""});
    }
  }
  T changed;
  ValueReader(problems).read(json, changed, "");
  RangeCheck([&problems](const std::string& path, const std::string& message) {
    problems.push_back({"range", path, message, ""});
  }).check(changed, Limits{}, "");
  return changed;
}

}  // namespace

bool LayoutWish::has(std::string_view field) const {
  return std::find(fixed.begin(), fixed.end(), field) != fixed.end();
}

LayoutWish read_layout_wish(const std::vector<std::string>& assignments) {
  std::vector<Problem> problems;
  LayoutWish wish;
  wish.layout = overridden(Layout{}, assignments, layout_schema(), "a layout", problems, &wish.fixed);
  if (!problems.empty()) throw SpecError("--set layout", std::move(problems));
  if (wish.has("interleave") && !wish.has("schedule") && wish.layout.interleave > 1)
    wish.layout.schedule = PipelineSchedule::interleaved;
  return wish;
}

TrainingSetup with_setup_overrides(const TrainingSetup& setup, const std::vector<std::string>& assignments) {
  std::vector<Problem> problems;
  TrainingSetup changed = overridden(setup, assignments, setup_schema(), "a training setup", problems);
  if (!problems.empty()) throw SpecError("--set training", std::move(problems));
  return changed;
}

LayoutSearch find_layouts(const Cluster& cluster, const ModelShape& model, const TrainingSetup& setup,
                          const LayoutWish& wish, int64_t devices, size_t most) {
  constexpr int64_t kMostDevices = 1 << 24;
  LAMINA_CHECK(devices >= 1 && devices <= kMostDevices, devices, " devices; expected 1 to ", kMostDevices);
  LayoutFinder finder(cluster, model, setup, wish, devices);
  finder.run();
  LayoutSearch found = finder.take(most);
  if (found.considered > 0) return found;
  Layout layout = wish.layout;
  const int64_t others = layout.tp * layout.pp * layout.cp;
  if (!wish.has("dp") && devices % others == 0) layout.dp = devices / others;
  std::vector<Problem> problems = layout_problems(model, setup, layout, devices);
  if (problems.empty()) {
    problems.push_back({"layout", "layout", str("no layout divides ", devices, " devices and batch ", setup.batch),
                        "use a batch that is a multiple of the devices"});
  }
  throw SpecError("no possible layout", std::move(problems));
}

}  // namespace lamina::arch
