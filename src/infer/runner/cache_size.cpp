#include "lamina/infer/runner/cache_size.h"

#include <algorithm>

#include "lamina/arch/layers.h"
#include "lamina/nn/tensor_parallel.h"
#include "lamina/tensor/replay.h"

namespace lamina::infer {
namespace {

/// Number of new tokens per step that the pages of a window must hold in addition to the window.
constexpr int64_t kChunk = 2048;

int64_t limit_of(const nn::Model& model, const ModelRunnerOptions& options) {
  if (options.cache_bytes > 0) return options.cache_bytes;
  const std::optional<int64_t> free = model.device().free_memory();
  return free ? *free / 10 * 9 : kDefaultCacheBytes;
}

/// Number of pages that each group needs for sequences with `tokens` tokens in total.
std::vector<int64_t> pages_for(const nn::Model& model, const nn::SequenceCache& one, int64_t tokens, int64_t rows) {
  const int64_t size = one.page_size();
  std::vector<int64_t> pages;
  for (int64_t group = 0; group < one.groups(); ++group) {
    const int64_t window = kept_window(model, one, group);
    const int64_t all = tokens / size;
    const int64_t most = rows * ((window + kChunk) / size + 2);
    pages.push_back(std::max<int64_t>(window == 0 ? all : std::min(all, most), 1));
  }
  return pages;
}

int64_t bytes_of(const nn::SequenceCache& one, const std::vector<int64_t>& pages, int64_t slots) {
  int64_t bytes = one.has_states() ? (slots + 1) * one.bytes_per_state() : 0;
  for (size_t group = 0; group < pages.size(); ++group) {
    bytes += pages[group] * one.bytes_per_page(static_cast<int64_t>(group));
  }
  return bytes;
}

/// All ranks must have the same number of pages, because their page tables are the same. Takes the minimum: a rank with
/// more KV heads has room for fewer pages.
void agree_on_least(comm::Communicator& ranks, nn::SequenceCacheOptions& sized) {
  std::vector<double> own(sized.pages.begin(), sized.pages.end());
  own.push_back(static_cast<double>(sized.state_slots));
  const std::vector<double> all = comm::gather(ranks, own, "cache size");
  for (size_t i = 0; i < all.size(); ++i) own[i % own.size()] = std::min(own[i % own.size()], all[i]);
  sized.state_slots = static_cast<int64_t>(own.back());
  own.pop_back();
  sized.pages.assign(own.begin(), own.end());
}

}  // namespace

ModelRunnerOptions checked_options(ModelRunnerOptions options, const nn::Model& model) {
  LAMINA_CHECK(!model.spec().encoder,
               "the engine runs decoders, and this model is an encoder–decoder; use lamina generate (infer::generate)");
  LAMINA_CHECK(arch::is_causal(model.spec()),
               "the engine runs decoders, and this model is an encoder, which generates no text; use lamina embed or "
               "lamina eval (infer::embed)");
  if (options.context == 0) options.context = model.spec().context;
  LAMINA_CHECK(options.rows > 0 && options.context > 0, "runner: ", options.rows, " rows with a context of ",
               options.context, " tokens; expected positive numbers");
  LAMINA_CHECK(!options.measures_idle || Replay::possible(model.device()), "runner: idle time of ", model.device(),
               " cannot be measured; use a GPU");
  if (!Replay::possible(model.device())) return options;
  const std::optional<DType> half = half_type_of(model);
  if (!options.activations) options.activations = half;
  if (!options.cache_dtype) options.cache_dtype = half;
  return options;
}

int64_t kept_window(const nn::Model& model, const nn::SequenceCache& cache, int64_t group) {
  return model.depends_on_length() ? 0 : cache.window(group);
}

nn::SequenceCacheOptions size_caches(const nn::Model& model, const ModelRunnerOptions& options) {
  nn::SequenceCacheOptions sized{.pages = {1}, .page_size = options.page_size, .dtype = options.cache_dtype};
  sized.state_slots = 1;
  const nn::SequenceCache one(model.cache_layouts(), sized, model.dtype(), Device::meta());
  const int64_t limit = limit_of(model, options);
  // One state per row, and as many again for snapshots of prefixes.
  sized.state_slots = one.has_states() ? 2 * options.rows : 0;
  const auto fits = [&](int64_t tokens) {
    return bytes_of(one, pages_for(model, one, tokens, options.rows), sized.state_slots) <= limit;
  };
  while (sized.state_slots > 1 && !fits(options.page_size)) sized.state_slots /= 2;
  LAMINA_CHECK(fits(options.page_size), "runner: ", limit, " bytes for caches; one page and one state take ",
               bytes_of(one, pages_for(model, one, options.page_size, options.rows), sized.state_slots),
               "; give more memory, or a cache of fewer bits");
  int64_t low = 1;  // number of pages
  int64_t high = options.rows * ((options.context + options.page_size - 1) / options.page_size);
  while (low < high) {
    const int64_t middle = low + (high - low + 1) / 2;
    if (fits(middle * options.page_size)) {
      low = middle;
    } else {
      high = middle - 1;
    }
  }
  sized.pages = pages_for(model, one, low * options.page_size, options.rows);
  if (model.parallel()) agree_on_least(model.parallel()->ranks(), sized);
  return sized;
}

std::unique_ptr<nn::SequenceCache> make_caches(const nn::Model& model, const ModelRunnerOptions& options) {
  auto cache = model.make_sequence_cache(size_caches(model, options));
  if (!Replay::possible(model.device())) return cache;
  for (size_t i = 0; i < model.cache_layouts().size(); ++i) {
    const ops::PagedCache& pages = cache->layer(i).pages;
    for (Tensor tensor : {pages.k, pages.v, pages.scales.k, pages.scales.v}) {
      if (tensor.defined()) tensor.fill_(0.0);
    }
  }
  return cache;
}

}  // namespace lamina::infer
