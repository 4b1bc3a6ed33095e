#include "lamina/arch/cluster/schedule.h"

#include <algorithm>

#include "lamina/base/error.h"

namespace lamina::arch {
namespace {

/// The passes of a stage in order, without times.
std::vector<PipelinePass> stage_order(int64_t stage, int64_t stages, int64_t micro_batches, int64_t chunks) {
  const int64_t total = micro_batches * chunks;
  int64_t warm_up = stages - stage - 1;
  if (chunks > 1) warm_up = micro_batches == stages ? total : 2 * warm_up + (chunks - 1) * stages;
  warm_up = std::min(warm_up, total);
  const auto pass = [&](int64_t index, bool forward) {
    const int64_t group = index / (stages * chunks);  // index of the group of `stages` micro-batches
    const int64_t chunk = chunks > 1 ? index % (stages * chunks) / stages : 0;
    const int64_t micro = chunks > 1 ? group * stages + index % stages : index;
    return PipelinePass{forward, micro, forward ? chunk : chunks - 1 - chunk};
  };
  std::vector<PipelinePass> order;
  for (int64_t i = 0; i < warm_up; ++i) order.push_back(pass(i, true));
  for (int64_t i = 0; i < total; ++i) {
    if (i + warm_up < total) order.push_back(pass(i + warm_up, true));
    order.push_back(pass(i, false));
  }
  return order;
}

class PipelineSimulation {
 public:
  PipelineSimulation(const PipelineTimes& times, int64_t micro_batches, int64_t chunks)
      : times_(times),
        stages_(static_cast<int64_t>(times.forward.size())),
        micro_batches_(micro_batches),
        chunks_(chunks),
        ends_(static_cast<size_t>(2 * micro_batches * chunks * stages_), -1.0) {}

  std::vector<std::vector<PipelinePass>> run() {
    std::vector<std::vector<PipelinePass>> order;
    for (int64_t s = 0; s < stages_; ++s) order.push_back(stage_order(s, stages_, micro_batches_, chunks_));
    std::vector<size_t> next(order.size(), 0);
    for (bool progress = true; progress;) {
      progress = false;
      for (size_t s = 0; s < order.size(); ++s) {
        while (next[s] < order[s].size() && place(order[s], next[s], static_cast<int64_t>(s))) {
          ++next[s];
          progress = true;
        }
      }
    }
    for (size_t s = 0; s < order.size(); ++s) {
      LAMINA_CHECK(next[s] == order[s].size(), "pipeline schedule: stage ", s, " waits forever; please report it");
    }
    return order;
  }

 private:
  /// End time of a micro-batch's pass through a chunk of the whole model; negative if it has not run.
  double& end_of(bool forward, int64_t micro_batch, int64_t chunk_of_model) {
    const int64_t chunks = chunks_ * stages_;
    return ends_[static_cast<size_t>(((forward ? 0 : 1) * micro_batches_ + micro_batch) * chunks + chunk_of_model)];
  }

  bool place(std::vector<PipelinePass>& order, size_t index, int64_t stage) {
    PipelinePass& pass = order[index];
    const int64_t chunk = pass.chunk * stages_ + stage;
    const int64_t last = chunks_ * stages_ - 1;
    double ready = 0;
    if (pass.forward && chunk > 0) {
      ready = end_of(true, pass.micro_batch, chunk - 1);
    } else if (!pass.forward) {
      ready = chunk == last ? end_of(true, pass.micro_batch, last) : end_of(false, pass.micro_batch, chunk + 1);
    }
    if (ready < 0) return false;
    const bool received = pass.forward ? chunk > 0 : chunk < last;
    if (received && stages_ > 1) ready += times_.send;
    pass.start = std::max(ready, index > 0 ? order[index - 1].end : 0.0);
    const auto s = static_cast<size_t>(stage);
    pass.end = pass.start + (pass.forward ? times_.forward[s] : times_.backward[s]);
    end_of(pass.forward, pass.micro_batch, chunk) = pass.end;
    return true;
  }

  const PipelineTimes& times_;
  int64_t stages_;
  int64_t micro_batches_;
  int64_t chunks_;
  std::vector<double> ends_;
};

}  // namespace

std::vector<std::vector<PipelinePass>> simulate_pipeline(const PipelineTimes& times, int64_t micro_batches,
                                                         int64_t chunks) {
  const auto stages = static_cast<int64_t>(times.forward.size());
  LAMINA_CHECK(stages >= 1 && times.backward.size() == times.forward.size() && micro_batches >= 1 && chunks >= 1,
               "pipeline schedule of ", stages, " stages, ", micro_batches, " micro-batches and ", chunks,
               " chunks; expected 1 or more of each, and a time per stage");
  LAMINA_CHECK(chunks == 1 || micro_batches % stages == 0, "an interleaved schedule of ", micro_batches,
               " micro-batches; expected a multiple of the ", stages, " stages");
  return PipelineSimulation(times, micro_batches, chunks).run();
}

}  // namespace lamina::arch
