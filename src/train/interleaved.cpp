#include "lamina/train/interleaved.h"

#include <algorithm>
#include <map>
#include <set>
#include <tuple>

namespace lamina::train {
namespace {

using Kind = StageTick::Kind;

/// Computes the schedule by simulation: in each tick a stage runs at most one pass, as soon as its input is available.
class Simulation {
 public:
  Simulation(int stages, int chunks, int64_t passes) : stages_(stages), chunks_(chunks) {
    for (int64_t first = 0; first < passes; first += stages) {
      const int64_t end = std::min<int64_t>(first + stages, passes);
      for (int chunk = 0; chunk < chunks; ++chunk) {
        for (int64_t pass = first; pass < end; ++pass) {
          forwards_.push_back({pass, chunk});
          backwards_.push_back({pass, chunks - 1 - chunk});
        }
      }
    }
    next_forward_.resize(static_cast<size_t>(stages));
    next_backward_.resize(static_cast<size_t>(stages));
  }

  std::vector<std::vector<StageTick>> run() {
    std::vector<std::vector<StageTick>> ticks;
    while (std::any_of(next_backward_.begin(), next_backward_.end(),
                       [&](size_t next) { return next < backwards_.size(); })) {
      const auto idle = [](const StageTick& one) { return one.kind == Kind::idle; };
      std::vector<StageTick> tick = next_tick(Freedom::none);
      // If the last group has fewer passes than stages, the strict order can leave every stage waiting. Then relax it.
      for (const Freedom more : {Freedom::backward, Freedom::forward}) {
        if (std::all_of(tick.begin(), tick.end(), idle)) tick = next_tick(more);
      }
      for (int stage = 0; stage < stages_; ++stage) finish(stage, tick[static_cast<size_t>(stage)]);
      ticks.push_back(std::move(tick));
    }
    return ticks;
  }

 private:
  /// Index of a chunk in the whole model, in the order of the layers.
  int place(int stage, int chunk) const { return chunk * stages_ + stage; }

  /// Which kind of pass a stage may run earlier than the strict order allows.
  enum class Freedom : uint8_t { none, backward, forward };

  std::vector<StageTick> next_tick(Freedom freedom) const {
    std::vector<StageTick> tick(static_cast<size_t>(stages_));
    for (int stage = 0; stage < stages_; ++stage) {
      const size_t forward = next_forward_[static_cast<size_t>(stage)];
      const size_t backward = next_backward_[static_cast<size_t>(stage)];
      const bool can_forward = forward < forwards_.size() && has_input(stage, forwards_[forward]);
      const bool can_backward = backward < backwards_.size() && has_gradient(stage, backwards_[backward]);
      // Warm-up forwards first, then forward and backward in turn, then the remaining backwards.
      const auto ahead = static_cast<size_t>(2 * (stages_ - 1 - stage) + (chunks_ - 1) * stages_);
      const bool wants_forward = forward < forwards_.size() && forward - backward <= ahead;
      StageTick& own = tick[static_cast<size_t>(stage)];
      if (can_forward && (wants_forward || (freedom == Freedom::forward && !can_backward))) {
        own = {Kind::forward, forwards_[forward]};
      } else if (can_backward && (!wants_forward || freedom != Freedom::none)) {
        own = {Kind::backward, backwards_[backward]};
      }
    }
    return tick;
  }

  bool has_input(int stage, const StagePass& at) const {
    const int own = place(stage, at.chunk);
    return own == 0 || done_.contains({Kind::forward, at.pass, own - 1});
  }
  bool has_gradient(int stage, const StagePass& at) const {
    const int own = place(stage, at.chunk);
    const bool last = own + 1 == stages_ * chunks_;
    return done_.contains({Kind::forward, at.pass, own}) &&
           (last || done_.contains({Kind::backward, at.pass, own + 1}));
  }
  void finish(int stage, const StageTick& tick) {
    if (tick.kind == Kind::idle) return;
    done_.insert({tick.kind, tick.at.pass, place(stage, tick.at.chunk)});
    ++(tick.kind == Kind::forward ? next_forward_ : next_backward_)[static_cast<size_t>(stage)];
  }

  int stages_;
  int chunks_;
  std::vector<StagePass> forwards_;  ///< order of forwards, the same on every stage
  std::vector<StagePass> backwards_;
  std::vector<size_t> next_forward_;  ///< per stage
  std::vector<size_t> next_backward_;
  std::set<std::tuple<Kind, int64_t, int>> done_;  ///< (kind, pass, place)
};

}  // namespace

std::vector<std::vector<StageTick>> interleaved_schedule(int stages, int chunks, int64_t passes) {
  return Simulation(stages, chunks, passes).run();
}

void run_interleaved(comm::Communicator& stages, int chunks, const StagePasses& passes) {
  const int count = stages.size();
  const int rank = stages.rank();
  const int next = (rank + 1) % count;
  const int previous = (rank + count - 1) % count;
  const int last = count * chunks - 1;
  std::map<std::pair<int64_t, int>, Tensor> inputs;  // (pass, chunk) → input
  std::map<std::pair<int64_t, int>, Tensor> gradients;
  const auto take = [](auto& from, const StagePass& at) {
    const auto found = from.find({at.pass, at.chunk});
    if (found == from.end()) return Tensor();
    Tensor taken = found->second;
    from.erase(found);
    return taken;
  };
  for (const std::vector<StageTick>& tick : interleaved_schedule(count, chunks, passes.count)) {
    const auto& [kind, at] = tick[static_cast<size_t>(rank)];
    std::vector<comm::Message> sends;
    std::vector<comm::Message> receives;
    if (kind != Kind::idle) {
      const bool forward = kind == Kind::forward;
      const Tensor result = forward ? passes.forward(at, take(inputs, at)) : passes.backward(at, take(gradients, at));
      if (result.defined()) sends.push_back({forward ? next : previous, result.detach().contiguous()});
    }
    // Receive the results that the neighbouring stages computed for this stage in the same tick.
    const StageTick& before = tick[static_cast<size_t>(previous)];
    if (const int place = before.at.chunk * count + previous; before.kind == Kind::forward && place < last) {
      Tensor& input = inputs[{before.at.pass, (place + 1) / count}] = passes.states(before.at.pass);
      receives.push_back({previous, input});
    }
    const StageTick& after = tick[static_cast<size_t>(next)];
    if (const int place = after.at.chunk * count + next; after.kind == Kind::backward && place > 0) {
      Tensor& gradient = gradients[{after.at.pass, (place - 1) / count}] = passes.states(after.at.pass);
      receives.push_back({next, gradient});
    }
    if (!sends.empty() || !receives.empty()) stages.exchange(sends, receives, {.label = "pipeline"});
  }
}

}  // namespace lamina::train
