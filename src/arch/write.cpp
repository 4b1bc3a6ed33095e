#include <nlohmann/json.hpp>

#include "lamina/arch/value_json.h"

namespace lamina::arch {

Json spec_to_json(const ArchSpec& spec, Defaults defaults) {
  Json json = {{"schema", spec.schema}};
  json.update(value_to_json(spec, defaults));
  return json;
}

std::string write_spec(const ArchSpec& spec, Defaults defaults) {
  return spec_to_json(spec, defaults).dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace lamina::arch
