// One row: norm, quantization, product and gate in one parallel region. While one thread computes the norm, the others
// prefetch the weights of their first tasks. The results have the same bits as those of the separate operators.
#define HWY_WANT_AVX3_DL  // VNNI, if the CPU supports it
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "lamina/ops/linear/quantized/quantized_stream_cpu.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "lamina/base/task_phases.h"
#include "lamina/ops/activation/activation-inl.h"
#include "lamina/ops/activation/gated_unit-inl.h"
#include "lamina/ops/linear/gemm/gemm_scratch.h"
#include "lamina/ops/linear/quantized/quantized_rows-inl.h"
#include "lamina/ops/norm/norm_rows-inl.h"

HWY_BEFORE_NAMESPACE();
namespace lamina::ops::HWY_NAMESPACE {

/// Buffers of a call, in one allocation.
struct RowScratch {
  RowScratch(const Device& device, int64_t blocks)
      : memory(Tensor::empty({blocks * (4 * kBlockColumns + kBlockColumns + 4 + 4) + kVectorBytes}, DType::u8, device)),
        normed(reinterpret_cast<float*>(memory.data<uint8_t>())),
        scales(normed + blocks * kBlockColumns),
        offset_corrections(reinterpret_cast<int32_t*>(scales + blocks)),
        numbers(reinterpret_cast<int8_t*>(offset_corrections + blocks)) {}

