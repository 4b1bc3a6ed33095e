#include "lamina/arch/presets.h"

#include <cstdio>
#include <memory>

#include "lamina/arch/count.h"
#include "lamina/arch/edit.h"
#include "lamina/arch/layers.h"
#include "lamina/arch/option_pages.h"
#include "lamina/arch/plan.h"
#include "lamina/arch/resolve.h"
#include "lamina/arch/schema.h"
#include "lamina/base/files.h"
#include "lamina/cli/commands.h"

namespace lamina::cli {
namespace {

struct PresetArguments {
  std::string contains;
  std::string shown;
  bool resolved = false;
  bool full = false;
  std::string a;
  std::string b;
  std::vector<std::string> overrides;
  std::string folder = "docs/options";
};

void list(const std::string& contains) {
  std::printf("%-22s %18s %7s %8s  %s\n", "name", "parameters", "layers", "d_model", "about");
  int shown = 0;
  for (const std::string& name : arch::preset_names()) {
    if (name.find(contains) == std::string::npos) continue;
    ++shown;
    const arch::ArchSpec spec = arch::resolve(arch::load_preset(name), name);
    std::printf(
        "%-22s %18s %7lld %8lld  %s\n", name.c_str(), arch::with_commas(arch::count_parameters(spec).total).c_str(),
        static_cast<long long>(arch::layer_count(spec)), static_cast<long long>(spec.d_model), spec.about.c_str());
  }
  LAMINA_CHECK(shown > 0, "no preset has \"", contains, "\" in its name; `lamina presets` lists all");
}

void show(const PresetArguments& arguments) {
  arch::ArchSpec spec = arch::with_overrides(arch::load_arch(arguments.shown), arguments.overrides);
  if (arguments.resolved) spec = arch::resolve(spec, arguments.shown);
  const bool full = arguments.full || arguments.resolved;
  std::fputs(arch::write_spec(spec, full ? arch::Defaults::write : arch::Defaults::omit).c_str(), stdout);
}

void differences(const PresetArguments& arguments) {
  const arch::ArchSpec a = arch::load_arch(arguments.a);
  const arch::ArchSpec b = arch::load_arch(arguments.b);
  const bool resolved = arguments.resolved;
  const auto rows =
      resolved ? arch::diff(arch::resolve(a, arguments.a), arch::resolve(b, arguments.b)) : arch::diff(a, b);
  std::printf("%-48s %-32s %s\n", "", arguments.a.c_str(), arguments.b.c_str());
  for (const arch::Difference& row : rows) {
    std::printf("%-48s %-32s %s\n", row.path.c_str(), row.a.empty() ? "-" : row.a.c_str(),
                row.b.empty() ? "-" : row.b.c_str());
  }
}

/// Updates the generated part of every page in the folder, and the index. Creates missing pages.
void write_option_pages(const std::string& folder) {
  for (const arch::OptionPage& page : arch::option_pages()) {
    const std::string path = folder + "/" + page.name + ".md";
    write_text(path, arch::with_generated_part(file_exists(path) ? read_text(path) : "", page, path));
  }
  write_text(folder + "/README.md", arch::option_index());
}

}  // namespace

void add_presets(CLI::App& program) {
  auto arguments = std::make_shared<PresetArguments>();
  CLI::App* command = program.add_subcommand("presets", "List, show and compare the built-in architectures");
  command->add_option("--contains", arguments->contains, "List only names with this in them");
  command->require_subcommand(0, 1);

  CLI::App* shown = command->add_subcommand("show", "Print an architecture file");
  shown->add_option("name", arguments->shown, "A preset, or a file ending in .json")->required();
  shown->add_option("--set", arguments->overrides, "Change a value first: path=value, for example position.theta=1e6")
      ->allow_extra_args(false)
      ->take_all();
  shown->add_flag("--full", arguments->full, "Write defaults too");
  shown->add_flag("--resolved", arguments->resolved, "Fill in everything that is derived, and check all rules");

  CLI::App* diffed = command->add_subcommand("diff", "Print every value in which two architectures differ, by path");
  diffed->add_option("a", arguments->a, "The first preset, or a file ending in .json")->required();
  diffed->add_option("b", arguments->b, "The second preset or file")->required();
  diffed->add_flag("--resolved", arguments->resolved, "Compare what they mean: with everything derived filled in");

  CLI::App* schema = command->add_subcommand(
      "schema", "Print every key of an architecture file, as docs/reference/architecture-file.md");

  CLI::App* options = command->add_subcommand("options", "Update the generated part of the pages in docs/options");
  options->add_option("folder", arguments->folder, "The folder of the pages")->capture_default_str();

  command->callback([=] {
    if (options->parsed()) return write_option_pages(arguments->folder);
    if (schema->parsed()) {
      std::fputs(arch::schema_markdown().c_str(), stdout);
      return;
    }
    if (shown->parsed()) return show(*arguments);
    if (diffed->parsed()) return differences(*arguments);
    list(arguments->contains);
  });
}

}  // namespace lamina::cli
