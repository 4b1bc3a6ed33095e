#include "lamina/train/rank_groups.h"

#include "lamina/comm/fake.h"
#include "lamina/comm/local.h"

namespace lamina::train {
namespace {

/// The communicator of a layout's ranks: `given`, a simulation on a meta device, or a single rank.
std::shared_ptr<comm::Communicator> ranks_of(const LayoutChoice& layout, const Device& device,
                                             std::shared_ptr<comm::Communicator> given) {
  if (given) {
    LAMINA_CHECK(given->size() == layout.ranks(), "the layout has ", layout.ranks(), " ranks, the communicator ",
                 given->size(), "; start layout.dp · tp · pp · cp processes");
    return given;
  }
  if (device.kind() == DeviceKind::meta) return comm::FakeWorld(static_cast<int>(layout.ranks())).communicator(0);
  LAMINA_CHECK(layout.ranks() == 1, "the layout has ", layout.ranks(), " ranks but this is one process; start it with ",
               "`lamina launch --nproc ", layout.ranks(), " -- train ...` or mpirun");
  return comm::single_rank();
}

}  // namespace

RankGroups rank_groups(const LayoutChoice& layout, const Device& device, std::shared_ptr<comm::Communicator> given) {
  if (!layout.is_parallel()) return {};
  RankGroups groups;
  groups.all = ranks_of(layout, device, std::move(given));
  const int64_t tp = layout.tp;
  const int64_t dp = layout.dp;
  const int64_t cp = layout.cp;
  const int64_t ep = layout.ep;
  // All ranks must split in the same order. color(p, d, c, t) is the color of tensor-parallel rank t, context-parallel
  // rank c and data-parallel rank d of stage p.
  const auto split = [&](const auto& color) {
    std::vector<int> colors;
    for (int64_t rank = 0; rank < groups.all->size(); ++rank) {
      const int64_t c = rank / tp % cp;
      colors.push_back(static_cast<int>(color(rank / tp / cp / dp, rank / tp / cp % dp, c, rank % tp)));
    }
    return groups.all->split(colors);
  };
  using N = int64_t;
  const bool whole = tp * layout.pp == 1;  // every rank has the whole model, except for experts
  groups.data = whole ? groups.all : split([&](N p, N /*d*/, N /*c*/, N t) { return p * tp + t; });
  groups.same_experts =
      ep == 1 ? groups.data : split([&](N p, N d, N /*c*/, N t) { return (p * ep + d % ep) * tp + t; });
  if (tp > 1) {
    groups.tensor = std::make_shared<nn::TensorParallel>(
        split([&](N p, N d, N c, N /*t*/) { return (p * dp + d) * cp + c; }), layout.sequence);
  }
  if (ep > 1) {
    groups.experts = std::make_shared<nn::ExpertParallel>(
        split([&](N p, N d, N c, N t) { return ((p * (dp / ep) + d / ep) * cp + c) * tp + t; }), groups.data);
  }
  groups.chunks = static_cast<int>(layout.chunks());
  if (cp > 1) groups.context = split([&](N p, N d, N /*c*/, N t) { return (p * dp + d) * tp + t; });
  if (layout.pp > 1) groups.stages = split([&](N /*p*/, N d, N c, N t) { return (d * cp + c) * tp + t; });
  if (!whole || ep > 1) groups.model = split([&](N /*p*/, N d, N c, N /*t*/) { return d / ep * cp + c; });
  return groups;
}

nn::ModelOptions RankGroups::model_options(DType dtype, uint64_t seed) const {
  nn::ModelOptions options{.dtype = dtype, .seed = seed, .parallel = tensor, .experts = experts};
  if (stages) options.stage = {stages->rank(), stages->size(), chunks};
  return options;
}

}  // namespace lamina::train
