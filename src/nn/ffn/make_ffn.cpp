#include "lamina/nn/ffn/gated_ffn.h"
#include "lamina/nn/ffn/moe.h"
#include "lamina/nn/ffn/plain_ffn.h"
#include "lamina/nn/mixer.h"

namespace lamina::nn {
namespace {

struct FeedForwardMaker {
  const arch::ArchSpec& spec;
  const ParameterFactory& make;

  using Made = std::unique_ptr<Ffn>;
  Made operator()(const arch::NoFfn& /*none*/) const { return nullptr; }
  Made operator()(const arch::PlainFfn& f) const { return std::make_unique<PlainFfn>(spec.d_model, f, make); }
  Made operator()(const arch::GatedFfn& f) const { return std::make_unique<GatedFfn>(spec.d_model, f, make); }
  Made operator()(const arch::Moe& f) const { return std::make_unique<MoeFfn>(spec.d_model, f, make); }
};

}  // namespace

std::unique_ptr<Ffn> make_ffn(const arch::ArchSpec& spec, const arch::Block& block, const ParameterFactory& make) {
  return std::visit(FeedForwardMaker{spec, make}, block.ffn);
}

}  // namespace lamina::nn
