#include "lamina/lab/stretch.h"

#include <algorithm>
#include <filesystem>

#include "lamina/arch/cost.h"
#include "lamina/arch/resolve.h"
#include "lamina/base/files.h"
#include "lamina/data/sha256.h"
#include "lamina/infer/load.h"
#include "lamina/io/model_file.h"
#include "lamina/lab/stretch_work.h"

namespace lamina::lab {
namespace {

namespace fs = std::filesystem;
constexpr size_t kKeyDigits = 16;

std::vector<int64_t> lengths_of(int64_t trained, int64_t times) {
  std::vector<int64_t> lengths;
  for (int64_t factor = 1; factor <= times; factor *= 2) lengths.push_back(trained * factor);
  return lengths;
}

std::vector<double> depths_of(int64_t count) {
  std::vector<double> depths;
  for (int64_t i = 0; i < count; ++i) depths.push_back(static_cast<double>(i) / static_cast<double>(count - 1));
  return depths;
}

bool wanted(const StretchOptions& options, const std::string& name) {
  return options.kinds.empty() || std::find(options.kinds.begin(), options.kinds.end(), name) != options.kinds.end();
}

void check_options(const StretchOptions& options) {
  LAMINA_CHECK(!options.folder.empty(), "stretch: no folder was given for its runs and results (--out)");
  LAMINA_CHECK(!options.data.empty(), "stretch: no text was given (--data FILE)");
  LAMINA_CHECK(options.times >= 1 && options.times <= 1024, "stretch: up to ", options.times,
               " times the length; expected 1 to 1024");
  LAMINA_CHECK(options.examples >= 1 && options.depths >= 2, "stretch: ", options.examples, " passkeys at ",
               options.depths, " depths; expected at least 1 at 2");
  std::vector<std::string> known;
  for (const PositionKind& kind : position_kinds(4)) known.push_back(kind.name);
  for (const ScalingKind& kind : rope_scalings()) known.emplace_back(kind.name);
  for (const std::string& name : options.kinds) {
    LAMINA_CHECK(std::find(known.begin(), known.end(), name) != known.end(), "stretch: no position kind \"", name,
                 "\"; did you mean ", nearest_of(name.substr(0, 64), known), "? There are: ", [&] {
                   std::string all;
                   for (const std::string& one : known) all += (all.empty() ? "" : ", ") + one;
                   return all;
                 }());
  }
}

/// Everything besides the model that what is measured depends on.
std::string reading_key(const StretchReading& reading, const std::string& model) {
  const StretchOptions& options = reading.options;
  return data::sha256_hex(str(model, " ", reading.trained_length, " ", options.times, " ", options.tokens, " ",
                              options.passkey, " ", options.examples, " ", options.depths))
      .substr(0, kKeyDigits);
}

double token_flops(const train::Recipe& recipe) {
  arch::ArchSpec spec = recipe.architecture;
  if (spec.vocab_size == 0) spec.vocab_size = 1;
  return arch::flops_per_token(arch::resolve(spec), recipe.length).forward();
}

/// Trains kinds and reads them.
class Training {
 public:
  Training(const StretchReading& reading, StretchWork& work) : reading_(reading), work_(work) {
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
        start_stretch_run(kind.text);
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

/// Reads an existing model as it is and with scalings.
void stretch_model(const StretchReading& reading, StretchWork& work, const StretchWatch& watch, StretchResult& result) {
  const StretchOptions& options = reading.options;
  const infer::LoadedModel loaded = infer::load_model(options.model, reading.device, {options.tokenizer, {}});
  const arch::ArchSpec spec = loaded.model->spec();
  std::vector<text::TokenId> ids;
  if (options.data.ends_with(".bin")) {
    const data::TokenFile file = data::TokenFile::open(options.data);
    std::vector<int64_t> read(static_cast<size_t>(file.size()));
    file.read(0, read);
    ids.assign(read.begin(), read.end());
  } else {
    ids = infer::prompt_ids(infer::require_tokenizer(loaded), read_text(options.data));
  }
  const std::string data_key =
      data::sha256_hex({reinterpret_cast<const char*>(ids.data()), ids.size() * sizeof ids[0]});
  const ReadingText text = reading_text(std::move(ids), reading.lengths.back(), options.tokens);
  const PasskeyMaker passkeys = loaded.tokenizer ? text_passkeys(*loaded.tokenizer) : PasskeyMaker();
  std::vector<StretchPlan> plans;
  const auto add = [&](const std::string& name, const std::string& label, const ScalingKind* scaling) {
    StretchPlan plan;
    plan.row.name = name;
    plan.row.label = label;
    plan.scaling = scaling;
    plan.text_model = options.model;
    plan.text_flops = arch::flops_per_token(spec, reading.trained_length).forward();
    if (options.passkey && passkeys) {
      plan.passkey_model = options.model;
      plan.passkey_flops = plan.text_flops;
    }
    const fs::path weights = fs::path(loaded.path);
    plan.key = reading_key(reading, str(fs::absolute(weights).string(), " ",
                                        fs::last_write_time(weights).time_since_epoch().count(), " ", data_key));
    work.expect(reading_work(plan, reading));
    plans.push_back(std::move(plan));
  };
  add("as_it_is", "as it is", nullptr);
  for (const ScalingKind& scaling : rope_scalings()) {
    if (has_rope(spec) && wanted(options, scaling.name)) add(scaling.name, scaling.label, &scaling);
  }
  for (StretchPlan& plan : plans) {
    measure_row(plan, reading, text, passkeys, (fs::path(options.folder) / "measured").string(), work);
    if (watch.row) watch.row(plan.row);
    result.rows.push_back(plan.row);
  }
}

int64_t trained_length(const StretchOptions& options, const Device& device) {
  if (options.length > 0) return options.length;
  if (!options.model.empty()) return io::read_model(options.model, device).spec.context;
  const train::Recipe recipe = train::load_recipe(options.recipe, options.changes);
  return recipe.length > 0 ? recipe.length : recipe.architecture.context;
}

}  // namespace

std::optional<StretchResult> stretch(const StretchOptions& given, const Device& device, const StretchWatch& watch) {
  check_options(given);
  StretchOptions options = given;
  const int64_t trained = trained_length(options, device);
  const std::vector<int64_t> lengths = lengths_of(trained, options.times);
  options.tokens = std::max<int64_t>(1, (options.tokens > 0 ? options.tokens : 4 * lengths.back()) / lengths.back()) *
                   lengths.back();
  fs::create_directories(fs::path(options.folder) / "measured");
  StretchReading reading{options, trained, lengths, depths_of(options.depths), device};
  StretchResult result{trained, lengths, reading.depths, options.tokens, device.threads().count(), {}};
  StretchWork work(watch);
  try {
    if (options.model.empty()) {
      Training(reading, work).run(watch, result);
    } else {
      stretch_model(reading, work, watch, result);
    }
  } catch (const StretchStopped&) {
    return {};
  }
  return result;
}

}  // namespace lamina::lab
