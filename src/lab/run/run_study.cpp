#include "lamina/lab/run/run_study.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>

#include "lamina/base/files.h"
#include "lamina/lab/run/plan.h"
#include "lamina/lab/run/search.h"
#include "lamina/lab/study/collect_problems.h"
#include "lamina/tensor/device.h"
#include "lamina/train/memory.h"

namespace lamina::lab {
namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;

/// Whether the folder has only what an aborted study leaves before its first run.
bool nothing_begun(const std::string& folder) {
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(folder, error)) {
    if (entry.path().filename() != "lock" && entry.path().filename() != "data") return false;
  }
  return !error;
}

/// The study's folder, locked against other processes.
class StudyFolder {
 public:
  explicit StudyFolder(const std::string& path) : path_(path) {
    LAMINA_CHECK(!path.empty(), "no folder for the study was named");
    std::error_code error;
    const bool there = fs::exists(path, error);
    LAMINA_CHECK(!there || path_exists(path_ / "study.json") || nothing_begun(path), path,
                 ": is there and is no study; choose another folder (--out)");
    fs::create_directories(path_, error);
    LAMINA_CHECK(!error, path, ": cannot be made: ", error.message(), "; check the name, the permissions and space");
    const std::string lock = file("lock");
    lock_ = ::open(lock.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644);
    LAMINA_CHECK(lock_ >= 0, lock, ": cannot be written; check the permissions");
    if (::flock(lock_, LOCK_EX | LOCK_NB) == 0) return;
    ::close(lock_);
    throw Error(
        str(path, ": another process runs a study here; wait for it, stop it, or choose another folder (--out)"));
  }
  ~StudyFolder() { ::close(lock_); }
  StudyFolder(const StudyFolder&) = delete;
  StudyFolder& operator=(const StudyFolder&) = delete;

  std::string file(const std::string& name) const { return (path_ / name).string(); }

 private:
  fs::path path_;
  int lock_ = -1;
};

class Comparison {
 public:
  Comparison(const Study& study, const CompareOptions& options)
      : options_(options),
        folder_(options.folder),
        start_(Clock::now()),
        data_(prepare_study_data(study.recipe, folder_.file("data"), options.preparing)) {
    results_.study = study;
    results_.command = options.command;
    results_.machine = this_machine();
    const Hands hands = hands_of(study, results_.machine.cores);
    results_.machine.jobs = hands.jobs;
    results_.machine.threads = hands.threads;
    results_.machine.device = study.device;
    results_.data_hash = data_.hash;
    settle(results_.study, hands);
    check_runs();
    planner_ = std::make_unique<Planner>(results_.study, data_, hands.threads, folder_.file("runs"));
    check_memory();
    write_text(folder_.file("study.json"), write_study(results_.study));
    runner_ = std::make_unique<Runner>(data_, Runner::Options{.jobs = hands.jobs, .keep_weights = study.keep_weights},
                                       options_.watcher);
  }

  Results run() {
    bool whole = false;
    if (results_.study.mode == Mode::search) {
      whole = run_search(*planner_, *runner_, results_, [this] { save(); });
    } else {
      for (const Variant& variant : variants_of(results_.study)) results_.variants.push_back(planner_->build(variant));
      announce_sweep();
      whole = run_seeds(*planner_, *runner_, results_, all_variants(), [this] { save(); });
    }
    whole = whole && sweep();
    if (whole) measure_generation();
    results_.complete = whole;
    saved_ = {};
    save();
    return results_;
  }

 private:
  /// Makes the description reproducible on the same machine: absolute paths, and explicit jobs and threads.
  static void settle(Study& study, const Hands& hands) {
    study.jobs = hands.jobs;
    study.threads = hands.threads;
    for (std::string* path : {&study.recipe.data.train, &study.recipe.data.validation}) {
      if (!path->empty() && *path != "synthetic") *path = fs::absolute(*path).lexically_normal().string();
    }
  }

  /// Checks what needs the data's vocabulary and could not be checked when the study was read. Runs before any training
  /// and before existing results change.
  void check_runs() const {
    std::vector<arch::Problem> problems;
    check_variants(results_.study, data_, problems);
    if (!problems.empty()) throw arch::SpecError(results_.study.name, std::move(problems));
  }

  /// Cached runs need no memory and are not checked.
  void check_memory() const {
    const Study& study = results_.study;
    if (study.mode == Mode::search) return;
    const Device device = Device::named(study.device, results_.machine.threads);
    std::vector<arch::Problem> problems;
    for (const Variant& variant : variants_of(study)) {
      const RunPlan plan = planner_->plan(planner_->build(variant), study.seeds[0]);
      if (fs::exists(plan.folder)) continue;
      collect_problems(variant.name, Repeats::keep, problems, [&] { train::check_memory(plan.recipe, device); });
    }
    if (!problems.empty()) throw arch::SpecError(study.name, std::move(problems));
  }

  std::vector<size_t> all_variants() const {
    std::vector<size_t> all;
    for (size_t i = 0; i < results_.variants.size(); ++i) all.push_back(i);
    return all;
  }

  /// Saves at most once every 5 seconds, because a study may have many short runs.
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
        if (!results_.variants[i].cannot.empty()) continue;
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

  /// Short runs at all learning rates, in ascending order. The highest stable rate is the last one before the first
  /// unstable one.
  bool sweep() {
    if (results_.study.learning_rates.empty()) return true;
    std::vector<std::pair<size_t, double>> places;
    const Distinct plans = distinct(sweep_plans(places));
    if (results_.study.mode == Mode::search) announce_sweep();
    std::vector<RunOutcome> outcomes(plans.plans.size());
    const bool whole =
        runner_->run(plans.plans, [&](size_t index, const RunOutcome& outcome) { outcomes[index] = outcome; });
    if (!whole) return false;
    for (size_t i = 0; i < results_.variants.size(); ++i) {
      std::vector<std::pair<double, RunOutcome>> rates;
      for (size_t j = 0; j < places.size(); ++j) {
        if (places[j].first == i) rates.emplace_back(places[j].second, outcomes[plans.index[j]]);
      }
      results_.variants[i].highest_stable_learning_rate = highest_stable(rates);
    }
    return true;
  }

  /// Measures generation speed while no run is active. Keeps earlier measurements.
  void measure_generation() {
    if (!results_.study.decode) return;
    if (options_.watcher.on_stage) options_.watcher.on_stage("measuring generation");
    const Device device = Device::named(results_.study.device, results_.machine.cores);
    std::map<std::string, double> measured;  // by run hash: variants can share a run
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

  const CompareOptions& options_;
  StudyFolder folder_;
  Clock::time_point start_;
  StudyData data_;
  Results results_;
  std::unique_ptr<Planner> planner_;
  std::unique_ptr<Runner> runner_;
  std::optional<Clock::time_point> saved_;
};

}  // namespace

Results run_study(const Study& study, const CompareOptions& options) {
  Device::named(study.device, 1);  // throws if the device is missing, before anything is created
  return Comparison(study, options).run();
}

}  // namespace lamina::lab
