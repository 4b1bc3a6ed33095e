#include <algorithm>
#include <filesystem>

#include "lamina/arch/cost.h"
#include "lamina/arch/resolve.h"
#include "lamina/lab/stretch/stretch_work.h"
#include "lamina/lab/study/collect_problems.h"

namespace lamina::lab {
namespace {

namespace fs = std::filesystem;

double token_flops(const train::Recipe& recipe) {
  arch::ArchSpec spec = recipe.architecture;
  if (spec.vocab_size == 0) spec.vocab_size = 1;
  return arch::flops_per_token(arch::resolve(spec), recipe.length).forward();
}

class KindStretcher {
 public:
  KindStretcher(const StretchReading& reading, StretchWork& work) : reading_(reading), work_(work) {
    const StretchOptions& options = reading.options;
    std::vector<arch::Problem> problems;
    for (const PositionKind& kind : position_kinds(reading.trained_length)) {
      std::vector<const ScalingKind*> scalings;
      for (const ScalingKind& scaling : rope_scalings()) {
        if (kind.name == kScaledKind && wanted(options, scaling.name)) scalings.push_back(&scaling);
      }
      if (!wanted(options, kind.name) && scalings.empty()) continue;
      plan_kind(kind, scalings, problems);
    }
    if (!problems.empty()) throw arch::SpecError("stretch", std::move(problems));
    prepare();
  }

  /// A failed training (loss not finite, disk full) affects only the rows that read its model.
  void run(const StretchWatch& watch, StretchResult& result) {
    for (Kind& kind : kinds_) {
      const std::string text_failed = trained(kind.text);
      const std::string passkey_failed = reading_.options.passkey ? trained(kind.passkey) : "";
      for (StretchPlan& plan : kind.plans) {
        plan.text_failed = text_failed;
        plan.passkey_failed = passkey_failed;
        measure_row(plan, reading_, text_, passkeys_, measured(), work_);
        if (watch.row) watch.row(plan.row);
        result.rows.push_back(plan.row);
      }
    }
  }

 private:
  struct Kind {
    StretchRun text;
    StretchRun passkey;
    std::vector<StretchPlan> plans;
  };

  /// Creates the folder of every run, checks recipe, data and memory, and reads the text. Throws SpecError with all
  /// problems before any training.
  void prepare() {
    std::vector<arch::Problem> problems;
    for (const Kind& kind : kinds_) {
      collect_problems(kind.text.name, Repeats::drop, problems, [&] { start_stretch_run(kind.text, reading_.device); });
      if (!reading_.options.passkey) continue;
      collect_problems(kind.passkey.name, Repeats::drop, problems,
                       [&] { start_stretch_run(kind.passkey, reading_.device); });
    }
    if (problems.empty()) {
      collect_problems("data", Repeats::keep, problems, [&] { take_text(kinds_.front().text.folder); });
    }
    if (!problems.empty()) throw arch::SpecError("stretch", std::move(problems));
  }

  /// Trains a run. Returns the error, or an empty text on success.
  std::string trained(const StretchRun& run) {
    try {
      make_stretch_run(run, reading_.device, work_);
      return "";
    } catch (const Error& error) {
      return error.what();
    }
  }

  std::string runs() const { return (fs::path(reading_.options.folder) / "runs").string(); }
  std::string measured() const { return (fs::path(reading_.options.folder) / "measured").string(); }

  train::Recipe recipe(const std::string& name, const std::vector<std::string>& changes, const PositionKind& kind,
                       bool text) const {
    std::vector<std::string> all = changes;
    const int64_t length = reading_.trained_length;
    all.push_back(str("length=", length));
    all.push_back(str("architecture.context=", length));
    for (const std::string& change : kind.set) all.push_back("architecture." + change);
    if (text) all.push_back("data.train=" + fs::absolute(reading_.options.data).string());
    return train::load_recipe(name, all);
  }

  void plan_kind(const PositionKind& kind, const std::vector<const ScalingKind*>& scalings,
                 std::vector<arch::Problem>& problems) {
    const StretchOptions& options = reading_.options;
    Kind made;
    // A wrong option fails for every kind; report it once.
    collect_problems(kind.name, Repeats::drop, problems, [&] {
      made.text = plan_stretch_run(kind.name, recipe(options.recipe, options.changes, kind, true), runs());
    });
    if (options.passkey) {
      collect_problems(kind.name + "-passkey", Repeats::drop, problems, [&] { made.passkey = plan_passkey(kind); });
    }
    if (!problems.empty()) return;
    work_.expect(made.text.work + made.passkey.work);
    if (wanted(options, kind.name)) add_plan(made, kind, nullptr);
    for (const ScalingKind* scaling : scalings) add_plan(made, kind, scaling);
    kinds_.push_back(std::move(made));
  }

  StretchRun plan_passkey(const PositionKind& kind) {
    const StretchOptions& options = reading_.options;
    train::Recipe asking = recipe(options.passkey_recipe, options.passkey_changes, kind, false);
    const auto* task = asking.data.task ? std::get_if<data::Passkey>(&*asking.data.task) : nullptr;
    LAMINA_CHECK(task != nullptr, options.passkey_recipe, ": its data.task is not passkey");
    asking.data.longer = 1;
    passkeys_ = task_passkeys(*task);
    return plan_stretch_run(kind.name + "-passkey", std::move(asking), runs());
  }

  void add_plan(Kind& kind, const PositionKind& position, const ScalingKind* scaling) {
    StretchPlan plan;
    plan.row.name = scaling == nullptr ? position.name : scaling->name;
    plan.row.label = scaling == nullptr ? position.label : str(position.label, ", ", scaling->label);
    plan.row.switches = position.set;
    plan.row.run = scaling == nullptr ? kind.text.folder : "";
    plan.scaling = scaling;
    plan.text_model = kind.text.folder;
    plan.text_flops = token_flops(kind.text.recipe);
    if (reading_.options.passkey) {
      plan.passkey_model = kind.passkey.folder;
      plan.passkey_flops = token_flops(kind.passkey.recipe);
    }
    plan.key = reading_key(reading_, kind.text.folder + " " + kind.passkey.folder);
    work_.expect(reading_work(plan, reading_));
    kind.plans.push_back(std::move(plan));
  }

  /// Reads the validation data, which is the same for every kind.
  void take_text(const std::string& run) {
    const train::Recipe recipe = train::RunFolder(run).recipe();
    const train::RunData data = train::open_run_data(run, recipe);
    LAMINA_CHECK(data.validation_tokens, run, ": the run has no validation data to read; give data.validation");
    const int64_t longest = reading_.lengths.back();
    const int64_t count = std::min(data.validation_tokens->size(), longest + reading_.options.tokens);
    std::vector<int64_t> ids(static_cast<size_t>(count));
    data.validation_tokens->read(0, ids);
    text_ = reading_text({ids.begin(), ids.end()}, longest, reading_.options.tokens);
  }

  const StretchReading& reading_;
  StretchWork& work_;
  std::vector<Kind> kinds_;
  PasskeyMaker passkeys_;
  ReadingText text_;
};

}  // namespace

void stretch_kinds(const StretchReading& reading, StretchWork& work, const StretchWatch& watch, StretchResult& result) {
  KindStretcher(reading, work).run(watch, result);
}

}  // namespace lamina::lab
