// Embedding and RoPE, which are memory-bound, as a share of the triad bandwidth in the same run, and one thread against
// all. Bytes are the minimum traffic: forward reads and writes each row once; backward reads the output gradient and
// writes that of the table.
#include "lamina/ops/embedding/embedding.h"
#include "lamina/autograd/tape.h"
#include "lamina/ops/position/rotary.h"
#include "lamina/ops/position/tables.h"
#include "support/suite.h"

namespace lamina::bench {
namespace {

struct Sizes {
  int64_t vocab, width, tokens;
};

Tensor scattered_ids(const Sizes& sizes, const Device& device) {
  Tensor ids = Tensor::empty({sizes.tokens}, DType::i64, device);
  auto* values = ids.data<int64_t>();
  for (int64_t i = 0; i < sizes.tokens; ++i) values[i] = i * 7919 % sizes.vocab;
  return ids;
}

/// Returns the seconds with all threads and adds a row that compares them with one thread.
double time_threads(Context& context, const std::string& what,
                    const std::function<std::function<void()>(const Device&)>& prepare) {
  const auto all = prepare(context.device());
  const auto one = prepare(context.one_thread());
  const auto [time, time_one] = context.seconds(all, one);
  context.add({what + ", all threads", 1e-3 / time, 1e-3 / time_one, "kcall/s", "one thread"});
  return time;
}

void add_embedding(Context& context, const Sizes& sizes, DType dtype) {
  const std::string at = str(" ", sizes.tokens, " of [", sizes.vocab, ",", sizes.width, "] ", dtype);
  const auto table_on = [&](const Device& device) {
    return Tensor::full({sizes.vocab, sizes.width}, 0.5, dtype, device);
  };
  const int64_t rows = sizes.tokens * sizes.width * static_cast<int64_t>(size_of(dtype));
  const double forward = time_threads(context, "embedding forward" + at, [&](const Device& device) {
    return [table = table_on(device), ids = scattered_ids(sizes, device)] { ops::embedding(table, ids); };
  });
  context.add_speed("embedding forward" + at, 2 * rows, forward);

  // The gradient of a tied table usually exists already, from the head; then only the rows in use are touched.
  for (const bool accumulate : {false, true}) {
    const std::string what = str("embedding backward", accumulate ? " into a gradient" : "", at);
    const double backward = time_threads(context, what, [&](const Device& device) {
      auto tape = std::make_shared<Tape>();
      Tensor table = table_on(device);
      tape->watch(table, DType::f32);
      const Tensor y = ops::embedding(table, scattered_ids(sizes, device));
      const Tensor dy = Tensor::full(y.shape(), 0.25, dtype, device);
      return [tape, table, y, dy, accumulate] {
        if (!accumulate) tape->zero_grad();
        tape->backward({y}, {dy}, true);
      };
    });
    const int64_t gradient = 4 * sizes.width * (accumulate ? 2 * std::min(sizes.tokens, sizes.vocab) : sizes.vocab);
    context.add_speed(what, rows + gradient, backward);
  }
}

void add_rotary(Context& context, const Shape& shape, DType dtype, ops::RotaryPairing pairing) {
  const std::string what =
      str("rotary ", pairing == ops::RotaryPairing::half_split ? "half-split " : "interleaved ", shape, " ", dtype);
  const double time = time_threads(context, what, [&](const Device& device) {
    const auto tables = ops::rotary_tables(shape[1], shape[3], {}, device);
    const Tensor x = Tensor::full(shape, 0.5, dtype, device);
    return [x, tables, pairing] { ops::rotary(x, tables.cos, tables.sin, {.pairing = pairing}); };
  });
  context.add_speed(what, 2 * shape.numel() * static_cast<int64_t>(size_of(dtype)), time);
}

}  // namespace

LAMINA_BENCH_SUITE(embedding) {
  add_embedding(context, {50304, 768, 16384}, DType::f32);
  add_embedding(context, {50304, 768, 32768}, DType::bf16);
  add_embedding(context, {65, 384, 16384}, DType::f32);
  for (const DType dtype : {DType::f32, DType::bf16}) {
    add_rotary(context, {16, 1024, 12, 64}, dtype, ops::RotaryPairing::half_split);
    add_rotary(context, {16, 1024, 12, 64}, dtype, ops::RotaryPairing::interleaved);
  }
  add_rotary(context, {1, 4096, 32, 128}, DType::f32, ops::RotaryPairing::half_split);
  add_rotary(context, {4, 4096, 8, 80}, DType::f32, ops::RotaryPairing::half_split);
}

}  // namespace lamina::bench
