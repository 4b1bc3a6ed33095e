#pragma once

#include "lamina/train/parameter_groups.h"
#include "parallel/parallel_support.h"

namespace lamina::testing {

/// Loss and gradients by name of the first update of a model in f64.
struct First {
  double loss = 0;
  double norm = 0;
  std::map<std::string, std::vector<double>> gradients;
};

/// One backward pass over the whole batch for each pass of the update, without any of the code under test.
inline First single_device(const train::Recipe& recipe) {
  nn::Model model(recipe.architecture, Device::cpu(1), {.dtype = DType::f64, .seed = 3});
  Tape tape;
  watch_all(model, tape);
  const double share = 1.0 / static_cast<double>(recipe.accumulation);
  First first;
  for (int64_t pass = 0; pass < recipe.accumulation; ++pass) {
    const data::Batch batch = batch_of(recipe, pass);
    nn::RunOptions run{.training = true,
                       .dropout = {recipe.dropout.embedding, recipe.dropout.attention, recipe.dropout.residual},
                       .seed = static_cast<uint64_t>(recipe.seed),
                       .step = static_cast<uint64_t>(pass)};
    if (!batch.document_starts.empty()) {
      const auto count = static_cast<int64_t>(batch.document_starts.size());
      run.document_starts = Tensor::from(batch.document_starts, {count}, model.device());
    }
    if (batch.source_length > 0) {
      run.source = Tensor::from(batch.source, {batch.rows, batch.source_length}, model.device());
    }
    const Tensor total = model
                             .loss(Tensor::from(batch.ids, {batch.rows, batch.length}, model.device()),
                                   Tensor::from(batch.targets, {batch.rows, batch.length}, model.device()),
                                   {.label_smoothing = recipe.label_smoothing, .z_loss = recipe.z_loss}, run)
                             .total;
    first.loss += share * total.item();
    tape.backward({total}, {Tensor::full(total.shape(), share, total.dtype(), total.device())});
  }
  double squares = 0;
  for (const NamedTensor& parameter : train::distinct_parameters(model)) {
    const Tensor gradient = tape.grad(parameter.tensor);
    std::vector<double>& values = first.gradients[parameter.name];
    values.assign(static_cast<size_t>(parameter.tensor.numel()), 0.0);
    if (gradient.defined()) values = gradient.to_vector<double>();
    for (const double value : values) squares += value * value;
  }
  first.norm = std::sqrt(squares);
  return first;
}

/// Loss and gradients of ParallelUpdate on the ranks of `recipe.layout`, gathered from ranks that hold parts.
inline First on_ranks(const train::Recipe& recipe, comm::Communicator& c) {
  const std::shared_ptr<comm::Communicator> own(&c, [](comm::Communicator*) {});
  const train::RankGroups groups = train::rank_groups(recipe.layout, Device::cpu(1), own);
  nn::ModelOptions options = groups.model_options(DType::f64, 3);
  const auto divided = train::divide_weights(recipe, groups, options);
  nn::Model model(recipe.architecture, Device::cpu(1), options);
  Tape tape;
  watch_all(model, tape);
  train::ParallelUpdate update(model, tape, recipe, groups, divided);
  First first;
  first.loss = update.run_passes(0, [&](int64_t pass) { return batch_of(recipe, pass); });
  first.norm = update.norm();
  const auto optimizer = update.make_optimizer();
  const std::vector<Tensor> grads = update.gradients(*optimizer);
  std::map<std::string, Tensor> by_name;
  for (size_t i = 0; i < grads.size(); ++i) by_name[optimizer->names()[i]] = grads[i];
  if (divided) {
    for (const NamedTensor& parameter : train::distinct_parameters(model)) {
      Tensor& gradient = by_name[parameter.name];
      const Tensor piece = divided->piece(parameter.name);
      if (!gradient.defined() && piece.defined()) gradient = Tensor::zeros(piece.shape(), DType::f64, Device::cpu(1));
      gradient = update.undivided(parameter.name, gradient, DType::f64);
    }
  }
  const train::ShardedWeights* sharded = update.sharded();
  for (const NamedTensor& parameter : train::distinct_parameters(sharded ? sharded->whole_model() : model)) {
    Tensor gradient = by_name[parameter.name];
    if (!gradient.defined() && (!sharded || sharded->holds(parameter.name))) {
      gradient = Tensor::zeros(parameter.tensor.shape(), DType::f64, Device::cpu(1));
      if (sharded) gradient = sharded->own_part(parameter.name, gradient);
    }
    if (sharded) gradient = sharded->gather(parameter.name, gradient, DType::f64);
    first.gradients[parameter.name] = gradient.to_vector<double>();
  }
  return first;
}

inline void compare(const train::Recipe& recipe, const First& expected, const std::string& what) {
  comm::run_local_ranks(static_cast<int>(recipe.layout.ranks()), [&](comm::Communicator& c) {
    const First got = on_ranks(recipe, c);
    EXPECT_NEAR(got.loss, expected.loss, 1e-12) << what;
    EXPECT_NEAR(got.norm, expected.norm, 1e-12) << what;
    ASSERT_EQ(got.gradients.size(), expected.gradients.size()) << what;
    for (const auto& [name, values] : expected.gradients) {
      EXPECT_LE(largest_error(got.gradients.at(name), values), 1e-12)
          << what << ": " << name << " on rank " << c.rank();
    }
  });
}

}  // namespace lamina::testing
