#include "lamina/nn/model.h"

#include <algorithm>
#include <cmath>

#include "lamina/autograd/tape.h"
#include "lamina/ops/elementwise/concat.h"
#include "lamina/ops/elementwise/elementwise.h"

namespace lamina::nn {
namespace {

constexpr double kDeviation = 0.02;

ParameterFactory factory(const arch::ArchSpec& spec, const Device& device, const ModelOptions& options) {
  LAMINA_CHECK(is_floating(options.dtype), "model: weights cannot be ", options.dtype,
               "; expected f32, f64, bf16 or f16");
  LAMINA_CHECK(spec.embedding.d_embed && spec.final_norm,
               "model: the architecture is not resolved; call arch::resolve first");
  const auto branches = 2.0 * static_cast<double>(arch::layer_count(spec));
  return {device,
          {.dtype = options.dtype,
           .seed = options.seed,
           .deviation = kDeviation,
           .residual_deviation = kDeviation / std::sqrt(branches)}};
}

/// Padding gets the position of the row's last real token, so that position tables need not be longer.
Tensor ragged_positions(const ForwardContext& pass, const Device& device) {
  std::vector<int64_t> positions;
  for (int64_t row = 0; row < pass.batch; ++row) {
    const int64_t last = std::max<int64_t>(pass.length_of(row) - 1, 0);
    for (int64_t s = 0; s < pass.seq; ++s) positions.push_back(std::min(pass.offset_of(row) + s, last));
  }
  return Tensor::from(positions, {pass.batch, pass.seq}, device);
}

/// x [batch, seq, d_model] → [batch, count, d_model]: `count` tokens of each row, starting at firsts[row].
Tensor tokens_from(const Tensor& x, const std::vector<int64_t>& firsts, int64_t count) {
  std::vector<Tensor> rows;
  for (int64_t row = 0; row < x.dim(0); ++row) {
    rows.push_back(x.slice(0, row, 1).slice(1, firsts[static_cast<size_t>(row)], count));
  }
  return ops::concat(rows, 0);
}

/// The last real token of each row, [batch, 1, d_model].
Tensor last_tokens(const Tensor& x, const ForwardContext& pass) {
  if (pass.counts.empty()) return x.slice(1, pass.seq - 1, 1);
  std::vector<int64_t> lasts;
  for (int64_t row = 0; row < pass.batch; ++row) lasts.push_back(std::max<int64_t>(pass.count_of(row) - 1, 0));
  return tokens_from(x, lasts, 1);
}

std::span<const int64_t> real_ids(const std::vector<int64_t>& ids, const ForwardContext& pass, int64_t row) {
  return std::span(ids).subspan(static_cast<size_t>(row * pass.seq), static_cast<size_t>(pass.count_of(row)));
}

}  // namespace

Model::Model(const arch::ArchSpec& spec, const Device& device, const ModelOptions& options)
    : spec_(spec),
      positions_(spec_, factory(spec_, device, options).at("position")),
      embedding_(spec_, factory(spec_, device, options).at("embedding"), positions_),
      head_(spec_, factory(spec_, device, options).at("head"), embedding_),
      pooled_head_(spec_, factory(spec_, device, options)) {
  const ParameterFactory make = factory(spec_, device, options);
  add_child("embedding", embedding_);
  add_child("position", positions_);
  if (spec_.encoder) {
    encoder_ = std::make_unique<Encoder>(spec_, make.at("encoder"), embedding_);
    add_child("encoder", *encoder_);
  }
  for (const arch::Block* block : arch::layer_blocks(spec_)) {
    const std::string name = std::to_string(layers_.all().size());
    layers_.add(std::make_unique<Layer>(spec_, *block, make.at("layers").at(name), positions_));
  }
  add_child("layers", layers_);
  if (*spec_.final_norm) {
    final_norm_.emplace(spec_.norm, spec_.d_model, make.at("final_norm"));
    add_child("final_norm", *final_norm_);
  }
  add_child("", pooled_head_);
  add_child("head", head_);
}

ForwardStart Model::start(const Tensor& ids, const RunOptions& options) {
  LAMINA_CHECK(!options.source.defined() || encoder_,
               "model: a source is given, but the architecture has no encoder; leave it out");
  ForwardStart start = start_forward(ids, options);
  if (!encoder_) return start;
  check_ids(options.source);
  LAMINA_CHECK(options.source.dim(0) == start.batch, "model: the source is ", options.source.shape(), ", ids ",
               ids.shape(), "; give one row of the source for each row of ids");
  LAMINA_CHECK(!options.document_starts.defined(),
               "model: packed documents of an encoder–decoder are not supported; give each document its own row");
  start.pass.source = encoder_->forward(options, start.pass.losses);
  return start;
}

void Model::check_decodes() const {
  LAMINA_CHECK(arch::is_causal(spec_),
               "model: attention is not causal, so tokens cannot be decoded one by one; call logits(), hidden() or "
               "pooled() on whole sequences");
}

ForwardContext Model::start_cached(const Tensor& ids, const ModelCache& cache, const CachedOptions& options) const {
  check_ids(ids);
  LAMINA_CHECK(!is_tracked({embedding_.weight()}),
               "model: cached forward passes have no gradient; wrap the call in NoGrad");
  ForwardContext pass;
  pass.batch = ids.dim(0);
  pass.seq = ids.dim(1);
  LAMINA_CHECK(pass.batch == cache.batch() && pass.batch > 0 && pass.seq > 0, "model: ids are ", ids.shape(),
               ", the cache has ", cache.batch(), " rows; expected one row of at least one token for each");
  const std::vector<int64_t> lengths = cache.lengths();
  pass.offset = lengths[0];
  const bool even = std::all_of(lengths.begin(), lengths.end(), [&](int64_t n) { return n == lengths[0]; });
  if (!even) pass.offsets = lengths;
  LAMINA_CHECK(options.counts.empty() || static_cast<int64_t>(options.counts.size()) == pass.batch,
               "model: ", options.counts.size(), " counts for ", pass.batch, " rows; give one for each, or none");
  for (const int64_t count : options.counts) {
    LAMINA_CHECK(count >= 0 && count <= pass.seq, "model: a row of ", count, " real tokens among ", pass.seq,
                 "; expected a count in [0, ", pass.seq, "]");
  }
  const bool padded =
      std::any_of(options.counts.begin(), options.counts.end(), [&](int64_t n) { return n != pass.seq; });
  if (padded) pass.counts = options.counts;
  LAMINA_CHECK(pass.end() <= cache.capacity(), "model: ", pass.end(), " tokens (", pass.seq,
               " of them new) exceed the cache's capacity of ", cache.capacity(), "; make a larger cache");
  if (pass.ragged()) pass.positions = ragged_positions(pass, ids.device());
  pass.source_lengths = cache.source_lengths();
  return pass;
}

ResidualStream Model::run_layers(const Tensor& ids, ForwardContext& pass, ModelCache* cache, Tape* checkpoint) {
  ResidualStream stream{embedding_.forward(ids, pass), {}};
  return layers_.forward(std::move(stream), pass, cache, checkpoint);
}

Tensor Model::forward(const Tensor& ids, ForwardContext& pass, ModelCache* cache, Tape* checkpoint) {
  ResidualStream stream = run_layers(ids, pass, cache, checkpoint);
  return final_norm_ ? stream.normed(*final_norm_) : stream.value();
}

Tensor Model::hidden(const Tensor& ids, const RunOptions& options) {
  ForwardStart start = this->start(ids, options);
  return start.padded(forward(start.ids, start.pass, nullptr, options.checkpoint));
}

Tensor Model::logits(const Tensor& ids, const RunOptions& options) {
  ForwardStart start = this->start(ids, options);
  return start.padded(head_.logits(forward(start.ids, start.pass, nullptr, options.checkpoint)));
}

Tensor Model::pooled(const Tensor& ids, const RunOptions& options) {
  ForwardStart start = this->start(ids, options);
  return pooled_head_.pooled(forward(start.ids, start.pass, nullptr, options.checkpoint), start);
}

Tensor Model::class_logits(const Tensor& ids, const RunOptions& options) {
  return pooled_head_.class_logits(pooled(ids, options));
}

Tensor Model::encoded(const RunOptions& options) {
  LAMINA_CHECK(encoder_, "model: the architecture has no encoder; call hidden()");
  std::vector<Tensor> losses;
  const EncodedSource source = encoder_->forward(options, losses);
  return with_padding(source.states, source.row_starts, source.seq);
}

void Model::read_source(const Tensor& source, ModelCache& cache, const std::vector<int64_t>& lengths) {
  LAMINA_CHECK(encoder_, "model: the architecture has no encoder, so there is no source to read");
  check_ids(source);
  LAMINA_CHECK(source.dim(0) == cache.batch(), "model: the source is ", source.shape(), ", the cache has ",
               cache.batch(), " rows; give one row for each");
  LAMINA_CHECK(!is_tracked({embedding_.weight()}),
               "model: reading a source into a cache has no gradient; wrap the call in NoGrad");
  RunOptions options;
  options.source = source;
  options.source_lengths = lengths;
  const Tensor states = encoded(options);
  cache.sources_.clear();
  for (const auto& layer : layers_.all()) {
    const CrossAttention* cross = layer->cross();
    auto& stored = cache.sources_.emplace_back();
    if (cross == nullptr) continue;
    stored = cross->make_cache(states.dim(0), states.dim(1), cache.dtype_, device());
    cross->store(states, *stored);
  }
  for (int64_t row = 0; row < cache.batch(); ++row) {
    cache.reset(row);
    cache.row("read_source", row).source_length = lengths.empty() ? source.dim(1) : lengths[static_cast<size_t>(row)];
  }
}

ModelLoss Model::loss(const Tensor& ids, const Tensor& targets, const LossOptions& options, const RunOptions& run) {
  LAMINA_CHECK(targets.defined() && targets.shape() == ids.shape(), "model: targets are ",
               targets.defined() ? targets.shape() : Shape(), ", ids ", ids.shape(),
               "; give the next token of each position");
  LAMINA_CHECK(!head_.is_rounded(),
               "model: the loss needs the head's weight, but the head is quantized; keep the head "
               "unquantized, or compute the cross entropy from logits()");
  ForwardStart start = this->start(ids, run);
  ForwardContext& pass = start.pass;
  const Tensor x = head_.project(forward(start.ids, pass, nullptr, run.checkpoint));
  ModelLoss loss;
  loss.cross_entropy = ops::linear_cross_entropy(x, head_.weight(), start.without_padding(targets),
                                                 {.ignore_index = options.ignore_index,
                                                  .label_smoothing = options.label_smoothing,
                                                  .z_loss = options.z_loss,
                                                  .soft_cap = head_.soft_cap(),
                                                  .logit_scale = head_.scale()},
                                                 head_.bias());
  loss.total = loss.cross_entropy;
  for (const Tensor& more : pass.losses) {
    loss.total = ops::add(loss.total, more.reshape(loss.total.shape()).to(loss.total.dtype()));
  }
  loss.auxiliary = std::move(pass.losses);
  return loss;
}

ModelCache Model::make_cache(int64_t batch, int64_t capacity, std::optional<DType> given) const {
  check_decodes();
  LAMINA_CHECK(batch > 0 && capacity > 0, "model: a cache of ", batch, " rows and ", capacity,
               " tokens; expected positive numbers");
  const DType weights = embedding_.weight().dtype();
  const DType dtype = given.value_or(weights);
  LAMINA_CHECK((is_floating(dtype) || dtype == DType::u8) && (dtype == DType::f64) == (weights == DType::f64),
               "model: a cache of ", dtype, " for weights of ", weights,
               "; expected f64 for f64 weights, otherwise f32, bf16, f16 or u8 (8 bits)");
  std::vector<std::unique_ptr<LayerCache>> caches;
  for (const auto& layer : layers_.all()) {
    const Mixer* mixer = layer->mixer();
    caches.push_back(mixer == nullptr ? nullptr : mixer->make_cache(batch, capacity, dtype, device()));
  }
  return {std::move(caches), batch, capacity, dtype, positions_.depend_on_length()};
}

bool Model::is_stale(const ModelCache& cache, const ForwardContext& pass) const {
  for (int64_t row = 0; cache.keeps_ids_ && row < pass.batch; ++row) {
    if (pass.offset_of(row) == 0) continue;
    if (positions_.change_between(cache.row("pass", row).made_at, pass.length_of(row))) return true;
  }
  return false;
}

Tensor Model::refill(const std::vector<int64_t>& ids, const ForwardContext& pass, const Device& device,
                     ModelCache& cache) {
  const int64_t width = pass.end();
  std::vector<int64_t> all(static_cast<size_t>(pass.batch * width), 0);  // padded with token 0
  std::vector<int64_t> firsts;
  CachedOptions options;
  for (int64_t row = 0; row < pass.batch; ++row) {
    const std::vector<int64_t>& before = cache.row("refill", row).ids;
    const auto fresh = real_ids(ids, pass, row);
    const auto to = all.begin() + row * width;
    std::copy(fresh.begin(), fresh.end(), std::copy(before.begin(), before.end(), to));
    firsts.push_back(pass.offset_of(row));
    options.counts.push_back(pass.length_of(row));
    cache.reset(row);
  }
  const Tensor whole = Tensor::from(all, {pass.batch, width}, device);
  ForwardContext again = start_cached(whole, cache, options);
  const Tensor x = forward(whole, again, &cache, nullptr);
  for (int64_t row = 0; row < pass.batch; ++row) {
    cache.append(row, std::span(all).subspan(static_cast<size_t>(row * width),
                                             static_cast<size_t>(firsts[static_cast<size_t>(row)])));
  }
  return tokens_from(x, firsts, pass.seq);
}

Tensor Model::cached_logits(const Tensor& ids, ModelCache& cache, const CachedOptions& options) {
  return head_.logits(cached_hidden(ids, cache, options));
}

Tensor Model::cached_hidden(const Tensor& ids, ModelCache& cache, const CachedOptions& options) {
  ForwardContext pass = start_cached(ids, cache, options);
  const std::vector<int64_t> fresh =
      cache.keeps_ids_ ? ids.to_vector<int64_t>() : std::vector<int64_t>(static_cast<size_t>(ids.numel()));
  const Tensor x =
      is_stale(cache, pass) ? refill(fresh, pass, ids.device(), cache) : forward(ids, pass, &cache, nullptr);
  for (int64_t row = 0; row < pass.batch; ++row) cache.append(row, real_ids(fresh, pass, row));
  return options.last_only ? last_tokens(x, pass) : x;
}

}  // namespace lamina::nn
