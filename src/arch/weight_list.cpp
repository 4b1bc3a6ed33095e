#include "lamina/arch/weight_list.h"

#include <algorithm>

#include "lamina/base/error.h"

namespace lamina::arch {

int64_t checked_product(int64_t a, int64_t b) {
  int64_t result = 0;
  LAMINA_CHECK(!__builtin_mul_overflow(a, b, &result), "a size of ", a, " times ", b, " does not fit into 63 bits");
  return result;
}

int64_t checked_sum(int64_t a, int64_t b) {
  int64_t result = 0;
  LAMINA_CHECK(!__builtin_add_overflow(a, b, &result), "a size of ", a, " plus ", b, " does not fit into 63 bits");
  return result;
}

void WeightList::experts(int64_t count, int64_t chosen) {
  experts_ = count;
  chosen_ = chosen;
}

void WeightList::blocks(int64_t count) { blocks_ = count; }

void WeightList::add(std::string name, const std::string& component, std::vector<int64_t> shape, bool product,
                     Division division) {
  int64_t each = 1;
  for (const int64_t extent : shape) each = checked_product(each, extent);
  Weight weight{std::move(name), component, std::move(shape), each, each, product, division};
  if (experts_ > 0 || blocks_ > 0) {
    weight.shape.insert(weight.shape.begin(), std::max(experts_, blocks_));
    weight.numel = checked_product(each, weight.shape[0]);
    weight.active = blocks_ > 0 ? weight.numel : checked_product(each, chosen_);
    weight.experts = experts_;
    ++weight.division.axis;
  }
  weights_.push_back(std::move(weight));
}

void WeightList::linear(const std::string& name, const std::string& component, int64_t out, int64_t in, bool bias,
                        const Division& division) {
  add(name + ".weight", component, {out, in}, true, division);
  if (!bias) return;
  const bool summed = division.kind == Division::Kind::divided && division.axis == 1;
  add(name + ".bias", component, {out}, false, summed ? Division{Division::Kind::one_rank} : division);
}

void WeightList::norm(const std::string& name, const std::string& component, const Norm& norm, int64_t width,
                      const Division& division) {
  const auto* layer = std::get_if<LayerNorm>(&norm);
  if (layer != nullptr || std::holds_alternative<RmsNorm>(norm)) {
    add(name + ".weight", component, {width}, false, division);
  }
  if (layer != nullptr && layer->bias) add(name + ".bias", component, {width}, false, division);
}

void WeightList::table(const std::string& name, const std::string& component, std::vector<int64_t> shape,
                       const Division& division) {
  add(name, component, std::move(shape), false, division);
}

}  // namespace lamina::arch
