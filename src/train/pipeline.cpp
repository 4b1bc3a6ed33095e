#include "lamina/train/pipeline.h"

#include <algorithm>

namespace lamina::train {
namespace {

/// Sends residual streams forward and their gradients backward between neighbouring stages. Messages that could wait
/// for each other are one grouped call, which prevents a deadlock.
class StageLinks {
 public:
  explicit StageLinks(comm::Communicator* stages) : stages_(stages) {}

  bool is_first() const { return stages_ == nullptr || stages_->rank() == 0; }
  bool is_last() const { return stages_ == nullptr || stages_->rank() + 1 == stages_->size(); }

  /// Sends and receives up to four tensors. An undefined one is skipped.
  void move(const Tensor& to_next, const Tensor& from_next, const Tensor& to_previous, const Tensor& from_previous) {
    std::vector<comm::Message> sends;
    std::vector<comm::Message> receives;
    const auto add = [](std::vector<comm::Message>& messages, int peer, const Tensor& tensor) {
      if (tensor.defined()) messages.push_back({peer, tensor});
    };
    const int own = stages_ == nullptr ? 0 : stages_->rank();
    add(sends, own + 1, to_next);
    add(sends, own - 1, to_previous);
    add(receives, own + 1, from_next);
    add(receives, own - 1, from_previous);
    if (!sends.empty() || !receives.empty()) stages_->exchange(sends, receives, {.label = "pipeline"});
  }

 private:
  comm::Communicator* stages_;
};

}  // namespace

int64_t passes_in_flight(const arch::PipelineStage& stage, int64_t passes) {
  return std::min<int64_t>(passes, stage.count - stage.index);
}

void run_one_forward_one_backward(comm::Communicator* stages, const StagePasses& passes) {
  StageLinks links(stages);
  const int64_t later = stages == nullptr ? 0 : stages->size() - 1 - stages->rank();
  const int64_t ahead = std::min(later, passes.count);  // number of forwards before the first backward
  const auto input = [&](int64_t pass) {
    return links.is_first() || pass >= passes.count ? Tensor() : passes.states(pass);
  };
  const auto gradient = [&](int64_t pass) { return links.is_last() ? Tensor() : passes.states(pass); };
  const auto sent = [](const Tensor& x) { return x.defined() ? x.detach().contiguous() : x; };

  for (int64_t i = 0; i < ahead; ++i) {
    const Tensor x = input(i);
    links.move({}, {}, {}, x);
    links.move(sent(passes.forward({i}, x)), {}, {}, {});
  }
  Tensor x = input(ahead);
  links.move({}, {}, {}, x);
  for (int64_t i = ahead; i < passes.count; ++i) {
    const Tensor y = sent(passes.forward({i}, x));
    const Tensor dy = gradient(i - ahead);
    links.move(y, dy, {}, {});
    const Tensor dx = sent(passes.backward({i - ahead}, dy));
    x = input(i + 1);
    links.move({}, {}, dx, x);
  }
  for (int64_t i = std::max<int64_t>(passes.count - ahead, 0); i < passes.count; ++i) {
    const Tensor dy = gradient(i);
    links.move({}, dy, {}, {});
    links.move({}, {}, sent(passes.backward({i}, dy)), {});
  }
}

namespace {

/// Runs `stage` for every chunk, with the states from the previous stage, and sends its result to the next one.
Tensor one_forward(nn::Model& model, comm::Communicator* stages, const Tensor& ids, nn::RunOptions run,
                   const std::function<Tensor(const Tensor& states, const nn::RunOptions& run)>& stage) {
  const arch::PipelineStage& own = model.stage();
  const auto move = [&](const std::vector<comm::Message>& sends, const std::vector<comm::Message>& receives) {
    stages->exchange(sends, receives, {.label = "pipeline"});
  };
  for (run.chunk = 0; run.chunk < own.chunks; ++run.chunk) {
    Tensor x;
    if (!own.is_first() || run.chunk > 0) {
      x = Tensor::empty(model.states_shape(ids.dim(0), ids.dim(1)), model.dtype(), ids.device());
      move({}, {{(own.index + own.count - 1) % own.count, x}});
    }
    const Tensor y = stage(x, run);
    if (own.is_last() && run.chunk + 1 == own.chunks) return y;
    move({{(own.index + 1) % own.count, y.detach().contiguous()}}, {});
  }
  return {};
}

}  // namespace

Tensor staged_hidden(nn::Model& model, comm::Communicator* stages, const Tensor& ids, const nn::RunOptions& run) {
  return one_forward(model, stages, ids, run, [&](const Tensor& states, const nn::RunOptions& of_chunk) {
    return model.stage_hidden(ids, states, of_chunk);
  });
}

Tensor staged_cross_entropy(nn::Model& model, comm::Communicator* stages, const Tensor& ids, const Tensor& targets,
                            const nn::RunOptions& run) {
  return one_forward(model, stages, ids, run, [&](const Tensor& states, const nn::RunOptions& of_chunk) {
    const nn::StageOutput output = model.stage_loss(ids, states, targets, {}, of_chunk);
    return output.states.defined() ? output.states : output.loss.cross_entropy;
  });
}

}  // namespace lamina::train
