#include "lamina/arch/count.h"

#include "lamina/arch/layers.h"
#include "lamina/arch/weight_list.h"

namespace lamina::arch {
namespace {

void add_rows(const std::vector<Weight>& weights, const std::string& where, int64_t layers, ParameterCount& count) {
  const size_t begin = count.rows.size();
  for (const Weight& weight : weights) {
    CountRow* row = nullptr;
    for (size_t i = begin; i < count.rows.size(); ++i) {
      if (count.rows[i].component == weight.component) row = &count.rows[i];
    }
    if (row == nullptr) row = &count.rows.emplace_back(CountRow{where, weight.component, 0, layers});
    row->each = checked_sum(row->each, weight.numel);
    row->total = checked_sum(row->total, checked_product(weight.numel, layers));
    row->active = checked_sum(row->active, checked_product(weight.active, layers));
    row->product = row->product || weight.product;
  }
}

}  // namespace

ParameterCount count_parameters(const ArchSpec& spec) {
  ParameterCount count;
  std::vector<Weight> before;
  std::vector<Weight> after;
  for (Weight& weight : outer_weights(spec)) {
    const bool first = weight.name.starts_with("embedding") || weight.name.starts_with("position");
    (first ? before : after).push_back(std::move(weight));
  }
  add_rows(before, "", 1, count);
  if (spec.encoder) add_rows(encoder_outer_weights(spec), "encoder", 1, count);
  if (spec.retrieval) add_rows(neighbour_outer_weights(spec), "retrieval", 1, count);
  for (const WrittenBlock& written : written_blocks(spec)) {
    add_rows(block_weights(written.d_model, *written.block), written.path, written.times, count);
  }
  add_rows(after, "", 1, count);
  for (const CountRow& row : count.rows) {
    count.total = checked_sum(count.total, row.total);
    count.active = checked_sum(count.active, row.active);
  }
  count.embedding = count.rows.front().total;
  return count;
}

}  // namespace lamina::arch
