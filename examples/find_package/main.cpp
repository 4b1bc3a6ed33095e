// A minimal project that uses an installed Lamina: runs one operator and its gradient, and checks both.
#include <lamina/lamina.h>

#include <cmath>
#include <cstdio>

int main() {
  const lamina::Device cpu = lamina::Device::cpu();
  lamina::Tape tape;
  lamina::Tensor x = lamina::Tensor::from(std::vector<float>{3.0F, 4.0F}, {1, 2}, cpu);
  lamina::Tensor weight = lamina::Tensor::full({2}, 1.0, lamina::DType::f32, cpu);
  tape.watch(weight);

  const lamina::Tensor y = lamina::ops::rms_norm(x, weight, {.eps = 0.0});
  tape.backward({y}, {lamina::Tensor::full({1, 2}, 1.0, lamina::DType::f32, cpu)});

  const auto values = y.to_vector<double>();
  const double expected = 3.0 / std::sqrt(12.5);
  std::printf("rms_norm(3, 4) = %.6f, %.6f\n", values[0], values[1]);
  return std::abs(values[0] - expected) < 1e-6 && tape.grad(weight).defined() ? 0 : 1;
}
