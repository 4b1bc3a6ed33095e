#include "lamina/arch/plan.h"

#include <nlohmann/json.hpp>

#include "lamina/arch/json.h"
#include "lamina/arch/layers.h"

namespace lamina::arch {

Plan make_plan(const std::string& name, const ArchSpec& resolved, PlanOptions options) {
  constexpr int64_t kMost = int64_t{1} << 31;
  if (options.length == 0) options.length = std::min<int64_t>(resolved.context, 4096);
  LAMINA_CHECK(options.batch >= 1 && options.batch < kMost, "batch ", options.batch, "; expected 1 to ", kMost - 1);
  LAMINA_CHECK(options.length >= 1 && options.length < kMost, "length ", options.length, "; expected 1 to ", kMost - 1);
  const auto* learned = std::get_if<LearnedPosition>(&resolved.position);
  LAMINA_CHECK(learned == nullptr || options.length <= *learned->length, "length ", options.length, " exceeds the ",
               *learned->length, " learned positions; use a shorter length or set position.length");
  return {name,
          resolved,
          options,
          layer_count(resolved),
          count_parameters(resolved),
          flops_per_token(resolved, options.length),
          cache_rows(resolved),
          {},
          advise(resolved)};
}

namespace {

Json parameters_json(const ParameterCount& count) {
  Json rows = Json::array();
  for (const CountRow& row : count.rows) {
    rows.push_back({{"where", row.where},
                    {"component", row.component},
                    {"each", row.each},
                    {"layers", row.layers},
                    {"total", row.total},
                    {"active", row.active}});
  }
  return {{"total", count.total}, {"active", count.active}, {"embedding", count.embedding}, {"rows", rows}};
}

Json cache_json(const Plan& plan) {
  const double bytes = plan.options.bytes_per_number;
  Json rows = Json::array();
  double per_token = 0;
  double whole = 0;
  for (const CacheRow& row : plan.cache) {
    per_token += row.per_token * static_cast<double>(row.layers) * bytes;
    whole += row.at(plan.options.length) * bytes;
    rows.push_back({{"where", row.where},
                    {"kind", row.kind},
                    {"layers", row.layers},
                    {"bytes_per_token", row.per_token * static_cast<double>(row.layers) * bytes},
                    {"longest", row.max_tokens},
                    {"bytes_constant", row.constant * static_cast<double>(row.layers) * bytes},
                    {"bytes_at_length", row.at(plan.options.length) * bytes}});
  }
  return {{"bytes_per_token", per_token}, {"bytes_at_length", whole}, {"rows", rows}};
}

}  // namespace

std::string to_json_text(const Plan& plan) {
  Json advice = Json::array();
  for (const Advice& item : plan.advice) {
    advice.push_back({{"verdict", item.verdict == Advice::Verdict::usual ? "usual" : "look"},
                      {"subject", item.subject},
                      {"found", item.found},
                      {"reason", item.reason}});
  }
  Json json = {
      {"name", plan.name},
      {"layers", plan.layers},
      {"batch", plan.options.batch},
      {"length", plan.options.length},
      {"bytes_per_number", plan.options.bytes_per_number},
      {"parameters", parameters_json(plan.parameters)},
      {"flops_per_token",
       {{"products", plan.flops.products},
        {"mixing", plan.flops.mixing},
        {"forward", plan.flops.forward()},
        {"training", plan.flops.training()}}},
      {"cache", cache_json(plan)},
      {"advice", advice},
      {"architecture", spec_to_json(plan.spec, Defaults::write)},
  };
  if (plan.memory) {
    json["training_memory"] = {{"weights", plan.memory->weights},     {"gradients", plan.memory->gradients},
                               {"optimizer", plan.memory->optimizer}, {"activations", plan.memory->activations},
                               {"saving", plan.memory->saving},       {"total", plan.memory->total()}};
  }
  return json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace lamina::arch
