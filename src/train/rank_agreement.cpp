#include "lamina/train/rank_agreement.h"

#include "lamina/base/crc32c.h"

namespace lamina::train {

void check_ranks_agree(comm::Communicator* ranks, const std::vector<Agreement>& agreements) {
  constexpr double kPreparation = 86400;  // in seconds: rank 0 may be reading large token files
  if (ranks == nullptr || ranks->size() == 1) return;
  std::vector<double> own;
  for (const Agreement& agreement : agreements) {
    own.push_back(static_cast<double>(crc32c(agreement.value.data(), agreement.value.size())));
  }
  const std::vector<double> all = comm::gather(*ranks, own, "agreement", kPreparation);
  for (size_t i = 0; i < all.size(); ++i) {
    const size_t kind = i % own.size();
    if (all[i] == all[kind]) continue;
    const auto rank = static_cast<int>(i / own.size());
    throw Error(str("rank ", rank, " (host ", ranks->host(rank), ") has another ", agreements[kind].what,
                    " than rank 0 (host ", ranks->host(0), "); ", agreements[kind].advice));
  }
}

}  // namespace lamina::train
