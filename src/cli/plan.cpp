#include "lamina/arch/plan.h"

#include <cstdio>
#include <fstream>
#include <memory>

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
  std::string dtype = "f32";
  bool json = false;
  std::string svg;
};

void write_file(const std::string& path, const std::string& text) {
  std::ofstream file(path, std::ios::binary);
  file << text;
  file.close();
  LAMINA_CHECK(file.good(), path, ": cannot be written; check that its folder exists and is writable, and its space");
}

void run(PlanArguments arguments) {
  const std::optional<DType> dtype = dtype_from_name(arguments.dtype);
  LAMINA_CHECK(dtype && is_floating(*dtype), "--dtype ", arguments.dtype, ": expected f32, f64, bf16 or f16");
  arguments.options.bytes_per_number = static_cast<int>(size_of(*dtype));
  arch::ArchSpec given = arch::with_overrides(arch::load_arch(arguments.name), arguments.overrides);
  if (!arguments.overrides.empty()) {  // no longer the unchanged preset
    arguments.name += ", changed";
    given.about.clear();
  }
  arch::Plan plan = arch::make_plan(arguments.name, arch::resolve(given, arguments.name), arguments.options);
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

}  // namespace

void add_plan(CLI::App& program) {
  auto arguments = std::make_shared<PlanArguments>();
  CLI::App* command = program.add_subcommand(
      "plan", "What an architecture costs: parameters, work, cache and memory; advice; a picture");
  command->add_option("architecture", arguments->name, "A preset (`lamina presets`), or a file ending in .json")
      ->required();
  command
      ->add_option(
          "--set", arguments->overrides,
          "Change a value first: path=value, for example layers[0].pattern[0].ffn.d_ff=512, position.kind=alibi "
          "or layers[*].pattern[*].mixer.n_kv_heads=1")
      ->allow_extra_args(false)
      ->take_all();
  command->add_option("--batch", arguments->options.batch, "Sequences in a training step")
      ->capture_default_str()
      ->check(at_least(1));
  command
      ->add_option("--length", arguments->options.length, "Tokens in a sequence (default: the context, at most 4096)")
      ->check(at_least(1));
  command->add_option("--dtype", arguments->dtype, "Type of weights, activations and cache: f32, bf16, f16 or f64")
      ->capture_default_str();
  command->add_flag("--json", arguments->json, "Print everything as JSON");
  command->add_option("--svg", arguments->svg, "Also draw the blocks as they are wired into this file");
  command->callback([arguments] { run(*arguments); });
}

}  // namespace lamina::cli
