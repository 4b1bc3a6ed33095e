#include "lamina/arch/plan.h"

#include <cstdio>
#include <fstream>
#include <memory>

#include "lamina/arch/cluster/cluster_plan.h"
#include "lamina/arch/edit.h"
#include "lamina/arch/picture.h"
#include "lamina/arch/presets.h"
#include "lamina/arch/resolve.h"
#include "lamina/base/dtype.h"
#include "lamina/cli/commands.h"
#include "lamina/cli/usage.h"
#include "lamina/train/memory.h"

namespace lamina::cli {
namespace {

struct PlanArguments {
  std::string name;
  std::vector<std::string> overrides;
  arch::PlanOptions options;
  std::string dtype;  ///< empty: f32; for a cluster: bf16
  bool json = false;
  std::string svg;
  std::string cluster;
  int64_t devices = 0;
  int64_t most = 5;
  bool cluster_schema = false;
};

void write_file(const std::string& path, const std::string& text) {
  std::ofstream file(path, std::ios::binary);
  file << text;
  file.close();
  LAMINA_CHECK(file.good(), path, ": cannot be written; check that its folder exists and is writable, and its space");
}

/// The architecture with its own overrides. Other overrides belong to the cluster plan.
arch::ArchSpec changed_arch(PlanArguments& arguments) {
  std::vector<std::string> own;
  for (const std::string& assignment : arguments.overrides) {
    if (!arch::is_cluster_override(assignment)) own.push_back(assignment);
  }
  arch::ArchSpec given = arch::with_overrides(arch::load_arch(arguments.name), own);
  if (!own.empty()) {  // no longer the unchanged preset
    arguments.name += ", changed";
    given.about.clear();
  }
  return arch::resolve(given, arguments.name);
}

void run_cluster(PlanArguments arguments, bool batch_given) {
  const arch::ArchSpec spec = changed_arch(arguments);
  arch::ClusterPlanOptions options;
  options.cluster = arguments.cluster;
  options.devices = arguments.devices;
  options.setup.batch = batch_given ? arguments.options.batch : 0;
  options.setup.length = arguments.options.length;
  options.overrides = arguments.overrides;
  if (!arguments.dtype.empty())
    options.overrides.insert(options.overrides.begin(), "training.dtype=" + arguments.dtype);
  options.most = static_cast<size_t>(arguments.most);
  const arch::ClusterPlan plan = arch::make_cluster_plan(arguments.name, spec, options);
  std::fputs((arguments.json ? arch::to_json_text(plan) : arch::to_text(plan)).c_str(), stdout);
  if (!arguments.svg.empty()) write_file(arguments.svg, arch::draw_timeline(plan));
}

void run(PlanArguments arguments) {
  for (const std::string& assignment : arguments.overrides) {
    if (arch::is_cluster_override(assignment)) {
      throw UsageError(str("--set ", assignment, " belongs to a plan for a cluster; add --cluster and --gpus"));
    }
  }
  const std::string dtype_name = arguments.dtype.empty() ? "f32" : arguments.dtype;
  const std::optional<DType> dtype = dtype_from_name(dtype_name);
  LAMINA_CHECK(dtype && is_floating(*dtype), "--dtype ", dtype_name, ": expected f32, f64, bf16 or f16");
  arguments.options.bytes_per_number = static_cast<int>(size_of(*dtype));
  const arch::ArchSpec spec = changed_arch(arguments);
  arch::Plan plan = arch::make_plan(arguments.name, spec, arguments.options);
  if (*dtype == DType::f32 || *dtype == DType::bf16) {  // dtypes that training supports
    train::Recipe recipe;
    recipe.architecture = plan.spec;
    recipe.batch = plan.options.batch;
    recipe.length = plan.options.length;
    recipe.dtype = *dtype == DType::bf16 ? train::Precision::bf16 : train::Precision::f32;
    plan.memory = train::training_memory(recipe);
  }
  std::fputs((arguments.json ? arch::to_json_text(plan) : arch::to_text(plan)).c_str(), stdout);
  if (!arguments.svg.empty()) {
    const std::string total = arch::with_commas(plan.parameters.total);
    write_file(arguments.svg, arch::draw(plan.spec, arguments.name + ", " + total + " parameters"));
  }
}

/// Options for a plan on a cluster.
void add_cluster_options(CLI::App& command, PlanArguments& arguments) {
  constexpr const char* kGroup = "Many devices";
  command
      .add_option("--cluster", arguments.cluster,
                  "Plan training on a cluster instead: a100-80gb, h100, h200, cpu-2s or a file ending in .json")
      ->group(kGroup);
  command.add_option("--gpus", arguments.devices, "Number of devices to use; needed with --cluster")
      ->group(kGroup)
      ->check(at_least(1));
  command.add_option("--top", arguments.most, "Number of layouts to list")
      ->group(kGroup)
      ->capture_default_str()
      ->check(at_least(1));
  command
      .add_flag("--cluster-schema", arguments.cluster_schema,
                "Print docs/reference/cluster-file.md: every key of a cluster, a layout and a training setup")
      ->group(kGroup);
}

constexpr const char* kPlanExamples = R"(Examples:
  lamina plan llama-3-8b --batch 4 --length 2048 --dtype bf16
  lamina plan gpt2 --set layers[0].repeat=24 --svg blocks.svg
  lamina plan llama-2-70b --cluster h100 --gpus 256 --batch 1024
  lamina plan llama-2-70b --cluster h100 --gpus 256 --set layout.tp=8 --set layout.zero=1 --svg step.svg

With --cluster the plan lists the fastest ways to divide the model among the devices. --set fixes or changes values:
layout.{dp,tp,pp,cp,ep,zero,sequence,schedule,interleave,micro_batch,recompute}, training.{batch,length,dtype,
gradients,attention,dropout,accumulation,gather,overlap} and cluster.* (docs/reference/cluster-file.md). Layout fields
that are not fixed are searched. docs/guides/clusters.md explains the choice.)";

void run_plan(const PlanArguments& arguments, bool batch_given) {
  if (arguments.cluster_schema) {
    std::fputs(arch::cluster_markdown().c_str(), stdout);
    return;
  }
  if (arguments.name.empty()) throw UsageError("plan: name an architecture; `lamina presets` lists them");
  if (arguments.cluster.empty() != (arguments.devices == 0)) {
    throw UsageError("--cluster and --gpus belong together: --cluster h100 --gpus 64");
  }
  if (arguments.cluster.empty()) return run(arguments);
  run_cluster(arguments, batch_given);
}

}  // namespace

