// The four modules with PyTorch's seeded initialisation, each in a few lines. docs/reference/modules.md has the table
// from the Python signatures to these.
#include <lamina/lamina.h>

#include <cmath>
#include <iostream>

namespace {

using lamina::Device;
using lamina::DType;
using lamina::Tensor;
namespace nn = lamina::nn;

int failures = 0;

void expect(bool holds, const char* what) {
  std::cout << (holds ? "  ok    " : "  WRONG ") << what << '\n';
  failures += holds ? 0 : 1;
}

/// GroupRMSNorm(hidden_size=8, group_size=4, init_range=(-1, 1), init_seed=42)
void group_rms_norm(const Device& device) {
  std::cout << "GroupRMSNorm\n";
  const nn::GroupRMSNorm norm(8, 4, device, {.eps = 1e-5, .init_low = -1.0, .init_high = 1.0, .init_seed = 42});
  // torch.manual_seed(42); torch.empty(8).uniform_(-1, 1)[:2] is tensor([0.7645, 0.8300]); ours is bit-identical.
  const std::vector<double> weight = norm.weight().to_vector<double>();
  expect(std::abs(weight[0] - 0.7645) < 1e-4 && std::abs(weight[1] - 0.8300) < 1e-4, "weights are PyTorch's");
  const Tensor x = Tensor::full({1, 2, 8}, 3.0, DType::bf16, device);
  const Tensor y = norm.forward(x);
  expect(y.dtype() == DType::bf16, "the output has x's dtype, whatever the weight's");
  expect(std::abs(y.to_vector<double>()[0] - weight[0]) < 1e-2, "a constant row gives the weight");
}

/// VocabEmbedding(vocab_size=10, emb_size=4, init_mean=0, init_std=1, init_seed=42)
void vocab_embedding(const Device& device) {
  std::cout << "VocabEmbedding\n";
  const nn::VocabEmbedding embedding(10, 4, device, {.init_mean = 0.0, .init_std = 1.0, .init_seed = 42});
  const Tensor ids = Tensor::from(std::vector<int64_t>{1, 9, 1}, {1, 3}, device);
  const std::vector<float> rows = embedding.forward(ids).to_vector<float>();
  expect(rows[0] == rows[8] && rows[0] == embedding.weight().to_vector<float>()[4], "row i is table[ids[i]]");
  bool refused = false;
  try {
    embedding.forward(Tensor::from(std::vector<int64_t>{10}, {1, 1}, device)).to_vector<float>();
  } catch (const lamina::Error& error) {
    refused = true;
    std::cout << "        " << error.what() << '\n';
  }
  expect(refused, "an id outside the vocabulary is an error that names it");
}

/// ParallelVocabEmbedding(vocab_size=10, emb_size=4, rank=r, world_size=2, init_base_seed=42): rank r has its own rows.
void parallel_vocab_embedding(const Device& device) {
  std::cout << "ParallelVocabEmbedding\n";
  const nn::ParallelVocabEmbedding first(10, 4, 0, 2, device, {.init_base_seed = 42});
  const nn::ParallelVocabEmbedding second(10, 4, 1, 2, device, {.init_base_seed = 42});
  const Tensor ids = Tensor::from(std::vector<int64_t>{2, 7}, {1, 2}, device);
  const Tensor sum = lamina::ops::add(first.forward(ids), second.forward(ids));
  const std::vector<float> rows = sum.to_vector<float>();
  expect(rows[0] == first.weight().to_vector<float>()[8], "id 2 comes from rank 0");
  expect(rows[4] == second.weight().to_vector<float>()[8],
         "id 7 comes from rank 1; the sum over ranks is the embedding");
}

/// NTKAwareRoPE(dim=8, max_seq_len=16, base=10000, ratio=1, dynamic=True)
void ntk_aware_rope(const Device& device) {
  std::cout << "NTKAwareRoPE\n";
  nn::NTKAwareRoPE rope(8, 16, device, {.base = 10000.0, .ratio = 1, .dynamic = true});
  Tensor x = Tensor::empty({1, 16, 2, 8}, DType::f32, device);
  nn::init_normal(x, 0.0, 1.0, 5);
  const Tensor y = rope.forward(x);
  expect(y.to_vector<float>()[0] == x.to_vector<float>()[0], "position 0 is not rotated");
  const Tensor last = rope.forward(x.slice(1, 15, 1), /*offset=*/15);
  const auto whole = y.slice(1, 15, 1).to_vector<float>();
  expect(last.to_vector<float>() == whole, "a token at offset 15 is rotated like token 15 of the sequence");
  rope.forward(Tensor::zeros({1, 50, 2, 8}, DType::f32, device));
  expect(rope.ratio() == 4,
         "50 tokens need the smallest even ratio with 16 * ratio >= 50, which is 4; dynamic keeps it");
}

}  // namespace

int main() try {
  const Device device = Device::cpu();
  group_rms_norm(device);
  vocab_embedding(device);
  parallel_vocab_embedding(device);
  ntk_aware_rope(device);
  return failures == 0 ? 0 : 1;
} catch (const std::exception& error) {
  std::cerr << "modules: " << error.what() << '\n';
  return 1;
}
