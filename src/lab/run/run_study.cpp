#include "lamina/lab/run/run_study.h"

#include <algorithm>
#include <filesystem>

#include "lamina/base/files.h"
#include "lamina/lab/run/budget.h"
#include "lamina/lab/run/plan.h"
#include "lamina/lab/run/search.h"
#include "lamina/lab/run/study_folder.h"
#include "lamina/lab/run/tune.h"
#include "lamina/lab/stretch/stretch.h"
#include "lamina/lab/study/collect_problems.h"
#include "lamina/tensor/device.h"
#include "lamina/train/memory.h"

namespace lamina::lab {
namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;

/// Runs one study.
class StudyRun {
 public:
  StudyRun(const Study& study, const StudyOptions& options)
      : options_(options), folder_(options.folder), start_(Clock::now()), data_(data_of(study)) {
    results_.study = study;
    results_.command = options.command;
    results_.machine = this_machine();
    const Parallelism parallelism = parallelism_of(study, results_.machine.cores);
    results_.machine.jobs = parallelism.jobs;
    results_.machine.threads = parallelism.threads;
    results_.machine.device = study.device;
    results_.data_hash = data_.hash;
    make_reproducible(results_.study, parallelism);
    check_runs();
    planner_ = std::make_unique<Planner>(results_.study, data_, parallelism.threads, folder_.file("runs"));
    check_memory();
    if (study.mode == Mode::stretch) {
      stretch_ =
          std::make_unique<Stretch>(results_.study, data_, options.folder, Place{study.device, parallelism.threads});
    }
    save_study();
    runner_ = std::make_unique<Runner>(Runner::Options{.jobs = parallelism.jobs, .keep_weights = study.keep_weights},
                                       options_.watcher);
  }

  Results run() {
    bool whole = settle_budget(results_.study, *planner_, *runner_);
    save_study();
    if (results_.study.mode == Mode::search) {
      whole = run_search(*planner_, *runner_, results_, [this] { save(); });
    } else {
      for (const Variant& variant : variants_of(results_.study)) results_.variants.push_back(planner_->build(variant));
      if (stretch_) stretch_->add_scaled_variants(results_);
      if (stretch_) stretch_->announce(*runner_);
      announce_sweep();
      whole = whole && tune(*planner_, *runner_, results_) &&
              run_seeds(*planner_, *runner_, results_, trained_variants(), [this] { save(); });
    }
    whole = whole && sweep();
    if (whole && stretch_) whole = stretch_->run(results_, *runner_, options_.watcher);
    if (whole) measure_generation();
    results_.complete = whole;
    saved_ = {};
    save();
    return results_;
  }

 private:
  StudyData data_of(const Study& study) const {
    if (trains(study)) return prepare_study_data(study.recipe, folder_.file("data"), options_.preparing);
    StudyData data;
    data.choice = study.recipe.data;
    return data;
  }

  /// Whether the study has training runs. Mode stretch may measure an existing model instead.
  static bool trains(const Study& study) { return study.mode != Mode::stretch || study.stretch->model.empty(); }

  /// Makes the description reproducible on the same machine, with absolute paths and explicit jobs and threads.
  static void make_reproducible(Study& study, const Parallelism& parallelism) {
    study.jobs = parallelism.jobs;
    study.threads = parallelism.threads;
    std::vector<std::string*> paths{&study.recipe.data.train, &study.recipe.data.validation};
    if (study.stretch) paths.insert(paths.end(), {&study.stretch->model, &study.stretch->tokenizer});
    if (study.stretch && file_exists(study.stretch->passkey_recipe)) paths.push_back(&study.stretch->passkey_recipe);
    for (std::string* path : paths) {
      if (!path->empty() && *path != "synthetic") *path = fs::absolute(*path).lexically_normal().string();
    }
  }

  /// Checks that need the data's vocabulary, and so could not be made when the study was read. Runs before any
  /// training, and before existing results change.
  void check_runs() const {
    std::vector<arch::Problem> problems;
    check_variants(results_.study, data_, problems);
    if (!problems.empty()) throw arch::SpecError(results_.study.name, std::move(problems));
  }

  /// Checks memory before any training. Cached runs need no memory and are skipped.
  void check_memory() const {
    const Study& study = results_.study;
    if (study.mode == Mode::search || !trains(study)) return;
    const Device device = Device::named(study.device, results_.machine.threads);
    std::vector<arch::Problem> problems;
    for (const Variant& variant : variants_of(study)) {
      const RunPlan plan = planner_->plan(planner_->build(variant), study.seeds[0]);
      if (fs::exists(plan.folder)) continue;
      collect_problems(variant.name, Repeats::keep, problems, [&] { train::check_memory(plan.recipe, device); });
    }
    if (!problems.empty()) throw arch::SpecError(study.name, std::move(problems));
  }

