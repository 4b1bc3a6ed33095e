#include "lamina/nn/parameter_factory.h"

#include <cmath>
#include <numbers>

#include "lamina/base/philox.h"
#include "lamina/tensor/host_memory.h"

namespace lamina::nn {
namespace {

/// FNV-1a hash of a parameter's name, the number of its random stream.
uint64_t hash_of(const std::string& text) {
  uint64_t hash = 0xcbf29ce484222325U;
  for (const char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3U;
  return hash;
}

/// Uniform in the open interval (0, 1).
float unit(uint32_t word) { return (static_cast<float>(word >> 8U) + 0.5F) * 0x1p-24F; }

constexpr int64_t kGrain = 16384;  // a multiple of 4, the number of words of one Philox call

/// Maps an element's index in a shard to its index in the whole weight.
class WholeIndex {
 public:
  explicit WholeIndex(const arch::Shard* shard) {
    if (shard == nullptr) return;
    int64_t inner = 1;
    for (size_t axis = static_cast<size_t>(shard->axis) + 1; axis < shard->whole_shape.size(); ++axis) {
      inner *= shard->whole_shape[axis];
    }
    own_ = shard->count * inner;
    for (const arch::Shard& section : shard->sections)
      sections_.push_back({section.count * inner, section.begin * inner});
    if (!sections_.empty()) return;
    whole_ = shard->whole_shape[static_cast<size_t>(shard->axis)] * inner;
    begin_ = shard->begin * inner;
    if (shard->axis == 0) return;
    lead_ = shard->lead_begin;
    for (int axis = 1; axis < shard->axis; ++axis) lead_ *= shard->whole_shape[static_cast<size_t>(axis)];
  }
  int64_t operator()(int64_t i) const {
    for (const auto& [count, begin] : sections_) {
      if (i < count) return begin + i;
      i -= count;
    }
    return own_ == whole_ && lead_ == 0 ? i : (lead_ + i / own_) * whole_ + begin_ + i % own_;
  }

 private:
  int64_t own_ = 1;
  int64_t whole_ = 1;
  int64_t begin_ = 0;
  int64_t lead_ = 0;
  std::vector<std::pair<int64_t, int64_t>> sections_;  // (number of elements, first index in the whole weight)
};

}  // namespace

const arch::Shard* ParameterFactory::shard(const std::string& name) const {
  if (options_.shards == nullptr) return nullptr;
  const auto found = options_.shards->find(prefix_ + name);
  LAMINA_CHECK(found != options_.shards->end(), "model: ", prefix_, name, " is not in the architecture's weight list");
  return &found->second;
}

bool ParameterFactory::holds(const std::string& name) const {
  const arch::Shard* own = shard(name);
  return own == nullptr || own->count > 0;
}

bool ParameterFactory::holds_any(const std::string& name) const {
  if (options_.shards == nullptr) return true;
  const std::string prefix = prefix_ + name + ".";
  auto at = options_.shards->lower_bound(prefix);
  if (at == options_.shards->end() || !at->first.starts_with(prefix)) return true;
  for (; at != options_.shards->end() && at->first.starts_with(prefix); ++at) {
    if (at->second.count > 0) return true;
  }
  return false;
}

int64_t ParameterFactory::held_experts(const std::string& name, int64_t experts) const {
  const arch::Shard* own = shard(name);
  if (own == nullptr) return experts;
  return own->axis == 0 ? own->count : own->lead_count;
}

ParameterFactory ParameterFactory::at(const std::string& name) const {
  ParameterFactory inner = *this;
  inner.prefix_ = prefix_ + name + ".";
  return inner;
}

/// Fills `tensor`. value(words, out) turns four random words into four values.
template <class F>
void ParameterFactory::fill(const std::string& name, const Tensor& tensor, const F& value) const {
  if (tensor.is_meta()) return;
  const RandomKey key{options_.seed, hash_of(prefix_ + name)};
  const bool direct = is_in_host_memory(tensor) && tensor.is_contiguous();
  Tensor target = direct ? tensor.detach() : Tensor::empty(tensor.shape(), tensor.dtype(), host_);
  const int64_t numel = target.numel();
  const WholeIndex index(shard(name));
  visit_floating(target.dtype(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    T* out = target.template data<T>();
    target.device().threads().ranges(numel, kGrain, [&](int64_t begin, int64_t end) {
      float four[4];
      int64_t held = -1;  // index of the Philox call whose values are in `four`
      for (int64_t i = begin; i < end; ++i) {
        const int64_t at = index(i);
        if (at / 4 != held) value(philox(key, static_cast<uint64_t>(held = at / 4)), four);
        out[i] = convert<T>(four[at % 4]);
      }
    });
  });
  if (!direct) tensor.detach().copy_(target.to(tensor.device()));
}

void ParameterFactory::fill_normal(const std::string& name, const Tensor& tensor, double deviation) const {
  const auto scale = static_cast<float>(deviation);
  fill(name, tensor, [scale](const std::array<uint32_t, 4>& words, float* out) {
    for (size_t k = 0; k < 4; k += 2) {  // Box-Muller transform
      const float radius = scale * std::sqrt(-2.0F * std::log(unit(words[k])));
      const float angle = 2.0F * std::numbers::pi_v<float> * unit(words[k + 1]);
      out[k] = radius * std::cos(angle);
      out[k + 1] = radius * std::sin(angle);
    }
  });
}

Tensor ParameterFactory::normal(const std::string& name, const Shape& shape, double deviation) const {
  Tensor tensor = empty(shape);
  fill_normal(name, tensor, deviation);
  return tensor;
}

Tensor ParameterFactory::uniform(const std::string& name, const Shape& shape, double low, double high) const {
  Tensor tensor = empty(shape);
  const auto from = static_cast<float>(low);
  const auto width = static_cast<float>(high - low);
  fill(name, tensor, [from, width](const std::array<uint32_t, 4>& words, float* out) {
    for (size_t k = 0; k < 4; ++k) out[k] = from + width * unit(words[k]);
  });
  return tensor;
}

Tensor ParameterFactory::constant(const Shape& shape, double value) const {
  return Tensor::full(shape, value, options_.dtype, device_);
}

}  // namespace lamina::nn