  static constexpr int64_t kVectorBytes = 64;
  Tensor memory;
  float* normed;
  float* scales;
  int32_t* offset_corrections;
  int8_t* numbers;
};

template <bool kCentred>
void normalize_row(const Threads& threads, const QuantizedStream& args, float* y) {
  const auto row = [](const Tensor& tensor) { return tensor.defined() ? tensor.data<float>() : nullptr; };
  float mean = 0;
  float r = 0;
  NormForwardRows<float> rows{};
  rows.x = args.product.x.data<float>();
  rows.residual = row(args.residual);
  rows.scale = row(args.norm->weight);
  rows.bias = row(args.norm->bias);
  rows.h = row(args.h);
  rows.y = y;
  rows.mean = &mean;
  rows.r = &r;
  rows.groups = 1;
  rows.group = rows.width = args.product.weight.in;
  rows.eps = args.norm->options.eps;
  norm_forward_rows<kCentred>(threads, rows);
}

/// A part of the weight: `count` consecutive groups from `first` on.
struct GroupRange {
  int64_t first;
  int64_t count;
};

inline void prefetch_range(const QuantizedWeight& weight, GroupRange range) {
  constexpr int64_t kMost = 65536;  // of a thread's L2 cache
  const uint8_t* data = weight.data.data<uint8_t>() + range.first * weight.group_bytes();
  const int64_t bytes = std::min(range.count * weight.group_bytes(), kMost);
  for (int64_t i = 0; i < bytes; i += 64) __builtin_prefetch(data + i, 0, 2);
}

/// Multiplies the row with the groups of a range. Writes 16 results per group.
template <QuantizedFormat kFormat>
void multiply_range(const QuantizedWeight& weight, const Rounded& x, GroupRange range, float* to) {
  for (int64_t g = 0; g < range.count; g += kRowGroups) {
    Group groups[kRowGroups];
    const int64_t count = std::min<int64_t>(kRowGroups, range.count - g);
    for (int64_t i = 0; i < count; ++i) groups[i] = group_of(weight, range.first + g + i);
    multiply_row<kFormat>(count, x, groups, to + g * kGroupRows);
  }
}

/// Groups per task: 24 to 96 KiB of weights, two tasks per thread if that is within these limits.
inline int64_t groups_per_task(const Threads& threads, const QuantizedWeight& weight) {
  const int64_t share = weight.groups() * weight.group_bytes() / (2 * threads.count());
  const int64_t groups = std::clamp<int64_t>(share, 24576, 98304) / std::max<int64_t>(weight.group_bytes(), 1);
  return std::max<int64_t>(groups / kRowGroups, 1) * kRowGroups;
}

/// y = act(product + bias) of a range.
template <QuantizedFormat kFormat, class Function>
void run_range(const QuantizedLinear& product, const Rounded& x, GroupRange range, Function /*activation*/) {
  const hn::ScalableTag<float> d;
  float* sums = gemm_scratch<float>(GemmScratch::block, range.count * kGroupRows);
  multiply_range<kFormat>(product.weight, x, range, sums);
  const int64_t column = range.first * kGroupRows;
  const int64_t columns = std::min(range.count * kGroupRows, product.weight.out - column);
  const float* bias = product.bias.defined() ? product.bias.data<float>() + column : nullptr;
  float* y = product.y.data<float>() + column;
  for_vectors(d, columns, [&](int64_t j, size_t count) HWY_ATTR {
    auto value = load_n(d, sums + j, count);
    if (bias != nullptr) value = hn::Add(value, load_n(d, bias + j, count));
    store_n(d, Function::value(d, value), y + j, count);
  });
}

/// y = gate(product + bias) of a range of gates and the range of ups that belongs to it.
template <QuantizedFormat kFormat, class Function>
void run_gated_range(const QuantizedStream& args, const Rounded& x, GroupRange range, Function /*gate*/) {
  const QuantizedLinear& product = args.product;
  const hn::ScalableTag<float> d;
  const GatedUnit<hn::ScalableTag<float>, Function> unit(args.options);
  const int64_t n = product.weight.out / 2;
  const int64_t columns = range.count * kGroupRows;
  float* gates = gemm_scratch<float>(GemmScratch::block, 2 * columns);
  float* ups = gates + columns;
  multiply_range<kFormat>(product.weight, x, range, gates);
  multiply_range<kFormat>(product.weight, x, {n / kGroupRows + range.first, range.count}, ups);
  const int64_t column = range.first * kGroupRows;
  const float* bias = product.bias.defined() ? product.bias.data<float>() + column : nullptr;
  float* y = product.y.data<float>() + column;
  for_vectors(d, columns, [&](int64_t j, size_t count) HWY_ATTR {
    auto gate = load_n(d, gates + j, count);
    auto up = load_n(d, ups + j, count);
    if (bias != nullptr) {
      gate = hn::Add(gate, load_n(d, bias + j, count));
      up = hn::Add(up, load_n(d, bias + n + j, count));
    }
    store_n(d, unit.forward({gate, up}), y + j, count);
  });
}

template <QuantizedFormat kFormat>
void run_stream(const QuantizedStream& args) {
  const QuantizedLinear& product = args.product;
  const QuantizedWeight& weight = product.weight;
  const Threads& threads = product.x.device().threads();
  const RowScratch scratch(product.x.device(), weight.blocks());
  const Rounded x{scratch.numbers, scratch.scales, scratch.offset_corrections, weight.blocks()};
  const int64_t groups = args.gated ? weight.groups() / 2 : weight.groups();
  const int64_t whole = groups_per_task(threads, weight);
  const int64_t step = args.gated ? std::max<int64_t>(whole / 2 / kRowGroups, 1) * kRowGroups : whole;
  const auto range_of = [&](int64_t task) { return GroupRange{task * step, std::min(step, groups - task * step)}; };
  const auto normalize = [&](int64_t /*task*/) {
    args.norm->kind == RowNorm::Kind::layer ? normalize_row<true>(threads, args, scratch.normed)
                                            : normalize_row<false>(threads, args, scratch.normed);
    round_row(scratch.normed, weight.in, weight.blocks(), 1, kFormat == QuantizedFormat::q8 ? 128 : 8, scratch.numbers,
              scratch.scales, scratch.offset_corrections);
  };
  const auto multiply = [&](int64_t task) {
    if (!args.gated) {
      return visit_activation(product.activation,
                              [&](auto kind) { run_range<kFormat>(product, x, range_of(task), kind); });
    }
    visit_gate(args.gate, [&](auto gate) { run_gated_range<kFormat>(args, x, range_of(task), gate); });
  };
  const auto prepare = [&](int64_t task) { prefetch_range(weight, range_of(task)); };
  run_phases(threads, {1, normalize}, {(groups + step - 1) / step, multiply, prepare});
}

void quantized_norm_linear(const QuantizedStream& args) {
  args.product.weight.format == QuantizedFormat::q8 ? run_stream<QuantizedFormat::q8>(args)
                                                    : run_stream<QuantizedFormat::q4>(args);
}

}  // namespace lamina::ops::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace lamina::ops {
HWY_EXPORT(quantized_norm_linear);
namespace cpu {
void quantized_norm_linear(const QuantizedStream& args) { HWY_DYNAMIC_DISPATCH(quantized_norm_linear)(args); }
}  // namespace cpu
}  // namespace lamina::ops
#endif
