#pragma once

#include <utility>

#include "lamina/arch/weights.h"

namespace lamina::arch {

/// Collects the weights of layers and counts them with overflow checks.
class WeightList {
 public:
  /// All weights added after this call belong to `count` experts, of which a token uses `chosen`. experts(0, 0) ends
  /// that.
  void experts(int64_t count, int64_t chosen);
  /// Adds a linear layer. `division` is that of the weight [out, in], and determines that of the bias.
  void linear(const std::string& name, const std::string& component, int64_t out, int64_t in, bool bias,
              const Division& division = {});
  void norm(const std::string& name, const std::string& component, const Norm& norm, int64_t width,
            const Division& division = {});
  /// Adds a tensor that does not multiply the token.
  void table(const std::string& name, const std::string& component, std::vector<int64_t> shape,
             const Division& division = {});

  std::vector<Weight> take() { return std::move(weights_); }

 private:
  void add(std::string name, const std::string& component, std::vector<int64_t> shape, bool product, Division division);

  std::vector<Weight> weights_;
  int64_t experts_ = 0;
  int64_t chosen_ = 0;
};

/// Product and sum, with an Error on int64 overflow.
int64_t checked_product(int64_t a, int64_t b);
int64_t checked_sum(int64_t a, int64_t b);

}  // namespace lamina::arch
