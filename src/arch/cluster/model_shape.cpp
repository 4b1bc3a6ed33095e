#include "lamina/arch/cluster/model_shape.h"

#include <algorithm>
#include <map>
#include <utility>

#include "lamina/arch/layers.h"
#include "lamina/arch/mixing.h"
#include "lamina/arch/reach.h"
#include "lamina/arch/weights.h"
#include "lamina/base/error.h"

namespace lamina::arch {
namespace {

bool one_of(const std::string& name, std::initializer_list<const char*> names) {
  return std::any_of(names.begin(), names.end(), [&](const char* known) { return name == known; });
}

/// The projection of a weight: "mixer.q.weight" → "mixer.q".
std::string projection_of(const std::string& weight) { return weight.substr(0, weight.rfind('.')); }

/// Name of the product that computes a projection. Projections of the same input share a product.
std::string packed_name(const std::string& projection) {
  if (one_of(projection, {"mixer.q", "mixer.k", "mixer.v"})) return "mixer.qkv";
  const size_t dot = projection.rfind('.');
  const std::string last = projection.substr(dot + 1);
  return last == "gate" || last == "up" ? projection.substr(0, dot) + ".gate_up" : projection;
}

ProductShape::Split split_of(const std::string& projection) {
  using Split = ProductShape::Split;
  if (one_of(projection, {"mixer.q_down", "mixer.kv_down", "ffn.router"})) return Split::none;
  const bool ends_sublayer =
      one_of(projection, {"mixer.o", "mixer.out", "mixer.x", "ffn.down", "ffn.experts.down", "ffn.shared.down"});
  return ends_sublayer ? Split::in : Split::out;
}

void add_weights(const std::vector<Weight>& weights, double kv_heads, LayerShape& shape) {
  std::map<std::pair<std::string, double>, size_t> products;  // (product, width of its input) → index
  std::map<std::string, int> tensors;
  for (const Weight& weight : weights) {
    const std::string projection = projection_of(weight.name);
    const std::string suffix = weight.name.substr(weight.name.rfind('.') + 1);
    ++tensors[packed_name(projection) + "." + suffix];
    const auto numel = static_cast<double>(weight.numel);
    shape.weights += numel;
    if (!weight.product) {
      shape.vectors += numel;
      continue;
    }
    const auto in = static_cast<double>(weight.shape.back());
    const bool expert = weight.name.starts_with("ffn.experts.");
    // A block-diagonal weight is one product with the outputs of all blocks.
    const double blocks = weight.shape.size() == 3 && !expert ? static_cast<double>(weight.shape[0]) : 1;
    const double out = blocks * static_cast<double>(weight.shape[weight.shape.size() - 2]);
    const auto [found, fresh] = products.emplace(std::pair(packed_name(projection), in), shape.products.size());
    if (fresh) shape.products.push_back({0, in, split_of(projection), 0, std::max(1.0, kv_heads), expert});
    ProductShape& product = shape.products[found->second];
    (one_of(projection, {"mixer.k", "mixer.v"}) ? product.kv_out : product.out) += out;
  }
  shape.tensors = static_cast<double>(tensors.size());
}

bool rotates(const std::optional<LayerPosition>& position) {
  return position && std::holds_alternative<Rope>(*position);
}

void add_mixer(const Attention& a, LayerShape& shape) {
  shape.heads = static_cast<double>(a.n_heads);
  shape.kv_heads = static_cast<double>(*a.n_kv_heads);
  shape.qk_dim = static_cast<double>(*a.head_dim);
  shape.v_dim = static_cast<double>(*a.v_head_dim);
  shape.rotates = rotates(a.position);
}
void add_mixer(const Mla& a, LayerShape& shape) {
  shape.heads = static_cast<double>(a.n_heads);
  shape.kv_heads = shape.heads;  // all heads are expanded from the latent
  shape.qk_dim = static_cast<double>(a.qk_nope + a.qk_rope);
  shape.v_dim = static_cast<double>(a.v_head_dim);
  shape.rotates = rotates(a.position);
}
void add_mixer(const Mamba& m, LayerShape& shape) { shape.ssm_width = static_cast<double>(*m.d_inner); }
void add_mixer(const Mamba2& m, LayerShape& shape) { shape.ssm_width = static_cast<double>(*m.d_inner); }
void add_mixer(const S4d& /*m*/, LayerShape& shape) { shape.ssm_width = 1; }        // set to d_model by the caller
void add_mixer(const ShortConv& /*m*/, LayerShape& shape) { shape.ssm_width = 1; }  // see S4d
void add_mixer(const RgLru& m, LayerShape& shape) { shape.ssm_width = static_cast<double>(*m.width); }
void add_mixer(const Lightning& m, LayerShape& shape) {
  shape.ssm_width = static_cast<double>(m.n_heads) * static_cast<double>(*m.head_dim);
}
void add_mixer(const Wkv& m, LayerShape& shape) { shape.ssm_width = static_cast<double>(*m.width); }
void add_mixer(const ChannelMix& m, LayerShape& shape) { shape.ssm_width = static_cast<double>(*m.d_ff); }
void add_mixer(const GatedDelta& m, LayerShape& shape) {
  shape.ssm_width = static_cast<double>(m.n_heads) * static_cast<double>(m.value_dim);
}
void add_mixer(const AttentionMamba2& m, LayerShape& shape) {
  add_mixer(m.attention, shape);
  add_mixer(m.mamba2, shape);
}
void add_mixer(const NoMixer& /*m*/, LayerShape& /*shape*/) {}

void add_ffn(const PlainFfn& f, LayerShape& shape) { shape.ffn_width = static_cast<double>(*f.d_ff); }
void add_ffn(const GatedFfn& f, LayerShape& shape) {
  shape.ffn_width = static_cast<double>(*f.d_ff);
  shape.gated = true;
}
void add_ffn(const Moe& f, LayerShape& shape) {
  std::visit([&](const auto& expert) { add_ffn(expert, shape); }, f.expert);
  shape.experts = f.experts;
  shape.top_k = static_cast<double>(f.top_k);
  shape.ffn_width *= shape.top_k;
  if (f.shared_experts > 0) shape.ffn_width += static_cast<double>(*f.shared_d_ff);
}
void add_ffn(const NoFfn& /*f*/, LayerShape& /*shape*/) {}

LayerShape layer_shape(const ArchSpec& spec, const Block& block, int64_t length) {
  LayerShape shape;
  std::visit([&](const auto& mixer) { add_mixer(mixer, shape); }, block.mixer);
  const bool full_width = std::holds_alternative<S4d>(block.mixer) || std::holds_alternative<ShortConv>(block.mixer);
  if (full_width) shape.ssm_width = static_cast<double>(spec.d_model);
  std::visit([&](const auto& ffn) { add_ffn(ffn, shape); }, block.ffn);
  add_weights(block_weights(spec, block), shape.kv_heads, shape);
  shape.norms = static_cast<double>(norm_slots(block).size());
  const bool parallel = std::holds_alternative<ParallelWiring>(block.wiring);
  const int parts = (has_mixer(block) ? 1 : 0) + (has_ffn(block) ? 1 : 0);
  shape.sublayers = parallel ? std::min(parts, 1) : parts;
  shape.mixing = mixing_flops(spec, block, length);
  return shape;
}

double product_flops_of(const LayerShape& shape) {
  double flops = 0;
  for (const ProductShape& product : shape.products) {
    flops += 2 * (product.out + product.kv_out) * product.in * (product.experts ? shape.top_k : 1);
  }
  return flops;
}

}  // namespace

ModelShape model_shape(const ArchSpec& resolved, int64_t length) {
  const std::optional<int64_t> longest = longest_sequence(resolved);
  LAMINA_CHECK(!longest || length <= *longest, "length ", length, " exceeds the ", *longest,
               " learned positions; use a shorter length or set position.length");
  LAMINA_CHECK(!resolved.encoder,
               "the architecture has an encoder; clusters are planned for one stack of layers, so plan an encoder or a "
               "decoder alone");
  LAMINA_CHECK(!resolved.retrieval,
               "the architecture has retrieval; clusters are planned for one stack of layers, so plan the decoder "
               "alone (--set retrieval=null)");
  LAMINA_CHECK(length >= 1, "length ", length, "; expected 1 or more");
  constexpr int64_t kMostLayers = 100000;
  LAMINA_CHECK(layer_count(resolved) <= kMostLayers, layer_count(resolved), " layers; at most ", kMostLayers,
               " can be planned for a cluster");
  ModelShape model;
  model.d_model = static_cast<double>(resolved.d_model);
  model.vocab = static_cast<double>(resolved.vocab_size);
  model.d_embed = static_cast<double>(*resolved.embedding.d_embed);
  model.length = static_cast<double>(length);
  for (const Weight& weight : outer_weights(resolved)) {
    const auto numel = static_cast<double>(weight.numel);
    double& part = weight.name == "embedding.weight" ? model.embedding
                   : weight.name == "head.weight"    ? model.head
                                                     : model.outer;
    part += numel;
    model.parameters += numel;
  }
  std::vector<Block> blocks;
  for (const Block* given : layer_blocks(resolved)) {
    Block block = *given;
    block.repeat = 1;
    const auto found = std::find(blocks.begin(), blocks.end(), block);
    model.layers.push_back(static_cast<size_t>(found - blocks.begin()));
    if (found == blocks.end()) {
      model.kinds.push_back(layer_shape(resolved, block, length));
      blocks.push_back(block);
    }
    const LayerShape& shape = model.kinds[model.layers.back()];
    model.parameters += shape.weights;
    const double products = product_flops_of(shape);
    model.layer_flops += products + shape.mixing;
    const double unmasked = 2 * shape.heads * (shape.qk_dim + shape.v_dim) * model.length;
    model.unmasked_layer_flops += products + (shape.heads > 0 ? unmasked : shape.mixing);
  }
  model.head_flops = 2 * model.vocab * model.d_embed;
  if (resolved.head.transform) model.head_flops += 2 * model.d_model * model.d_model;
  return model;
}

}  // namespace lamina::arch
