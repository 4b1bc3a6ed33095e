#include "lamina/train/gradient_reducer.h"

#include <algorithm>
#include <bit>
#include <utility>

#include "lamina/autograd/leaf_hook.h"

namespace lamina::train {

GradientReducer::GradientReducer(Tape& tape, NamedTensors parameters, const ShardPlan& plan,
                                 comm::Communicator& communicator, ReducerOptions options)
    : tape_(tape),
      parameters_(std::move(parameters)),
      plan_(plan),
      communicator_(communicator),
      options_(options),
      seen_(parameters_.size()),
      defined_(parameters_.size()),
      partial_(parameters_.size()),
      complete_(parameters_.size()) {
  for (size_t i = 0; i < parameters_.size(); ++i) {
    set_leaf_hook(parameters_[i].tensor, [this, i] { ready(i); });
  }
  LAMINA_CHECK(!options_.bf16 || !options_.ordered, "gradients: sums in bf16 cannot be ordered; choose one");
  if (communicator_.size() == 1) return;
  for (const Bucket& bucket : plan_.buckets()) {
    const Tensor& first = parameters_[bucket.parameters[0]].tensor;
    const DType type = travel_type(first);
    // With scatter, fill() allocates a bucket's buffer, only while the bucket is being reduced.
    const bool later = options_.scatter || is_gradient(bucket);
    buffers_.push_back(later ? Tensor() : Tensor::empty({bucket.elements}, type, first.device()));
    if (!options_.scatter) continue;
    const int64_t own = bucket.counts[static_cast<size_t>(communicator_.rank())];
    own_.push_back(Tensor::empty({own}, accumulation_type(first.dtype()), first.device()));
    own_in_bf16_.push_back(options_.bf16 ? Tensor::empty({own}, type, first.device()) : Tensor());
  }
  if (!options_.before_ranks && options_.overlaps_backward) thread_ = std::thread([this] { work(); });
}

GradientReducer::~GradientReducer() {
  for (const NamedTensor& parameter : parameters_) set_leaf_hook(parameter.tensor, {});
  {
    const std::lock_guard lock(mutex_);
    ending_ = true;
  }
  changed_.notify_all();
  if (thread_.joinable()) thread_.join();
}

void GradientReducer::start(int64_t count) {
  count_ = count;
  std::fill(defined_.begin(), defined_.end(), false);
  for (auto& sums : partial_) sums.clear();
  std::fill(complete_.begin(), complete_.end(), Tensor());
  for (size_t i = 0; i < buffers_.size(); ++i) {
    if (is_gradient(plan_.buckets()[i])) buffers_[i] = Tensor();
  }
  const std::lock_guard lock(mutex_);
  reduced_ = 0;
}

DType GradientReducer::travel_type(const Tensor& parameter) const {
  return options_.bf16 ? DType::bf16 : accumulation_type(parameter.dtype());
}

bool GradientReducer::every_micro_batch() const {
  return !buffers_.empty() && options_.scatter && !options_.overlaps_backward && !options_.ordered &&
         !options_.before_ranks;
}

void GradientReducer::arm(int64_t index, const std::vector<bool>& which) {
  index_ = index;
  for (size_t i = 0; i < seen_.size(); ++i) seen_[i] = !which.empty() && !which[i];
  left_.clear();
  for (const Bucket& bucket : plan_.buckets()) left_.push_back(bucket.parameters.size());
  sent_ = 0;
}

void GradientReducer::disarm() {
  for (size_t i = parameters_.size(); i-- > 0;) {
    ready(i);
  }
  index_ = -1;
}

void GradientReducer::ready(size_t parameter) {
  if (index_ < 0 || seen_[parameter]) return;
  seen_[parameter] = true;
  const bool last = index_ + 1 == count_;
  if (!options_.ordered && !last && !every_micro_batch()) return;  // the tape adds the next micro-batch to it
  const Tensor& leaf = parameters_[parameter].tensor;
  Tensor sum = tape_.grad(leaf);
  defined_[parameter] = defined_[parameter] || sum.defined();
  if (!sum.defined()) sum = Tensor::zeros(leaf.shape(), accumulation_type(leaf.dtype()), leaf.device());
  tape_.set_grad(leaf, Tensor());
  if (options_.ordered) {
    // A binary counter: micro-batch i completes one subtree of the sum for each trailing 1 bit of i.
    for (int level = std::countr_one(static_cast<uint64_t>(index_)); level > 0; --level) {
      sum.add_(partial_[parameter].back());
      partial_[parameter].pop_back();
    }
    if (!last) return partial_[parameter].push_back(std::move(sum));
  }
  complete(parameter, std::move(sum));
}

void GradientReducer::complete(size_t parameter, Tensor gradient) {
  complete_[parameter] = std::move(gradient);
  const size_t bucket = plan_.bucket_of(parameter);
  --left_[bucket];
  if (buffers_.empty() || options_.before_ranks) return;
  if (!options_.overlaps_backward) return left_[bucket] == 0 ? send(bucket) : void();
  // Buckets are sent in order, because all ranks must make the same calls.
  while (sent_ < left_.size() && left_[sent_] == 0) send(sent_++);
}

void GradientReducer::fill(size_t bucket) {
  const size_t first = plan_.buckets()[bucket].parameters[0];
  if (is_gradient(plan_.buckets()[bucket])) {
    buffers_[bucket] = std::exchange(complete_[first], {}).contiguous().reshape({plan_.buckets()[bucket].elements});
    return;
  }
  if (options_.scatter) {
    const Tensor& like = parameters_[first].tensor;
    buffers_[bucket] = Tensor::empty({plan_.buckets()[bucket].elements}, travel_type(like), like.device());
  }
  int64_t at = 0;
  const auto put = [&](size_t parameter, int64_t begin, int64_t count) {
    const Tensor& gradient = complete_[parameter];
    buffers_[bucket].slice(0, at, count).copy_(gradient.reshape({gradient.numel()}).slice(0, begin, count));
    at += count;
  };
  if (options_.scatter) {
    for (const Piece& piece : plan_.buckets()[bucket].pieces) put(piece.parameter, piece.begin, piece.count);
  } else {
    for (const size_t i : plan_.buckets()[bucket].parameters) put(i, 0, complete_[i].numel());
  }
  if (options_.bf16 && !options_.scatter) return;  // complete_ is needed: widen() writes the reduced sums there
  for (const size_t i : plan_.buckets()[bucket].parameters) complete_[i] = Tensor();
}

void GradientReducer::send(size_t bucket) {
  fill(bucket);
  if (!options_.overlaps_backward) return reduce(bucket);
  {
    const std::lock_guard lock(mutex_);
    queue_.push_back(bucket);
  }
  changed_.notify_all();
}

void GradientReducer::reduce(size_t bucket) {
  const comm::CallOptions options{.label = "gradients",
                                  .order = options_.ordered ? comm::Order::ordered : comm::Order::fast};
  if (!options_.scatter) return communicator_.all_reduce(buffers_[bucket], options);
  Tensor& own = own_[bucket];
  const bool adds = every_micro_batch() && index_ > 0;
  Tensor sum = own;
  if (options_.bf16) {
    sum = own_in_bf16_[bucket];
  } else if (adds) {
    sum = Tensor::empty(own.shape(), own.dtype(), own.device());
  }
  communicator_.reduce_scatter(buffers_[bucket], sum, plan_.buckets()[bucket].counts, options);
  buffers_[bucket] = Tensor();
  if (adds) {
    own.add_(sum.to(own.dtype()));
  } else if (every_micro_batch() && options_.bf16) {
    own.copy_(sum);
  }
}

void GradientReducer::widen() {
  if (!travels_in_bf16() || every_micro_batch()) return;
  for (size_t bucket = 0; bucket < buffers_.size(); ++bucket) {
    if (options_.scatter) {
      own_[bucket].copy_(own_in_bf16_[bucket]);
      continue;
    }
    int64_t at = 0;
    for (const size_t i : plan_.buckets()[bucket].parameters) {
      const Tensor& whole = complete_[i];
      whole.reshape({whole.numel()}).copy_(buffers_[bucket].slice(0, at, whole.numel()));
      at += whole.numel();
    }
  }
}

void GradientReducer::work() {
  std::unique_lock lock(mutex_);
  for (;;) {
    changed_.wait(lock, [&] { return ending_ || !queue_.empty(); });
    if (ending_) return;
    const size_t bucket = queue_.front();
    queue_.pop_front();
    const bool failed = error_ != nullptr;
    lock.unlock();
    std::exception_ptr error;
    try {
      if (!failed) reduce(bucket);
    } catch (...) {
      error = std::current_exception();
    }
    lock.lock();
    if (error) error_ = error;
    ++reduced_;
    changed_.notify_all();
  }
}

void GradientReducer::finish() {
  if (options_.before_ranks) {
    options_.before_ranks(complete_);
    for (size_t bucket = 0; bucket < buffers_.size(); ++bucket) {
      fill(bucket);
      reduce(bucket);
    }
    return widen();
  }
  if (!buffers_.empty() && options_.overlaps_backward) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return reduced_ == buffers_.size(); });
    if (error_) std::rethrow_exception(error_);
  }
  widen();
}

Tensor GradientReducer::gradient(size_t parameter) const {
  if (buffers_.empty() || options_.bf16) return complete_[parameter];
  const size_t bucket = plan_.bucket_of(parameter);
  int64_t at = 0;
  for (const size_t i : plan_.buckets()[bucket].parameters) {
    const Tensor& leaf = parameters_[i].tensor;
    if (i == parameter) return buffers_[bucket].slice(0, at, leaf.numel()).reshape(leaf.shape());
    at += leaf.numel();
  }
  return {};
}

Tensor GradientReducer::piece_gradient(size_t parameter) const {
  const Piece piece = plan_.piece_of(parameter, communicator_.rank());
  if (piece.count == 0) return {};
  if (!options_.scatter || buffers_.empty()) {
    const Tensor whole = gradient(parameter);
    return whole.reshape({whole.numel()}).slice(0, piece.begin, piece.count);
  }
  const size_t bucket = plan_.bucket_of(parameter);
  int64_t at = 0;
  for (const Piece& other : plan_.buckets()[bucket].pieces) {
    if (other.rank != communicator_.rank()) continue;
    if (other.parameter == parameter) return own_[bucket].slice(0, at, other.count);
    at += other.count;
  }
  return {};
}

}  // namespace lamina::train
