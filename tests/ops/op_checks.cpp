// Registers all generic checks of an operator (parity, gradients, strides, determinism) for every linked case.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <iostream>
#include <limits>
#include <map>
#include <optional>
#include <random>
#include <set>
#include <string_view>

#include "lamina/ops/kernel_dispatch.h"
#include "lamina/tensor/tensor.h"
#include "support/close.h"
#include "support/guard_allocator.h"
#include "support/op_run.h"
#include "support/uniform.h"

namespace lamina::testing {
namespace {

/// Three times the error of plain loops in the same precision, plus one rounding of the largest value. Three, because
/// plain loops over few numbers can be exact by luck, and our exp may err by two ulps. For f64 the f32 error is scaled
/// by the ratio of the precisions, times four: the f64 truth itself has rounding errors.
double tolerance(const std::vector<double>& truth, const std::vector<std::vector<double>>& naive, DType dtype) {
  double error = 0;
  for (std::vector<double> values : naive) {
    if (dtype != DType::f64) {
      for (double& value : values) value = round_to(value, dtype);
    }
    error = std::max(error, largest_error(truth, values));
  }
  if (dtype == DType::f64) error *= 4 * epsilon(DType::f64) / epsilon(DType::f32);
  return 3 * (error + epsilon(dtype) * largest_magnitude(truth));
}

void expect_close(const std::vector<double>& ours, const std::vector<double>& truth,
                  const std::vector<std::vector<double>>& naive, DType dtype, const std::string& what) {
  ASSERT_EQ(ours.size(), truth.size()) << what;
  const double allowed = tolerance(truth, naive, dtype);
  EXPECT_LE(largest_error(ours, truth), allowed) << what << ": the largest value is " << largest_magnitude(truth);
}

/// For runs under memory checkers: which of a case's variants run, and whether results are compared.
struct Watched {
  uint64_t share = 0;
  uint64_t shares = 1;
  bool compare = kHasOracles;
};
Watched& watched() {
  static Watched options;
  return options;
}

struct Variants {
  const OpCase* op;
  DeviceKind device = DeviceKind::cpu;

  template <class F>
  void each(const F& body) const {
    uint64_t seed = 0;
    const auto go_through = [&](const std::vector<std::unique_ptr<OpVariant>>& variants) {
      for (const std::unique_ptr<OpVariant>& variant : variants) {
        if (++seed % watched().shares != watched().share) continue;
        const ::testing::ScopedTrace trace(__FILE__, __LINE__, op->name + " " + variant->describe());
        body(*variant, seed);
      }
    };
    go_through(op->sweep);
    if (device == DeviceKind::cuda) go_through(op->gpu_sweep);
  }
};

/// The oracle in f32, on the given inputs and on inputs perturbed by one f32 rounding. The perturbed runs show the
/// effect of cancellation on any f32 implementation, so one lucky run does not set the tolerance.
std::vector<Outcome> naive_outcomes(const OpVariant& variant, const std::vector<std::vector<double>>& values,
                                    const std::vector<DType>& dtypes, uint64_t seed, bool backward) {
  std::vector<Outcome> outcomes{run_oracle<float>(variant, values, dtypes, seed, backward)};
  const std::vector<Input> specs = variant.inputs();
  std::mt19937_64 random(seed);
  for (int repeat = 0; repeat < 4; ++repeat) {
    auto moved = values;
    for (size_t i = 0; i < specs.size(); ++i) {
      if (specs[i].dtype && !is_floating(*specs[i].dtype)) continue;
      for (double& value : moved[i]) value *= 1 + (random() % 2 == 0 ? 0x1p-23 : -0x1p-23);
    }
    outcomes.push_back(run_oracle<float>(variant, moved, dtypes, seed, backward));
  }
  return outcomes;
}

/// A kernel that a case can be forced to, of an operator in kernels.def.
struct KernelChoice {
  std::string op;
  std::string kernel;
  friend auto operator<=>(const KernelChoice&, const KernelChoice&) = default;
};

/// How often each kernel was forced and supported the call.
std::map<KernelChoice, int>& forced_runs() {
  static std::map<KernelChoice, int> runs;
  return runs;
}

/// Operators whose CPU kernels multiply matrices by the kernels of cpu_product.
bool multiplies_on_cpu(const std::string& op) {
  static const std::set<std::string> all = {
      "linear",       "matmul",          "linear_cross_entropy", "linear_cross_entropy_in_bf16",
      "feed_forward", "gated_linear",    "grouped_linear",       "norm_linear",
      "attention",    "rotary_attention"};
  return all.contains(op);
}

/// The kernels that can run in a call of `op`: its own, and those of the operators it calls.
std::vector<KernelChoice> kernel_choices(const std::string& op, DType dtype, bool backward, DeviceKind device) {
  if (device == DeviceKind::cpu) {
    std::vector<KernelChoice> choices;
    if (multiplies_on_cpu(op) && dtype == DType::bf16) {
      for (const std::string& product : ops::kernels_of("cpu_product")) choices.push_back({"cpu_product", product});
    }
    if (op == "quantized_linear" || op == "quantized_gated_linear") {
      for (const std::string& product : ops::kernels_of("cpu_int8_product")) {
        choices.push_back({"cpu_int8_product", product});
      }
    }
    return choices;
  }
  static const std::map<std::string, std::vector<std::string>> made_of = {
      {"attention", {"attention_forward", "attention_backward"}}, {"rotary_attention", {"attention_backward"}},
      {"attention_step", {"attention_step", "attention_decode"}}, {"norm_gated_linear", {"norm_linear"}},
      {"quantized_gated_linear", {"quantized_linear"}},           {"gated_feed_forward_step", {"feed_forward_step"}}};
  const auto found = made_of.find(op);
  std::vector<KernelChoice> choices;
  for (const std::string& part : found == made_of.end() ? std::vector<std::string>{op} : found->second) {
    if (part == "attention_backward" && !backward) continue;
    for (const std::string& kernel : ops::kernels_of(part)) choices.push_back({part, kernel});
  }
  return choices;
}

/// The oracle's results on the inputs of a variant, with the tolerance that they allow.
struct Expected {
  Outcome truth;
  std::vector<Outcome> naive;
  std::vector<Input> inputs;
  DType dtype;

