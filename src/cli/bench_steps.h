#pragma once

#include <string>
#include <vector>

#include "lamina/train/learner.h"

namespace lamina::cli {

/// `rows` × `length` tokens from a random stream.
std::vector<int64_t> random_tokens(int64_t rows, int64_t length, int64_t vocab_size, uint64_t stream);

/// The training steps of a benchmark.
struct BenchStepOptions {
  int64_t batch = 1;
  int64_t length = 1;
  int64_t source_length = 0;  ///< tokens that an encoder reads; 0: no encoder
  int updates = 1;            ///< of the schedule
  bool bf16 = false;
  bool checkpoint = false;  ///< activation checkpointing
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
