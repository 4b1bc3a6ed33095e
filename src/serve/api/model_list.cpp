#include "lamina/serve/api/model_list.h"

#include <cmath>

#include "lamina/arch/count.h"
#include "lamina/arch/json.h"
#include "lamina/arch/picture.h"
#include "lamina/arch/plan.h"

namespace lamina::serve {
namespace {

Json describe_row(const infer::RunningAnswer& row) {
  // The time begins with the first token, so the rate does not count that token.
  const double rate = row.seconds > 0 ? static_cast<double>(row.generated - 1) / row.seconds : 0;
  return {{"row", row.row},
          {"state", row.generated > 0 ? "decode" : "prompt"},
          {"prompt_tokens", row.prompt_tokens},
          {"computed", row.computed},
          {"generated", row.generated},
          {"tokens_per_second", std::round(rate * 100) / 100}};
}

Json describe_engine(const ServedModel& model) {
  const infer::EngineStats stats = model.backend->stats();
  Json running = Json::array();
  for (const infer::RunningAnswer& row : model.backend->running()) running.push_back(describe_row(row));
  return {{"model", model.id},
          {"rows", {{"running", stats.running}, {"max", stats.rows}}},
          {"waiting", stats.waiting},
          {"pages",
           {{"used", stats.pages_used},
            {"cached", stats.pages_cached},
            {"free", stats.pages - stats.pages_used - stats.pages_cached},
            {"total", stats.pages},
            {"tokens_per_page", model.backend->shape().page_size}}},
          {"steps", stats.steps},
          {"step_seconds", stats.step_seconds},
          {"prompt_tokens", stats.prompt_tokens},
          {"cached_tokens", stats.cached_tokens},
          {"generated_tokens", stats.answer_tokens},
          {"preemptions", stats.preemptions},
          {"running", std::move(running)}};
}

}  // namespace

Json describe_model(const ServedModel& model) {
  return {{"id", model.id},
          {"object", "model"},
          {"created", model.created},
          {"owned_by", "lamina"},
          {"max_model_len", model.backend->shape().context},
          {"fingerprint", model.fingerprint},
          {"chat_template", model.chat_template.has_value() && model.has_own_template}};
}

Json describe_architecture(const ServedModel& model) {
  if (model.model == nullptr) throw ApiError(404, str("model ", model.id, " has no architecture to show"), "model");
  const arch::ArchSpec& spec = model.model->spec();
  const arch::ParameterCount count = arch::count_parameters(spec);
  const std::string title = str(model.id, ", ", arch::with_commas(count.total), " parameters");
  return {{"object", "architecture"},
          {"model", model.id},
          {"fingerprint", model.fingerprint},
          {"svg", arch::draw(spec, title)},
          {"spec", arch::spec_to_json(spec, arch::Defaults::omit)},
          {"parameters", {{"total", count.total}, {"active", count.active}, {"embedding", count.embedding}}}};
}

Json describe_scheduler(const std::vector<std::shared_ptr<ServedModel>>& models) {
  Json list = Json::array();
  for (const auto& model : models) list.push_back(describe_engine(*model));
  return {{"object", "scheduler"}, {"models", std::move(list)}};
}

}  // namespace lamina::serve