  void check(const Outcome& ours) const {
    const auto naive_of = [&](auto member, size_t i) {
      std::vector<std::vector<double>> all;
      for (const Outcome& outcome : naive) all.push_back((outcome.*member)[i]);
      return all;
    };
    ASSERT_EQ(ours.outputs.size(), truth.outputs.size());
    for (size_t i = 0; i < ours.outputs.size(); ++i) {
      EXPECT_EQ(ours.shapes[i], truth.shapes[i]) << "output " << i;
      if (!is_floating(ours.dtypes[i])) {
        EXPECT_EQ(ours.outputs[i], truth.outputs[i]) << "output " << i;
      } else {
        expect_close(ours.outputs[i], truth.outputs[i], naive_of(&Outcome::outputs, i), ours.dtypes[i],
                     str("output ", i));
      }
    }
    for (size_t i = 0; i < ours.grads.size(); ++i) {
      expect_close(ours.grads[i], truth.grads[i], naive_of(&Outcome::grads, i), inputs[i].dtype.value_or(dtype),
                   str("gradient of input ", i));
    }
  }
};

/// Checks the kernel that the operator chooses and every other kernel of the device that supports the call.
void check_parity(const OpCase& op, DType dtype, bool backward, const Device& device) {
  Variants{&op, device.kind()}.each([&](const OpVariant& variant, uint64_t seed) {
    const auto values = make_values(variant, dtype, seed);
    const auto run = [&] { return run_variant(variant, make_inputs(variant, values, dtype, device), seed, backward); };
    const Outcome ours = run();
    std::optional<Expected> expected;
    if (watched().compare) {
      expected = Expected{run_oracle<double>(variant, values, ours.dtypes, seed, backward),
                          naive_outcomes(variant, values, ours.dtypes, seed, backward), variant.inputs(), dtype};
      expected->check(ours);
    }
    for (const KernelChoice& choice : kernel_choices(op.name, dtype, backward, device.kind())) {
      const ::testing::ScopedTrace trace(__FILE__, __LINE__, choice.op + " by " + choice.kernel);
      const ops::ForcedKernel forced(device, choice.op, choice.kernel);
      try {
        const Outcome outcome = run();
        ++forced_runs()[choice];
        if (expected) expected->check(outcome);
      } catch (const ops::UnsupportedKernel&) {
        continue;
      }
    }
  });
}

/// Runs after all cases: each kernel must have supported some call of them.
void check_forced_runs() {
  for (const auto& [choice, count] : forced_runs()) {
    std::cout << choice.op << " by " << choice.kernel << ": " << count << " calls\n";
  }
  const char* shards = std::getenv("GTEST_TOTAL_SHARDS");
  if (!forced_runs().contains({"attention_forward", "wgmma"}) || (shards && std::string_view(shards) != "1")) {
    GTEST_SKIP() << "needs the tests of all operators in one process, on a GPU with compute capability 9";
  }
  for (const OpCase& op : op_cases()) {
    for (const KernelChoice& choice : kernel_choices(op.name, DType::bf16, op.backward, DeviceKind::cuda)) {
      if (choice.kernel == "cpu" || choice.kernel == "cudnn") continue;  // cuDNN may be missing
      EXPECT_GT(forced_runs()[choice], 0)
          << choice.op << " by " << choice.kernel << " supported no case of " << op.name;
    }
  }
}

struct WeightedSum {
  double value = 0;
  double magnitude = 0;  ///< sum of the terms' absolute values; rounding errors are relative to it
};

WeightedSum weighted_sum(const Outcome& outcome, uint64_t seed) {
  WeightedSum sum;
  for (size_t i = 0; i < outcome.outputs.size(); ++i) {
    if (!is_floating(outcome.dtypes[i])) continue;
    const auto weights = output_gradient(seed, i, outcome.outputs[i].size(), outcome.dtypes[i]);
    for (size_t j = 0; j < weights.size(); ++j) {
      sum.value += weights[j] * outcome.outputs[i][j];
      sum.magnitude += std::abs(weights[j] * outcome.outputs[i][j]);
    }
  }
  return sum;
}

/// Central differences of the operator's own f64 forward along a random direction. The change when the step is halved
/// estimates the error of the differences themselves.
void check_finite_differences(const OpCase& op) {
  const Device device = Device::cpu(2);
  Variants{&op}.each([&](const OpVariant& variant, uint64_t seed) {
    const auto values = make_values(variant, DType::f64, seed);
    const Outcome at = run_variant(variant, make_inputs(variant, values, DType::f64, device), seed, true);
    const std::vector<Input> specs = variant.inputs();
    for (size_t input = 0; input < specs.size(); ++input) {
      if (specs[input].absent || !specs[input].differentiable || values[input].empty()) continue;
      std::mt19937_64 random(seed + input);
      std::vector<double> direction(values[input].size());
      for (double& value : direction) value = uniform(random, -1.0, 1.0);
      const auto slope = [&](double step) {
        auto moved = values;
        const auto sum_at = [&](double distance) {
          for (size_t i = 0; i < direction.size(); ++i) moved[input][i] = values[input][i] + distance * direction[i];
          return weighted_sum(run_variant(variant, make_inputs(variant, moved, DType::f64, device), seed, false), seed)
              .value;
        };
        return (sum_at(step) - sum_at(-step)) / (2 * step);
      };
      constexpr double kStep = 1e-5;
      const double coarse = slope(2 * kStep);
      const double fine = slope(kStep);
      double analytic = 0;
      for (size_t i = 0; i < direction.size(); ++i) analytic += at.grads[input][i] * direction[i];
      const double rounding = 8 * std::numeric_limits<double>::epsilon() * weighted_sum(at, seed).magnitude / kStep;
      EXPECT_NEAR(analytic, fine, 4 * std::abs(fine - coarse) + rounding) << "input " << input;
    }
  });
}

void expect_same_bits(const Outcome& a, const Outcome& b, const std::string& what) {
  EXPECT_EQ(a.outputs, b.outputs) << what;
  EXPECT_EQ(a.grads, b.grads) << what;
}

/// Writes beyond a block change the guard bands around it. Blocks are filled with NaNs: a kernel that reads what it did
/// not write gives other results than on a plain device.
void check_guard_bands(const OpCase& op) {
  for (const DType dtype : op.dtypes) {
    Variants{&op}.each([&](const OpVariant& variant, uint64_t seed) {
      const auto values = make_values(variant, dtype, seed);
      const auto run_on = [&](const Device& device) {
        return run_variant(variant, make_inputs(variant, values, dtype, device), seed, op.backward);
      };
      const auto guard = make_guard_allocator();
      expect_same_bits(run_on(Device::cpu(2, guard)), run_on(Device::cpu(2)), str(dtype, ", memory filled with NaNs"));
      EXPECT_EQ(guard->overrun(), "") << dtype;
      EXPECT_EQ(guard->counters().live, 0) << "tensors outlive their last handle";
    });
  }
}

void check_determinism(const OpCase& op) {
  Variants{&op}.each([&](const OpVariant& variant, uint64_t seed) {
    const DType dtype = op.dtypes.front();
    const auto values = make_values(variant, dtype, seed);
    const auto run_with = [&](int threads) {
      const Device device = Device::cpu(threads);
      return run_variant(variant, make_inputs(variant, values, dtype, device), seed, op.backward);
    };
    const Outcome first = run_with(2);
    expect_same_bits(first, run_with(2), "the same run again");
    expect_same_bits(first, run_with(1), "one thread against two");
    expect_same_bits(first, run_with(3), "three threads against two");
  });
}

void check_strided_inputs(const OpCase& op, const Device& device) {
  Variants{&op, device.kind()}.each([&](const OpVariant& variant, uint64_t seed) {
    const DType dtype = op.dtypes.front();
    const auto values = make_values(variant, dtype, seed);
    const std::vector<Tensor> dense = make_inputs(variant, values, dtype, device);
    std::vector<Tensor> strided;
    for (const Tensor& tensor : dense) strided.push_back(make_strided(tensor));
    expect_same_bits(run_variant(variant, dense, seed, op.backward), run_variant(variant, strided, seed, op.backward),
                     "inputs with gaps between their elements");
  });
}

/// On a deterministic GPU device: a second run is bit-identical, and no memory leaks.
void check_repeats(const OpCase& op, DType dtype, const Device& device) {
  Variants{&op, device.kind()}.each([&](const OpVariant& variant, uint64_t seed) {
    const auto values = make_values(variant, dtype, seed);
    const auto once = [&] {
      return run_variant(variant, make_inputs(variant, values, dtype, device), seed, op.backward);
    };
    const int64_t before = device.allocator().counters().live;
    const Outcome first = once();
    expect_same_bits(first, once(), "the same run again");
    EXPECT_EQ(device.allocator().counters().live, before) << "tensors outlive their last handle";
  });
}

void check_meta(const OpCase& op) {
  Variants{&op}.each([&](const OpVariant& variant, uint64_t seed) {
    const DType dtype = op.dtypes.front();
    const auto values = make_values(variant, dtype, seed);
    const Outcome real = run_variant(variant, make_inputs(variant, values, dtype, Device::cpu(1)), seed, false);
    const Device meta = Device::meta();
    const Outcome planned = run_variant(variant, make_inputs(variant, values, dtype, meta), seed, op.backward);
    EXPECT_EQ(planned.shapes, real.shapes);
    EXPECT_EQ(planned.dtypes, real.dtypes);
    EXPECT_EQ(meta.allocator().counters().live, 0);
  });
}

class CheckTest : public ::testing::Test {
 public:
  explicit CheckTest(std::function<void()> body) : body_(std::move(body)) {}
  void TestBody() override { body_(); }

