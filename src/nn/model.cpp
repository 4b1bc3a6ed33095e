#include "lamina/nn/model.h"

#include <algorithm>
#include <cmath>

#include "lamina/autograd/tape.h"
#include "lamina/ops/elementwise/concat.h"
#include "lamina/ops/elementwise/elementwise.h"
#include "lamina/ops/parallel/collectives.h"

namespace lamina::nn {
namespace {

ParameterFactory factory(const arch::ArchSpec& spec, const Device& device, const ModelOptions& options,
                         const arch::Shards& shards) {
  LAMINA_CHECK(is_floating(options.dtype), "model: weights cannot be ", options.dtype,
               "; expected f32, f64, bf16 or f16");
  LAMINA_CHECK(spec.embedding.d_embed && spec.final_norm,
               "model: the architecture is not resolved; call arch::resolve first");
  const auto branches = 2.0 * static_cast<double>(arch::layer_count(spec));
  return {device,
          {.dtype = options.dtype,
           .seed = options.seed,
           .deviation = options.initial_deviation,
           .residual_deviation = options.initial_deviation / std::sqrt(branches),
           .shards = shards.empty() ? nullptr : &shards}};
}

/// Returns `given` if it has more than one rank, otherwise null.
template <class Ranks>
std::shared_ptr<const Ranks> several(const std::shared_ptr<const Ranks>& given) {
  return given && given->ranks().size() > 1 ? given : nullptr;
}

/// The grid of ranks that hold the model together. Throws an Error if they cannot divide the architecture.
arch::ModelGrid checked_grid(const arch::ArchSpec& spec, const ModelOptions& options) {
  arch::ModelGrid grid;
  if (const auto tensor = several(options.parallel)) {
    grid.tensor = tensor->ranks().size();
    grid.sequence = tensor->sequence();
  }
  if (const auto experts = several(options.experts)) grid.experts = experts->ranks().size();
  grid.stages = options.stage.count;
  grid.chunks = options.stage.chunks;
  if (grid.size() == 1) return grid;
  std::vector<arch::Problem> problems = arch::tensor_parallel_problems(spec, grid.tensor);
  for (const std::vector<arch::Problem>& more :
       {arch::expert_parallel_problems(spec, grid.experts), arch::pipeline_problems(spec, grid.stages, grid.chunks)}) {
    problems.insert(problems.end(), more.begin(), more.end());
  }
  if (!problems.empty()) throw arch::SpecError("the architecture", problems);
  return grid;
}

int rank_in_grid(const arch::ModelGrid& grid, const ModelOptions& options) {
  return grid.rank_at(options.stage.index, grid.experts > 1 ? options.experts->ranks().rank() : 0,
                      grid.tensor > 1 ? options.parallel->ranks().rank() : 0);
}

int64_t stage_layer_count(const arch::ArchSpec& spec) { return static_cast<int64_t>(arch::layer_blocks(spec).size()); }

/// Position of every token. Padding gets the position of the row's last real token, so that position tables need not be
/// longer.
Tensor ragged_positions(const ForwardContext& pass, const Device& device) {
  std::vector<int64_t> positions;
  for (int64_t row = 0; row < pass.batch; ++row) {
    const int64_t last = std::max<int64_t>(pass.length_of(row) - 1, 0);
    for (int64_t s = 0; s < pass.seq; ++s) positions.push_back(std::min(pass.offset_of(row) + s, last));
  }
  return Tensor::from(positions, {pass.batch, pass.seq}, device);
}

/// `count` tokens of each row, starting at firsts[row]: x [batch, seq, d_model] → [batch, count, d_model].
Tensor tokens_from(const Tensor& x, const std::vector<int64_t>& firsts, int64_t count) {
  std::vector<Tensor> rows;
  for (int64_t row = 0; row < x.dim(0); ++row) {
    rows.push_back(x.slice(0, row, 1).slice(1, firsts[static_cast<size_t>(row)], count));
  }
  return ops::concat(rows, 0);
}

/// The last real token of each row: [batch, 1, d_model].
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
      parallel_(several(options.parallel)),
      experts_(several(options.experts)),
      stage_(options.stage),
      weights_(options.weights),
      grid_(checked_grid(spec, options)),
      grid_rank_(rank_in_grid(grid_, options)),
      shards_(grid_.size() > 1 ? arch::weight_shards(spec, grid_, grid_rank_) : arch::Shards()),
      own_spec_(parallel_ ? arch::sharded_spec(spec, parallel_->ranks().size(), parallel_->ranks().rank()) : spec),
      positions_(own_spec_, factory(own_spec_, device, options, shards_).at("position")),
      embedding_(own_spec_, factory(own_spec_, device, options, shards_).at("embedding"), positions_),
      layers_(weights_.get()),
      head_(own_spec_, factory(own_spec_, device, options, shards_).at("head"), embedding_, spec_.vocab_size,
            parallel_.get()),
      pooled_head_(own_spec_, factory(own_spec_, device, options, shards_)) {
  const ParameterFactory make = factory(own_spec_, device, options, shards_);
  add_child("embedding", embedding_);
  add_child("position", positions_);
  if (spec_.encoder) {
    encoder_ = std::make_unique<Encoder>(own_spec_, make.at("encoder"), embedding_);
    add_child("encoder", *encoder_);
  }
  if (spec_.retrieval) {
    neighbour_encoder_ = std::make_unique<NeighbourEncoder>(own_spec_, make.at("retrieval"), embedding_);
    add_child("retrieval", *neighbour_encoder_);
  }
  const std::vector<const arch::Block*> blocks = arch::layer_blocks(own_spec_);
  const auto add_layer = [&](int64_t layer) {
    const arch::Block& block = *blocks[static_cast<size_t>(layer)];
    layers_.add(std::make_unique<Layer>(own_spec_, block, make.at("layers").at(std::to_string(layer)), positions_),
                layer);
    if (!weights_) return;
    StateDict made = layers_.all().back()->named_parameters();
    for (NamedTensor& parameter : made) parameter.name = str("layers.", layer, ".", parameter.name);
    weights_->created(made);
  };
  for (int chunk = 0; chunk < stage_.chunks; ++chunk) {
    const arch::UnitRange own = arch::chunk_layers(stage_layer_count(spec_), stage_, chunk);
    for (int64_t layer = own.begin; layer < own.end; ++layer) add_layer(layer);
  }
  add_child("layers", layers_);
  if (*spec_.final_norm && stage_.is_last()) {
    final_norm_.emplace(spec_.norm, spec_.d_model, make.at("final_norm"));
    add_child("final_norm", *final_norm_);
  }
  add_child("", pooled_head_);
  add_child("head", head_);
  if (weights_) weights_->created(named_parameters());
}

ForwardStart Model::start(const Tensor& ids, const RunOptions& options) {
  LAMINA_CHECK(!options.source.defined() || encoder_,
               "model: a source is given, but the architecture has no encoder; leave it out");
  ForwardStart start = start_forward(ids, options);
  start.pass.parallel = parallel_.get();
  start.pass.experts = experts_.get();
  start.pass.whole_sequences = options.observer == nullptr;  // an observer needs the whole residual stream on one rank
  start.pass.neighbours = checked_neighbours(options, start);
  if (!encoder_) return start;
  check_ids(options.source);
  LAMINA_CHECK(options.source.dim(0) == start.batch, "model: the source is ", options.source.shape(), ", ids ",
               ids.shape(), "; give one row of the source for each row of ids");
  LAMINA_CHECK(!options.document_starts.defined(),
               "model: packed documents of an encoder–decoder are not supported; give each document its own row");
  start.pass.source = encoder_->forward(options, start.pass.losses);
  return start;
}

ChunkNeighbours Model::checked_neighbours(const RunOptions& options, const ForwardStart& start) const {
  const Tensor& ids = options.neighbours;
  if (!ids.defined()) return {};
  LAMINA_CHECK(neighbour_encoder_,
               "model: neighbours are given, but the architecture has no retrieval; leave them out");
  LAMINA_CHECK(!start.pass.document_starts.defined(),
               "model: neighbours of packed documents or padded rows are not supported; give rows of one length");
  const int64_t chunks = start.seq / spec_.retrieval->chunk;
  neighbour_encoder_->check_ids(ids, start.batch, chunks);
  if (chunks == 0) return {};
  return {ids, neighbour_encoder_.get(), {}, false};
}

ChunkNeighbours Model::checked_neighbours(const CachedOptions& options, const ForwardContext& pass) const {
  if (!neighbour_encoder_) {
    LAMINA_CHECK(!options.neighbours.defined(),
                 "model: neighbours are given, but the architecture has no retrieval; leave them out");
    return {};
  }
  LAMINA_CHECK(!pass.ragged() && !positions_.depend_on_length(),
               "model: a model with retrieval decodes rows of one length, with RoPE frequencies that do not depend on "
               "it; make a cache for each row");
  const int64_t chunk = spec_.retrieval->chunk;
  const int64_t ends = (pass.offset + pass.seq) / chunk - pass.offset / chunk;
  if (options.neighbours.defined()) neighbour_encoder_->check_ids(options.neighbours, pass.batch, ends);
  return {options.neighbours, neighbour_encoder_.get(), {}, false};
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
  pass.parallel = parallel_.get();
  pass.experts = experts_.get();
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
  const bool apart = pass.ragged() || positions_.depend_on_length();
  const auto can_forget = [](const auto& chunks) { return !chunks || chunks->can_truncate(); };
  if (neighbour_encoder_ && apart && !options.neighbours.defined() &&
      std::all_of(cache.sources_.begin(), cache.sources_.end(), can_forget)) {
    // No neighbours were given so far, so these rows run like those of a plain decoder.
    for (const auto& chunks : cache.sources_) {
      if (chunks) chunks->reset(0);
    }
  } else {
    pass.neighbours = checked_neighbours(options, pass);
  }
  return pass;
}

ResidualStream Model::run_layers(const Tensor& ids, const Tensor& states, ForwardContext& pass, ModelCache* cache,
                                 Tape* checkpoint, int chunk) {
  ResidualStream stream{begins(chunk) ? embedding_.forward(ids, pass) : states, {}};
  return layers_.forward(std::move(stream), pass, cache, checkpoint, 0,
                         arch::chunk_layers(stage_layer_count(spec_), stage_, chunk));
}

Tensor Model::forward(const Tensor& ids, ForwardContext& pass, ModelCache* cache, Tape* checkpoint) {
  LAMINA_CHECK(stage_.count == 1, "model: this process holds pipeline stage ", stage_.index, " of ", stage_.count,
               " only; call stage_loss() or stage_hidden()");
  ResidualStream stream = run_layers(ids, {}, pass, cache, checkpoint);
  return final_norm_ ? stream.normed(*final_norm_) : stream.value();
}

Tensor Model::hidden(const Tensor& ids, const RunOptions& options) {
  ForwardStart start = this->start(ids, options);
  return start.padded(start.pass.all_tokens(forward(start.ids, start.pass, nullptr, options.checkpoint)));
}

Tensor Model::logits(const Tensor& ids, const RunOptions& options) {
  ForwardStart start = this->start(ids, options);
  const Tensor x = start.pass.all_tokens(forward(start.ids, start.pass, nullptr, options.checkpoint));
  return start.padded(head_.logits(x));
}

Tensor Model::pooled(const Tensor& ids, const RunOptions& options) {
  ForwardStart start = this->start(ids, options);
  const Tensor x = start.pass.all_tokens(forward(start.ids, start.pass, nullptr, options.checkpoint));
  return pooled_head_.pooled(x, start);
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
  const bool shared = source.dim(0) == 1;
  LAMINA_CHECK(shared || source.dim(0) == cache.batch(), "model: the source is ", source.shape(), ", the cache has ",
               cache.batch(), " rows; give one row for each, or one for all");
  LAMINA_CHECK(!is_tracked({embedding_.weight()}),
               "model: reading a source into a cache has no gradient; wrap the call in NoGrad");
  RunOptions options;
  options.source = source;
  options.source_lengths = lengths;
  Tensor states = encoded(options);
  if (shared) states = ops::concat(std::vector<Tensor>(static_cast<size_t>(cache.batch()), states), 0);
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
    const auto at = static_cast<size_t>(shared ? 0 : row);
    cache.row("read_source", row).source_length = lengths.empty() ? source.dim(1) : lengths[at];
  }
}

ModelLoss Model::loss(const Tensor& ids, const Tensor& targets, const LossOptions& options, const RunOptions& run) {
  LAMINA_CHECK(targets.defined() && targets.shape() == ids.shape(), "model: targets are ",
               targets.defined() ? targets.shape() : Shape(), ", ids ", ids.shape(),
               "; give the next token of each position");
  LAMINA_CHECK(!head_.is_quantized(),
               "model: the loss needs the head's weight, but the head is quantized; keep the head "
               "unquantized, or compute the cross entropy from logits()");
  LAMINA_CHECK(stage_.count == 1, "model: this process holds pipeline stage ", stage_.index, " of ", stage_.count,
               " only; call stage_loss()");
  return stage_loss(ids, {}, targets, options, run).loss;
}

void Model::check_states(const Tensor& states, const Tensor& ids, int chunk) const {
  if (begins(chunk)) return;
  LAMINA_CHECK(states.defined() && states.shape() == states_shape(ids.dim(0), ids.dim(1)), "model: states are ",
               states.defined() ? states.shape() : Shape(), "; give what stage ",
               (stage_.index + stage_.count - 1) % stage_.count, " returned, ", states_shape(ids.dim(0), ids.dim(1)));
}

Shape Model::states_shape(int64_t batch, int64_t seq) const {
  if (!parallel_ || !parallel_->sequence()) return {batch, seq, spec_.d_model};
  return {1, parallel_->token_counts(batch * seq)[static_cast<size_t>(parallel_->ranks().rank())], spec_.d_model};
}

Tensor Model::stage_hidden(const Tensor& ids, const Tensor& states, const RunOptions& options) {
  ForwardStart start = this->start(ids, options);
  check_states(states, start.ids, options.chunk);
  ResidualStream stream = run_layers(start.ids, states, start.pass, nullptr, options.checkpoint, options.chunk);
  if (!ends(options.chunk)) return stream.value();
  return start.padded(start.pass.all_tokens(final_norm_ ? stream.normed(*final_norm_) : stream.value()));
}

StageOutput Model::stage_loss(const Tensor& ids, const Tensor& states, const Tensor& targets,
                              const LossOptions& options, const RunOptions& run) {
  ForwardStart start = this->start(ids, run);
  ForwardContext& pass = start.pass;
  check_states(states, start.ids, run.chunk);
  ResidualStream stream = run_layers(start.ids, states, pass, nullptr, run.checkpoint, run.chunk);
  StageOutput output;
  ModelLoss& loss = output.loss;
  if (parallel_) {  // every rank computed the same losses from the whole input of a sublayer
    for (Tensor& more : pass.losses) more = ops::computed_by_all(more, parallel_->ranks().size());
  }
  loss.auxiliary = std::move(pass.losses);
  if (!ends(run.chunk)) {
    output.states = stream.value();
    return output;
  }
  const Tensor x = pass.enter(head_.project(final_norm_ ? stream.normed(*final_norm_) : stream.value()));
  loss.cross_entropy = ops::linear_cross_entropy(x, head_.weight(), start.without_padding(targets),
                                                 {.ignore_index = options.ignore_index,
                                                  .label_smoothing = options.label_smoothing,
                                                  .z_loss = options.z_loss,
                                                  .soft_cap = head_.soft_cap(),
                                                  .logit_scale = head_.scale()},
                                                 head_.bias(), head_.classes());
  loss.total = loss.cross_entropy;
  for (const Tensor& more : loss.auxiliary) {
    loss.total = ops::add(loss.total, more.reshape(loss.total.shape()).to(loss.total.dtype()));
  }
  return output;
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
  ModelCache cache(std::move(caches), batch, capacity, dtype, positions_.depend_on_length());
  for (const auto& layer : layers_.all()) {
    if (!neighbour_encoder_) break;
    const ChunkedCrossAttention* chunked = layer->chunked_cross();
    cache.sources_.push_back(chunked == nullptr ? nullptr : chunked->make_cache());
  }
  return cache;
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
  std::vector<int64_t> all(static_cast<size_t>(pass.batch * width), 0);  // padding is token 0
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
