// One operator and its gradient.
#include <lamina/lamina.h>

#include <cmath>
#include <iostream>

int main() {
  const lamina::Device cpu = lamina::Device::cpu();
  lamina::Tape tape;
  lamina::Tensor x = lamina::Tensor::from(std::vector<float>{3.0F, 4.0F}, {1, 2}, cpu);
  lamina::Tensor weight = lamina::Tensor::full({2}, 1.0, lamina::DType::f32, cpu);
  tape.watch(weight);

  const lamina::Tensor y = lamina::ops::rms_norm(x, weight, {.eps = 0.0});
  tape.backward(lamina::ops::sum(y));

  // The gradient of Σ x / rms(x) · weight with respect to weight is x / rms(x): the output itself.
  const std::vector<double> values = y.to_vector<double>();
  const std::vector<double> gradient = tape.grad(weight).to_vector<double>();
  std::cout << "rms_norm(3, 4) = " << values[0] << ", " << values[1] << "; gradient of the weight: " << gradient[0]
            << ", " << gradient[1] << '\n';
  return std::abs(values[0] - 3.0 / std::sqrt(12.5)) < 1e-6 && std::abs(gradient[1] - values[1]) < 1e-6 ? 0 : 1;
}
