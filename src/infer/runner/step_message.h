#pragma once

#include <span>
#include <vector>

#include "lamina/infer/runner/step_inputs.h"

namespace lamina::infer {

/// A change of cache memory between two model calls.
struct CacheChange {
  enum class Kind : int32_t { copy_page, copy_state, clear_state };
  Kind kind = Kind::copy_page;
  int32_t group = 0;  ///< for copy_page
  int32_t from = 0;   ///< page or slot; for clear_state, the slot to clear
  int32_t to = 0;
};

/// Makes the change.
void apply(const CacheChange& change, nn::SequenceCache& cache);

/// Sent by rank 0 to the other ranks before a model call.
struct StepMessage {
  int32_t model = 0;                 ///< number of the model, in the order in which runners were created
  std::vector<CacheChange> changes;  ///< changes since the model's last call; to be made before it
  HostStep step;
};

/// Converts a message to numbers, and back. decode() throws an Error if the numbers are not a message.
std::vector<int32_t> encode(const StepMessage& message);
StepMessage decode(std::span<const int32_t> numbers);  ///< see encode()

}  // namespace lamina::infer
