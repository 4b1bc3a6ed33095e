// The named modules against golden values from PyTorch. Both sides compute in f32. For 16-bit outputs, the final
// rounding may differ by one ulp; in f32, each side makes about five roundings of half an ulp. Errors of long sums
// (gradients) are relative to the size of the terms.
#include <gtest/gtest.h>

#include "lamina/autograd/tape.h"
#include "lamina/modules.h"
#include "support/module_golden.h"

namespace lamina::testing {
namespace {

DType dtype_in(const nlohmann::json& entry, const char* key) {
  return *dtype_from_name(entry.at(key).get<std::string>());
}

double output_ulps(DType dtype) { return dtype == DType::f32 ? 5.0 : 1.0; }

TEST(ModulesGolden, GroupRmsNorm) {
  const Device device = Device::cpu(2);
  const auto file = golden_tensors(device);
  const auto cases = golden_cases("group_rms_norm");
  EXPECT_EQ(cases.size(), 48U);
  for (const auto& entry : cases) {
    const std::string key = entry.at("key");
    nn::GroupRMSNorm norm(entry.at("hidden_size"), entry.at("group_size"), device,
                          {.eps = entry.at("eps"),
                           .init_low = entry.at("init_range").at(0),
                           .init_high = entry.at("init_range").at(1),
                           .init_seed = entry.at("init_seed"),
                           .dtype = dtype_in(entry, "weight_dtype")});
    EXPECT_EQ(worst_ulps(norm.weight(), file.tensor(key + ".weight")), 0.0) << entry;
    Tape tape;
    Tensor x = file.tensor(key + ".x");
    Tensor weight = norm.weight();
    tape.watch(x);
    tape.watch(weight);
    const Tensor y = norm.forward(x);
    EXPECT_LE(worst_ulps(y, file.tensor(key + ".y")), output_ulps(y.dtype())) << entry;
    tape.backward({y}, {file.tensor(key + ".dy")});
    const Tensor dx = file.tensor(key + ".dx");
    const Tensor dweight = file.tensor(key + ".dweight");
    EXPECT_LE(worst_ulps(tape.grad(x), dx, largest_magnitude(dx)), 2.0) << entry;
    EXPECT_LE(worst_ulps(tape.grad(weight), dweight, largest_magnitude(dweight)), 2.0) << entry;
  }
}

TEST(ModulesGolden, VocabEmbedding) {
  const Device device = Device::cpu(2);
  const auto file = golden_tensors(device);
  const auto cases = golden_cases("vocab_embedding");
  EXPECT_EQ(cases.size(), 6U);
  for (const auto& entry : cases) {
    const std::string key = entry.at("key");
    const nn::VocabEmbedding embedding(entry.at("vocab_size"), entry.at("emb_size"), device,
                                       {.init_mean = entry.at("init_mean"),
                                        .init_std = entry.at("init_std"),
                                        .init_seed = entry.at("init_seed"),
                                        .dtype = dtype_in(entry, "dtype")});
    const Tensor y = embedding.forward(file.tensor(key + ".ids"));
    EXPECT_LE(worst_ulps(y, file.tensor(key + ".y"), 1.0), 4.0) << entry;
  }
}

TEST(ModulesGolden, ParallelVocabEmbedding) {
  const Device device = Device::cpu(2);
  const auto file = golden_tensors(device);
  const auto cases = golden_cases("parallel_vocab_embedding");
  EXPECT_EQ(cases.size(), 26U);
  for (const auto& entry : cases) {
    const nn::ParallelVocabEmbedding embedding(entry.at("vocab_size"), entry.at("emb_size"), entry.at("rank"),
                                               entry.at("world_size"), device,
                                               {.init_mean = entry.at("init_mean"),
                                                .init_std = entry.at("init_std"),
                                                .init_base_seed = entry.at("init_base_seed"),
                                                .dtype = dtype_in(entry, "dtype")});
    const Tensor y = embedding.forward(file.tensor(entry.at("ids")));
    EXPECT_LE(worst_ulps(y, file.tensor(entry.at("key")), 0.5), 4.0) << entry;
  }
}

TEST(ModulesGolden, NtkAwareRope) {
  const Device device = Device::cpu(2);
  const auto file = golden_tensors(device);
  const auto cases = golden_cases("ntk_aware_rope");
  EXPECT_EQ(cases.size(), 8U);
  for (const auto& entry : cases) {
    nn::NTKAwareRoPE rope(entry.at("head_dim"), entry.at("max_seq_len"), device,
                          {.base = entry.at("base"), .ratio = entry.at("ratio"), .dynamic = entry.at("dynamic")});
    for (const auto& call : entry.at("calls")) {
      const std::string key = call.at("key");
      const Tensor x = file.tensor(key + ".x");
      const Tensor y = rope.forward(x);
      EXPECT_EQ(rope.ratio(), call.at("ratio_after").get<int64_t>()) << call;
      const Tensor golden = file.tensor(key + ".y");
      EXPECT_LE(worst_ulps(y, golden, largest_magnitude(x)), 2.0) << call;
    }
  }
}

}  // namespace
}  // namespace lamina::testing
