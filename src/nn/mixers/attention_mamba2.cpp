#include "lamina/nn/mixers/attention_mamba2.h"

#include <algorithm>

#include "lamina/ops/elementwise/elementwise.h"

namespace lamina::nn {
namespace {

/// The caches of both mixers, as one.
class PairCache final : public LayerCache {
 public:
  PairCache(std::unique_ptr<LayerCache> first, std::unique_ptr<LayerCache> second)
      : first_(std::move(first)), second_(std::move(second)) {}

  int64_t bytes() const override { return first_->bytes() + second_->bytes(); }
  void reset(int64_t row) override {
    first_->reset(row);
    second_->reset(row);
  }
  bool can_truncate() const override { return first_->can_truncate() && second_->can_truncate(); }
  int64_t shortest(int64_t row) const override { return std::max(first_->shortest(row), second_->shortest(row)); }
  void reorder(std::span<const int64_t> sources) override {
    first_->reorder(sources);
    second_->reorder(sources);
  }
  std::unique_ptr<LayerCache> rows(int64_t begin, int64_t count) const override {
    return std::make_unique<PairCache>(first_->rows(begin, count), second_->rows(begin, count));
  }
  LayerCache* first() { return first_.get(); }
  LayerCache* second() { return second_.get(); }

 private:
  std::unique_ptr<LayerCache> first_;
  std::unique_ptr<LayerCache> second_;
};

Tensor times(const Tensor& x, double factor) { return factor == 1.0 ? x : ops::scale(x, factor); }

class AttentionMamba2Mixer final : public Mixer {
 public:
  AttentionMamba2Mixer(const arch::AttentionMamba2& spec, std::unique_ptr<Mixer> attention,
                       std::unique_ptr<Mixer> mamba2)
      : spec_(spec), attention_(std::move(attention)), mamba2_(std::move(mamba2)) {
    add_child("", *attention_);
    add_child("", *mamba2_);
  }

  Tensor forward(const Tensor& x, ForwardContext& pass, LayerCache* cache) override {
    auto* both = cache == nullptr ? nullptr : &dynamic_cast<PairCache&>(*cache);
    const Tensor attended =
        attention_->forward(times(x, spec_.attention_in), pass, both == nullptr ? nullptr : both->first());
    const Tensor scanned =
        mamba2_->forward(times(x, spec_.mamba2_in), pass, both == nullptr ? nullptr : both->second());
    return ops::add(times(attended, spec_.attention_out), times(scanned, spec_.mamba2_out));
  }

  CacheLayout cache_layout() const override {
    CacheLayout layout = attention_->cache_layout();
    const CacheLayout states = mamba2_->cache_layout();
    layout.conv = states.conv;
    layout.scan = states.scan;
    return layout;
  }

  std::unique_ptr<LayerCache> make_cache(int64_t batch, int64_t capacity, DType dtype,
                                         const Device& device) const override {
    return std::make_unique<PairCache>(attention_->make_cache(batch, capacity, dtype, device),
                                       mamba2_->make_cache(batch, capacity, dtype, device));
  }

 private:
  arch::AttentionMamba2 spec_;
  std::unique_ptr<Mixer> attention_;
  std::unique_ptr<Mixer> mamba2_;
};

}  // namespace

std::unique_ptr<Mixer> make_attention_mamba2(const arch::AttentionMamba2& spec, std::unique_ptr<Mixer> attention,
                                             std::unique_ptr<Mixer> mamba2) {
  return std::make_unique<AttentionMamba2Mixer>(spec, std::move(attention), std::move(mamba2));
}

}  // namespace lamina::nn
