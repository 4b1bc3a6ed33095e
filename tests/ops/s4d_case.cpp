#include <complex>

#include "lamina/ops/ssm/long_conv.h"
#include "lamina/ops/ssm/s4d.h"
#include "support/op_case.h"

namespace lamina::testing {
namespace {

/// A complex number whose S may be a differentiable scalar (Rev).
template <class S>
struct Pair {
  S re, im;
  friend Pair operator*(const Pair& a, const Pair& b) { return {a.re * b.re - a.im * b.im, a.re * b.im + a.im * b.re}; }
};

template <class S>
Pair<S> complex_exp(const Pair<S>& w) {
  using std::cos;
  using std::exp;
  using std::sin;
  const S size = exp(w.re);
  return {size * cos(w.im), size * sin(w.im)};
}

/// z and c' of mode i. Inputs log_dt, a_real_log, a_imag, c start at index `first`.
template <class S>
void discretise(const Arrays<S>& in, size_t first, int64_t n, int64_t i, Pair<S>& z, Pair<S>& gain) {
  using std::exp;
  const S dt = exp(in[first][i / n]);
  const Pair<S> a{-exp(in[first + 1][i]), in[first + 2][i]};
  const Pair<S> c{in[first + 3][2 * i], in[first + 3][2 * i + 1]};
  z = complex_exp(Pair<S>{a.re * dt, a.im * dt});
  const S square = a.re * a.re + a.im * a.im;
  const Pair<S> inverse{a.re / square, -a.im / square};
  gain = c * Pair<S>{z.re - S(1), z.im} * inverse;
}

std::vector<Input> parameter_inputs(int64_t channels, int64_t n) {
  return {{.shape = {channels}, .low = -4, .high = -1},
          {.shape = {channels, n}, .low = -1, .high = 0.5},
          {.shape = {channels, n}, .low = 0, .high = 6},
          {.shape = {channels, n, 2}}};
}

struct S4dKernelCase {
  static constexpr const char* name = "s4d_kernel";
  struct Params {
    int64_t channels;
    int64_t n;
    int64_t length;
  };
  static std::vector<Params> sweep() {
    return {{3, 4, 7}, {1, 1, 1}, {0, 2, 5}, {2, 3, 0}, {2, 0, 5}, {1, 3, 150}, {5, 2, 65}, {1, 1, 1100}};
  }
  static std::vector<Params> bench() { return {{512, 32, 4096}}; }
  static std::string describe(const Params& p) { return str(p.channels, " channels, n ", p.n, ", length ", p.length); }
  static std::vector<Input> inputs(const Params& p) { return parameter_inputs(p.channels, p.n); }
  static std::vector<Tensor> run(const Params& p, const std::vector<Tensor>& in) {
    return {ops::s4d_kernel({in[0], in[1], in[2], in[3]}, p.length)};
  }
  template <class S>
  static Arrays<S> oracle(const Params& p, const Arrays<S>& in) {
    Array<S> kernel({p.channels, p.length});
    for (int64_t i = 0; i < p.channels * p.n; ++i) {
      Pair<S> z, power;
      discretise(in, 0, p.n, i, z, power);
      for (int64_t l = 0; l < p.length; ++l) {
        kernel[i / p.n * p.length + l] += S(2) * power.re;
        power = power * z;
      }
    }
    return {kernel};
  }
};
LAMINA_OP_CASE(S4dKernelCase);

struct S4dRecurrenceCase {
  static constexpr const char* name = "s4d_recurrence";
  struct Params {
    int64_t batch;
    int64_t seq;
    int64_t channels;
    int64_t n;
    bool d = false;
    bool state = false;
  };
  static std::vector<Params> sweep() {
    return {{2, 5, 3, 4, true, true},   {1, 1, 1, 1},
            {0, 3, 2, 2, true, true},   {2, 0, 3, 2, true, true},
            {1, 70, 2, 2, false, true}, {1, 9, 19, 3, true, false},
            {2, 129, 1, 1, true, true}};
  }
  static std::vector<Params> bench() { return {{2, 1024, 512, 32, true}}; }
  static std::string describe(const Params& p) {
    return str("[", p.batch, ",", p.seq, ",", p.channels, "] n ", p.n, p.d ? " d" : "", p.state ? " state" : "");
  }
  static std::vector<Input> inputs(const Params& p) {
    std::vector<Input> all = parameter_inputs(p.channels, p.n);
    all.insert(all.begin(), {.shape = {p.batch, p.seq, p.channels}});
    all.push_back(p.d ? Input{.shape = {p.channels}} : absent());
    all.push_back(p.state ? Input{.shape = {p.batch, p.channels, p.n, 2}} : absent());
    return all;
  }
  static std::vector<Tensor> run(const Params&, const std::vector<Tensor>& in) {
    const auto out = ops::s4d_recurrence(in[0], {in[1], in[2], in[3], in[4]}, in[5], in[6]);
    return {out.y, out.last_state};
  }
  template <class S>
  static Arrays<S> oracle(const Params& p, const Arrays<S>& in) {
    Array<S> y({p.batch, p.seq, p.channels});
    Array<S> last({p.batch, p.channels, p.n, 2});
    if (p.state) last.values = in[6].values;
    for (int64_t b = 0; b < p.batch; ++b) {
      for (int64_t t = 0; t < p.seq; ++t) {
        for (int64_t c = 0; c < p.channels; ++c) {
          const int64_t at = (b * p.seq + t) * p.channels + c;
          y[at] = p.d ? in[5][c] * in[0][at] : S(0);
        }
      }
      for (int64_t i = 0; i < p.channels * p.n; ++i) {
        Pair<S> z, gain;
        discretise(in, 1, p.n, i, z, gain);
        S* state = &last[(b * p.channels * p.n + i) * 2];
        Pair<S> x{state[0], state[1]};
        for (int64_t t = 0; t < p.seq; ++t) {
          const int64_t at = (b * p.seq + t) * p.channels + i / p.n;
          x = z * x;
          x.re += in[0][at];
          y[at] += S(2) * (gain * x).re;
        }
        state[0] = x.re;
        state[1] = x.im;
      }
    }
    return {y, last};
  }
};
LAMINA_OP_CASE(S4dRecurrenceCase);

struct LongConvCase {
  static constexpr const char* name = "long_conv";
  struct Params {
    int64_t batch;
    int64_t seq;
    int64_t channels;
    int64_t taps;
    bool d = false;
  };
  static std::vector<Params> sweep() {
    return {{2, 5, 3, 5, true},  {1, 1, 1, 1},   {0, 4, 2, 4, true},  {2, 0, 3, 4, true}, {1, 20, 17, 7},
            {2, 9, 4, 30, true}, {1, 70, 2, 70}, {10, 8, 1, 8, true}, {1, 6, 3, 0, true}};
  }
  static std::vector<Params> bench() { return {{2, 1024, 256, 1024, true}}; }
  static std::string describe(const Params& p) {
    return str("[", p.batch, ",", p.seq, ",", p.channels, "] taps ", p.taps, p.d ? " d" : "");
  }
  static std::vector<Input> inputs(const Params& p) {
    return {{.shape = {p.batch, p.seq, p.channels}},
            {.shape = {p.channels, p.taps}},
            p.d ? Input{.shape = {p.channels}} : absent()};
  }
  static std::vector<Tensor> run(const Params&, const std::vector<Tensor>& in) {
    return {ops::long_conv(in[0], in[1], in[2])};
  }
  template <class S>
  static Arrays<S> oracle(const Params& p, const Arrays<S>& in) {
    Array<S> y({p.batch, p.seq, p.channels});
    for (int64_t i = 0; i < y.numel(); ++i) {
      const int64_t t = i / p.channels % p.seq;
      const int64_t c = i % p.channels;
      S sum = p.d ? in[2][c] * in[0][i] : S(0);
      for (int64_t s = 0; s <= t && s < p.taps; ++s) sum += in[1][c * p.taps + s] * in[0][i - s * p.channels];
      y[i] = sum;
    }
    return {y};
  }
};
LAMINA_OP_CASE(LongConvCase);

}  // namespace
}  // namespace lamina::testing
