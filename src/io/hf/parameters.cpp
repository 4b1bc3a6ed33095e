#include <map>

#include "lamina/io/hf.h"
#include "lamina/io/hf/family.h"

namespace lamina::io {

NamedTensors hf_parameters(const std::string& model_type, const arch::ArchSpec& resolved, const NamedTensors& tensors) {
  const hf::Family& family = hf::family(model_type);
  const std::map<std::string, Tensor> ours = by_name(tensors);
  NamedTensors result;
  for (const hf::Stored& stored : hf::stored_tensors(hf::joined({family.parameters, family.names}), resolved)) {
    std::vector<Tensor> parts;
    for (const WeightSlot& weight : stored.weights) {
      if (const auto found = ours.find(weight.name); found != ours.end()) parts.push_back(found->second);
    }
    if (parts.size() == stored.weights.size()) result.push_back({stored.name, hf::pack(stored, parts)});
  }
  return result;
}

}  // namespace lamina::io
