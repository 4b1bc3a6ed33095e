#include "lamina/infer/runner/step_message.h"

#include <utility>

namespace lamina::infer {
namespace {

/// Appends numbers to a message. A list is preceded by its length.
struct Writer {
  std::vector<int32_t> numbers;

  void add(int32_t number) { numbers.push_back(number); }
  template <class T>
  void add_list(const std::vector<T>& list) {
    add(static_cast<int32_t>(list.size()));
    for (const T value : list) add(static_cast<int32_t>(value));
  }
};

struct Reader {
  std::span<const int32_t> numbers;

  int32_t next() {
    check(1);
    const int32_t number = numbers.front();
    numbers = numbers.subspan(1);
    return number;
  }
  template <class T>
  std::vector<T> next_list() {
    const int32_t count = next();
    check(count);
    const auto list = numbers.first(static_cast<size_t>(count));
    numbers = numbers.subspan(static_cast<size_t>(count));
    return {list.begin(), list.end()};
  }
  void check(int64_t count) const {
    LAMINA_CHECK(count >= 0 && count <= static_cast<int64_t>(numbers.size()), "runner: a step of rank 0 says ", count,
                 " numbers and has ", numbers.size(), " more (internal error, please report it)");
  }
};

}  // namespace

void apply(const CacheChange& change, nn::SequenceCache& cache) {
  switch (change.kind) {
    case CacheChange::Kind::copy_page: return cache.copy_page(change.group, change.from, change.to);
    case CacheChange::Kind::copy_state: return cache.copy_state(change.from, change.to);
    case CacheChange::Kind::clear_state: return cache.clear_state(change.from);
  }
}

std::vector<int32_t> encode(const StepMessage& message) {
  Writer writer;
  writer.add(message.model);
  writer.add(static_cast<int32_t>(message.changes.size()));
  for (const CacheChange& change : message.changes) {
    for (const int32_t number : {static_cast<int32_t>(change.kind), change.group, change.from, change.to}) {
      writer.add(number);
    }
  }
  const HostStep& step = message.step;
  writer.add_list(step.ids);
  writer.add_list(step.offsets);
  writer.add_list(step.counts);
  writer.add_list(step.slots);
  writer.add(static_cast<int32_t>(step.tables.size()));
  for (const std::vector<int32_t>& table : step.tables) writer.add_list(table);
  writer.add_list(step.wanted);
  return std::move(writer.numbers);
}

StepMessage decode(std::span<const int32_t> numbers) {
  Reader reader{numbers};
  StepMessage message;
  message.model = reader.next();
  for (int32_t left = reader.next(); left > 0; --left) {
    CacheChange change;
    change.kind = static_cast<CacheChange::Kind>(reader.next());
    change.group = reader.next();
    change.from = reader.next();
    change.to = reader.next();
    message.changes.push_back(change);
  }
  HostStep& step = message.step;
  step.ids = reader.next_list<int64_t>();
  step.offsets = reader.next_list<int32_t>();
  step.counts = reader.next_list<int32_t>();
  step.slots = reader.next_list<int32_t>();
  for (int32_t left = reader.next(); left > 0; --left) step.tables.push_back(reader.next_list<int32_t>());
  step.wanted = reader.next_list<int64_t>();
  LAMINA_CHECK(reader.numbers.empty() && !step.counts.empty() && step.counts.size() == step.offsets.size() &&
                   step.counts.size() == step.slots.size(),
               "runner: a step of rank 0 has ", step.counts.size(), " rows, ", step.offsets.size(), " offsets, ",
               step.slots.size(), " slots and ", reader.numbers.size(),
               " numbers too many (internal error, please report it)");
  return message;
}

}  // namespace lamina::infer