 private:
  std::function<void()> body_;
};

void add_test(const std::string& suite, const std::string& name, const std::function<void()>& body) {
  ::testing::RegisterTest(suite.c_str(), name.c_str(), nullptr, nullptr, __FILE__, __LINE__,
                          [body]() -> ::testing::Test* { return new CheckTest(body); });
}

std::string suite_of(const OpCase& op) { return op.form.empty() ? op.name : op.name + "_" + op.form; }

void add_parity_tests(const OpCase& op, const std::string& suite, DType dtype, const Device& device) {
  add_test(suite, str("forward_", dtype), [&op, dtype, device] { check_parity(op, dtype, false, device); });
  if (!op.backward) return;
  add_test(suite, str("backward_", dtype), [&op, dtype, device] { check_parity(op, dtype, true, device); });
}

/// Registers the cases on a GPU, if there is one. f64 is only for the CPU.
void register_cuda_checks() {
  if (Device::cuda_count() == 0) {
    std::cout << "no GPU, or a build without CUDA: the cases run on the CPU alone\n";
    return;
  }
  const Device device = Device::cuda();
  const Device deterministic = Device::cuda(0, true);
  for (const OpCase& op : op_cases()) {
    const std::string suite = "cuda_" + suite_of(op);
    for (const DType dtype : op.dtypes) {
      if (dtype == DType::f64) continue;
      add_parity_tests(op, suite, dtype, device);
      add_test(suite, str("repeats_", dtype), [&op, dtype, deterministic] { check_repeats(op, dtype, deterministic); });
    }
    if (op.dtypes.front() == DType::f64) continue;
    add_test(suite, "strided_inputs", [&op, device] { check_strided_inputs(op, device); });
  }
  add_test("cuda_kernels", "each_supports_a_case", check_forced_runs);
}

void register_checks() {
  const Device device = Device::cpu(2);
  for (const OpCase& op : op_cases()) {
    const std::string suite = suite_of(op);
    for (const DType dtype : op.dtypes) add_parity_tests(op, suite, dtype, device);
    const bool has_f64 = std::count(op.dtypes.begin(), op.dtypes.end(), DType::f64) > 0;
    if (op.backward && has_f64) add_test(suite, "finite_differences", [&op] { check_finite_differences(op); });
    add_test(suite, "guard_bands", [&op] { check_guard_bands(op); });
    add_test(suite, "determinism", [&op] { check_determinism(op); });
    add_test(suite, "strided_inputs", [&op, device] { check_strided_inputs(op, device); });
    add_test(suite, "meta", [&op] { check_meta(op); });
  }
}

struct Listed {
  const char* name;
  const char* family;
  const char* purpose;
};

constexpr Listed kListed[] = {
#define LAMINA_OP(name, family, purpose) {#name, #family, purpose},
#include "lamina/ops/op_list.def"
#undef LAMINA_OP
};

TEST(OpList, EveryOperatorHasACaseAndEveryCaseAnOperator) {
  std::set<std::string> listed;
  for (const Listed& op : kListed) listed.insert(op.name);
  std::set<std::string> tested;
  for (const OpCase& op : op_cases()) tested.insert(op.name);
  EXPECT_EQ(listed, tested);
}

/// Prints docs/reference/operators.md: the listed operators and the coverage of their cases.
void print_support_table() {
  std::cout << "# Operators\n\nGenerated by `make docs` from `src/ops/op_list.def` and the cases in `tests/ops`. Every "
               "listed type "
               "is tested forward, and\nbackward if there is a gradient, against an oracle written from the "
               "formula.\n\n| family | operator | what | types | gradient | devices | variants tested |\n"
               "|---|---|---|---|---|---|---|\n";
  for (const Listed& listed : kListed) {
    for (const OpCase& op : op_cases()) {
      if (op.name != listed.name) continue;
      std::cout << "| " << listed.family << " | `" << listed.name << "` " << op.form << (op.form.empty() ? "| " : " | ")
                << listed.purpose << " | ";
      for (const DType dtype : op.dtypes) std::cout << dtype << ' ';
      std::cout << "| " << (op.backward ? "yes" : "no") << " | cpu cuda meta | "
                << op.sweep.size() + op.gpu_sweep.size() << " |\n";
    }
  }
}

/// Parses the arguments that GoogleTest left.
bool take_options(int argc, char** argv) {
  for (int n = 1; n < argc; ++n) {
    const std::string given = argv[n];
    unsigned long long share = 0;
    unsigned long long shares = 0;
    int used = 0;
    if (given == "--no-compare") {
      watched().compare = false;
    } else if (std::sscanf(argv[n], "--share=%llu/%llu%n", &share, &shares, &used) == 2 && argv[n][used] == '\0' &&
               share < shares) {
      watched().share = share;
      watched().shares = shares;
    } else {
      std::cerr << "op_test: " << given << "; expected --support-table, options of GoogleTest, --share=K/N (of every "
                << "case's variants the K-th of N shares, from 0) or --no-compare (results are not compared with "
                << "oracles; for tools that watch memory)\n";
      return false;
    }
  }
  return true;
}

}  // namespace
}  // namespace lamina::testing

int main(int argc, char** argv) {
  if (argc == 2 && std::string(argv[1]) == "--support-table") {
    lamina::testing::print_support_table();
    return 0;
  }
  ::testing::InitGoogleTest(&argc, argv);
  if (!lamina::testing::take_options(argc, argv)) return 2;
  lamina::testing::register_checks();
  lamina::testing::register_cuda_checks();
  return RUN_ALL_TESTS();
}
