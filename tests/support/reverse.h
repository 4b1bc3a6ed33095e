#pragma once

#include <cmath>
#include <cstdint>
#include <type_traits>
#include <vector>

namespace lamina::testing {

/// Scalar reverse-mode differentiation. An oracle written once as plain loops also gives its exact gradient (S =
/// double) and the gradient of a naive f32 implementation (S = float).
template <class S>
class ScalarTape {
 public:
  struct Step {
    int32_t a, b;
    S da, db;
  };
  int32_t push(int32_t a, S da, int32_t b, S db) {
    steps_.push_back({a, b, da, db});
    return static_cast<int32_t>(steps_.size()) - 1;
  }
  std::vector<S> gradients(const std::vector<int32_t>& outputs, const std::vector<S>& seeds) const {
    std::vector<S> grad(steps_.size(), S{0});
    for (size_t i = 0; i < outputs.size(); ++i) {
      if (outputs[i] >= 0) grad[static_cast<size_t>(outputs[i])] += seeds[i];
    }
    for (size_t i = steps_.size(); i-- > 0;) {
      const Step& step = steps_[i];
      if (grad[i] == S{0}) continue;
      if (step.a >= 0) grad[static_cast<size_t>(step.a)] += grad[i] * step.da;
      if (step.b >= 0) grad[static_cast<size_t>(step.b)] += grad[i] * step.db;
    }
    return grad;
  }
  void clear() { steps_.clear(); }

  static ScalarTape& current() {
    static ScalarTape tape;  // oracles run one at a time
    return tape;
  }

 private:
  std::vector<Step> steps_;
};

template <class S>
struct Rev {
  S value{};
  int32_t node = -1;

  Rev() = default;
  Rev(S v) : value(v) {}  // NOLINT(google-explicit-constructor): oracles mix constants with variables
  template <class N, class = std::enable_if_t<std::is_arithmetic_v<N> && !std::is_same_v<N, S>>>
  Rev(N v) : value(static_cast<S>(v)) {}  // NOLINT(google-explicit-constructor)

  static Rev variable(S v) {
    Rev r(v);
    r.node = ScalarTape<S>::current().push(-1, S{0}, -1, S{0});
    return r;
  }
  static Rev result(S v, const Rev& a, S da) { return result(v, a, da, Rev(), S{0}); }
  static Rev result(S v, const Rev& a, S da, const Rev& b, S db) {
    Rev r(v);
    if (a.node >= 0 || b.node >= 0) r.node = ScalarTape<S>::current().push(a.node, da, b.node, db);
    return r;
  }

  friend Rev operator+(const Rev& a, const Rev& b) { return result(a.value + b.value, a, S{1}, b, S{1}); }
  friend Rev operator-(const Rev& a, const Rev& b) { return result(a.value - b.value, a, S{1}, b, S{-1}); }
  friend Rev operator*(const Rev& a, const Rev& b) { return result(a.value * b.value, a, b.value, b, a.value); }
  friend Rev operator/(const Rev& a, const Rev& b) {
    return result(a.value / b.value, a, S{1} / b.value, b, -a.value / (b.value * b.value));
  }
  friend Rev operator-(const Rev& a) { return result(-a.value, a, S{-1}); }
  Rev& operator+=(const Rev& b) { return *this = *this + b; }
  Rev& operator-=(const Rev& b) { return *this = *this - b; }
  Rev& operator*=(const Rev& b) { return *this = *this * b; }
  Rev& operator/=(const Rev& b) { return *this = *this / b; }
  friend bool operator<(const Rev& a, const Rev& b) { return a.value < b.value; }
  friend bool operator>(const Rev& a, const Rev& b) { return a.value > b.value; }
  friend bool operator<=(const Rev& a, const Rev& b) { return a.value <= b.value; }
  friend bool operator>=(const Rev& a, const Rev& b) { return a.value >= b.value; }

  friend Rev sqrt(const Rev& a) {
    const S v = std::sqrt(a.value);
    return result(v, a, S{0.5} / v);
  }
  friend Rev exp(const Rev& a) {
    const S v = std::exp(a.value);
    return result(v, a, v);
  }
  friend Rev expm1(const Rev& a) { return result(std::expm1(a.value), a, std::exp(a.value)); }
  friend Rev log(const Rev& a) { return result(std::log(a.value), a, S{1} / a.value); }
  friend Rev log1p(const Rev& a) { return result(std::log1p(a.value), a, S{1} / (S{1} + a.value)); }
  friend Rev tanh(const Rev& a) {
    const S v = std::tanh(a.value);
    return result(v, a, S{1} - v * v);
  }
  friend Rev erf(const Rev& a) {
    return result(std::erf(a.value), a, S(1.1283791670955126) * std::exp(-a.value * a.value));
  }
  friend Rev sin(const Rev& a) { return result(std::sin(a.value), a, std::cos(a.value)); }
  friend Rev cos(const Rev& a) { return result(std::cos(a.value), a, -std::sin(a.value)); }
  friend Rev abs(const Rev& a) { return result(std::abs(a.value), a, a.value < 0 ? S{-1} : S{1}); }
};

/// The plain number, without its derivative: for comparisons, maxima and index decisions in oracles.
inline double value_of(float v) { return v; }
inline double value_of(double v) { return v; }
template <class S>
double value_of(const Rev<S>& v) {
  return static_cast<double>(v.value);
}

}  // namespace lamina::testing
