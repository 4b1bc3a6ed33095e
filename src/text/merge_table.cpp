#include "lamina/text/merge_table.h"

#include <bit>

namespace lamina::text {

MergeTable::MergeTable(const std::vector<MergeRule>& rules)
    : slots_(std::bit_ceil(rules.size() * 2 + 2)),
      mask_(slots_.size() - 1),
      shift_(64 - std::countr_zero(slots_.size())),
      empty_(rules.empty()) {
  for (const MergeRule& rule : rules) {
    const uint64_t key = key_of(rule.left, rule.right);
    size_t at = place_of(key);
    while (slots_[at].key != kFree && slots_[at].key != key) at = (at + 1) & mask_;
    if (slots_[at].key == key && slots_[at].merge.rank <= rule.rank) continue;  // the rule with the lower rank is kept
    slots_[at] = {key, {rule.rank, rule.result}};
  }
}

}  // namespace lamina::text
