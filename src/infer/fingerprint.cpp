#include "lamina/infer/fingerprint.h"

#include <algorithm>
#include <cstdio>

#include "lamina/arch/json.h"
#include "lamina/base/crc32c.h"

namespace lamina::infer {
namespace {

constexpr int64_t kWholeBytes = int64_t{1} << 20;  ///< tensors up to this size are hashed completely
constexpr int64_t kSampleBytes = int64_t{64} << 10;
constexpr int64_t kSamples = 16;  ///< number of samples per larger tensor

uint32_t add_text(const std::string& text, uint32_t before) { return crc32c(text.data(), text.size(), before); }

std::string hex(uint32_t number) {
  char digits[9];
  std::snprintf(digits, sizeof digits, "%08x", number);
  return digits;
}

uint32_t add_bytes(const Tensor& flat, uint32_t before) {
  const Tensor host = flat.to(Device::cpu(1)).contiguous();
  return crc32c(host.raw(), static_cast<size_t>(host.numel()) * size_of(host.dtype()), before);
}

uint32_t add_tensor(const std::string& name, const Tensor& tensor, uint32_t before) {
  const uint32_t crc = add_text(str(name, " ", tensor.dtype(), " ", tensor.shape()), before);
  const int64_t rows = tensor.rank() > 0 ? tensor.dim(0) : 1;
  const auto bytes = tensor.numel() * static_cast<int64_t>(size_of(tensor.dtype()));
  if (bytes <= kWholeBytes || rows < kSamples) return add_bytes(tensor, crc);
  // Sample whole rows, so that a view of a packed tensor needs no copy.
  const int64_t count = std::min(rows / kSamples, std::max<int64_t>(1, kSampleBytes * rows / bytes));
  uint32_t sum = crc;
  for (int64_t i = 0; i < kSamples; ++i)
    sum = add_bytes(tensor.slice(0, i * (rows - count) / (kSamples - 1), count), sum);
  return sum;
}

uint32_t tokenizer_checksum(const text::Tokenizer& tokenizer) { return add_text(tokenizer.to_json(), 0); }

}  // namespace

std::string tokenizer_fingerprint(const text::Tokenizer& tokenizer) { return hex(tokenizer_checksum(tokenizer)); }

std::string model_fingerprint(const nn::Model& model, const text::Tokenizer* tokenizer,
                              const nn::WeightFormats& formats) {
  return model_fingerprint(model.spec(), model.state_dict(), tokenizer, formats);
}

std::string model_fingerprint(const arch::ArchSpec& spec, const nn::StateDict& tensors,
                              const text::Tokenizer* tokenizer, const nn::WeightFormats& formats) {
  uint32_t design = add_text(arch::write_spec(spec), 0);
  if (tokenizer != nullptr) design = add_text(tokenizer_fingerprint(*tokenizer), design);
  uint32_t weights = 0;
  for (const auto& [name, tensor] : tensors) {
    weights = add_tensor(str(name, " ", static_cast<int>(formats.of(name))), tensor, weights);
  }
  return hex(design) + hex(weights);
}

}  // namespace lamina::infer
