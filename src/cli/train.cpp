#include <unistd.h>

#include <cstdio>
#include <memory>

#include "lamina/arch/count.h"
#include "lamina/arch/plan.h"
#include "lamina/cli/commands.h"
#include "lamina/cli/device_option.h"
#include "lamina/cli/product_peak.h"
#include "lamina/cli/progress_line.h"
#include "lamina/cli/stop_signal.h"
#include "lamina/cli/train_screen.h"
#include "lamina/train/memory.h"
#include "lamina/train/run_data.h"

namespace lamina::cli {
namespace {

constexpr const char* kRuns = "runs";

struct TrainArguments {
  std::string recipe;
  std::vector<std::string> overrides;
  std::string data;
  std::string run;
  std::string resume;
  bool resuming = false;
  bool force = false;
  bool list = false;
  bool show = false;
  bool fields = false;
  bool any_memory = false;
  DeviceChoice device;
};

void list_recipes() {
  for (const train::RecipeFile& file : train::recipe_files()) {
    const train::Recipe recipe = train::load_recipe(std::string(file.name));
    std::printf("%-24s %s\n", std::string(file.name).c_str(), recipe.about.c_str());
  }
}

/// runs/NAME, the name of the recipe's file.
std::string default_run(const std::string& recipe) {
  std::string name = recipe.substr(recipe.find_last_of('/') + 1);
  if (name.ends_with(".json")) name.resize(name.size() - 5);
  return std::string(kRuns) + "/" + name;
}

train::Recipe load(const TrainArguments& arguments) {
  std::vector<std::string> changes;
  if (!arguments.data.empty()) changes.push_back("data.train=" + arguments.data);
  changes.insert(changes.end(), arguments.overrides.begin(), arguments.overrides.end());
  return train::load_recipe(arguments.recipe, changes);
}

/// The folder to train in: a new one, or the one to go on with.
std::string prepare(const TrainArguments& arguments, const Device& device) {
  if (arguments.resuming) {
    LAMINA_CHECK(arguments.recipe.empty() && arguments.overrides.empty() && arguments.data.empty(),
                 "--resume goes on with the recipe of the run; leave out the recipe, --data and --set, or start a new "
                 "run from its weights with --set from=RUN");
    return train::newest_run(arguments.resume.empty() ? kRuns : arguments.resume);
  }
  LAMINA_CHECK(!arguments.recipe.empty(), "which recipe? `lamina train --list` lists them; a file ends in .json");
  std::string folder = arguments.run.empty() ? default_run(arguments.recipe) : arguments.run;
  train::start_run(folder, load(arguments),
                   {.force = arguments.force,
                    .approve =
                        [&](const train::Recipe& recipe) {
                          if (!arguments.any_memory) train::check_memory(recipe, device);
                        },
                    .watch = progress_of_preparation()});
  return folder;
}

void print_start(const std::string& folder, const train::Trainer& trainer) {
  const train::Recipe& recipe = trainer.recipe();
  std::printf("%s: %s parameters, %lld updates of %s tokens", folder.c_str(),
              arch::with_commas(arch::count_parameters(recipe.architecture).total).c_str(),
              static_cast<long long>(recipe.steps), arch::with_commas(recipe.tokens_per_step()).c_str());
  std::printf("; %s; about %s of memory\n", trainer.data().about.c_str(),
              arch::short_bytes(train::memory_estimate(recipe, trainer.device().kind())).c_str());
  if (trainer.progress().step > 0) {
    std::printf("going on after step %lld\n", static_cast<long long>(trainer.progress().step));
  }
}

void finish(const std::string& folder, const train::Trainer& trainer, train::Outcome outcome) {
  const train::Progress& progress = trainer.progress();
  if (outcome == train::Outcome::stopped) {
    std::printf("stopped after step %lld, everything is kept; go on with: lamina train --resume %s\n",
                static_cast<long long>(progress.step), folder.c_str());
  } else if (progress.best_loss) {
    std::printf("done: best validation loss %.4f at step %lld; the model is %s/best, the last one %s/last\n",
                *progress.best_loss, static_cast<long long>(progress.best_step), folder.c_str(), folder.c_str());
  } else {
    std::printf("done: loss %.4f; the model is %s/last\n", progress.smoothed_loss, folder.c_str());
  }
}

void run(const TrainArguments& arguments) {
  if (arguments.list) return list_recipes();
  if (arguments.fields) return static_cast<void>(std::fputs(train::recipe_markdown().c_str(), stdout));
  if (arguments.show) return static_cast<void>(std::fputs(train::write_recipe(load(arguments)).c_str(), stdout));
  const Device device = arguments.device.open();
  const std::string folder = prepare(arguments, device);
  train::Trainer trainer(folder, device);
  const bool on_gpu = device.kind() == DeviceKind::cuda;
  const bool narrow = on_gpu && trainer.recipe().dtype == train::Precision::bf16;
  const double peak = product_peak(device, narrow ? DType::bf16 : DType::f32, on_gpu ? 4096 : 1024);
  device.allocator().trim();  // its matrices are not the run's
  print_start(folder, trainer);
  TrainScreen screen(trainer, peak, ::isatty(STDOUT_FILENO) != 0);
  catch_stop_signals("\nstopping after this update; once more stops at once\n");
  try {
    const train::Outcome outcome =
        trainer.run({.on_update = [&](const train::UpdateReport& report) { screen.update(report); },
                     .on_evaluation = [&](const train::EvaluationReport& report) { screen.evaluation(report); },
                     .on_save = {},
                     .stop = stop_asked});
    screen.summary(trainer.time_spent());
    finish(folder, trainer, outcome);
    if (outcome == train::Outcome::stopped) throw_if_stopped();
  } catch (const train::NotFinite& error) {
    throw Error(str(error.what(), ". This update changed nothing. The last checkpoint is ", folder,
                    "/last; start a new run from it with --set from=", folder, "/last and what is to be different"));
  }
}

}  // namespace

void add_train(CLI::App& program) {
  auto arguments = std::make_shared<TrainArguments>();
  CLI::App* command = program.add_subcommand(
      "train", "Train a model as a recipe says, into a folder of its own; goes on where it was stopped or killed");
  command->add_option("recipe", arguments->recipe, "A recipe (--list), or a file ending in .json (docs/training.md)");
  command->add_option("--data", arguments->data, "What to learn from: short for --set data.train=FILE");
  command
      ->add_option("--set", arguments->overrides,
                   "Change a value first: path=value, for example optimizer.lr=3e-4, schedule.kind=wsd, "
                   "architecture=gpt2-10m or architecture.layers[0].repeat=2")
      ->allow_extra_args(false)
      ->take_all();
  command->add_option("--run", arguments->run, "The run's folder (default: runs/RECIPE)");
  CLI::Option* resume = command->add_option("--resume", arguments->resume,
                                            "Go on with this run (default: the one under runs/ written last)");
  resume->expected(0, 1);
  command->add_flag("--force", arguments->force, "Replace the run that is in the folder");
  arguments->device.add_to(*command);
  command->add_flag("--ignore-memory", arguments->any_memory, "Start although the memory will not do by the estimate");
  command->add_flag("--list", arguments->list, "List the recipes");
  command->add_flag("--show", arguments->show, "Print the recipe, with changes and every key, and stop");
  command->add_flag("--fields", arguments->fields, "Print every key of a recipe, as in docs/training.md, and stop");
  command->callback([arguments, resume] {
    arguments->resuming = resume->count() > 0;
    run(*arguments);
  });
}

}  // namespace lamina::cli
