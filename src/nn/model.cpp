#include "lamina/nn/model.h"

#include <algorithm>
#include <cmath>

#include "lamina/autograd/tape.h"
#include "lamina/ops/elementwise/concat.h"
#include "lamina/ops/elementwise/elementwise.h"

namespace lamina::nn {
namespace {

constexpr double kDeviation = 0.02;
/// Random streams reserved for each layer per step.
constexpr uint64_t kStreamsPerLayer = 64;

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

void check_ids(const Tensor& ids) {
  LAMINA_CHECK(ids.defined() && ids.rank() == 2 && (ids.dtype() == DType::i64 || ids.dtype() == DType::i32),
               "model: ids must be a tensor [batch, seq] of i64 or i32",
               ids.defined() ? str("; given is ", ids.dtype(), " ", ids.shape()) : "; the given tensor is undefined");
}

/// Sets positions for packed documents; they restart at 0 with each document.
void place_documents(const Tensor& starts_in, const Device& device, ForwardContext& pass) {
  LAMINA_CHECK(starts_in.rank() == 1 && (starts_in.dtype() == DType::i64 || starts_in.dtype() == DType::i32),
               "model: document_starts is ", starts_in.dtype(), " ", starts_in.shape(),
               "; expected [documents + 1] of i64 or i32");
  pass.document_starts = starts_in;
  const std::vector<int64_t> starts = starts_in.to_vector<int64_t>();
  LAMINA_CHECK(starts.size() >= 2 && starts.front() == 0 && starts.back() == pass.seq &&
                   std::is_sorted(starts.begin(), starts.end()),
               "model: document_starts must ascend from 0 to seq = ", pass.seq, "; check the packing of the batch");
  std::vector<int64_t> positions;
  for (size_t d = 1; d < starts.size(); ++d) {
    const int64_t length = starts[d] - starts[d - 1];
    pass.longest_document = std::max(pass.longest_document, length);
    for (int64_t p = 0; p < length; ++p) positions.push_back(p);
  }
  pass.positions = Tensor::from(positions, {pass.seq}, device);
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

void Model::Layers::add(std::unique_ptr<Layer> layer) {
  add_child(std::to_string(all.size()), *layer);
  all.push_back(std::move(layer));
}

Model::Model(const arch::ArchSpec& spec, const Device& device, const ModelOptions& options)
    : spec_(spec),
      positions_(spec_, factory(spec_, device, options).at("position")),
      embedding_(spec_, factory(spec_, device, options).at("embedding"), positions_),
      head_(spec_, factory(spec_, device, options).at("head"), embedding_) {
  const ParameterFactory make = factory(spec_, device, options);
  add_child("embedding", embedding_);
  add_child("position", positions_);
  for (const arch::Block* block : arch::layer_blocks(spec_)) {
    layers_.add(
        std::make_unique<Layer>(spec_, *block, make.at("layers").at(std::to_string(layers_.all.size())), positions_));
  }
  add_child("layers", layers_);
  if (*spec_.final_norm) {
    final_norm_.emplace(spec_.norm, spec_.d_model, make.at("final_norm"));
    add_child("final_norm", *final_norm_);
  }
  add_child("head", head_);
}

ForwardContext Model::start(const Tensor& ids, const RunOptions& options) const {
  check_ids(ids);
  ForwardContext pass;
  pass.batch = ids.dim(0);
  pass.seq = ids.dim(1);
  pass.training = options.training;
  pass.dropout = options.dropout;
  pass.seed = options.seed;
  pass.step = options.step;
  LAMINA_CHECK(options.observer == nullptr || options.checkpoint == nullptr,
               "model: an observer and activation checkpointing, which runs layers twice; leave one out");
  pass.observer = options.observer;
  pass.first_row = options.first_row;
  if (options.document_starts.defined()) place_documents(options.document_starts, ids.device(), pass);
  return pass;
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
  return pass;
}

ResidualStream Model::checkpointed(Tape& tape, size_t index, const ResidualStream& stream, ForwardContext& pass) {
  const auto segment = [this, index, settings = pass](const std::vector<Tensor>& inputs) {
    ForwardContext inner = settings;  // restarts the random stream counter each time the layer runs
    inner.losses.clear();
    ResidualStream out = layers_.all[index]->forward({inputs[0], inputs[1]}, inner, nullptr);
    std::vector<Tensor> outputs{out.x, out.branch};
    outputs.insert(outputs.end(), inner.losses.begin(), inner.losses.end());
    return outputs;
  };
  const std::vector<Tensor> outputs = checkpoint(tape, segment, {stream.x, stream.branch});
  pass.losses.insert(pass.losses.end(), outputs.begin() + 2, outputs.end());
  return {outputs[0], outputs[1]};
}

ResidualStream Model::run_layers(const Tensor& ids, ForwardContext& pass, ModelCache* cache, Tape* checkpoint) {
  ResidualStream stream{embedding_.forward(ids, pass), {}};
  for (size_t i = 0; i < layers_.all.size(); ++i) {
    pass.stream = (i + 1) * kStreamsPerLayer;
    pass.layer = static_cast<int64_t>(i);
    stream = checkpoint != nullptr
                 ? checkpointed(*checkpoint, i, stream, pass)
                 : layers_.all[i]->forward(std::move(stream), pass, cache == nullptr ? nullptr : cache->layer(i));
    if (pass.observer != nullptr && pass.observer->wants_residual())
      pass.observer->residual(pass.layer, stream.value());
  }
  return stream;
}

Tensor Model::forward(const Tensor& ids, ForwardContext& pass, ModelCache* cache, Tape* checkpoint) {
  ResidualStream stream = run_layers(ids, pass, cache, checkpoint);
  return final_norm_ ? stream.normed(*final_norm_) : stream.value();
}

Tensor Model::hidden(const Tensor& ids, const RunOptions& options) {
  ForwardContext pass = start(ids, options);
  return forward(ids, pass, nullptr, options.checkpoint);
}

Tensor Model::logits(const Tensor& ids, const RunOptions& options) { return head_.logits(hidden(ids, options)); }

ModelLoss Model::loss(const Tensor& ids, const Tensor& targets, const LossOptions& options, const RunOptions& run) {
  ForwardContext pass = start(ids, run);
  LAMINA_CHECK(targets.defined() && targets.shape() == ids.shape(), "model: targets are ",
               targets.defined() ? targets.shape() : Shape(), ", ids ", ids.shape(),
               "; give the next token of each position");
  LAMINA_CHECK(!head_.is_rounded(),
               "model: the loss needs the head's weight, but the head is quantized; keep the head "
               "unquantized, or compute the cross entropy from logits()");
  const Tensor x = head_.project(forward(ids, pass, nullptr, run.checkpoint));
  ModelLoss loss;
  loss.cross_entropy = ops::linear_cross_entropy(x, head_.weight(), targets,
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
  LAMINA_CHECK(batch > 0 && capacity > 0, "model: a cache of ", batch, " rows and ", capacity,
               " tokens; expected positive numbers");
  const DType weights = embedding_.weight().dtype();
  const DType dtype = given.value_or(weights);
  LAMINA_CHECK((is_floating(dtype) || dtype == DType::u8) && (dtype == DType::f64) == (weights == DType::f64),
               "model: a cache of ", dtype, " for weights of ", weights,
               "; expected f64 for f64 weights, otherwise f32, bf16, f16 or u8 (8 bits)");
  std::vector<std::unique_ptr<LayerCache>> caches;
  for (const auto& layer : layers_.all) {
    const Mixer* mixer = layer->mixer();
    caches.push_back(mixer == nullptr ? nullptr : mixer->make_cache(batch, capacity, dtype, device()));
  }
  return {std::move(caches), batch, capacity, positions_.depend_on_length()};
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
