#include "lamina/lab/stretch/stretch.h"

#include <filesystem>

#include "lamina/base/files.h"
#include "lamina/data/sha256.h"
#include "lamina/data/tokenizer_identity.h"
#include "lamina/lab/run/search.h"
#include "lamina/lab/stretch/options.h"
#include "lamina/lab/study/collect_problems.h"
#include "lamina/train/memory.h"

namespace lamina::lab {
namespace {

namespace fs = std::filesystem;

std::vector<text::TokenId> tokens_of(const data::TokenFile& file, int64_t most) {
  std::vector<int64_t> ids(static_cast<size_t>(std::min(file.size(), most)));
  file.read(0, ids);
  return {ids.begin(), ids.end()};
}

/// The tokens of the study's data (text, or a token file), for a model with its own tokenizer.
std::vector<text::TokenId> ids_for_model(const std::string& data, const infer::LoadedModel& model) {
  if (!data::is_token_file(data)) return infer::prompt_ids(infer::require_tokenizer(model), read_text(data));
  const data::TokenFile file = data::TokenFile::open(data);
  if (model.tokenizer) data::check_tokens_of_model(file, model.path, *model.tokenizer, model.tokenizer_path);
  return tokens_of(file, file.size());
}

const ScalingKind* scaling_named(const std::string& name) {
  for (const ScalingKind& kind : rope_scalings()) {
    if (kind.name == name) return &kind;
  }
  return nullptr;
}

/// The reason why a training gave no usable model. Empty if it did.
std::string failure_of(const std::string& cannot, const RunResult* run) {
  if (run == nullptr) return cannot.empty() ? "was not trained" : cannot;
  return run->diverged ? run->divergence : "";
}

}  // namespace

Stretch::Stretch(const Study& study, const StudyData& data, const std::string& folder, const Place& place)
    : study_(study),
      folder_(folder),
      grid_(stretch_grid(*study.stretch, study.recipe.length)),
      device_(Device::named(place.device)) {
  fs::create_directories(fs::path(folder) / "measured");
  if (!study.stretch->model.empty()) {
    load_model();
    return;
  }
  LAMINA_CHECK(!data.choice.validation.empty(), data.choice.train,
               ": there is no validation data to measure on; set data.validation");
  const int64_t longest = grid_.lengths.back();
  text_ = reading_text(tokens_of(data::TokenFile::open(data.choice.validation), longest + grid_.tokens), longest,
                       grid_.tokens);
  if (study.stretch->passkey) plan_passkeys((fs::path(folder) / "runs").string(), place);
}

void Stretch::plan_passkeys(const std::string& runs, const Place& place) {
  const Study passkey = passkey_study(study_);
  const StudyData data = prepare_study_data(passkey.recipe, "");
  const Planner planner(passkey, data, place.threads, runs);
  passkeys_ = task_passkeys(std::get<data::Passkey>(*passkey.recipe.data.task));
  std::vector<arch::Problem> problems;
  for (const Variant& variant : variants_of(passkey)) {
    collect_problems(variant.name + " passkeys", Repeats::drop, problems, [&] {
      const VariantResult built = planner.build(variant);
      passkey_plans_.push_back(planner.plan(built, passkey.seeds[0]));
      passkey_plans_.back().title = variant.name + ", passkeys";
      passkey_flops_.push_back(built.flops_per_token);
      if (!path_exists(passkey_plans_.back().folder)) train::check_memory(passkey_plans_.back().recipe, device_);
    });
  }
  if (!problems.empty()) throw arch::SpecError(study_.name, std::move(problems));
}

void Stretch::load_model() {
  const StretchSettings& settings = *study_.stretch;
  model_ = infer::load_model(settings.model, device_, {settings.tokenizer, {}});
  std::vector<text::TokenId> ids = ids_for_model(study_.recipe.data.train, model_);
  model_id_ = str(fs::absolute(model_.path).string(), " ", fs::last_write_time(model_.path).time_since_epoch().count(),
                  " ", data::sha256_hex({reinterpret_cast<const char*>(ids.data()), ids.size() * sizeof ids[0]}));
  text_ = reading_text(std::move(ids), grid_.lengths.back(), grid_.tokens);
  if (settings.passkey && model_.tokenizer) passkeys_ = text_passkeys(*model_.tokenizer);
}

void Stretch::add_scaled_variants(Results& results) const {
  VariantResult& base = results.variants.front();
  base.trained = study_.stretch->model.empty();
  if (!has_rope(base.architecture)) return;
  std::vector<VariantResult> scaled;
  for (const std::string& name : study_.stretch->scalings) {
    const ScalingKind& kind = *scaling_named(name);
    const double factor = static_cast<double>(grid_.lengths.back()) / static_cast<double>(grid_.trained_length);
    VariantResult variant = base;
    variant.variant.name = name;
    variant.variant.label = base.trained ? str(base.variant.label, ", ", kind.label) : kind.label;
    variant.architecture = with_scaling(base.architecture, kind.at(factor, grid_.trained_length));
    variant.trained = false;
    scaled.push_back(std::move(variant));
  }
  results.variants.insert(results.variants.begin() + 1, scaled.begin(), scaled.end());
}

void Stretch::announce(Runner& runner) const {
  for (const RunPlan& plan : distinct(passkey_plans_).plans) runner.expect(1, plan.work);
}

MeasuredModel Stretch::measured_model(const VariantResult& variant, const VariantResult& source, size_t index) const {
  MeasuredModel model{.variant = variant.variant.name, .label = variant.variant.label};
  if (&variant != &source) model.scaling = scaling_named(model.variant);
  model.text_flops = variant.flops_per_token;
  if (!study_.stretch->model.empty()) {
    model.text_model = study_.stretch->model;
    model.id = model_id_;
    if (!passkeys_) return model;
    model.passkey_model = model.text_model;
    model.passkey_flops = model.text_flops;
    return model;
  }
  const RunResult* run = source.runs.empty() ? nullptr : &source.runs.front();
  model.text_failed = failure_of(source.cannot, run);
  if (run != nullptr) model.id = run->folder;
  model.text_model = (fs::path(folder_) / "runs" / model.id).string();
  if (passkey_plans_.empty()) return model;
  const RunOutcome& outcome = passkey_outcomes_[index];
  model.passkey_failed = failure_of(outcome.cannot, outcome.result ? &*outcome.result : nullptr);
  model.passkey_model = passkey_plans_[index].folder;
  model.passkey_flops = passkey_flops_[index];
  model.id += " " + passkey_plans_[index].hash;
  return model;
}

bool Stretch::run(Results& results, Runner& runner, const StudyWatcher& watcher) {
  const auto passkeys = run_all(runner, passkey_plans_);
  if (!passkeys) return false;
  passkey_outcomes_ = *passkeys;
  std::vector<MeasuredModel> models;
  size_t trained = 0;
  for (const VariantResult& variant : results.variants) {
    const bool scaled = !variant.trained && &variant != results.variants.data();
    models.push_back(measured_model(variant, scaled ? results.variants.front() : variant, scaled ? 0 : trained++));
  }
  StretchResult measured = grid_;
  const MeasureContext context{*study_.stretch, text_,  passkeys_, (fs::path(folder_) / "measured").string(),
                               device_,         watcher};
  if (!measure_lengths(models, context, measured)) return false;
  results.stretch = std::move(measured);
  return true;
}

}  // namespace lamina::lab
