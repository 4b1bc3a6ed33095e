#include "lamina/infer/device_steps.h"

namespace lamina::infer {

DeviceSteps::DeviceSteps(nn::Model& model, nn::ModelCache& cache, const std::vector<const Sampler*>& samplers)
    : model_(model),
      cache_(cache),
      ids_(Tensor::zeros({cache.batch(), 1}, DType::i64, model.device())),
      clock_(cache.batch(), model.device()),
      readback_(model.device(), cache.batch()),
      replay_(model.device(), [this] { step(); }) {
  if (samplers.empty()) return;
  LAMINA_CHECK(static_cast<int64_t>(samplers.size()) == cache.batch(), "generate: ", samplers.size(), " samplers for ",
               cache.batch(), " rows; give one for each, or none");
  const SamplerOptions& given = samplers[0]->options();
  vocab_size_ = given.vocab_size;
  options_ = {given.temperature, given.top_k, given.top_p, given.min_p, given.seed};
  std::vector<int64_t> streams;
  std::vector<int64_t> drawn;
  for (const Sampler* sampler : samplers) {
    streams.push_back(static_cast<int64_t>(sampler->stream()));
    drawn.push_back(static_cast<int64_t>(sampler->drawn()));
  }
  streams_ = Tensor::from(streams, {cache.batch()}, model.device());
  drawn_ = Tensor::from(drawn, {cache.batch()}, model.device());
}

void DeviceSteps::step() {
  const Tensor logits = model_.step_logits(ids_, clock_, cache_);
  logits_ = logits.reshape({cache_.batch(), logits.dim(2)});
  if (!drawn_.defined()) return clock_.advance();
  const bool padded = vocab_size_ > 0 && vocab_size_ < logits_.dim(1);
  ops::sample(padded ? logits_.slice(1, 0, vocab_size_) : logits_, streams_, drawn_, ids_.reshape({cache_.batch()}),
              options_, clock_.counters());
  readback_.write(ids_);
}

void DeviceSteps::start(const std::vector<int64_t>& ids) {
  ids_.copy_(Tensor::from(ids, ids_.shape(), Device::cpu(1)));
  clock_.set(cache_.lengths());
}

void DeviceSteps::queue() {
  LAMINA_CHECK(queued() < Readback::kMost && drawn_.defined(), "generate: ", queued(),
               " steps are waiting to be read; read the chosen tokens first");
  cache_.prepare_step();
  replay_.run();
  readback_.mark();
}

std::vector<int64_t> DeviceSteps::chosen() {
  LAMINA_CHECK(queued() > 0, "generate: no step is queued");
  return readback_.wait();
}

std::vector<float> DeviceSteps::logits(const std::vector<int64_t>& ids) {
  start(ids);
  cache_.prepare_step();
  replay_.run();
  return logits_.to_vector<float>();
}

}  // namespace lamina::infer
