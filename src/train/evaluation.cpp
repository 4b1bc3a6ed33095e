#include "lamina/train/evaluation.h"

#include <algorithm>

#include "lamina/ops/embedding/embedding.h"
#include "lamina/train/pipeline.h"

namespace lamina::train {

EvaluationData evaluation_of(const data::TokenFile& file, int64_t rows, int64_t length) {
  return {.batches = data::evaluation_batches(file, rows, length),
          .at = [=](int64_t index) { return data::evaluation_batch(file, rows, length, index); },
          .accuracy = false};
}

EvaluationData evaluation_of(const data::TokenFile& file, int64_t rows, int64_t length,
                             const data::Objective& objective, const data::ObjectiveVocabulary& vocabulary,
                             std::optional<int64_t> start_token) {
  // Use fewer rows if the file has fewer windows, so that no window is measured twice in a batch.
  const int64_t text =
      start_token ? data::source_lengths(objective, length).text : data::text_length(objective, length);
  const int64_t windows = (file.size() - 1) / std::max<int64_t>(1, text - 1);
  const data::ObjectiveBatches batches(
      file,
      {.batch = std::clamp<int64_t>(windows, 1, rows), .length = length, .order = data::Order::sequential, .seed = 0},
      objective, vocabulary, start_token);
  return {.batches = batches.steps_per_epoch(),
          .at = [batches](int64_t index) { return batches.at(index); },
          .accuracy = false};
}

data::Batch task_batch(const data::Task& task, data::TaskPart part, uint64_t seed, int64_t first, int64_t rows,
                       int64_t length, bool with_source) {
  const data::Batch batch = data::task_batch(task, part, seed, first, rows, length);
  return with_source ? data::with_source(batch, data::task_source_length(task, length).value()) : batch;
}

EvaluationData evaluation_of(const data::Task& task, data::TaskPart part, int64_t examples, int64_t rows,
                             int64_t length, bool with_source) {
  return {.batches = (examples + rows - 1) / rows,
          .at =
              [=](int64_t index) {
                const int64_t first = index * rows;
                // Seed 0: every run is evaluated on the same examples.
                return task_batch(task, part, 0, first, std::min(rows, examples - first), length, with_source);
              },
          .accuracy = true};
}

void Tally::add(nn::Model& model, const data::Batch& batch, bool accuracy, comm::Communicator* stages) {
  const Tensor ids = Tensor::from(batch.ids, {batch.rows, batch.length}, model.device());
  nn::RunOptions run;
  if (batch.source_length > 0) {
    run.source = Tensor::from(batch.source, {batch.rows, batch.source_length}, model.device());
  }
  if (!batch.neighbours.empty()) {
    const auto [chunks, count, length] = batch.neighbour_shape;
    run.neighbours = Tensor::from(batch.neighbours, {batch.rows, chunks, count, length}, model.device());
  }
  if (accuracy) {
    const Tensor hidden = staged_hidden(model, stages, ids, run);
    return hidden.defined() ? add_answers(model, batch, hidden) : void();
  }
  const Tensor next = Tensor::from(batch.targets, {batch.rows, batch.length}, model.device());
  const auto targets =
      static_cast<int64_t>(batch.targets.size()) - std::count(batch.targets.begin(), batch.targets.end(), kIgnoreIndex);
  const Tensor loss = staged_cross_entropy(model, stages, ids, next, run);
  if (!loss.defined()) return;
  loss_ += loss.item() * static_cast<double>(targets);
  targets_ += targets;
}

void Tally::add_answers(nn::Model& model, const data::Batch& batch, const Tensor& hidden) {
  std::vector<int64_t> places;
  std::vector<int64_t> answers;
  for (size_t i = 0; i < batch.targets.size(); ++i) {
    if (batch.targets[i] == kIgnoreIndex) continue;
    places.push_back(static_cast<int64_t>(i));
    answers.push_back(batch.targets[i]);
  }
  const auto count = static_cast<int64_t>(places.size());
  rows_ += batch.rows;
  targets_ += count;
  if (count == 0) {
    right_rows_ += batch.rows;
    return;
  }
  const Tensor rows = hidden.reshape({batch.rows * batch.length, hidden.dim(2)});
  const Tensor logits = model.logits_of(ops::embedding(rows, Tensor::from(places, {count}, model.device())));
  const Tensor wanted = Tensor::from(answers, {count}, model.device());
  loss_ += ops::cross_entropy(logits, wanted, {.reduction = ops::Reduction::sum}).item();
  const std::vector<float> scores = logits.to(DType::f32).to_vector<float>();
  const int64_t vocab = logits.dim(1);
  std::vector<bool> wrong(static_cast<size_t>(batch.rows));
  for (int64_t i = 0; i < count; ++i) {
    const auto begin = scores.begin() + i * vocab;
    const bool hit = std::max_element(begin, begin + vocab) - begin == answers[static_cast<size_t>(i)];
    right_ += hit ? 1 : 0;
    if (!hit) wrong[static_cast<size_t>(places[static_cast<size_t>(i)] / batch.length)] = true;
  }
  right_rows_ += std::count(wrong.begin(), wrong.end(), false);
}

std::array<double, 5> Tally::numbers() const {
  return {loss_, static_cast<double>(targets_), static_cast<double>(right_), static_cast<double>(rows_),
          static_cast<double>(right_rows_)};
}

void Tally::add_numbers(std::span<const double, 5> numbers) {
  loss_ += numbers[0];
  targets_ += static_cast<int64_t>(numbers[1]);
  right_ += static_cast<int64_t>(numbers[2]);
  rows_ += static_cast<int64_t>(numbers[3]);
  right_rows_ += static_cast<int64_t>(numbers[4]);
}

Measured evaluate_shared(nn::Model& model, const EvaluationData& data, const EvaluationRanks& ranks) {
  const int64_t count = ranks.data.size();
  const int rank = ranks.data.rank();
  std::vector<double> own;
  for (int64_t i = rank; i < data.batches + rank; i += count) {
    Tally one;
    if (i < data.batches) {
      one.add(model, data.at(i), data.accuracy, ranks.stages);
    } else if (ranks.in_step) {
      Tally().add(model, data.at(data.batches - 1), data.accuracy, ranks.stages);
    }
    const std::array<double, 5> numbers = one.numbers();
    own.insert(own.end(), numbers.begin(), numbers.end());
  }
  if (ranks.stages != nullptr) {  // only the last stage has the results
    const Tensor numbers = Tensor::from(own, {static_cast<int64_t>(own.size())}, Device::cpu(1));
    ranks.stages->broadcast(numbers, ranks.stages->size() - 1, {.label = "evaluation of stages"});
    own = numbers.to_vector<double>();
  }
  const std::vector<double> all = comm::gather(ranks.data, own, "evaluation");
  Tally tally;
  for (int64_t i = 0; i < data.batches; ++i) {
    const auto at = static_cast<size_t>(i % count) * own.size() + static_cast<size_t>(i / count) * 5;
    tally.add_numbers(std::span<const double, 5>(all.data() + at, 5));
  }
  return tally.result();
}

Measured Tally::result() const {
  const double targets = static_cast<double>(std::max<int64_t>(targets_, 1));
  Measured measured{loss_ / targets, {}};
  if (rows_ > 0) {
    measured.accuracy =
        Accuracy{static_cast<double>(right_) / targets, static_cast<double>(right_rows_) / static_cast<double>(rows_)};
  }
  return measured;
}

}  // namespace lamina::train
