#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <utility>

#include "lamina/arch/count.h"
#include "lamina/arch/plan.h"
#include "lamina/base/files.h"
#include "lamina/cli/commands.h"
#include "lamina/cli/device_option.h"
#include "lamina/cli/job.h"
#include "lamina/cli/product_peak.h"
#include "lamina/cli/progress_line.h"
#include "lamina/cli/stop_signal.h"
#include "lamina/cli/train_screen.h"
#include "lamina/cli/usage.h"
#include "lamina/comm/nccl.h"
#include "lamina/comm/open.h"
#include "lamina/train/memory.h"
#include "lamina/train/run_data.h"

namespace lamina::cli {
namespace {

constexpr const char* kRuns = "runs";
constexpr const char* kFinetune = "finetune";  // default recipe of --from
constexpr int64_t kFinetuneLength = 1024;      // a model's context may be much longer than the texts

struct TrainArguments {
  std::string recipe;
  std::string from;
  std::vector<std::string> overrides;
  std::string data;
  std::string run;
  std::string resume;
  bool resuming = false;
  bool force = false;
  bool accept_new_data = false;
  bool list = false;
  bool show = false;
  bool fields = false;
  bool any_memory = false;
  DeviceChoice device;
};

void list_recipes() {
  for (const train::RecipeFile& file : train::recipe_files()) {
    const std::string about = nlohmann::json::parse(file.text).value("about", "");
    std::printf("%-24s %s\n", std::string(file.name).c_str(), about.c_str());
  }
}

/// The default folder runs/NAME, where NAME is that of the recipe file.
std::string default_run(const std::string& recipe) {
  std::string name = recipe.substr(recipe.find_last_of('/') + 1);
  if (name.ends_with(".json")) name.resize(name.size() - 5);
  return std::string(kRuns) + "/" + name;
}

train::Recipe load(const TrainArguments& arguments) {
  std::vector<std::string> changes;
  // Fine-tuning uses the model's tokenizer, not the recipe's.
  if (!arguments.from.empty()) changes = {"from=" + arguments.from, "data.tokenizer="};
  if (!arguments.data.empty()) changes.push_back("data.train=" + arguments.data);
  changes.insert(changes.end(), arguments.overrides.begin(), arguments.overrides.end());
  train::Recipe recipe = train::load_recipe(arguments.recipe, changes);
  if (!arguments.from.empty() && recipe.length == 0) {
    recipe.length = std::min(kFinetuneLength, recipe.architecture.context);
  }
  return recipe;
}

void check_ranks(const train::Recipe& recipe, const Job& job) {
  const int64_t processes = job ? job->size() : 1;
  if (recipe.layout.ranks() == processes) return;
  const train::LayoutChoice& layout = recipe.layout;
  const int64_t each = layout.tp * layout.pp * layout.cp;  // number of processes in a data-parallel rank
  const auto also = [](const char* key, int64_t value) {
    return value > 1 ? str(" and layout.", key, " ", value) : "";
  };
  const std::string ranks =
      str("layout.dp is ", layout.dp, also("tp", layout.tp), also("pp", layout.pp), also("cp", layout.cp));
  if (processes == 1) {
    throw UsageError(str(ranks, " but this is one process; start it with: lamina launch ", "--nproc ",
                         recipe.layout.ranks(), " -- train ... (or with mpirun or srun)"));
  }
  const std::string given = str(processes, " processes were started, but ", ranks);
  if (processes % each != 0) throw UsageError(str(given, "; start a multiple of ", each, " processes"));
  throw UsageError(str(given, "; set layout.dp to ", processes / each, " (--set layout.dp=", processes / each, ")"));
}

/// Whether a launcher restarted this job after a failure. Its run then continues.
bool is_restarted() {
  for (const char* name : {"LAMINA_RESTART_COUNT", "SLURM_RESTART_COUNT", "TORCHELASTIC_RESTART_COUNT"}) {
    const char* count = std::getenv(name);
    if (count != nullptr && std::string_view(count) != "0") return true;
  }
  return false;
}

/// Name of the job that this process belongs to; a restart of the job keeps it. Empty: none.
std::string job_name() {
  for (const char* name : {"LAMINA_JOB", "SLURM_JOB_ID", "TORCHELASTIC_RUN_ID"}) {
    const char* value = std::getenv(name);
    if (value != nullptr && *value != '\0') return str(name, "=", value);
  }
  return "";
}

struct RunPlace {
  std::string folder;
  train::RunLock lock;  ///< lock of a newly started run
};

RunPlace resumed_run(const TrainArguments& arguments) {
  LAMINA_CHECK(
      arguments.recipe.empty() && arguments.overrides.empty() && arguments.data.empty() && arguments.from.empty(),
      "--resume continues with the recipe of the run; leave out the recipe, --from, --data and --set, or start a new "
      "run from its weights with --from RUN");
  const std::string place = arguments.resume.empty() ? kRuns : arguments.resume;
  train::restore_replaced_run(place);
  std::string folder = train::newest_run(place);
  train::restore_replaced_run(folder);
  return {std::move(folder), {}};
}

/// Throws a UsageError if the recipe's text file does not exist. It may be only on the machine of the recipe's author.
void check_has_data(const TrainArguments& arguments, const train::Recipe& recipe) {
  const std::string& text = recipe.data.train;
  if (recipe.data.task || !arguments.data.empty() || path_exists(text)) return;
  throw UsageError(
      str(text.empty() ? "the recipe names no text" : text + ": does not exist",
          "; name the text to learn from, for example: lamina train ",
          arguments.from.empty() ? arguments.recipe : "--from " + arguments.from,
          " --data FILE (`lamina data get` lists corpora to fetch, `lamina data get synthetic` makes one)"));
}

RunPlace new_run(const TrainArguments& arguments, const Device& device, const Job& job) {
  if (arguments.recipe.empty()) {
    throw UsageError(
        "no recipe was given; add one, for example: lamina train quickstart --data FILE (`lamina train --list` lists "
        "the recipes, and --from MODEL has its own)");
  }
  LAMINA_CHECK(!arguments.accept_new_data, "--accept-new-data is for --resume; a new run takes any data");
  std::string folder = arguments.run.empty() ? default_run(arguments.recipe) : arguments.run;
  if (is_restarted() && path_exists(folder + "/recipe.json")) {
    train::restore_replaced_run(folder);
    if (train::job_of_run(folder) == job_name()) return {std::move(folder), {}};
  }
  const auto approve = [&](const train::Recipe& resolved) {
    if (!arguments.any_memory) train::check_memory(resolved, device);
  };
  const train::Recipe recipe = load(arguments);
  check_ranks(recipe, job);
  check_has_data(arguments, recipe);
  train::RunLock lock = train::start_run(
      folder, recipe,
      {.force = arguments.force, .approve = approve, .watch = progress_of_preparation(), .job = job_name()});
  return {std::move(folder), std::move(lock)};
}

/// Reports the progress of checking the token files. Small files are not shown.
train::CheckProgress progress_of_check() {
  return [name = std::string(), watch = std::function<void(int64_t, int64_t)>()](const std::string& file, int64_t done,
                                                                                 int64_t total) mutable {
    constexpr int64_t kWorthALine = int64_t{1} << 30U;
    if (total < kWorthALine) return;
    if (std::exchange(name, file) != file) watch = progress_of("checking " + file, arch::short_bytes);
    watch(done, total);
  };
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
    std::printf("stopped after step %lld; resume with: lamina train --resume %s\n",
                static_cast<long long>(progress.step), folder.c_str());
  } else if (progress.best_loss) {
    std::printf("done: best validation loss %.4f at step %lld; the model is %s/best, the last one %s/last\n",
                *progress.best_loss, static_cast<long long>(progress.best_step), folder.c_str(), folder.c_str());
  } else {
    std::printf("done: loss %.4f; the model is %s/last\n", progress.smoothed_loss, folder.c_str());
  }
}

/// Trains on a rank that neither writes nor prints.
void follow(const std::string& folder, const Device& device, const Job& job) {
  train::Trainer trainer(folder, device, {.lock = {}, .accept_new_data = false, .checking = {}, .communicator = job});
  catch_stop_signals("");
  const train::Outcome outcome = trainer.run({.on_update = {}, .on_evaluation = {}, .on_save = {}, .stop = stop_asked});
  if (outcome == train::Outcome::stopped) throw_if_stopped();
}

void train_in(RunPlace place, const TrainArguments& arguments, const Device& device, const Job& job) {
  const std::string folder = place.folder;
  train::Trainer trainer(folder, device,
                         {.lock = std::move(place.lock),
                          .accept_new_data = arguments.accept_new_data,
                          .checking = progress_of_check(),
                          .communicator = job});
  const bool on_gpu = device.kind() == DeviceKind::cuda;
  const bool narrow = trainer.recipe().dtype == train::Precision::bf16;
  // Measure a GPU only once: other programs do not change its peak, and captured graphs own its memory during the run.
  train::PeakShare share(
      [&] {
        const double peak = product_peak(device, narrow ? DType::bf16 : DType::f32, on_gpu ? 4096 : 1024);
        device.allocator().trim();  // frees the matrices used for the measurement
        return peak;
      },
      on_gpu ? 1 : 4);
  print_start(folder, trainer);
  TrainScreen screen(trainer, std::move(share), ::isatty(STDOUT_FILENO) != 0);
  catch_stop_signals("\nstopping after this update; press Ctrl-C again to stop immediately\n");
  try {
    const train::Outcome outcome =
        trainer.run({.on_update = [&](const train::UpdateReport& report) { screen.update(report); },
                     .on_evaluation = [&](const train::EvaluationReport& report) { screen.evaluation(report); },
                     .on_save = {},
                     .stop = stop_asked,
                     .on_save_failed = [&](const train::SaveFailure& failure) { screen.failed_save(failure); }});
    screen.summary(trainer.time_spent());
    finish(folder, trainer, outcome);
    if (outcome == train::Outcome::stopped) throw_if_stopped();
  } catch (const train::NotFinite& error) {
    throw Error(str(error.what(), ". This update changed nothing. The last checkpoint is ", folder,
                    "/last; start a new run from it with --from ", folder, "/last and other settings"));
  }
}

void run_rank(const TrainArguments& arguments, Job job) {
  constexpr double kPreparation = 86400;  // in seconds: rank 0 may have to tokenize a large text first
  const Device device = open_rank_device(arguments.device);
  if (job && device.kind() == DeviceKind::cuda) job = comm::make_nccl_communicator(std::move(job), device);
  if (!is_first(job)) return follow(comm::broadcast_text(*job, "", 0, "run folder", kPreparation), device, job);
  catch_stop_signals("\nstopping; press Ctrl-C again to stop immediately\n");
  RunPlace place = arguments.resuming ? resumed_run(arguments) : new_run(arguments, device, job);
  const std::string folder = place.folder;
  try {
    if (job) comm::broadcast_text(*job, std::filesystem::absolute(folder).string(), 0, "run folder", kPreparation);
    train_in(std::move(place), arguments, device, job);
  } catch (...) {
    if (train::restore_replaced_run(folder)) {
      std::fprintf(stderr, "lamina: the new run failed before its first update; the old one is back in %s\n",
                   folder.c_str());
    }
    throw;
  }
}

void run(const TrainArguments& arguments) {
  if (arguments.list) return list_recipes();
  if (arguments.fields) return static_cast<void>(std::fputs(train::recipe_markdown().c_str(), stdout));
  if (arguments.show) return static_cast<void>(std::fputs(train::write_recipe(load(arguments)).c_str(), stdout));
  const Job job = open_job();
  try {
    run_rank(arguments, job);
    if (job) job->barrier({.label = "end"});
  } catch (const comm::CommError&) {
    throw;
  } catch (const Stopped&) {
    throw;
  } catch (const std::exception& error) {
    if (job) job->abort(str("rank ", job->rank(), " (host ", job->host(job->rank()), ") failed: ", error.what()));
    throw;
  }
}

}  // namespace

