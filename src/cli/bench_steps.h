#pragma once

#include <string>
#include <vector>

#include "lamina/train/learner.h"

namespace lamina::cli {

/// `rows` × `length` random tokens from the given random stream.
std::vector<int64_t> random_tokens(int64_t rows, int64_t length, int64_t vocab_size, uint64_t stream);

/// The training steps that a benchmark runs.
struct BenchStepOptions {
  int64_t batch = 1;
  int64_t length = 1;
  int64_t source_length = 0;  ///< number of tokens that an encoder reads; 0: no encoder
  int updates = 1;            ///< number of updates in the learning rate schedule
  bool bf16 = false;
  bool checkpoint = false;  ///< use activation checkpointing
};

/// Training updates on random tokens: forward, backward, clipping and AdamW.
class BenchSteps {
 public:
  BenchSteps(const arch::ArchSpec& spec, const Device& device, const BenchStepOptions& options);

  const train::Recipe& recipe() const { return learner_.recipe(); }
  train::StepTimes run();

 private:
  train::Learner learner_;
  data::Batch batch_;
  int64_t step_ = 0;
};

}  // namespace lamina::cli
