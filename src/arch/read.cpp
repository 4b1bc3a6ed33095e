#include "lamina/arch/value_read.h"

namespace lamina::arch {

ArchSpec spec_from_json(const Json& json, std::vector<Problem>& problems) {
  ArchSpec spec;
  ValueReader(problems).read(json, spec, "");
  if (spec.schema > kSchema) {
    problems.push_back({"read", "schema",
                        str("the file has version ", spec.schema, ", this program supports ", kSchema),
                        "use a newer lamina"});
  }
  return spec;
}

ArchSpec read_spec(std::string_view text, const std::string& name) {
  std::vector<Problem> problems;
  ArchSpec spec = spec_from_json(parse_json<Json>(text, name), problems);
  if (!problems.empty()) throw SpecError(name, std::move(problems));
  return spec;
}

}  // namespace lamina::arch
