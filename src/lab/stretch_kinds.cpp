#include <algorithm>
#include <filesystem>

#include "lamina/arch/cost.h"
#include "lamina/arch/resolve.h"
#include "lamina/lab/stretch_work.h"

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
    for (const PositionKind& kind : position_kinds(reading.trained_length)) {
      std::vector<const ScalingKind*> scalings;
      for (const ScalingKind& scaling : rope_scalings()) {
        if (kind.name == kScaledKind && wanted(options, scaling.name)) scalings.push_back(&scaling);
      }
      if (!wanted(options, kind.name) && scalings.empty()) continue;
      plan_kind(kind, scalings);
    }
  }

  void run(const StretchWatch& watch, StretchResult& result) {
    for (Kind& kind : kinds_) {
      std::string failed;
      try {
        start_stretch_run(kind.text, reading_.device);
      } catch (const Error& error) {
        failed = error.what();
      }
      if (failed.empty())
        read_text_once(kind.text.folder);  // before any training: a text that is too short is an error
      try {
        if (failed.empty()) make_stretch_run(kind.text, reading_.device, work_);
        if (failed.empty() && reading_.options.passkey) make_stretch_run(kind.passkey, reading_.device, work_);
      } catch (const Error& error) {
        failed = error.what();
      }
      for (StretchPlan& plan : kind.plans) {
        if (failed.empty()) {
          measure_row(plan, reading_, text_, passkeys_, measured(), work_);
        } else {
          plan.row.cannot = plan.row.passkey_cannot = failed;
          plan.row.side_by_side.resize(reading_.lengths.size());
          plan.row.sliding.resize(reading_.lengths.size());
        }
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

  void plan_kind(const PositionKind& kind, const std::vector<const ScalingKind*>& scalings) {
    const StretchOptions& options = reading_.options;
    const std::string runs = (fs::path(options.folder) / "runs").string();
    Kind made;
    made.text = plan_stretch_run(kind.name, recipe(options.recipe, options.changes, kind, true), runs);
    if (options.passkey) {
      train::Recipe asking = recipe(options.passkey_recipe, options.passkey_changes, kind, false);
      const auto* task = asking.data.task ? std::get_if<data::Passkey>(&*asking.data.task) : nullptr;
      LAMINA_CHECK(task != nullptr, options.passkey_recipe, ": its data.task is not passkey");
      asking.data.longer = 1;
      passkeys_ = task_passkeys(*task);
      made.passkey = plan_stretch_run(kind.name + "-passkey", std::move(asking), runs);
    }
    work_.expect(made.text.work + made.passkey.work);
    if (wanted(options, kind.name)) add_plan(made, kind, nullptr);
    for (const ScalingKind* scaling : scalings) add_plan(made, kind, scaling);
    kinds_.push_back(std::move(made));
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

  /// The validation data, which are the same for every kind.
  void read_text_once(const std::string& run) {
    if (!text_.ids.empty()) return;
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
