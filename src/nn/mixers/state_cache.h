#pragma once

#include <functional>

#include "lamina/nn/forward_context.h"
#include "lamina/nn/layer_cache.h"
#include "lamina/nn/mixer.h"

namespace lamina::nn {

/// Cache of a state-space layer. Its size does not depend on the number of tokens; zeros are the initial state.
///   conv  [batch, channels, taps − 1]  the last inputs of the convolution, oldest first; undefined without one
///   scan  [batch, …]                   the state of the recurrence, f32 or f64; undefined without one
class StateCache final : public LayerCache {
 public:
  StateCache(Tensor conv, Tensor scan) : conv_(std::move(conv)), scan_(std::move(scan)) {}

  int64_t bytes() const override;
  void reset(int64_t row) override;
  bool can_truncate() const override { return false; }
  void reorder(std::span<const int64_t> sources) override;
  std::unique_ptr<LayerCache> rows(int64_t begin, int64_t count) const override;

  /// The states in the dtypes the operators expect: the convolution's in its input's, the recurrence's in its
  /// accumulation type.
  Tensor conv(DType dtype) const { return conv_.to(dtype); }
  Tensor scan(DType dtype) const;
  /// Stores the new states; copies nothing if an operator updated the state in place.
  void keep_conv(const Tensor& state) { keep(conv_, state); }
  void keep_scan(const Tensor& state) { keep(scan_, state); }

 private:
  static void keep(Tensor& own, const Tensor& state);

  Tensor conv_;
  Tensor scan_;
};

/// A recurrence x [batch, seq, d_model] → [batch, seq, width] that reads and updates the state in `cache`, or starts
/// from zeros if it is null.
using Recurrence = std::function<Tensor(const Tensor& x, StateCache* cache)>;

/// Runs `recurrence` with the states kept apart: packed documents each start from zeros, the padding of ragged rows
/// gives zeros and enters no state, and the rows of pass.rows use the states in their slots of pass.memory.
Tensor run_recurrence(const Tensor& x, const ForwardContext& pass, LayerCache* cache, int64_t width,
                      const Recurrence& recurrence);

/// Dtype of the cached convolution inputs. An 8-bit cache quantizes keys and values only, never states.
inline DType state_dtype(DType cache) { return cache == DType::u8 ? DType::f32 : cache; }

/// A mixer made of a recurrence and an output projection.
class RecurrentMixer : public Mixer {
 public:
  Tensor forward(const Tensor& x, ForwardContext& pass, LayerCache* cache) final;

 protected:
  /// [batch, seq, d_model] → [batch, seq, inner_width()].
  virtual Tensor scan(const Tensor& x, const ForwardContext& pass, StateCache* states) const = 0;
  /// scan() of a single position.
  virtual Tensor step(const Tensor& x, const ForwardContext& pass, StateCache& states) const = 0;
  virtual int64_t inner_width() const = 0;
  /// [batch, seq, inner_width()] → [batch, seq, d_model].
  virtual Tensor project(const Tensor& y) const = 0;
};

}  // namespace lamina::nn
