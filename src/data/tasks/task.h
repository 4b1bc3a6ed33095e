#pragma once

#include <optional>
#include <variant>

#include "lamina/data/batches.h"
#include "lamina/data/tasks/copy.h"
#include "lamina/data/tasks/dyck.h"
#include "lamina/data/tasks/induction.h"
#include "lamina/data/tasks/modular.h"
#include "lamina/data/tasks/mqar.h"
#include "lamina/data/tasks/passkey.h"
#include "lamina/data/tasks/reversal.h"
#include "lamina/data/tasks/selective_copy.h"
#include "lamina/data/tasks/sorting.h"

namespace lamina::data {

/// A synthetic task. It trains in minutes and shows differences between architectures.
using Task = std::variant<Copy, Reversal, SelectiveCopy, Induction, Mqar, Sorting, Modular, Passkey, Dyck>;

/// One task of each kind, with default parameters.
std::vector<Task> all_tasks();

std::string_view task_name(const Task& task);
std::string_view task_about(const Task& task);
int64_t task_vocab_size(const Task& task);
/// Chance accuracy.
double chance_accuracy(const Task& task);
std::string spelled(const Task& task, int64_t token);

/// Throws Error if the task's parameters are invalid or rows of this length are too short.
void check_task(const Task& task, int64_t length);
/// The example for `key`. A pure function of the arguments.
Example make_example(const Task& task, const RandomKey& key, int64_t length);

/// Disjoint sets of examples. Training examples depend on the run's seed; the other sets are the same in every run.
enum class TaskPart : uint8_t { train, validation, longer };
/// A batch of examples [first, first + rows) of a part. Targets that are not scored are kIgnoreIndex.
Batch task_batch(const Task& task, TaskPart part, uint64_t seed, int64_t first, int64_t rows, int64_t length);
/// For tasks with a separate input: the number of tokens that an encoder–decoder model reads as the source of a row of
/// this length.
std::optional<int64_t> task_source_length(const Task& task, int64_t length);
/// A batch for an encoder–decoder model: the first `source_length` tokens of each row become the source.
Batch with_source(const Batch& batch, int64_t source_length);
/// A batch of the given examples, which must have equal lengths.
Batch batch_of(const std::vector<Example>& examples);

}  // namespace lamina::data