  void save_study() const { write_text(folder_.file("study.json"), write_study(results_.study)); }

  std::vector<size_t> trained_variants() const {
    std::vector<size_t> trained;
    for (size_t i = 0; i < results_.variants.size(); ++i) {
      if (results_.variants[i].trained) trained.push_back(i);
    }
    return trained;
  }

  /// Saves the results, at most once every 5 seconds, because a study may have many short runs.
  void save() {
    const auto now = Clock::now();
    if (saved_ && now - *saved_ < std::chrono::seconds(5)) return;
    summarise(results_);
    results_.seconds = std::chrono::duration<double>(now - start_).count();
    results_.seconds_of_runs = runner_->seconds_of_runs();
    write_results(results_, options_.folder);
    saved_ = Clock::now();
  }

  std::vector<RunPlan> sweep_plans(std::vector<std::pair<size_t, double>>& places) const {
    std::vector<RunPlan> plans;
    const Study& study = results_.study;
    for (const double rate : study.learning_rates) {
      for (size_t i = 0; i < results_.variants.size(); ++i) {
        if (!results_.variants[i].cannot.empty() || !results_.variants[i].trained) continue;
        plans.push_back(planner_->plan(results_.variants[i], study.seeds[0], sweep_changes(study, rate)));
        plans.back().title = str(results_.variants[i].variant.name, ", learning rate ", rate);
        places.emplace_back(i, rate);
      }
    }
    return plans;
  }

  static std::vector<std::string> sweep_changes(const Study& study, double rate) {
    const int64_t warmup = std::visit([](const auto& schedule) { return schedule.warmup; }, study.recipe.schedule);
    const std::string steps = std::to_string(study.sweep_steps);
    return {"steps=" + steps, str("optimizer.lr=", rate), "eval_every=0", "save_every=0",
            str("schedule.warmup=", std::min(warmup, study.sweep_steps / 5))};
  }

  void announce_sweep() {
    std::vector<std::pair<size_t, double>> places;
    for (const RunPlan& plan : distinct(sweep_plans(places)).plans) runner_->expect(1, plan.work);
  }

  /// Learning-rate sweep: short runs at all learning rates, in ascending order. The highest stable rate is the last one
  /// before the first unstable one.
  bool sweep() {
    if (results_.study.learning_rates.empty()) return true;
    std::vector<std::pair<size_t, double>> places;
    if (results_.study.mode == Mode::search) announce_sweep();
    const auto outcomes = run_all(*runner_, sweep_plans(places));
    if (!outcomes) return false;
    for (size_t i = 0; i < results_.variants.size(); ++i) {
      std::vector<std::pair<double, RunOutcome>> rates;
      for (size_t j = 0; j < places.size(); ++j) {
        if (places[j].first == i) rates.emplace_back(places[j].second, (*outcomes)[j]);
      }
      results_.variants[i].highest_stable_learning_rate = highest_stable(rates);
    }
    return true;
  }

  /// Measures generation speed when no run is active. Keeps earlier measurements.
  void measure_generation() {
    if (!results_.study.decode) return;
    if (options_.watcher.on_stage) options_.watcher.on_stage("measuring generation speed");
    const Device device = Device::named(results_.study.device, results_.machine.cores);
    std::map<std::string, double> measured;  // by run hash, because variants can share a run
    for (VariantResult& variant : results_.variants) {
      for (RunResult& run : variant.runs) {
        if (run.decode_tokens_per_second || run.diverged) continue;
        if (options_.watcher.stop && options_.watcher.stop()) return;
        const RunPlan plan = planner_->plan(variant, run.seed);
        const auto known = measured.find(plan.hash);
        if (known != measured.end()) {
          run.decode_tokens_per_second = known->second;
          continue;
        }
        try {
          measure_run_decode(plan, run, device);
          measured[plan.hash] = *run.decode_tokens_per_second;
        } catch (const Error&) {
          break;  // this model cannot generate; continue with the other variants
        }
      }
    }
  }

  const StudyOptions& options_;
  StudyFolder folder_;
  Clock::time_point start_;
  StudyData data_;
  Results results_;
  std::unique_ptr<Planner> planner_;
  std::unique_ptr<Stretch> stretch_;  ///< only in mode stretch
  std::unique_ptr<Runner> runner_;
  std::optional<Clock::time_point> saved_;
};

}  // namespace

Results run_study(const Study& study, const StudyOptions& options) {
  LAMINA_CHECK(study.mode != Mode::stretch || study.stretch, study.name, ": mode stretch needs Study::stretch; set it");
  Device::named(study.device, 1);  // throws an Error if the device is missing, before anything is created
  return StudyRun(study, options).run();
}

}  // namespace lamina::lab
