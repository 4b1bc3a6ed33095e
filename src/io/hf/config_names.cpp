#include <nlohmann/json.hpp>

#include "lamina/io/hf/config_map.h"

namespace lamina::io::hf {

void ConfigMap::named_layers(std::string_view keys, Draft& draft, std::vector<bool>& chosen, std::string_view yes,
                             std::string_view no, const std::function<bool(int64_t)>& otherwise) {
  const arch::Json* found = find(keys);
  if (!reading()) {
    arch::Json& list = slot(keys) = arch::Json::array();
    for (const bool one : chosen) list.push_back(std::string(one ? yes : no));
    return;
  }
  const auto layers = static_cast<size_t>(draft.n_layers);
  chosen.assign(layers, false);
  const bool given = found != nullptr && !found->is_null();
  if (given && (!found->is_array() || found->size() != layers)) {
    fail(keys, str("expected a list of one name for each of the ", layers, " layers"));
  }
  for (size_t i = 0; i < layers; ++i) {
    if (!given) {
      chosen[i] = otherwise(static_cast<int64_t>(i));
      continue;
    }
    const arch::Json& name = (*found)[i];
    chosen[i] = name == yes;
    if (!chosen[i] && name != no) fail(keys, str("layer ", i, " is none of ", yes, " and ", no));
  }
}

void ConfigMap::expert_layers(Draft& draft) {
  constexpr const char* kKey = "moe_layers";
  const bool listed = find(kKey) != nullptr && !find(kKey)->is_null();
  std::vector<bool> experts;
  for (const bool dense : draft.dense) experts.push_back(!dense);
  if (!reading() || listed) layer_numbers(kKey, draft, experts);
  int64_t step = 1;
  if (reading()) entry("interleave_moe_layer_step", step, 1);
  if (step < 1) fail("interleave_moe_layer_step", str(step, ", expected a positive number"));
  if (!reading()) return;
  draft.dense.clear();
  for (int64_t i = 0; i < draft.n_layers; ++i) {
    const bool has_experts = listed ? experts[static_cast<size_t>(i)] : (i + 1) % step == 0;
    draft.dense.push_back(!has_experts);
  }
}

}  // namespace lamina::io::hf