void add_train(CLI::App& program) {
  auto arguments = std::make_shared<TrainArguments>();
  CLI::App* command = program.add_subcommand(
      "train", "Train a model from a recipe into a run folder; a stopped or killed run can be resumed");
  command->add_option("recipe", arguments->recipe,
                      "A recipe (--list), or a file ending in .json (docs/guides/training.md)");
  command->add_option("--from", arguments->from,
                      "Fine-tune this model, a run or a Hugging Face folder: its architecture, weights and tokenizer "
                      "(default recipe: finetune; docs/guides/finetuning.md)");
  command->add_option("--data", arguments->data, "Training text: short for --set data.train=FILE");
  command
      ->add_option("--set", arguments->overrides,
                   "Change a value first: path=value, for example optimizer.lr=3e-4, schedule.kind=wsd, "
                   "architecture=gpt2-10m or architecture.layers[0].repeat=2")
      ->allow_extra_args(false)
      ->take_all();
  command->add_option("--run", arguments->run, "The run's folder (default: runs/RECIPE)");
  CLI::Option* resume =
      command->add_option("--resume", arguments->resume, "Resume this run (default: the latest one under runs/)");
  resume->expected(0, 1);
  command->add_flag("--force", arguments->force,
                    "Replace the run that is in the folder; it is deleted after the first update of the new one");
  command->add_flag("--accept-new-data", arguments->accept_new_data,
                    "Resume although the run's token files are not those it began with");
  arguments->device.add_to(*command);
  command->add_flag("--ignore-memory", arguments->any_memory,
                    "Start even if the memory estimate exceeds what is available");
  command->add_flag("--list", arguments->list, "List the recipes");
  command->add_flag("--show", arguments->show, "Print the recipe, with changes and every key, and stop");
  command->add_flag("--fields", arguments->fields,
                    "Print every key of a recipe, as in docs/reference/recipe-file.md, and stop");
  command->callback([arguments, resume] {
    arguments->resuming = resume->count() > 0;
    if (arguments->recipe.empty() && !arguments->from.empty()) arguments->recipe = kFinetune;
    run(*arguments);
  });
}

}  // namespace lamina::cli
