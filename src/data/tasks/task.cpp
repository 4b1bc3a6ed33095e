#include "lamina/data/tasks/task.h"

#include <array>
#include <type_traits>

#include "lamina/base/error.h"

namespace lamina::data {
namespace {

// Random streams of the parts. The example number is added.
constexpr std::array<uint64_t, 3> kStreams{0x7461736b'00000000, 0x76616c69'00000000, 0x6c6f6e67'00000000};

template <class... T>
std::vector<Task> one_of_each(std::type_identity<std::variant<T...>>) {
  return {Task(T{})...};
}

}  // namespace

std::vector<Task> all_tasks() { return one_of_each(std::type_identity<Task>{}); }

std::string_view task_name(const Task& task) {
  return std::visit([](const auto& t) { return std::remove_cvref_t<decltype(t)>::kKind; }, task);
}
std::string_view task_about(const Task& task) {
  return std::visit([](const auto& t) { return std::remove_cvref_t<decltype(t)>::kDoc; }, task);
}
int64_t task_vocab_size(const Task& task) {
  return std::visit([](const auto& t) { return t.vocab_size(); }, task);
}
double chance_accuracy(const Task& task) {
  return std::visit([](const auto& t) { return 1.0 / static_cast<double>(t.answers()); }, task);
}
std::string spelled(const Task& task, int64_t token) {
  LAMINA_CHECK(token >= 0 && token < task_vocab_size(task), task_name(task), ": token ", token, "; it has ",
               task_vocab_size(task));
  return std::visit([&](const auto& t) { return t.spell(token); }, task);
}

void check_task(const Task& task, int64_t length) {
  std::visit([](const auto& t) { t.check(); }, task);
  const int64_t shortest = std::visit([](const auto& t) { return t.shortest(); }, task);
  LAMINA_CHECK(length >= shortest, task_name(task), ": rows of ", length, " tokens; with these parameters it needs ",
               shortest, " or more: make rows longer or the task smaller");
}

Example make_example(const Task& task, const RandomKey& key, int64_t length) {
  check_task(task, length);
  Dice dice(key);
  return std::visit([&](const auto& t) { return t.make(dice, length); }, task);
}

Batch batch_of(const std::vector<Example>& examples) {
  Batch batch;
  batch.rows = static_cast<int64_t>(examples.size());
  for (const Example& example : examples) {
    batch.length = example.size() - 1;
    batch.ids.insert(batch.ids.end(), example.tokens.begin(), example.tokens.end() - 1);
    for (size_t i = 1; i < example.tokens.size(); ++i) {
      batch.targets.push_back(example.scored[i] ? example.tokens[i] : kIgnoreIndex);
    }
  }
  return batch;
}

std::optional<int64_t> task_source_length(const Task& task, int64_t length) {
  return std::visit(
      [&](const auto& t) -> std::optional<int64_t> {
        if constexpr (requires { t.source_length(length); }) return t.source_length(length);
        return {};
      },
      task);
}

Batch with_source(const Batch& batch, int64_t source_length) {
  LAMINA_CHECK(source_length > 0 && source_length < batch.length, "a source of ", source_length, " tokens in rows of ",
               batch.length, "; expected fewer than the row, and at least one");
  Batch result;
  result.rows = batch.rows;
  result.length = batch.length - source_length;
  result.source_length = source_length;
  for (int64_t row = 0; row < batch.rows; ++row) {
    const int64_t begin = row * batch.length;
    const int64_t middle = begin + source_length;
    const int64_t end = begin + batch.length;
    const auto add = [](std::vector<int64_t>& to, const std::vector<int64_t>& from, int64_t first, int64_t last) {
      to.insert(to.end(), from.begin() + first, from.begin() + last);
    };
    add(result.source, batch.ids, begin, middle);
    add(result.ids, batch.ids, middle, end);
    add(result.targets, batch.targets, middle, end);
  }
  return result;
}

Batch task_batch(const Task& task, TaskPart part, uint64_t seed, int64_t first, int64_t rows, int64_t length) {
  std::vector<Example> examples;
  const uint64_t stream = kStreams[static_cast<size_t>(part)];
  for (int64_t i = first; i < first + rows; ++i) {
    examples.push_back(make_example(task, {seed, stream + static_cast<uint64_t>(i)}, length));
  }
  return batch_of(examples);
}

}  // namespace lamina::data
