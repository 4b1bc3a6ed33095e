#pragma once

#include <functional>

#include "lamina/nn/forward_context.h"
#include "lamina/nn/layer_cache.h"
#include "lamina/nn/mixer.h"

namespace lamina::nn {

/// Cache of a state-space layer. Its size does not depend on the number of tokens. Zeros are the initial state.
///   conv  [batch, channels, taps − 1]  last inputs of the convolution, oldest first; undefined: no convolution
///   scan  [batch, …]                   state of the recurrence, f32 or f64; undefined: no recurrence
class StateCache final : public LayerCache {
 public:
  StateCache(Tensor conv, Tensor scan) : conv_(std::move(conv)), scan_(std::move(scan)) {}

  int64_t bytes() const override;
  void reset(int64_t row) override;
  bool can_truncate() const override { return false; }
  void reorder(std::span<const int64_t> sources) override;
  std::unique_ptr<LayerCache> rows(int64_t begin, int64_t count) const override;

  /// The states in the dtypes that the operators expect. conv: the type of the convolution's input. scan: that type's
  /// accumulation type.
  Tensor conv(DType dtype) const { return conv_.to(dtype); }
  Tensor scan(DType dtype) const;
  /// Stores the new states. Copies nothing if an operator updated the state in place.
  void keep_conv(const Tensor& state) { keep(conv_, state); }
  void keep_scan(const Tensor& state) { keep(scan_, state); }

 private:
  static void keep(Tensor& own, const Tensor& state);

  Tensor conv_;
  Tensor scan_;
};

/// A recurrence x [batch, seq, d_model] → [batch, seq, width]. It reads and updates the state in `cache`; if that is
/// null, it starts from zeros.
using Recurrence = std::function<Tensor(const Tensor& x, StateCache* cache)>;

/// Runs `recurrence` so that states do not mix. Each packed document starts from zeros. Padding of ragged rows gives
/// zeros and does not change a state. Rows of pass.rows use the states in their slots of pass.memory.
Tensor run_recurrence(const Tensor& x, const ForwardContext& pass, LayerCache* cache, int64_t width,
                      const Recurrence& recurrence);

/// Dtype of the cached convolution inputs. An 8-bit cache quantizes keys and values only, never states.
inline DType state_dtype(DType cache) { return cache == DType::u8 ? DType::f32 : cache; }

/// A mixer that consists of a recurrence and an output projection.
class RecurrentMixer : public Mixer {
 public:
  Tensor forward(const Tensor& x, ForwardContext& pass, LayerCache* cache) final;

 protected:
  /// [batch, seq, d_model] → [batch, seq, inner_width()].
  virtual Tensor scan(const Tensor& x, const ForwardContext& pass, StateCache* states) const = 0;
  /// scan() for a single position, with cached states.
  virtual Tensor step(const Tensor& x, const ForwardContext& pass, StateCache& states) const = 0;
  virtual int64_t inner_width() const = 0;
  /// [batch, seq, inner_width()] → [batch, seq, d_model].
  virtual Tensor project(const Tensor& y) const = 0;
};

}  // namespace lamina::nn
