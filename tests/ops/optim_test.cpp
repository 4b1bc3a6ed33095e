// Optimizers against plain loops in f64: all combinations of types, with and without master weights, odd and empty
// sizes, sizes above a chunk, several steps, any number of threads.
#include <gtest/gtest.h>

#include "cuda/on_gpu.h"
#include "lamina/ops/optim/adamw.h"
#include "lamina/ops/optim/muon.h"
#include "lamina/ops/optim/sgd.h"
#include "lamina/ops/optim/slots_kernel.h"
#include "ops/optim_oracle.h"
#include "support/close.h"
#include "support/guard_allocator.h"
#include "support/module_golden.h"

namespace lamina::testing {
namespace {

constexpr int kSteps = 3;
using ops::Chunks;
using OptimOnGpu = OnGpu<>;

struct Types {
  DType param, grad;
  bool master;
};

std::vector<Types> all_types() {
  std::vector<Types> result{{DType::f64, DType::f64, false}};
  for (const DType grad : {DType::f32, DType::bf16, DType::f16}) {
    result.push_back({DType::f32, grad, false});
    for (const DType param : {DType::bf16, DType::f16}) {
      result.push_back({param, grad, false});
      result.push_back({param, grad, true});
    }
  }
  return result;
}

const std::vector<Shape> kParameterShapes{{1},  {7, 5}, {0},      {}, {3, 0, 2}, {Chunks::kSize + 13},
                                          {64}, {129},  {2, 3, 5}};
const std::vector<Shape> kMatrices{{1, 1}, {7, 5}, {5, 7}, {0, 3}, {3, 0}, {1, 9}, {40, 40}, {33, 65}, {90, 130}};

/// The tensors of one parameter and its plain-loop twins in double (truth) and float (naive).
struct Subject {
  ops::ParamSlot slot;
  Tensor m, v;
  PlainParam<double> truth;
  PlainParam<float> naive;
};

std::vector<Subject> make_subjects(const std::vector<Shape>& shapes, const Types& types, const Device& device) {
  std::vector<Subject> subjects;
  const DType wide = accumulation_type(types.param);
  for (size_t i = 0; i < shapes.size(); ++i) {
    Subject s;
    const auto count = static_cast<size_t>(shapes[i].numel());
    const auto values = random_values(count, i, types.param);
    s.slot.param = make_tensor(values, shapes[i], types.param, device);
    if (types.master) s.slot.master = s.slot.param.to(DType::f32);
    s.slot.lr = 0.01 * static_cast<double>(i + 1);
    s.slot.weight_decay = i % 2 == 0 ? 0.1 : 0.0;
    s.m = Tensor::zeros(shapes[i], wide, device);
    s.v = Tensor::zeros(shapes[i], wide, device);
    const auto begin = [&](auto& plain) {
      using S = typename std::decay_t<decltype(plain.p)>::value_type;
      plain.p = cast_all<S>(values);
      plain.m.assign(count, S{0});
      plain.v.assign(count, S{0});
      plain.lr = s.slot.lr;
      plain.weight_decay = s.slot.weight_decay;
    };
    begin(s.truth);
    begin(s.naive);
    subjects.push_back(std::move(s));
  }
  return subjects;
}

void new_gradients(std::vector<Subject>& subjects, const Types& types, int step) {
  for (size_t i = 0; i < subjects.size(); ++i) {
    Subject& s = subjects[i];
    const auto values = random_values(s.truth.p.size(), 1000 + 100 * static_cast<uint64_t>(step) + i, types.grad);
    s.slot.grad = make_tensor(values, s.slot.param.shape(), types.grad, s.slot.param.device());
    s.truth.g = values;
    s.naive.g = cast_all<float>(values);
  }
}

std::vector<double> widen(const std::vector<float>& values) { return {values.begin(), values.end()}; }

/// Without a master copy, a parameter is rounded after every step, so its twins are rounded, too.
void round_twins(std::vector<Subject>& subjects, const Types& types) {
  if (types.master || size_of(types.param) != 2) return;
  for (Subject& s : subjects) {
    // Both twins continue from our rounded values, so that each comparison covers one step.
    s.truth.p = s.slot.param.to_vector<double>();
    s.naive.p = cast_all<float>(s.truth.p);
  }
}

/// For f64, the naive error is the f32 error scaled by the ratio of the precisions.
std::vector<double> naive_of(const std::vector<double>& truth, const std::vector<float>& naive, DType dtype) {
  std::vector<double> result = widen(naive);
  if (dtype != DType::f64) return result;
  for (size_t i = 0; i < result.size(); ++i) result[i] = truth[i] + (result[i] - truth[i]) * 0x1p-28;
  return result;
}

void append(std::vector<double>& all, const std::vector<double>& more) {
  all.insert(all.end(), more.begin(), more.end());
}

/// Our, true and naive values of one kind of tensor, concatenated over all parameters. A single element near zero gives
/// no scale for the tolerance.
struct Joined {
  std::vector<double> ours, truth, naive;
  void add(const Tensor& tensor, const std::vector<double>& right, const std::vector<float>& plain) {
    append(ours, tensor.to_vector<double>());
    append(truth, right);
    append(naive, naive_of(right, plain, accumulation_type(tensor.dtype())));
  }
};

void compare(const std::vector<Subject>& subjects, const Types& types, const std::string& what) {
  const std::string where = str(what, " ", types.param, " grad ", types.grad, types.master ? " with master" : "");
  const DType wide = accumulation_type(types.param);
  Joined param, master, m, v;
  for (const Subject& s : subjects) {
    param.add(s.slot.param, s.truth.p, s.naive.p);
    m.add(s.m, s.truth.m, s.naive.m);
    v.add(s.v, s.truth.v, s.naive.v);
    if (!types.master) continue;
    master.add(s.slot.master, s.truth.p, s.naive.p);
    EXPECT_EQ(s.slot.param.to_vector<double>(), s.slot.master.to(types.param).to_vector<double>()) << where;
  }
  expect_as_close(param.ours, param.truth, param.naive, types.param, where + " param");
  expect_as_close(master.ours, master.truth, master.naive, wide, where + " master");
  expect_as_close(m.ours, m.truth, m.naive, wide, where + " m");
  expect_as_close(v.ours, v.truth, v.naive, wide, where + " v");
}

void step_adamw(std::vector<Subject>& subjects, int step, const ops::AdamWOptions& options) {
  std::vector<ops::AdamWSlot> slots;
  for (Subject& s : subjects) {
    slots.push_back({s.slot, s.m, s.v, step});
    plain_adamw(s.truth, step, options.beta1, options.beta2, options.eps);
    plain_adamw(s.naive, step, options.beta1, options.beta2, options.eps);
  }
  ops::adamw(slots, options);
}

void check_adamw(const Types& types, const Device& device) {
  for (const double beta1 : {0.9, 0.0, 0.3}) {
    if (beta1 != 0.9 && types.param != DType::f32) continue;
    std::vector<Subject> subjects = make_subjects(kParameterShapes, types, device);
    for (int step = 1; step <= kSteps; ++step) {
      new_gradients(subjects, types, step);
      step_adamw(subjects, step, {.beta1 = beta1, .beta2 = 0.95, .eps = 1e-6});
      compare(subjects, types, str("adamw step ", step));
      round_twins(subjects, types);
    }
  }
}

TEST(adamw, EqualsThePlainLoopForAllTypes) {
  for (const Types& types : all_types()) {
    const auto guard = make_guard_allocator();
    check_adamw(types, Device::cpu(2, guard));
    EXPECT_EQ(guard->overrun(), "");
  }
}

/// `dynamics` holds the values that change between replays of a captured step: lr factor, bias corrections, clipping.
TEST_F(OptimOnGpu, DynamicsOfAdamWStandForWhatChanges) {
  const Device device = Device::cuda();
  const Types types{DType::bf16, DType::bf16, true};
  const double clip = 0.25;
  std::vector<Subject> subjects = make_subjects(kParameterShapes, types, device);
  for (int step = 1; step <= kSteps; ++step) {
    new_gradients(subjects, types, step);
    const double factor = 1.0 / step;
    std::vector<ops::AdamWSlot> slots;
    for (Subject& s : subjects) {
      slots.push_back({s.slot, s.m, s.v, 1});
      const auto plain = [&](auto& twin) {
        for (auto& g : twin.g) g *= static_cast<std::decay_t<decltype(g)>>(clip);
        twin.lr = s.slot.lr * factor;
        plain_adamw(twin, step, 0.9, 0.95, 1e-6);
      };
      plain(s.truth);
      plain(s.naive);
    }
    const std::vector<float> dynamics{static_cast<float>(factor), static_cast<float>(1 / (1 - std::pow(0.9, step))),
                                      static_cast<float>(1 / std::sqrt(1 - std::pow(0.95, step))),
                                      static_cast<float>(clip)};
    ops::AdamWOptions options{.beta1 = 0.9, .beta2 = 0.95, .eps = 1e-6};
    options.dynamics = Tensor::from(dynamics, {4}, device);
    ops::adamw(slots, options);
    compare(subjects, types, str("adamw with dynamics, step ", step));
    options.dynamics = Tensor::from(std::vector<float>{1, 1, 1, -1}, {4}, device);
    ops::adamw(slots, options);
    compare(subjects, types, str("an update that is left out, step ", step));
  }
  EXPECT_THROW(
      ops::adamw({{{Tensor::zeros({2}, DType::f32, Device::cpu()), Tensor::zeros({2}, DType::f32, Device::cpu())},
                   Tensor::zeros({2}, DType::f32, Device::cpu()),
                   Tensor::zeros({2}, DType::f32, Device::cpu())}},
                 {.dynamics = Tensor::zeros({4}, DType::f32, device)}),
      Error);
}

#if defined(__x86_64__)
const bool kFused = __builtin_cpu_supports("fma") != 0;
#else
const bool kFused = true;
#endif

/// Bit-identical if the CPU has fused multiply-add, as the machine that made the golden file did.
TEST(adamw, ReproducesPyTorch) {
  const auto file = golden_tensors(Device::cpu(1));
  const Device device = Device::cpu();
  const auto load = [&](const std::string& name) { return file.tensor("adamw." + name).to_vector<float>(); };
  PlainParam<double> truth;
  PlainParam<float> naive;
  naive.p = load("p0");
  truth.p = widen(naive.p);
  truth.m.assign(truth.p.size(), 0);
  truth.v = truth.m;
  naive.m.assign(truth.p.size(), 0);
  naive.v = naive.m;
  truth.lr = naive.lr = 0.01;
  truth.weight_decay = naive.weight_decay = 0.1;
  ops::AdamWSlot slot;
  slot.param = Tensor::from(naive.p, {7, 5}, device);
  slot.m = Tensor::zeros({7, 5}, DType::f32, device);
  slot.v = Tensor::zeros({7, 5}, DType::f32, device);
  slot.lr = 0.01;
  slot.weight_decay = 0.1;
  for (int step = 1; step <= 6; ++step) {
    naive.g = load(str("g", step - 1));
    truth.g = widen(naive.g);
    plain_adamw(truth, step, 0.9, 0.95, 1e-8);
    plain_adamw(naive, step, 0.9, 0.95, 1e-8);
    slot.grad = Tensor::from(naive.g, {7, 5}, device);
    slot.step = step;
    ops::adamw({slot}, {.beta1 = 0.9, .beta2 = 0.95, .eps = 1e-8});
    const auto torch = load(str("p", step));
    expect_as_close(slot.param.to_vector<double>(), widen(torch), widen(naive.p), DType::f32, str("step ", step));
    if (kFused) {
      EXPECT_EQ(slot.param.to_vector<float>(), torch) << "step " << step;
    }
  }
}

void check_sgd(const Types& types, const Device& device) {
  for (const ops::SgdOptions options : {ops::SgdOptions{}, {0.9, false}, {0.9, true}}) {
    std::vector<Subject> subjects = make_subjects(kParameterShapes, types, device);
    for (int step = 1; step <= kSteps; ++step) {
      new_gradients(subjects, types, step);
      std::vector<ops::SgdSlot> slots;
      for (Subject& s : subjects) {
        slots.push_back({s.slot, options.momentum == 0 ? Tensor() : s.m});
        plain_sgd(s.truth, options.momentum, options.nesterov);
        plain_sgd(s.naive, options.momentum, options.nesterov);
        if (options.momentum > 0) continue;
        s.truth.m.assign(s.truth.m.size(), 0);
        s.naive.m.assign(s.naive.m.size(), 0);
      }
      ops::sgd(slots, options);
      compare(subjects, types, str("sgd step ", step, " nesterov ", options.nesterov));
      round_twins(subjects, types);
    }
  }
}

TEST(sgd, EqualsThePlainLoopForAllTypes) {
  for (const Types& types : all_types()) check_sgd(types, Device::cpu(2));
}

double muon_scale(const Shape& shape, ops::MuonScale scale) {
  const auto rows = static_cast<double>(shape[0]);
  const auto cols = static_cast<double>(shape[1]);
  return scale == ops::MuonScale::aspect ? std::sqrt(std::max(1.0, rows / cols))
                                         : 0.2 * std::sqrt(std::max(rows, cols));
}

void step_muon(std::vector<Subject>& subjects, const ops::MuonOptions& options) {
  std::vector<ops::MuonSlot> slots;
  for (Subject& s : subjects) {
    slots.push_back({s.slot, s.m});
    const Shape& shape = s.slot.param.shape();
    if (shape.numel() == 0) continue;
    const double scale = muon_scale(shape, options.scale);
    plain_muon(s.truth, shape[0], shape[1], options.momentum, options.nesterov, scale);
    plain_muon(s.naive, shape[0], shape[1], options.momentum, options.nesterov, scale);
  }
  ops::muon(slots, options);
}

void check_muon(const Types& types, const Device& device) {
  for (const bool nesterov : {false, true}) {
    const auto scale = nesterov ? ops::MuonScale::aspect : ops::MuonScale::match_adamw;
    std::vector<Subject> subjects = make_subjects(kMatrices, types, device);
    for (int step = 1; step <= 2; ++step) {
      new_gradients(subjects, types, step);
      step_muon(subjects, {.nesterov = nesterov, .scale = scale});
      compare(subjects, types, str("muon step ", step, " nesterov ", nesterov));
      round_twins(subjects, types);
    }
  }
}

TEST(muon, EqualsThePlainLoopForAllTypes) {
  for (const Types& types : all_types()) check_muon(types, Device::cpu(2));
}

/// Optimizers on a GPU against plain loops; f64 is only for the CPU.
TEST_F(OptimOnGpu, EqualsThePlainLoop) {
  const Device device = Device::cuda();
  for (const Types& types : all_types()) {
    if (types.param == DType::f64) continue;
    check_adamw(types, device);
    check_sgd(types, device);
    check_muon(types, device);
  }
}

TEST(muon, UpdateIsNearlyOrthogonal) {
  const Device device = Device::cpu();
  const int64_t rows = 24;
  const int64_t cols = 96;
  ops::MuonSlot slot;
  slot.param = Tensor::zeros({rows, cols}, DType::f32, device);
  slot.grad =
      make_tensor(random_values(static_cast<size_t>(rows * cols), 3, DType::f32), {rows, cols}, DType::f32, device);
  slot.momentum = Tensor::zeros({rows, cols}, DType::f32, device);
  slot.lr = 1.0;
  ops::muon({slot}, {});
  const auto x = slot.param.to_vector<double>();
  const auto gram = plain_product(x, plain_transpose(x, rows, cols), rows, cols, rows);
  for (int64_t i = 0; i < rows; ++i) {
    // The iteration is designed for singular values in [0.7, 1.2], so the diagonal holds squares in [0.49, 1.44].
    EXPECT_GT(gram[static_cast<size_t>(i * rows + i)], 0.49);
    EXPECT_LT(gram[static_cast<size_t>(i * rows + i)], 1.44);
  }
}

/// A parameter of several stacked matrices is updated bit-identically to the separate matrices.
TEST(muon, PartsMoveAsIfTheyWereApart) {
  const Device device = Device::cpu(2);
  struct Case {
    Shape shape;
    std::vector<int64_t> parts;
  };
  for (const Case& c : {Case{{9, 5}, {2, 4, 0, 3}}, Case{{2, 7, 5}, {3, 4}}, Case{{3, 4, 6}, {}}}) {
    for (const DType dtype : {DType::f32, DType::bf16}) {
      std::vector<Subject> joined = make_subjects({c.shape}, {dtype, dtype, dtype == DType::bf16}, device);
      new_gradients(joined, {dtype, dtype, false}, 1);
      const int64_t rows = c.shape.rows();
      const auto copy = [&](const Tensor& whole, int64_t begin, int64_t count) {
        return whole.defined() ? whole.reshape({rows, c.shape[-1]}).slice(0, begin, count).clone() : Tensor();
      };
      const std::vector<int64_t> parts = c.parts.empty() ? std::vector<int64_t>{c.shape[-2]} : c.parts;
      std::vector<ops::MuonSlot> slots;
      const ops::ParamSlot& all = joined[0].slot;
      for (int64_t begin = 0; begin < rows;) {
        for (const int64_t count : parts) {
          slots.push_back({{copy(all.param, begin, count), copy(all.grad, begin, count), copy(all.master, begin, count),
                            all.lr, all.weight_decay},
                           copy(joined[0].m, begin, count)});
          begin += count;
        }
      }
      for (int step = 0; step < 2; ++step) {
        ops::muon({{all, joined[0].m, c.parts}});
        ops::muon(slots);
      }
      std::vector<double> expected;
      std::vector<double> momentum;
      for (const ops::MuonSlot& slot : slots) {
        append(expected, slot.param.to_vector<double>());
        append(momentum, slot.momentum.to_vector<double>());
      }
      EXPECT_EQ(all.param.to_vector<double>(), expected) << c.shape << " " << dtype;
      EXPECT_EQ(joined[0].m.to_vector<double>(), momentum) << c.shape << " " << dtype;
    }
  }
}

TEST(muon, AZeroGradientMovesNothing) {
  const Device device = Device::cpu();
  for (const double eps : {0.0, 1e-7}) {
    const ops::MuonSlot slot{{Tensor::full({3, 4}, 0.5, DType::f32, device), Tensor::zeros({3, 4}, DType::f32, device)},
                             Tensor::zeros({3, 4}, DType::f32, device)};
    ops::muon({slot}, {.eps = eps});
    EXPECT_EQ(slot.param.to_vector<double>(), std::vector<double>(12, 0.5));
  }
}

/// Parameters, master weights and moments after a few steps with `threads` threads, for bitwise comparison.
std::vector<std::vector<double>> bits_after(int threads, const std::string& which, const Types& types) {
  const std::vector<Shape> shapes = which == "muon" ? std::vector<Shape>{{130, 70}, {5, 9}} : kParameterShapes;
  std::vector<Subject> subjects = make_subjects(shapes, types, Device::cpu(threads));
  for (int step = 1; step <= 2; ++step) {
    new_gradients(subjects, types, step);
    if (which == "adamw") step_adamw(subjects, step, {});
    if (which == "muon") step_muon(subjects, {});
    if (which == "sgd") {
      std::vector<ops::SgdSlot> slots;
      for (const Subject& s : subjects) slots.push_back({s.slot, s.m});
      ops::sgd(slots, {.momentum = 0.9, .nesterov = true});
    }
  }
  std::vector<std::vector<double>> result;
  for (const Subject& s : subjects) {
    result.push_back(s.slot.param.to_vector<double>());
    result.push_back(s.m.to_vector<double>());
    result.push_back(s.v.to_vector<double>());
  }
  return result;
}

TEST(optim, BitsDoNotDependOnThreads) {
  for (const std::string which : {"adamw", "sgd", "muon"}) {
    for (const Types& types : {Types{DType::f32, DType::f32, false}, Types{DType::bf16, DType::f32, true}}) {
      const auto one = bits_after(1, which, types);
      EXPECT_EQ(one, bits_after(2, which, types)) << which;
      EXPECT_EQ(one, bits_after(3, which, types)) << which;
    }
  }
}

TEST(optim, StridedGradientsAndMetaTensors) {
  const Types types{DType::f32, DType::f32, false};
  std::vector<Subject> subjects = make_subjects(kMatrices, types, Device::cpu());
  new_gradients(subjects, types, 1);
  for (Subject& s : subjects) s.slot.grad = make_strided(s.slot.grad);
  step_adamw(subjects, 1, {});
  compare(subjects, types, "strided gradient");

  const Device meta = Device::meta();
  ops::AdamWSlot slot;
  slot.param = slot.grad = slot.m = slot.v = Tensor::empty({1000, 10}, DType::f32, meta);
  ops::adamw({slot}, {});
  EXPECT_EQ(meta.work().bytes, 10000 * 7 * 4);
  const ops::ParamSlot& common = slot;
  ops::muon({{common, slot.m}}, {});
  EXPECT_GT(meta.work().flops, 0);
}

TEST(optim, RefusesBadHyperparameters) {
  const Device device = Device::cpu();
  const Tensor t = Tensor::zeros({2, 3}, DType::f32, device);
  const double nan = std::nan("");
  ops::AdamWSlot slot{{t, t.clone(), Tensor()}, t.clone(), t.clone(), 1};
  for (const double lr : {nan, -1.0, static_cast<double>(INFINITY)}) {
    ops::AdamWSlot bad = slot;
    bad.lr = lr;
    expect_error([&] { ops::adamw({bad}, {}); }, "adamw: lr is");
    bad = slot;
    bad.weight_decay = lr;
    expect_error([&] { ops::adamw({bad}, {}); }, "adamw: weight_decay is");
  }
  for (const double beta : {nan, -0.1, 1.0, 2.0}) {
    expect_error([&] { ops::adamw({slot}, {.beta1 = beta}); }, "adamw: beta1 is");
    expect_error([&] { ops::adamw({slot}, {.beta2 = beta}); }, "adamw: beta2 is");
    expect_error([&] { ops::sgd({}, {.momentum = beta}); }, "sgd: momentum is");
    expect_error([&] { ops::muon({}, {.momentum = beta}); }, "muon: momentum is");
  }
  expect_error([&] { ops::adamw({slot}, {.eps = -1.0}); }, "adamw: eps is");
  expect_error([&] { ops::sgd({}, {.nesterov = true}); }, "nesterov needs a momentum");
  expect_error([&] { ops::muon({}, {.steps = -1}); }, "Newton-Schulz steps");
  slot.step = 0;
  expect_error([&] { ops::adamw({slot}, {}); }, "the first step is 1");
}

TEST(optim, RefusesTensorsThatDoNotFit) {
  const Device device = Device::cpu();
  const Tensor t = Tensor::zeros({2, 3}, DType::f32, device);
  const ops::AdamWSlot good{{t, t.clone(), Tensor()}, t.clone(), t.clone(), 1};
  const auto refuse = [&](const std::function<void(ops::AdamWSlot&)>& spoil, const std::string& part) {
    ops::AdamWSlot bad = good;
    spoil(bad);
    expect_error([&] { ops::adamw({good, bad}, {}); }, part);
  };
  refuse([](auto& s) { s.param = Tensor(); }, "parameter 1 is undefined");
  refuse([](auto& s) { s.grad = Tensor(); }, "parameter 1 has no gradient");
  refuse([](auto& s) { s.m = Tensor(); }, "m of parameter 1 is undefined");
  refuse([](auto& s) { s.v = s.v.to(DType::f64); }, "v of parameter 1 is f64; expected f32");
  refuse([](auto& s) { s.grad = s.grad.reshape({6}); }, "grad of parameter 1 is [6], the parameter is [2,3]");
  refuse([](auto& s) { s.grad = s.grad.to(DType::f64); }, "grad of parameter 1 is f64");
  refuse([](auto& s) { s.grad = s.grad.to(DType::i32); }, "grad of parameter 1 is i32");
  refuse([](auto& s) { s.param = s.param.to(DType::i64); }, "parameter 1 is i64");
  refuse([](auto& s) { s.master = s.param.clone(); }, "only bf16 and f16");
  refuse([](auto& s) { s.param = s.param.reshape({3, 2}).transpose(0, 1); }, "strided view");
  refuse([](auto& s) { s.grad = s.grad.to(Device::meta()); }, "is on meta");
  ops::MuonSlot slot{{t.reshape({6}), t.reshape({6}), Tensor()}, t.clone().reshape({6})};
  expect_error([&] { ops::muon({slot}, {}); }, "expected at least two dimensions");
  expect_error([&] { ops::muon({{{t, t, Tensor()}, t.clone(), {1}}}, {}); }, "have 1 rows, it is [2,3]");
  expect_error([&] { ops::muon({{{t, t, Tensor()}, t.clone(), {1, 2}}}, {}); }, "has 2 rows, 1 remain");
  expect_error([&] { ops::muon({{{t, t, Tensor()}, t.clone(), {-1, 3}}}, {}); }, "has -1 rows");
  ops::MuonSlot bad{{t, Tensor::full({2, 3}, NAN, DType::f32, device), Tensor()}, t.clone()};
  expect_error([&] { ops::muon({bad}, {}); }, "not finite");
}

}  // namespace
}  // namespace lamina::testing
