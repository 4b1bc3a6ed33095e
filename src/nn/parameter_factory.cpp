#include "lamina/nn/parameter_factory.h"

#include <cmath>
#include <numbers>

#include "lamina/base/philox.h"

namespace lamina::nn {
namespace {

/// FNV-1a hash of a parameter's name: its random stream number.
uint64_t hash_of(const std::string& text) {
  uint64_t hash = 0xcbf29ce484222325U;
  for (const char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3U;
  return hash;
}

/// Uniform in the open interval (0, 1).
float unit(uint32_t word) { return (static_cast<float>(word >> 8U) + 0.5F) * 0x1p-24F; }

constexpr int64_t kGrain = 16384;  // a multiple of the four words of one Philox call

}  // namespace

ParameterFactory ParameterFactory::at(const std::string& name) const {
  ParameterFactory inner = *this;
  inner.prefix_ = prefix_ + name + ".";
  return inner;
}

/// value(words, out) turns four random words into four values.
template <class F>
void ParameterFactory::fill(const std::string& name, const Tensor& tensor, const F& value) const {
  if (tensor.is_meta()) return;
  const RandomKey key{options_.seed, hash_of(prefix_ + name)};
  const bool direct = tensor.device().kind() == DeviceKind::cpu && tensor.is_contiguous();
  Tensor target = direct ? tensor.detach() : Tensor::empty(tensor.shape(), tensor.dtype(), host_);
  const int64_t numel = target.numel();
  visit_floating(target.dtype(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    T* out = target.template data<T>();
    target.device().threads().ranges(numel, kGrain, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; i += 4) {
        float four[4];
        value(philox(key, static_cast<uint64_t>(i / 4)), four);
        for (int64_t k = 0; k < std::min<int64_t>(4, end - i); ++k) out[i + k] = convert<T>(four[k]);
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
