#include "lamina/nn/weight_format.h"

#include <array>

#include "lamina/tensor/host_memory.h"

namespace lamina::nn {
namespace {

constexpr std::array<std::pair<std::string_view, WeightFormat>, 5> kNames{{{"as-stored", WeightFormat::as_stored},
                                                                           {"f32", WeightFormat::f32},
                                                                           {"bf16", WeightFormat::bf16},
                                                                           {"q8", WeightFormat::q8},
                                                                           {"q4", WeightFormat::q4}}};

WeightFormat format_from_name(const std::string& name) {
  for (const auto& [known, format] : kNames) {
    if (name == known) return format;
  }
  throw Error(str("weight format '", name, "': expected f32, bf16, q8, q4 or as-stored"));
}

}  // namespace

WeightFormat WeightFormats::of(const std::string& name) const {
  WeightFormat format = all;
  for (const Rule& rule : rules) {
    if (name.find(rule.pattern) != std::string::npos) format = rule.format;
  }
  return format;
}

WeightFormats parse_weight_formats(const std::string& text) {
  WeightFormats formats;
  size_t begin = 0;
  for (bool first = true; begin <= text.size(); first = false) {
    const size_t end = std::min(text.find(',', begin), text.size());
    const std::string piece = text.substr(begin, end - begin);
    begin = end + 1;
    if (first) {
      formats.all = format_from_name(piece);
      if (formats.all == WeightFormat::q4) formats.rules.push_back({"head.weight", WeightFormat::q8});
      continue;
    }
    const size_t equals = piece.find('=');
    LAMINA_CHECK(equals != std::string::npos && equals > 0, "weight format '", piece,
                 "': expected NAME_PART=FORMAT, for example head.=q8");
    formats.rules.push_back({piece.substr(0, equals), format_from_name(piece.substr(equals + 1))});
  }
  return formats;
}

void store_weight(Tensor& weight, ops::QuantizedWeight& quantized, WeightFormat format) {
  switch (format) {
    case WeightFormat::as_stored: return;
    case WeightFormat::f32: weight = weight.detach().to(DType::f32); return;
    case WeightFormat::bf16: weight = weight.detach().to(DType::bf16); return;
    case WeightFormat::q8: quantized = ops::quantize(weight, ops::QuantizedFormat::q8); break;
    case WeightFormat::q4: quantized = ops::quantize(weight, ops::QuantizedFormat::q4); break;
  }
  weight = Tensor::empty(weight.shape(), weight.dtype(), Device::meta());
}

void store_vector(Tensor& vector) {
  if (!vector.defined() || vector.is_meta() || is_in_host_memory(vector)) return;
  vector = vector.detach().to(DType::f32);
}

}  // namespace lamina::nn
