#pragma once

#include <variant>

#include "lamina/data/batches.h"
#include "lamina/data/tasks/copy.h"
#include "lamina/data/tasks/dyck.h"
#include "lamina/data/tasks/induction.h"
#include "lamina/data/tasks/modular.h"
#include "lamina/data/tasks/mqar.h"
#include "lamina/data/tasks/passkey.h"
#include "lamina/data/tasks/selective_copy.h"
#include "lamina/data/tasks/sorting.h"

namespace lamina::data {

/// A synthetic task: what a model can be taught in minutes, and what tells architectures apart.
using Task = std::variant<Copy, SelectiveCopy, Induction, Mqar, Sorting, Modular, Passkey, Dyck>;

/// One of each kind, as it is by default.
std::vector<Task> all_tasks();

std::string_view task_name(const Task& task);
std::string_view task_about(const Task& task);
int64_t task_vocab_size(const Task& task);
/// The accuracy of guessing.
double task_chance(const Task& task);
std::string spelled(const Task& task, int64_t token);

/// An Error where the task's parameters cannot be, or rows of this length are too short for it.
void check_task(const Task& task, int64_t length);
/// The example that `key` names: a function of its arguments alone.
Example make_example(const Task& task, const RandomKey& key, int64_t length);

/// Examples that never meet: those learned from differ by seed, those measured on are the same for every run.
enum class TaskPart : uint8_t { train, validation, longer };
/// Examples first … first + rows − 1 of a part, as a model is given them. Targets that are not scored are kIgnored.
Batch task_batch(const Task& task, TaskPart part, uint64_t seed, int64_t first, int64_t rows, int64_t length);
/// The same of examples at hand, all of one length.
Batch batch_of(const std::vector<Example>& examples);

}  // namespace lamina::data
