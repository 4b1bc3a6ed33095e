// Models that are not causal, and models with an encoder and a decoder: properties that must hold for any weights. The
// goldens in tests/golden/hf compare their values with transformers.
#include <gtest/gtest.h>

#include <cmath>
#include <numeric>

#include "lamina/autograd/tape.h"
#include "nn/model_support.h"
#include "support/error_of.h"

namespace lamina::testing {
namespace {

const Device kHost = Device::cpu(2);  // NOLINT(cert-err58-cpp): a test's constant

std::vector<NamedSpec> tiny_presets(bool with_encoder) {
  std::vector<NamedSpec> found;
  for (const std::string& name : arch::preset_names()) {
    if (!name.ends_with("-tiny")) continue;
    arch::ArchSpec spec = arch::resolve(arch::load_preset(name), name);
    const bool wanted = with_encoder ? spec.encoder.has_value() : !arch::is_causal(spec);
    if (wanted) found.push_back({name, std::move(spec)});
  }
  return found;
}

std::unique_ptr<nn::Model> model_in_f64(const arch::ArchSpec& spec) {
  auto model = std::make_unique<nn::Model>(spec, kHost, nn::ModelOptions{.dtype = DType::f64});
  scramble(*model);
  return model;
}

Tensor tokens(int64_t batch, int64_t seq, const arch::ArchSpec& spec, uint64_t seed) {
  return ids_tensor(random_ids(batch * seq, spec.vocab_size, seed), batch, kHost);
}

TEST(Encoder, PaddedRowsEqualRowsAlone) {
  const std::vector<NamedSpec> all = tiny_presets(false);
  ASSERT_GE(all.size(), 5U);
  for (const NamedSpec& named : all) {
    const auto model = model_in_f64(named.spec);
    const std::vector<int64_t> lengths{13, 5, 1};
    const Tensor ids = tokens(3, 13, named.spec, 7);
    const Tensor padded = model->logits(ids, {.lengths = lengths});
    ASSERT_EQ(padded.shape(), (Shape{3, 13, named.spec.vocab_size})) << named.name;
    for (int64_t row = 0; row < 3; ++row) {
      const int64_t length = lengths[static_cast<size_t>(row)];
      const Tensor alone = model->logits(ids.slice(0, row, 1).slice(1, 0, length).contiguous());
      expect_same_model(*model, padded.slice(0, row, 1).slice(1, 0, length).contiguous(), alone,
                        str(named.name, " row ", row));
      if (length == 13) continue;
      const Tensor rest = padded.slice(0, row, 1).slice(1, length, 13 - length).contiguous();
      EXPECT_EQ(largest_magnitude(rest), 0.0) << named.name << " padding of row " << row;
    }
  }
}

TEST(Encoder, LaterTokensMatter) {
  for (const NamedSpec& named : tiny_presets(false)) {
    const auto model = model_in_f64(named.spec);
    const Tensor ids = tokens(1, 12, named.spec, 3);
    Tensor other = ids.clone();
    other.slice(1, 3, 1).copy_(tokens(1, 1, named.spec, 99));
    if (ids.to_vector<int64_t>() == other.to_vector<int64_t>()) other.slice(1, 3, 1).fill_(1.0);
    const auto first = [&](const Tensor& x) { return model->logits(x).slice(1, 1, 1).contiguous(); };
    EXPECT_GT(largest_error(first(ids), first(other)), 1e-9) << named.name;
  }
}

TEST(Encoder, LossOfPaddedRowsIsTheMeanOverLabels) {
  const NamedSpec named = changed("bert-tiny", {});
  const auto model = model_in_f64(named.spec);
  const Tensor ids = tokens(2, 9, named.spec, 5);
  Tensor labels = tokens(2, 9, named.spec, 6);
  labels.slice(0, 0, 1).slice(1, 0, 4).fill_(static_cast<double>(kIgnoreIndex));
  const auto loss = [&](const Tensor& x, const Tensor& y, const nn::RunOptions& run) {
    return model->loss(x, y, {}, run).cross_entropy.to_vector<double>().front();
  };
  const double both = loss(ids, labels, {.lengths = {9, 3}});
  const auto row = [](const Tensor& x, int64_t at, int64_t length) {
    return x.slice(0, at, 1).slice(1, 0, length).contiguous();
  };
  const double first = loss(row(ids, 0, 9), row(labels, 0, 9), {});   // five labels
  const double second = loss(row(ids, 1, 3), row(labels, 1, 3), {});  // three labels
  expect_same_model(*model, std::vector<double>{both}, std::vector<double>{(5 * first + 3 * second) / 8}, "mean");
}

TEST(Encoder, SegmentsAreAddedToTokens) {
  const auto model = model_in_f64(changed("bert-tiny", {}).spec);
  const Tensor ids = tokens(1, 6, model->spec(), 5);
  const Tensor zeros = Tensor::zeros({1, 6}, DType::i64, kHost);
  const Tensor ones = Tensor::full({1, 6}, 1.0, DType::i64, kHost);
  expect_same_model(*model, model->logits(ids, {.segments = zeros}), model->logits(ids), "segment 0");
  EXPECT_GT(largest_error(model->logits(ids, {.segments = ones}), model->logits(ids)), 1e-6);
}

TEST(Encoder, PoolingIsTheMeanTheMaximumOrOneToken) {
  for (const std::string of : {"mean", "first", "last", "max"}) {
    const NamedSpec named = changed("modernbert-tiny", {"pooling.of=" + of, "classifier={\"classes\":3}"});
    const auto model = model_in_f64(named.spec);
    const Tensor ids = tokens(2, 8, named.spec, 9);
    const std::vector<int64_t> lengths{8, 5};
    const std::vector<double> pooled = model->pooled(ids, {.lengths = lengths}).to_vector<double>();
    const std::vector<double> hidden = model->hidden(ids, {.lengths = lengths}).to_vector<double>();
    const auto width = static_cast<size_t>(named.spec.d_model);
    for (size_t row = 0; row < 2; ++row) {
      const auto length = static_cast<size_t>(lengths[row]);
      for (size_t c = 0; c < width; ++c) {
        const auto at = [&](size_t t) { return hidden[(row * 8 + t) * width + c]; };
        double sum = 0;
        double most = at(0);
        for (size_t t = 0; t < length; ++t) sum += at(t);
        for (size_t t = 0; t < length; ++t) most = std::max(most, at(t));
        const double expected = of == "mean"    ? sum / static_cast<double>(length)
                                : of == "first" ? at(0)
                                : of == "last"  ? at(length - 1)
                                                : most;
        EXPECT_NEAR(pooled[row * width + c], expected, rounding_tolerance(hidden, 2 * lengths[row], DType::f64)) << of;
      }
    }
    EXPECT_EQ(model->class_logits(ids, {.lengths = lengths}).shape(), (Shape{2, 3}));
  }
  const auto vector_of = [](const char* unit_length) {
    const auto model = model_in_f64(
        changed("bert-tiny", {"pooling.of=first", "pooling.dense=true", str("pooling.unit_length=", unit_length)})
            .spec);
    return model->pooled(tokens(1, 4, model->spec(), 2)).to_vector<double>();
  };
  const std::vector<double> vector = vector_of("false");
  const std::vector<double> unit = vector_of("true");
  // Normalization adds 1e-12 to the mean of the squares, against a division by zero.
  const auto width = static_cast<double>(vector.size());
  const double length = std::sqrt(std::inner_product(vector.begin(), vector.end(), vector.begin(), width * 1e-12));
  const double tolerance = rounding_tolerance(unit, static_cast<int64_t>(vector.size()), DType::f64);
  for (size_t i = 0; i < vector.size(); ++i) EXPECT_NEAR(unit[i], vector[i] / length, tolerance);
}

TEST(EncoderDecoder, CachedDecodingEqualsTheFullForward) {
  const std::vector<NamedSpec> all = tiny_presets(true);
  ASSERT_GE(all.size(), 4U);
  for (const NamedSpec& named : all) {
    const auto model = model_in_f64(named.spec);
    const Tensor source = tokens(2, 11, named.spec, 3);
    const std::vector<int64_t> lengths{11, 4};
    const Tensor ids = tokens(2, 9, named.spec, 4);
    nn::RunOptions run;
    run.source = source;
    run.source_lengths = lengths;
    const Tensor full = model->logits(ids, run);
    nn::ModelCache cache = model->make_cache(2, 9);
    model->read_source(source, cache, lengths);
    // A first step of several tokens, then single ones.
    for (int64_t at = 0; at < 9; at += at == 0 ? 4 : 1) {
      const int64_t count = at == 0 ? 4 : 1;
      const Tensor step = model->cached_logits(ids.slice(1, at, count).contiguous(), cache);
      expect_same_model(*model, step, full.slice(1, at, count).contiguous(), str(named.name, " from token ", at));
    }
  }
}

TEST(EncoderDecoder, PaddedRowsEqualRowsAlone) {
  for (const NamedSpec& named : tiny_presets(true)) {
    const auto model = model_in_f64(named.spec);
    const Tensor source = tokens(2, 10, named.spec, 3);
    const Tensor ids = tokens(2, 7, named.spec, 4);
    nn::RunOptions run;
    run.source = source;
    run.source_lengths = {10, 6};
    run.lengths = {4, 7};
    const Tensor padded = model->logits(ids, run);
    for (int64_t row = 0; row < 2; ++row) {
      const int64_t length = run.lengths[static_cast<size_t>(row)];
      nn::RunOptions one;
      one.source = source.slice(0, row, 1).slice(1, 0, run.source_lengths[static_cast<size_t>(row)]).contiguous();
      const Tensor alone = model->logits(ids.slice(0, row, 1).slice(1, 0, length).contiguous(), one);
      expect_same_model(*model, padded.slice(0, row, 1).slice(1, 0, length).contiguous(), alone,
                        str(named.name, " row ", row));
    }
  }
}

TEST(EncoderDecoder, CheckpointingGivesTheSameGradients) {
  const NamedSpec named = changed("t5-encoder-decoder-tiny", {});
  const auto model = model_in_f64(named.spec);
  nn::RunOptions run;
  run.source = tokens(2, 8, named.spec, 1);
  run.source_lengths = {8, 5};
  const Tensor ids = tokens(2, 6, named.spec, 2);
  const auto gradients = [&](bool checkpointed) {
    Tape tape;
    for (auto& [name, parameter] : model->named_parameters()) tape.watch(parameter);
    nn::RunOptions options = run;
    if (checkpointed) options.checkpoint = &tape;
    tape.backward(model->loss(ids, tokens(2, 6, named.spec, 3), {}, options).total);
    return model->named_gradients(tape);
  };
  const nn::StateDict plain = gradients(false);
  const nn::StateDict again = gradients(true);
  ASSERT_EQ(plain.size(), again.size());
  for (size_t i = 0; i < plain.size(); ++i) {
    ASSERT_TRUE(plain[i].tensor.defined()) << plain[i].name;
    expect_same_model(*model, again[i].tensor, plain[i].tensor, plain[i].name);
  }
}

/// With one expert of capacity c, the first c tokens of each sequence pass it and the others get nothing.
TEST(EncoderDecoder, ExpertsTakeTheirCapacityOfEachSequence) {
  const std::string block = "layers[0].pattern[0].";
  const std::string moe = block + "ffn={\"kind\":\"moe\",\"experts\":1,\"top_k\":1,\"expert\":{\"kind\":\"plain\"}";
  const std::vector<std::string> one{"layers[0].repeat=1", "causal=false", "position=none", block + "mixer.kind=none"};
  const auto with = [&](const std::string& end) {
    std::vector<std::string> sets = one;
    sets.push_back(moe + end + "}");
    return changed("gpt2-tiny", sets).spec;
  };
  nn::Model limited(with(",\"capacity\":3"), kHost, {.dtype = DType::f64});
  nn::Model unlimited(with(""), kHost, {.dtype = DType::f64});
  unlimited.load_state_dict(limited.state_dict());
  const Tensor ids = tokens(2, 6, limited.spec(), 8);
  const Tensor a = limited.hidden(ids, {.lengths = {6, 5}});
  const Tensor b = unlimited.hidden(ids, {.lengths = {6, 5}});
  const auto part = [](const Tensor& x, int64_t row, int64_t from, int64_t count) {
    return x.slice(0, row, 1).slice(1, from, count).contiguous();
  };
  for (int64_t row = 0; row < 2; ++row) {
    expect_same_model(limited, part(a, row, 0, 3), part(b, row, 0, 3), "within the capacity");
    EXPECT_GT(largest_error(part(a, row, 3, 2), part(b, row, 3, 2)), 1e-9) << "beyond the capacity";
  }
}

TEST(EncoderDecoder, ErrorsSayWhatToDo) {
  const auto encoder = model_in_f64(changed("bert-tiny", {}).spec);
  const auto both = model_in_f64(changed("t5-encoder-decoder-tiny", {}).spec);
  const Tensor ids = tokens(2, 4, encoder->spec(), 1);
  expect_error([&] { encoder->make_cache(1, 8); }, "not causal");
  expect_error([&] { static_cast<void>(encoder->cache_layouts()); }, "not causal");
  expect_error([&] { encoder->logits(ids, {.lengths = {4}}); }, "1 lengths for 2 rows");
  expect_error([&] { encoder->logits(ids, {.lengths = {4, 0}}); }, "expected a length in [1, 4]");
  expect_error([&] { encoder->logits(ids, {.segments = tokens(2, 3, encoder->spec(), 1)}); }, "segments are");
  expect_error([&] { encoder->pooled(ids); }, "no pooling");
  expect_error([&] { encoder->logits(ids, {.source = ids}); }, "no encoder");
  expect_error([&] { both->logits(ids); }, "ids must be a tensor");
  expect_error([&] { both->logits(ids, {.source = tokens(1, 4, both->spec(), 1)}); }, "one row of the source");
  expect_error([&] { static_cast<void>(both->cache_layouts()); }, "ragged steps of an encoder");
  nn::ModelCache cache = both->make_cache(2, 4);
  expect_error([&] { both->cached_logits(ids, cache); }, "there is no source");
}

}  // namespace
}  // namespace lamina::testing
