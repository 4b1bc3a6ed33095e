#include "lamina/nn/position_tables.h"

#include <algorithm>

#include "lamina/arch/weights.h"
#include "lamina/nn/rope_scaling.h"

namespace lamina::nn {

PositionTables::PositionTables(const arch::ArchSpec& spec, const ParameterFactory& make) {
  for (const arch::Weight& weight : arch::outer_weights(spec)) {
    const Shape shape{std::span<const int64_t>(weight.shape)};
    const auto add = [&](const std::string& name, Tensor& slot) {
      if (weight.name != "position." + name || !make.holds(name)) return;
      slot = make.normal(name, shape);
      add_parameter(name, slot);
    };
    add("weight", weight_);
    add("u", u_);
    add("v", v_);
  }
}

RotaryPosition& PositionTables::rotary(const arch::Rope& rope) {
  for (const auto& made : rotary_) {
    if (made->rope() == rope) return *made;
  }
  rotary_.push_back(std::make_unique<RotaryPosition>(rope));
  return *rotary_.back();
}

bool PositionTables::depend_on_length() const {
  return std::any_of(rotary_.begin(), rotary_.end(), [](const auto& made) { return made->depends_on_length(); });
}

bool PositionTables::change_between(int64_t a, int64_t b) const {
  return std::any_of(rotary_.begin(), rotary_.end(), [&](const auto& made) {
    return made->depends_on_length() &&
           rope_frequencies(made->rope(), a).angles != rope_frequencies(made->rope(), b).angles;
  });
}

}  // namespace lamina::nn
