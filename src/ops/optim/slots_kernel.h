#pragma once

#include "lamina/ops/optim/slots.h"

namespace lamina::ops {

/// Checks shapes, dtypes, device and hyperparameters of slot `index`, and makes the gradient contiguous.
void check_slot(const char* op, size_t index, ParamSlot& slot);
/// Checks a state tensor such as a momentum: param's shape, accumulation type, contiguous.
void check_slot_state(const char* op, size_t index, const char* name, const Tensor& state, const ParamSlot& slot);
/// Calls mark_written() of param and master, which throws if they must not be written now.
void mark_slot_written(const char* op, const ParamSlot& slot);
/// Checks that the hyperparameter `value` is in [0, 1).
void check_fraction(const char* op, const char* name, double value);
void check_not_negative(const char* op, const char* name, double value);

/// Bytes read and written by an update with `states` state tensors.
int64_t slot_bytes(const ParamSlot& slot, int64_t states);

/// Views many tensors as one long array and splits it into chunks of kSize elements. The division depends only on the
/// sizes of the tensors, not on the number of threads.
class Chunks {
 public:
  static constexpr int64_t kSize = 65536;

  explicit Chunks(const std::vector<int64_t>& sizes) : sizes_(sizes) {
    for (const int64_t size : sizes) {
      starts_.push_back(end_);
      end_ += (size + kAlign - 1) / kAlign * kAlign;
    }
  }

  int64_t count() const { return (end_ + kSize - 1) / kSize; }

  /// Calls body(tensor, begin, end) for every piece of a tensor within `chunk`, in order.
  template <class F>
  void each_piece(int64_t chunk, const F& body) const {
    int64_t at = chunk * kSize;
    const int64_t stop = std::min(end_, at + kSize);
    auto index = static_cast<size_t>(std::upper_bound(starts_.begin(), starts_.end(), at) - starts_.begin()) - 1;
    for (; at < stop; ++index) {
      const int64_t begin = at - starts_[index];
      const int64_t end = std::min(sizes_[index], stop - starts_[index]);
      if (begin < end) body(index, begin, end);
      at = index + 1 < starts_.size() ? std::max(at, starts_[index + 1]) : stop;
    }
  }

  template <class F>
  void run(const Threads& threads, const F& body) const {
    threads.tasks(count(), [&](int64_t chunk) { each_piece(chunk, body); });
  }

 private:
  static constexpr int64_t kAlign = 64;  // each tensor starts at a whole cache line
  std::vector<int64_t> sizes_;
  std::vector<int64_t> starts_;
  int64_t end_ = 0;
};

}  // namespace lamina::ops
