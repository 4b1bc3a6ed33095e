#include "lamina/ops/parallel/expert_exchange.h"

#include <numeric>

#include "lamina/ops/elementwise/concat.h"
#include "lamina/ops/elementwise/elementwise.h"
#include "lamina/ops/elementwise/reduce.h"
#include "lamina/ops/linear/linear.h"
#include "lamina/ops/loss/softmax.h"
#include "lamina/ops/moe/dispatch.h"
#include "lamina/ops/parallel/collectives.h"

namespace lamina::ops {
namespace {

/// The rows that this rank exchanges with every other rank.
struct ExpertTraffic {
  std::vector<int64_t> sent;      ///< number of rows sent to each rank
  std::vector<int64_t> received;  ///< number of rows received from each rank
  Tensor experts;                 ///< [Σ received, 1] i64: expert of each received row; this rank's first expert is 0
};

/// The traffic assumed on `meta`, where the routing is unknown: every expert gets equally many rows.
ExpertTraffic rehearsed_traffic(const Tensor& rows, const std::vector<int64_t>& held, const comm::Communicator& ranks) {
  const int64_t experts = std::accumulate(held.begin(), held.end(), int64_t{0});
  ExpertTraffic traffic;
  int64_t end = 0;
  for (const int64_t count : held) {
    traffic.sent.push_back(rows.dim(0) * (end + count) / experts - rows.dim(0) * end / experts);
    end += count;
  }
  const int64_t each = traffic.sent[static_cast<size_t>(ranks.rank())];
  traffic.received.assign(held.size(), each);
  traffic.experts = Tensor::empty({ranks.size() * each, 1}, DType::i64, rows.device());
  return traffic;
}

ExpertTraffic traffic_of(const Tensor& rows, const Tensor& offsets, const std::vector<int64_t>& held,
                         comm::Communicator& ranks) {
  const std::vector<int64_t> starts = offsets.to_vector<int64_t>();
  std::vector<int64_t> counts;  // number of rows of each expert
  for (size_t e = 0; e + 1 < starts.size(); ++e) counts.push_back(starts[e + 1] - starts[e]);
  ExpertTraffic traffic;
  auto expert = counts.begin();
  for (const int64_t own : held) {
    traffic.sent.push_back(std::accumulate(expert, expert + own, int64_t{0}));
    expert += own;
  }
  const int64_t own = held[static_cast<size_t>(ranks.rank())];
  const Device host = Device::cpu(1);
  const Tensor incoming = Tensor::empty({ranks.size() * own}, DType::i64, host);
  ranks.all_to_all(Tensor::from(counts, {static_cast<int64_t>(counts.size())}, host), incoming, held,
                   std::vector<int64_t>(held.size(), own), {.label = "expert counts"});
  const std::vector<int64_t> given = incoming.to_vector<int64_t>();  // [ranks, own]
  std::vector<int64_t> expert_of_row;
  for (int rank = 0; rank < ranks.size(); ++rank) {
    const auto first = given.begin() + rank * own;
    traffic.received.push_back(std::accumulate(first, first + own, int64_t{0}));
    for (int64_t e = 0; e < own; ++e) expert_of_row.insert(expert_of_row.end(), static_cast<size_t>(first[e]), e);
  }
  traffic.experts = Tensor::from(expert_of_row, {static_cast<int64_t>(expert_of_row.size()), 1}, rows.device());
  return traffic;
}

}  // namespace

Tensor run_divided_experts(const Tensor& rows, const Tensor& offsets, const std::vector<int64_t>& held,
                           comm::Communicator& ranks, const RunExperts& run) {
  LAMINA_CHECK(static_cast<int>(held.size()) == ranks.size() &&
                   std::accumulate(held.begin(), held.end(), int64_t{0}) == offsets.dim(0) - 1,
               "run_divided_experts: ", held.size(), " ranks with ", offsets.dim(0) - 1, " experts, expected ",
               ranks.size(), " ranks that hold them all");
  const ExpertTraffic traffic =
      rows.is_meta() ? rehearsed_traffic(rows, held, ranks) : traffic_of(rows, offsets, held, ranks);
  const int64_t used = std::accumulate(traffic.sent.begin(), traffic.sent.end(), int64_t{0});
  const Tensor sent = used == rows.dim(0) ? rows : rows.slice(0, 0, used);
  const Tensor received = exchange_rows(sent, ranks, traffic.sent, traffic.received, "expert rows");
  // Received rows are sorted by sender, then by expert. dispatch() sorts them by expert; combine() undoes it.
  const DispatchPlan plan = plan_dispatch(traffic.experts, held[static_cast<size_t>(ranks.rank())]);
  const Tensor outputs = run(dispatch(received, plan), plan.offsets);
  const Tensor one = Tensor::full({received.dim(0), 1}, 1.0, accumulation_type(rows.dtype()), rows.device());
  const Tensor unsorted = combine(outputs, one, plan);
  const Tensor back = exchange_rows(unsorted, ranks, traffic.received, traffic.sent, "expert outputs");
  if (used == rows.dim(0)) return back;
  return concat({back, Tensor::zeros({rows.dim(0) - used, back.dim(1)}, back.dtype(), back.device())}, 0);
}

Tensor balance_loss_over_ranks(const Tensor& logits, const Tensor& counts, comm::Communicator& ranks) {
  const int64_t experts = logits.dim(1);
  Tensor shares = (counts.is_meta() ? counts : counts.to(Device::cpu(1))).to(DType::f64);  // GPUs have no f64
  ranks.all_reduce(shares, {.label = "expert load"});
  if (!shares.is_meta()) shares = scale(shares, 1.0 / sum(shares).item());
  const Tensor factors = shares.to(logits.dtype()).to(logits.device());
  const Tensor loads = linear(softmax(logits), factors.reshape({1, experts}));  // [tokens, 1]
  return scale(mean(loads), static_cast<double>(experts)).reshape({1});
}

}  // namespace lamina::ops
