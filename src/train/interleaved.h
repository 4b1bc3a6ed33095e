#pragma once

#include "lamina/train/pipeline.h"

namespace lamina::train {

/// The pass that a stage runs in one tick of an interleaved pipeline, if any.
struct StageTick {
  enum class Kind : uint8_t { idle, forward, backward } kind = Kind::idle;
  StagePass at;
};

/// The interleaved schedule (arXiv:2104.04473, §2.2): a stage has `chunks` groups of layers, and a pass goes `chunks`
/// times around the ring of stages. Passes run in groups of as many as there are stages: a stage runs the first chunk
/// of a group, then the second, and so on, and alternates between forward and backward after its first 2 · (stages − 1
/// − stage) + (chunks − 1) · stages forwards. Results travel between ticks. [tick][stage]. Every stage computes the
/// same schedule.
std::vector<std::vector<StageTick>> interleaved_schedule(int stages, int chunks, int64_t passes);

/// Runs passes in that order. Messages of a tick are one grouped call, so stages cannot wait for each other in a
/// circle.
void run_interleaved(comm::Communicator& stages, int chunks, const StagePasses& passes);

}  // namespace lamina::train
