#include <filesystem>

#include "lamina/arch/cost.h"
#include "lamina/base/files.h"
#include "lamina/data/sha256.h"
#include "lamina/data/tokenizer_identity.h"
#include "lamina/infer/load.h"
#include "lamina/lab/stretch/stretch_work.h"

namespace lamina::lab {
namespace {

namespace fs = std::filesystem;

std::vector<text::TokenId> ids_of(const StretchOptions& options, const infer::LoadedModel& model) {
  if (!data::is_token_file(options.data))
    return infer::prompt_ids(infer::require_tokenizer(model), read_text(options.data));
  const data::TokenFile file = data::TokenFile::open(options.data);
  if (model.tokenizer) data::check_tokens_of_model(file, model.path, *model.tokenizer, model.tokenizer_path);
  std::vector<int64_t> ids(static_cast<size_t>(file.size()));
  file.read(0, ids);
  return {ids.begin(), ids.end()};
}

}  // namespace

void stretch_model(const StretchReading& reading, StretchWork& work, const StretchWatch& watch, StretchResult& result) {
  const StretchOptions& options = reading.options;
  const infer::LoadedModel loaded = infer::load_model(options.model, reading.device, {options.tokenizer, {}});
  const arch::ArchSpec spec = loaded.model->spec();
  std::vector<text::TokenId> ids = ids_of(options, loaded);
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

}  // namespace lamina::lab