void add_plan(CLI::App& program) {
  auto arguments = std::make_shared<PlanArguments>();
  CLI::App* command = program.add_subcommand(
      "plan", "Print parameters, FLOPs, KV cache and memory of an architecture; plan its training on a cluster");
  command->add_option("architecture", arguments->name, "A preset (`lamina presets`), or a file ending in .json");
  command
      ->add_option(
          "--set", arguments->overrides,
          "Change a value first: path=value, for example layers[0].pattern[0].ffn.d_ff=512, position.kind=alibi "
          "or layers[*].pattern[*].mixer.n_kv_heads=1")
      ->allow_extra_args(false)
      ->take_all();
  CLI::Option* batch =
      command
          ->add_option("--batch", arguments->options.batch,
                       "Sequences in a training step (default 1; with --cluster about 4 million tokens)")
          ->check(at_least(1));
  command
      ->add_option("--length", arguments->options.length,
                   "Tokens in a sequence (default: the context, at most 4096; with --cluster 8192)")
      ->check(at_least(1));
  command->add_option(
      "--dtype", arguments->dtype,
      "Type of weights, activations and cache: f32, bf16, f16 or f64 (default f32; with --cluster bf16)");
  command->add_flag("--json", arguments->json, "Print everything as JSON");
  command->add_option("--svg", arguments->svg,
                      "Also draw into this file: the blocks as they are wired; with --cluster the timeline of a step");
  add_cluster_options(*command, *arguments);
  command->footer(kPlanExamples);
  command->callback([arguments, batch] { run_plan(*arguments, batch->count() > 0); });
}

}  // namespace lamina::cli
