#include <algorithm>

#include "lamina/autograd/tape.h"
#include "lamina/nn/model.h"
#include "lamina/ops/embedding/embedding.h"

namespace lamina::nn {
namespace {

/// Length of the longest sequence after this step. If the host does not know it: the most that it can be.
int64_t longest_row(const RowBatch& rows, const SequenceCache& cache, const arch::ArchSpec& spec) {
  if (rows.host_counts.empty()) {
    int64_t most = rows.context > 0 ? rows.context : spec.context;
    if (rows.context == 0 && !rows.groups.empty()) most = rows.groups.front().tables.dim(1) * cache.page_size();
    const auto* learned = std::get_if<arch::LearnedPosition>(&spec.position);
    return learned == nullptr ? most : std::min(most, *learned->length);
  }
  int64_t longest = 0;
  for (size_t i = 0; i < rows.host_counts.size(); ++i) {
    longest = std::max<int64_t>(longest, rows.host_offsets[i] + rows.host_counts[i]);
  }
  return longest;
}

}  // namespace

std::vector<CacheLayout> Model::cache_layouts() const {
  check_decodes();
  LAMINA_CHECK(!encoder_,
               "model: ragged steps of an encoder–decoder are not supported; decode with make_cache(), read_source() "
               "and cached_logits()");
  std::vector<CacheLayout> layouts;
  for (const auto& layer : layers_.all()) {
    layouts.push_back(layer->mixer() == nullptr ? CacheLayout{} : layer->mixer()->cache_layout());
  }
  return layouts;
}

std::unique_ptr<SequenceCache> Model::make_sequence_cache(const SequenceCacheOptions& options) const {
  return std::make_unique<SequenceCache>(cache_layouts(), options, embedding_.weight().dtype(), device());
}

ForwardContext Model::start_rows(const Tensor& ids, const RowBatch& rows, const SequenceCache& cache) const {
  LAMINA_CHECK(ids.defined() && ids.rank() == 1 && ids.dim(0) > 0, "model: ids of a ragged step are ",
               ids.defined() ? str(ids.shape()) : "undefined", "; expected [tokens] with at least one token");
  LAMINA_CHECK(static_cast<int64_t>(rows.groups.size()) == cache.groups(), "model: page tables of ", rows.groups.size(),
               " groups for a cache of ", cache.groups(), "; give one for each group");
  LAMINA_CHECK(cache.has_states() == rows.slots.defined(), "model: ",
               rows.slots.defined() ? "state slots for a model without states; leave them out"
                                    : "no state slots for a model with recurrent states; give one for each row");
  LAMINA_CHECK(rows.positions.defined() && rows.positions.shape() == ids.shape(), "model: positions are ",
               rows.positions.defined() ? str(rows.positions.shape()) : "undefined", ", ids ", ids.shape(),
               "; give the position of each token");
  LAMINA_CHECK(rows.host_counts.size() == rows.host_offsets.size(), "model: counts of ", rows.host_counts.size(),
               " rows and offsets of ", rows.host_offsets.size(), "; give both for every row, or neither");
  if (rows.host_counts.empty()) {
    LAMINA_CHECK(!positions_.depend_on_length(),
                 "model: a step without counts, but the RoPE frequencies of this model depend on the length; give the "
                 "counts and offsets of all rows");
  } else {
    int64_t tokens = 0;
    for (const int32_t count : rows.host_counts) tokens += count;
    LAMINA_CHECK(tokens == ids.dim(0), "model: the rows of a step have ", tokens, " tokens, ids are ", ids.shape(),
                 "; give the new tokens of all rows");
  }
  ForwardContext pass;
  pass.parallel = parallel_.get();
  pass.experts = experts_.get();
  pass.batch = 1;
  pass.seq = ids.dim(0);
  pass.positions = rows.positions;
  pass.rows = &rows;
  pass.longest_row = longest_row(rows, cache, spec_);
  return pass;
}

// The host waits for each collective of ranks that share the model, which a capture cannot contain.
bool Model::supports_row_graphs() const { return !positions_.depend_on_length() && !parallel_; }

Tensor Model::row_logits(const Tensor& ids, const RowBatch& rows, SequenceCache& cache, const Tensor& wanted) {
  LAMINA_CHECK(!is_tracked({embedding_.weight()}),
               "model: steps with a cache have no gradient; wrap the call in NoGrad");
  ForwardContext pass = start_rows(ids, rows, cache);
  Tensor x = embedding_.forward(ids.reshape({1, pass.seq}), pass);
  ResidualStream stream{x.to(rows.activations.value_or(x.dtype())), {}};
  for (size_t i = 0; i < layers_.all().size(); ++i) {
    pass.layer = static_cast<int64_t>(i);
    pass.memory = &cache.layer(i);
    stream = layers_.all()[i]->forward(std::move(stream), pass, {});
  }
  if (wanted.defined()) {
    const Tensor tokens = stream.value().reshape({pass.seq, spec_.d_model});
    stream = {ops::embedding(tokens, wanted).reshape({1, wanted.dim(0), spec_.d_model}), {}};
  }
  const Tensor logits = final_norm_ ? head_.normed_logits(stream, *final_norm_) : head_.logits(stream.value());
  return logits.reshape({logits.dim(1), logits.dim(2)});
}

}  // namespace lamina::nn
