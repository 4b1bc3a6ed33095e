#include "lamina/arch/cluster/cluster.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <set>

#include "lamina/arch/cluster/cluster_plan.h"
#include "lamina/arch/cluster/collectives.h"
#include "lamina/arch/cluster/schedule.h"
#include "lamina/arch/cost.h"
#include "lamina/arch/count.h"
#include "lamina/arch/edit.h"
#include "lamina/arch/presets.h"
#include "lamina/arch/reach.h"
#include "lamina/arch/resolve.h"
#include "lamina/arch/tensor_shards.h"
#include "lamina/base/files.h"

namespace lamina::arch {
namespace {

ArchSpec cluster_preset(const std::string& name, const std::vector<std::string>& changes = {}) {
  return resolve(with_overrides(load_preset(name), changes), name);
}

std::string message_for(const std::string& text) {
  try {
    read_cluster(text, "test.json");
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

void add_number_paths(const nlohmann::json& json, const std::string& path, std::set<std::string>& paths) {
  for (const auto& [key, value] : json.items()) {
    const std::string below = path.empty() ? key : path + "." + key;
    if (value.is_object()) add_number_paths(value, below, paths);
    if (value.is_number() && key != "schema") paths.insert(below);
  }
}

TEST(ClusterFile, everyValueOfThePresetsHasASource) {
  std::set<std::string> names;
  for (const ClusterFile& file : cluster_files()) {
    names.emplace(file.name);
    std::set<std::string> numbers;
    add_number_paths(nlohmann::json::parse(file.text), "", numbers);
    std::set<std::string> sources;
    for (const FieldSource& source : read_cluster(file.text, std::string(file.name)).sources) {
      EXPECT_FALSE(source.source.empty()) << file.name << " " << source.field;
      sources.insert(source.field);
    }
    EXPECT_EQ(numbers, sources) << file.name;
  }
  EXPECT_EQ(names, (std::set<std::string>{"a100-80gb", "cpu-2s", "h100", "h200"}));
}

TEST(ClusterFile, badFilesAreRefusedWithEveryProblem) {
  EXPECT_NE(message_for("{}").find("device.peak.bf16: 0 or missing"), std::string::npos) << message_for("{}");
  EXPECT_NE(message_for(R"({"netwrok": {}})").find("did you mean network?"), std::string::npos);
  const std::string wrong = message_for(R"({"efficiency": {"product": 2, "memory": "fast"}, "schema": 9})");
  EXPECT_NE(wrong.find("efficiency.product: 2, expected 0.001 to 1"), std::string::npos) << wrong;
  EXPECT_NE(wrong.find("efficiency.memory: given \"fast\""), std::string::npos) << wrong;
  EXPECT_NE(wrong.find("use a newer lamina"), std::string::npos) << wrong;
  EXPECT_THROW(load_cluster("h1000"), Error);
  EXPECT_THROW(with_cluster_overrides(load_cluster("h100"), {"node.bandwith=1"}), SpecError);
  EXPECT_EQ(with_cluster_overrides(load_cluster("h100"), {"network.rails=8"}).network.rails, 8);
}

TEST(ClusterFile, theDocumentationIsCurrent) {
  EXPECT_TRUE(read_text(std::string(LAMINA_SOURCE_DIR) + "/docs/reference/cluster-file.md") == cluster_markdown())
      << "run: lamina plan --cluster-schema > docs/reference/cluster-file.md";
}

/// Ring all-gather, step by step: the slowest link of a step decides its duration.
double ring_by_steps(double devices, double bytes, double latency, double bandwidth) {
  double seconds = 0;
  for (int step = 1; step < static_cast<int>(devices); ++step) seconds += latency + bytes / devices / bandwidth;
  return seconds;
}

TEST(ClusterCollectives, ringsTakeTheTimeOfTheirSteps) {
  const Cluster cluster = load_cluster("a100-80gb");
  for (const double n : {2.0, 4.0, 8.0}) {
    const double expected = ring_by_steps(n, 1e9, 3.4e-6, 300e9 * 0.78);
    EXPECT_NEAR(all_gather_seconds(cluster, group_with_stride(cluster, n, 1), 1e9), expected, 1e-9 * expected);
    EXPECT_NEAR(all_reduce_seconds(cluster, group_with_stride(cluster, n, 1), 1e9), 2 * expected, 1e-9 * expected);
  }
  // One device per node: every hop crosses the network.
  const double expected = ring_by_steps(16, 1e9, 14e-6, 25e9 * 0.9);
  EXPECT_NEAR(reduce_scatter_seconds(cluster, group_with_stride(cluster, 16, 8), 1e9), expected, 1e-9 * expected);
  EXPECT_EQ(all_gather_seconds(cluster, {1, 1}, 1e9), 0);
  EXPECT_EQ(all_to_all_seconds(cluster, {1, 1}, 1e9), 0);
  // For many nodes and little data a tree needs fewer hops than the ring.
  EXPECT_LT(all_reduce_seconds(cluster, group_with_stride(cluster, 4096, 8), 1e3), 1e-3);
}

TEST(ClusterModel, countsWhatTheArchitectureCounts) {
  for (const std::string& name : preset_names()) {
    const ArchSpec spec = cluster_preset(name);
    if (spec.encoder || spec.retrieval) {
      EXPECT_THROW(model_shape(spec, 64), Error) << name;
      continue;
    }
    const ModelShape model = model_shape(spec, 64);
    EXPECT_DOUBLE_EQ(model.parameters, static_cast<double>(count_parameters(spec).total)) << name;
    if (spec.d_model != *spec.embedding.d_embed) continue;  // its projections are left out
    const double forward = flops_per_token(spec, 64).forward();
    EXPECT_NEAR(model.layer_flops + model.head_flops, forward, 1e-9 * forward) << name;
  }
  EXPECT_THROW(model_shape(cluster_preset("gpt2"), 4096), Error) << "beyond the learned positions";
}

/// Activations of a layer in bytes: table 2 of arXiv:2205.05198, for a GPT with h = d_model, a heads, batch b, length
/// s.
double published_activations(double s, double b, double h, double a, double t, bool sequence, Recompute recompute) {
  if (recompute == Recompute::full) return 2 * s * b * h / (sequence ? t : 1);
  const double scores = recompute == Recompute::none ? 5 * a * s / (h * t) : 0;
  return s * b * h * (sequence ? 34 / t + scores : 10 + 24 / t + scores);
}

TEST(ClusterModel, activationsFollowThePublishedFormula) {
  const ModelShape model = model_shape(cluster_preset("gpt2-xl"), 1024);
  const Cluster cluster = load_cluster("a100-80gb");
  TrainingSetup setup;
  setup.length = 1024;
  setup.batch = 4;
  setup.attention = AttentionKernel::stored;
  setup.dropout = true;
  for (const int64_t tp : {1, 5, 25}) {
    for (const bool sequence : {false, true}) {
      for (const Recompute recompute : {Recompute::none, Recompute::selective, Recompute::full}) {
        Layout layout;
        layout.tp = tp;
        layout.micro_batch = 4;
        layout.sequence = sequence && tp > 1;
        layout.recompute = recompute;
        const DeviceMemory memory = estimate_step(cluster, model, setup, layout).memory;
        const double expected =
            48 * published_activations(1024, 4, 1600, 25, static_cast<double>(tp), layout.sequence, recompute);
        EXPECT_NEAR(memory.activations, expected, 1e-6 * expected) << tp << " " << sequence;
      }
    }
  }
}

TEST(ClusterModel, memoryOfOneDeviceIsThatOfTheModel) {
  const ModelShape model = model_shape(cluster_preset("llama-3-8b"), 2048);
  const DeviceMemory memory = estimate_step(load_cluster("h100"), model, TrainingSetup{}, Layout{}).memory;
  EXPECT_NEAR(memory.weights, 2 * model.parameters, 1);
  EXPECT_NEAR(memory.gradients, 4 * model.parameters, 1);
  EXPECT_NEAR(memory.optimizer, 12 * model.parameters, 1);
}

TEST(ClusterModel, layersAreDividedIntoChunks) {
  EXPECT_EQ(chunk_layers(96, 8), std::vector<int64_t>(8, 12));
  const std::vector<int64_t> stages = chunk_layers(126, 16);  // Llama 3 405B: one layer less at both ends
  EXPECT_EQ(stages.front(), 7);
  EXPECT_EQ(stages.back(), 7);
  EXPECT_EQ(std::count(stages.begin(), stages.end(), 8), 14);
  const std::vector<int64_t> chunks = chunk_layers(126, 128);
  EXPECT_EQ(chunks.front() + chunks.back(), 0);
}

TEST(PipelineSchedule, takesTheTimeOfTheFormula) {
  for (const int64_t stages : {1, 2, 4, 7}) {
    for (const int64_t chunks : {1, 2, 3}) {
      for (const int64_t groups : {1, 2, 5}) {
        if (stages == 1 && chunks > 1) continue;
        const int64_t micro_batches = groups * stages;
        PipelineTimes times;
        times.forward.assign(static_cast<size_t>(stages), 1.0);
        times.backward.assign(static_cast<size_t>(stages), 2.0);
        const auto schedule = simulate_pipeline(times, micro_batches, chunks);
        double end = 0;
        for (const auto& passes : schedule) {
          EXPECT_EQ(passes.size(), static_cast<size_t>(2 * micro_batches * chunks));
          for (size_t i = 1; i < passes.size(); ++i) EXPECT_GE(passes[i].start, passes[i - 1].end);
          end = std::max(end, passes.back().end);
        }
        // arXiv:2104.04473: m passes of v chunks each, and a bubble of p - 1 chunks.
        EXPECT_DOUBLE_EQ(end, 3.0 * static_cast<double>(micro_batches * chunks + stages - 1))
            << stages << " stages, " << chunks << " chunks, " << micro_batches << " micro-batches";
      }
    }
  }
  EXPECT_THROW(simulate_pipeline({{1, 1}, {1, 1}, 0}, 3, 2), Error);
  EXPECT_THROW(simulate_pipeline({{}, {}, 0}, 3, 1), Error);
}

TEST(ClusterModel, theBubbleIsThatOfTheSimulatedSchedule) {
  const Cluster cluster = load_cluster("h100");
  const ModelShape model = model_shape(cluster_preset("llama-2-70b"), 4096);
  TrainingSetup setup;
  setup.length = 4096;
  setup.batch = 64;
  for (const int64_t chunks : {1, 2, 5}) {
    Layout layout;
    layout.tp = 8;
    layout.pp = 8;
    layout.interleave = chunks;
    layout.schedule = chunks > 1 ? PipelineSchedule::interleaved : PipelineSchedule::one_forward_one_backward;
    ASSERT_TRUE(is_possible(model, setup, layout, 64));
    const StepEstimate estimate = estimate_step(cluster, model, setup, layout);
    PipelineTimes times;
    for (const StageSeconds& stage : stage_seconds(cluster, model, setup, layout)) {
      times.forward.push_back(stage.forward.total() / static_cast<double>(chunks));
      times.backward.push_back(stage.backward.total() / static_cast<double>(chunks));
    }
    double end = 0;
    for (const auto& passes : simulate_pipeline(times, 64, chunks)) end = std::max(end, passes.back().end);
    EXPECT_NEAR((estimate.seconds.passes.total() + estimate.seconds.bubble) / end, 1, 0.02) << chunks;
  }
}

/// Every layout of a small cluster, one by one.
double fastest_by_trying(const Cluster& cluster, const ModelShape& model, const TrainingSetup& setup, int64_t devices) {
  double best = INFINITY;
  Layout l;
  for (l.tp = 1; l.tp <= devices; ++l.tp) {
    for (l.pp = 1; l.pp <= devices; ++l.pp) {
      for (l.cp = 1; l.cp <= devices; ++l.cp) {
        l.dp = devices / (l.tp * l.pp * l.cp);
        if (l.devices() != devices) continue;
        for (l.interleave = 1; l.interleave <= 16; ++l.interleave) {
          l.schedule = l.interleave > 1 ? PipelineSchedule::interleaved : PipelineSchedule::one_forward_one_backward;
          l.sequence = l.tp > 1;
          for (l.micro_batch = 1; l.micro_batch <= setup.batch; l.micro_batch *= 2) {
            if (!is_possible(model, setup, l, devices)) continue;
            for (l.zero = 0; l.zero <= 3; ++l.zero) {
              for (const Recompute recompute : {Recompute::none, Recompute::selective, Recompute::full}) {
                l.recompute = recompute;
                const StepEstimate estimate = estimate_step(cluster, model, setup, l);
                if (estimate.memory.fits()) best = std::min(best, estimate.seconds.total());
              }
            }
          }
        }
      }
    }
  }
  return best;
}

TEST(ClusterSearch, findsTheFastestLayout) {
  TrainingSetup setup;
  setup.length = 2048;
  setup.batch = 16;
  const ModelShape model = model_shape(cluster_preset("llama-2-7b"), 2048);
  for (const int64_t devices : {2, 8, 12}) {
    const Cluster cluster = load_cluster("a100-80gb");
    const LayoutSearch found = find_layouts(cluster, model, setup, {}, devices);
    ASSERT_FALSE(found.best.empty());
    EXPECT_DOUBLE_EQ(found.best[0].seconds.total(), fastest_by_trying(cluster, model, setup, devices)) << devices;
    EXPECT_TRUE(std::is_sorted(found.best.begin(), found.best.end(),
                               [](const auto& a, const auto& b) { return a.seconds.total() < b.seconds.total(); }));
  }
}

TEST(ClusterSearch, keepsFixedFieldsAndRefusesTheImpossible) {
  const Cluster cluster = load_cluster("h100");
  const ModelShape model = model_shape(cluster_preset("llama-2-70b"), 4096);
  TrainingSetup setup;
  setup.length = 4096;
  setup.batch = 256;
  const LayoutWish wish = read_layout_wish({"tp=4", "recompute=full", "zero=1"});
  const LayoutSearch found = find_layouts(cluster, model, setup, wish, 64);
  ASSERT_FALSE(found.best.empty());
  for (const StepEstimate& estimate : found.best) {
    EXPECT_EQ(estimate.layout.tp, 4);
    EXPECT_EQ(estimate.layout.zero, 1);
    EXPECT_EQ(estimate.layout.recompute, Recompute::full);
    EXPECT_EQ(estimate.layout.devices(), 64);
    EXPECT_TRUE(layout_problems(model, setup, estimate.layout, 64).empty());
  }
  EXPECT_THROW(find_layouts(cluster, model, setup, read_layout_wish({"tp=7"}), 64), SpecError);
  EXPECT_THROW(find_layouts(cluster, model, setup, {}, 0), Error);
  EXPECT_THROW(read_layout_wish({"tensor=8"}), SpecError);
  EXPECT_THROW(read_layout_wish({"zero=4"}), SpecError);
  EXPECT_THROW(with_setup_overrides(setup, {"batch=0"}), SpecError);
  // Bounded work for large clusters.
  setup.batch = 16384;
  EXPECT_LT(find_layouts(cluster, model, setup, {}, 16384).considered, 300000);
}

std::vector<std::string> problem_paths(const Layout& layout, int64_t devices, const std::string& preset) {
  TrainingSetup setup;
  setup.length = 64;
  setup.batch = 8;
  std::vector<std::string> paths;
  for (const Problem& p : layout_problems(model_shape(cluster_preset(preset), 64), setup, layout, devices)) {
    paths.push_back(p.path);
  }
  return paths;
}

TEST(ClusterSearch, rulesNameTheField) {
  using Paths = std::vector<std::string>;
  EXPECT_EQ(problem_paths({.dp = 2}, 2, "gpt2"), Paths{});
  EXPECT_EQ(problem_paths({.dp = 2}, 4, "gpt2"), Paths{"layout"});
  EXPECT_EQ(problem_paths({.tp = 5}, 5, "gpt2").front(), "layout.tp");
  EXPECT_EQ(problem_paths({.dp = 3}, 3, "gpt2"), Paths{"layout.micro_batch"});
  EXPECT_EQ(problem_paths({.pp = 13}, 13, "gpt2"), Paths{"layout.pp"});
  EXPECT_EQ(problem_paths({.dp = 2, .ep = 2}, 2, "gpt2"), Paths{"layout.ep"});
  EXPECT_EQ(problem_paths({.cp = 2}, 2, "mamba-130m"), Paths{"layout.cp"});
  EXPECT_EQ(problem_paths({.sequence = true}, 1, "gpt2"), Paths{"layout.sequence"});
  EXPECT_EQ(problem_paths({.zero = 9}, 1, "gpt2"), Paths{"layout.zero"});
  EXPECT_EQ(problem_paths({.interleave = 2}, 1, "gpt2"), Paths{"layout.schedule"});
}

TEST(ClusterSearch, findsOnlyLayoutsThatTrainingCanDivide) {
  for (const char* preset : {"rwkv-4-430m", "qwen3-next-tiny", "mamba-130m", "falcon-h1-tiny", "modernbert-tiny"}) {
    const ArchSpec spec = cluster_preset(preset);
    TrainingSetup setup;
    setup.batch = 64;
    setup.length = std::min<int64_t>(4096, longest_sequence(spec).value_or(4096));
    const ModelShape model = model_shape(spec, setup.length);
    const LayoutSearch found = find_layouts(load_cluster("h100"), model, setup, {}, 16, 1000);
    ASSERT_FALSE(found.best.empty()) << preset;
    for (const StepEstimate& estimate : found.best) {
      const Layout& l = estimate.layout;
      EXPECT_TRUE(tensor_parallel_problems(spec, l.tp).empty()) << preset << " tp " << l.tp;
      EXPECT_TRUE(context_parallel_problems(spec, l.cp).empty()) << preset << " cp " << l.cp;
      EXPECT_TRUE(expert_parallel_problems(spec, l.ep).empty() && l.dp % l.ep == 0) << preset << " ep " << l.ep;
      EXPECT_TRUE(pipeline_problems(spec, l.pp, l.interleave).empty()) << preset << " " << to_text(l);
    }
  }
  EXPECT_EQ(problem_paths({.tp = 2}, 2, "rwkv-4-430m").front(), "layout.tp");
  EXPECT_EQ(problem_paths({.cp = 2}, 2, "qwen3-next-tiny"), std::vector<std::string>{"layout.cp"});
  EXPECT_EQ(problem_paths({.dp = 2, .cp = 2, .ep = 4}, 4, "mixtral-tiny"), std::vector<std::string>{"layout.ep"});
}

TEST(ClusterPlan, everyPresetHasAPlan) {
  for (const std::string& name : preset_names()) {
    ClusterPlanOptions options;
    options.cluster = "h200";
    const ArchSpec spec = cluster_preset(name);
    if (spec.encoder || spec.retrieval) continue;
    options.devices = count_parameters(spec).total > 500'000'000'000 ? 512 : 64;
    options.setup.batch = 512;
    options.setup.length = 64;
    const ClusterPlan plan = make_cluster_plan(name, spec, options);
    for (const StepEstimate& estimate : plan.search.best) {
      EXPECT_TRUE(std::isfinite(estimate.seconds.total()) && estimate.seconds.total() > 0) << name;
      EXPECT_GT(estimate.memory.activations, 0) << name;
      EXPECT_LE(estimate.utilisation, 1) << name;
    }
    const auto json = nlohmann::json::parse(to_json_text(plan));
    EXPECT_EQ(json["layouts"].size(), plan.search.best.size());
    EXPECT_EQ(read_cluster(json["cluster"].dump(), name), plan.cluster);
    EXPECT_NE(to_text(plan).find("limited by"), std::string::npos);
    const std::string svg = draw_timeline(plan);
    EXPECT_EQ(std::count(svg.begin(), svg.end(), '<'), std::count(svg.begin(), svg.end(), '>')) << name;
    EXPECT_EQ(svg.find("nan"), std::string::npos) << name;
    EXPECT_NE(svg.find("prefers-color-scheme: dark"), std::string::npos);
  }
}

TEST(ClusterPlan, saysByHowMuchNothingFits) {
  ClusterPlanOptions options;
  options.cluster = "a100-80gb";
  options.devices = 1;
  options.setup.batch = 1;
  options.setup.length = 2048;
  try {
    make_cluster_plan("llama-2-70b", cluster_preset("llama-2-70b"), options);
    FAIL() << "70 billion parameters do not fit";
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("too much"), std::string::npos) << error.what();
  }
}

TEST(ClusterPlan, savingsSaveMemoryAndCostTime) {
  const Cluster cluster = load_cluster("h100");
  const ModelShape model = model_shape(cluster_preset("mixtral-8x7b"), 4096);
  TrainingSetup setup;
  setup.length = 4096;
  setup.batch = 64;
  Layout layout;
  layout.dp = 16;
  layout.tp = 2;
  const auto at = [&](int64_t zero, Recompute recompute, int64_t ep) {
    layout.zero = zero;
    layout.recompute = recompute;
    layout.ep = ep;
    return estimate_step(cluster, model, setup, layout);
  };
  for (int64_t zero = 1; zero <= 3; ++zero) {
    const StepEstimate less = at(zero - 1, Recompute::none, 1);
    const StepEstimate more = at(zero, Recompute::none, 1);
    const auto state = [](const StepEstimate& e) { return e.memory.weights + e.memory.gradients + e.memory.optimizer; };
    EXPECT_LT(state(more), state(less)) << zero;
  }
  const StepEstimate none = at(1, Recompute::none, 1);
  const StepEstimate full = at(1, Recompute::full, 1);
  EXPECT_LT(full.memory.activations, none.memory.activations / 4);
  EXPECT_GT(full.seconds.total(), none.seconds.total());
  EXPECT_GT(full.seconds.passes.total(), 1.2 * none.seconds.passes.total());
  const StepEstimate experts = at(1, Recompute::none, 8);
  EXPECT_LT(experts.memory.weights, none.memory.weights / 4);
  EXPECT_GT(experts.seconds.passes.exchange, 0);
}

}  // namespace
}  // namespace lamina::arch
