#include "lamina/io/llama2c.h"

#include <array>
#include <cstring>
#include <map>

#include "lamina/arch/resolve.h"
#include "lamina/base/mapped_file.h"

namespace lamina::io {
namespace {

constexpr size_t kHeaderBytes = 28;
/// Magic number of the newer formats, which have versions and quantized weights. They are not supported.
constexpr int32_t kNewerMagic = 0x616b3432;

struct Header {
  int32_t dim, hidden_dim, n_layers, n_heads, n_kv_heads, vocab_size, seq_len;
};

arch::ArchSpec spec_of(const Header& header, const std::string& path) {
  LAMINA_CHECK(header.dim != kNewerMagic, path, ": is in a newer format of llama2.c; export it as version 0");
  LAMINA_CHECK(header.vocab_size != INT32_MIN && header.n_layers > 0 && header.n_layers <= 10000, path, ": says ",
               header.n_layers, " layers and ", header.vocab_size, " tokens; it is not a llama2.c model");
  arch::Attention attention;
  attention.n_heads = header.n_heads;
  attention.n_kv_heads = header.n_kv_heads;
  arch::Block block;
  block.mixer = attention;
  block.ffn = arch::GatedFfn{.d_ff = header.hidden_dim};
  arch::ArchSpec spec;
  spec.about = "Read from a llama2.c file";
  spec.vocab_size = std::abs(header.vocab_size);
  spec.d_model = header.dim;
  spec.context = header.seq_len;
  spec.position = arch::Rope{};
  spec.norm = arch::RmsNorm{.eps = 1e-5};
  spec.layers = {{header.n_layers, {block}}};
  spec.head.tied = header.vocab_size > 0;
  return arch::resolve(spec, path);
}

/// Reads tensors from the file, one after another.
class Weights {
 public:
  Weights(MappedFile file, std::string path, const Device& device)
      : file_(std::move(file)), path_(std::move(path)), device_(device) {}

  Tensor take(const Shape& shape) {
    const int64_t bytes = shape.numel() * int64_t{sizeof(float)};
    skip(bytes);
    return Tensor::borrow(file_.bytes.data() + at_ - bytes, shape, DType::f32, device_, file_.owner);
  }
  void skip(int64_t bytes) {
    const auto left = static_cast<int64_t>(file_.bytes.size() - at_);
    LAMINA_CHECK(bytes <= left, path_, ": ends ", bytes - left,
                 " bytes too early for the sizes it states; it is cut short, fetch it again");
    at_ += static_cast<size_t>(bytes);
  }
  void finish() const {
    LAMINA_CHECK(at_ == file_.bytes.size(), path_, ": has ", file_.bytes.size() - at_,
                 " bytes more than the sizes it states need; it is not a llama2.c model of version 0");
  }

 private:
  MappedFile file_;
  std::string path_;
  Device device_;
  size_t at_ = kHeaderBytes;
};

/// Reorders the rows of each head from x0 y0 x1 y1 … to x0 x1 … y0 y1 …
Tensor halves(const Tensor& weight, int64_t heads) {
  const int64_t pairs = weight.dim(0) / heads / 2;
  return weight.reshape({heads, pairs, 2, weight.dim(1)}).transpose(1, 2).contiguous().reshape(weight.shape());
}

}  // namespace

Checkpoint read_llama2c(const std::string& path, const Device& device) {
  LAMINA_CHECK(device.kind() == DeviceKind::cpu, path, ": opened on ", device,
               "; open it on a cpu device and move the tensors with to(device)");
  MappedFile file = map_file(path, "a llama2.c model");
  LAMINA_CHECK(file.bytes.size() >= kHeaderBytes, path, ": has ", file.bytes.size(),
               " bytes; a llama2.c model begins with ", kHeaderBytes);
  Header header{};
  std::memcpy(&header, file.bytes.data(), kHeaderBytes);
  Checkpoint checkpoint;
  checkpoint.spec = spec_of(header, path);
  std::map<std::string, Shape> shapes;
  const std::vector<WeightSlot> slots = weight_slots(checkpoint.spec);
  for (const WeightSlot& slot : slots) shapes.emplace(slot.name, slot.shape);

  Weights weights(std::move(file), path, device);
  std::map<std::string, Tensor> taken;
  const auto take = [&](const std::string& name) { taken.emplace(name, weights.take(shapes.at(name))); };
  take("embedding.weight");
  constexpr std::array kKinds{"mixer_norm", "mixer.q",  "mixer.k",  "mixer.v", "mixer.o",
                              "ffn_norm",   "ffn.gate", "ffn.down", "ffn.up"};
  for (const char* kind : kKinds) {
    for (int32_t layer = 0; layer < header.n_layers; ++layer) take(str("layers.", layer, ".", kind, ".weight"));
  }
  take("final_norm.weight");
  // Skip the RoPE tables of cosines and sines, [seq_len, head_dim / 2] each.
  weights.skip(int64_t{header.seq_len} * (header.dim / header.n_heads / 2) * int64_t{2 * sizeof(float)});
  if (!checkpoint.spec.head.tied) take("head.weight");
  weights.finish();

  for (const WeightSlot& slot : slots) {
    Tensor tensor = taken.at(slot.name);
    if (slot.name.ends_with("mixer.q.weight")) tensor = halves(tensor, header.n_heads);
    if (slot.name.ends_with("mixer.k.weight")) tensor = halves(tensor, header.n_kv_heads);
    checkpoint.tensors.push_back({slot.name, tensor});
  }
  return checkpoint;
}

}  // namespace lamina::io
