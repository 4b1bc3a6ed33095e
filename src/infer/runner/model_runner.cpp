#include "lamina/infer/runner/model_runner.h"

#include <algorithm>

#include "lamina/infer/runner/cache_size.h"
#include "lamina/infer/runner/decode_graphs.h"
#include "lamina/infer/runner/rank_steps.h"

namespace lamina::infer {

std::optional<DType> half_type_of(const nn::Model& model) {
  for (const auto& [name, weight] : model.state_dict()) {
    if (!name.starts_with("layers.") || weight.rank() != 2) continue;
    if (weight.is_meta()) return DType::bf16;  // quantized: only the shape remains
    if (weight.dtype() == DType::bf16 || weight.dtype() == DType::f16) return weight.dtype();
  }
  return {};
}

struct ModelRunner::Impl {
  /// `options` is the result of checked_options(asked, given).
  Impl(nn::Model& given, const ModelRunnerOptions& options, const ModelRunnerOptions& asked)
      : model(given),
        device(given.device()),
        cache(make_caches(given, options)),
        sampling(options.rows, given.spec().vocab_size, options.vocab_size, device),
        results(options.rows, device),
        tokens(given, options.rows),
        leader(options.leader),
        number(leader ? leader->add_model() : 0) {
    const bool on_gpu = Replay::possible(device);
    activations = options.activations;
    for (int64_t group = 0; group < cache->groups(); ++group) {
      shape.groups.push_back({kept_window(model, *cache, group), cache->pages(group), cache->bytes_per_page(group)});
    }
    shape.page_size = cache->page_size();
    shape.state_slots = cache->has_states() ? cache->state_slots() : 0;
    shape.bytes_per_state = cache->bytes_per_state();
    shape.vocab_size = model.spec().vocab_size;
    shape.context = options.context;
    shape.rows = options.rows;
    // The other ranks get the tokens of a step from the host, so it must have read those of the step before.
    shape.pipelined = on_gpu && !leader && !model.depends_on_length();
    shape.shares_pages = !model.depends_on_length();
    if (options.measures_idle) idle.emplace(device);
    if (!on_gpu || !options.graphs || !model.supports_row_graphs()) return;
    std::optional<DType> single = asked.activations;
    if (!single && activations) single = DType::f32;  // the fused kernels for one row need f32 activations
    graphs.emplace(model, *cache, sampling, results,
                   DecodeGraphs::Settings{options.rows, options.context, activations, single, idle ? &*idle : nullptr});
  }

  StepInFlight run_eagerly(const StepPlan& plan) {
    if (idle) idle->begin();
    StepInputs inputs = make_inputs(plan, tokens, *cache, previous, sampled, device);
    inputs.rows.activations = activations;
    for (size_t i = 0; i < plan.rows.size() && cache->has_states(); ++i) {
      const bool again = plan.rows[i].offset > 0 && inputs.rows.host_offsets[i] == 0;
      if (again) change({CacheChange::Kind::clear_state, 0, plan.rows[i].state_slot});
    }
    const Tensor logits = call_model(inputs);
    StepInFlight& flight = inputs.flight;
    const auto count = static_cast<int64_t>(inputs.queries.size());
    flight.tokens = results.buffers(count, flight.top);
    for (int64_t first = 0; first < count; first += sampling.capacity()) {
      sample(logits, inputs, first, std::min(sampling.capacity(), count - first));
    }
    if (Replay::possible(device) && results.fits(count, flight.top)) {
      results.write(flight.top);
      flight.in_readback = true;
    }
    if (idle) idle->end();
    return std::move(flight);
  }

  /// Runs the model on all ranks that hold it.
  Tensor call_model(StepInputs& inputs) {
    const auto call = [&] { return model.row_logits(inputs.ids, inputs.rows, *cache, inputs.wanted); };
    if (!leader) return call();
    return leader->run({number, std::exchange(changes, {}), std::move(inputs.host)}, call);
  }

  /// Changes the cache on this rank now, and on the others before the next model call.
  void change(const CacheChange& one) {
    apply(one, *cache);
    if (leader) changes.push_back(one);
  }

  /// Samples queries [first, first + count).
  void sample(const Tensor& logits, const StepInputs& inputs, int64_t first, int64_t count) {
    const auto queries = std::span(inputs.queries).subspan(static_cast<size_t>(first), static_cast<size_t>(count));
    bool masked = false;
    for (const SampleQuery& query : queries) {
      masked = masked || query.sample < 0 || has_mask(*query.row, query.sample, sampling.limit());
    }
    sampling.upload(queries);
    ops::RowSampling options = sampling.options(count, masked);
    options.counts = host_counts(queries, shape.vocab_size, device);
    options.bias = host_bias(queries, shape.vocab_size, device);
    const auto part = [&](const Tensor& all) { return all.defined() ? all.slice(0, first, count) : all; };
    const SampledTokens& out = inputs.flight.tokens;
    ops::sample_rows(soft_capped(part(logits), queries), options, sampling.limit(),
                     std::max<int64_t>(inputs.flight.top, 0), part(out.ids), part(out.logprobs), part(out.top_ids));
  }

  nn::Model& model;
  Device device;
  std::unique_ptr<nn::SequenceCache> cache;
  CacheShape shape;
  std::optional<DType> activations;
  SamplingInputs sampling;
  StepResults results;
  RowTokens tokens;
  std::optional<IdleTime> idle;
  std::optional<DecodeGraphs> graphs;
  bool uses_graphs = true;
  PreviousQueries previous;            ///< queries of the step queued last
  Tensor sampled;                      ///< tokens sampled in that step, on the device
  std::shared_ptr<StepLeader> leader;  ///< null: this process holds the whole model
  int32_t number;                      ///< number that identifies the model to the other ranks
  std::vector<CacheChange> changes;    ///< changes that the other ranks have not made yet
};

ModelRunner::ModelRunner(nn::Model& model, const ModelRunnerOptions& options)
    : impl_(std::make_unique<Impl>(model, checked_options(options, model), options)) {}

ModelRunner::~ModelRunner() = default;

const CacheShape& ModelRunner::shape() const { return impl_->shape; }

void ModelRunner::run(const StepPlan& plan) {
  LAMINA_CHECK(impl_->results.in_flight() < (impl_->shape.pipelined ? 2U : 1U), "runner: ", impl_->results.in_flight(),
               " steps are in flight; wait for the oldest first");
  LAMINA_CHECK(!plan.rows.empty() && static_cast<int64_t>(plan.rows.size()) <= impl_->shape.rows, "runner: a step of ",
               plan.rows.size(), " rows; expected 1 to ", impl_->shape.rows);
  const bool replays = impl_->graphs && impl_->uses_graphs && DecodeGraphs::supports(plan);
  StepInFlight flight = replays ? impl_->graphs->run(plan, impl_->previous, impl_->sampled) : impl_->run_eagerly(plan);
  impl_->previous = first_samples(flight);
  impl_->sampled = flight.tokens.ids;
  impl_->results.mark(std::move(flight));
}

StepResult ModelRunner::wait() { return impl_->results.wait(); }

void ModelRunner::copy_page(int64_t group, int32_t from, int32_t to) {
  impl_->change({CacheChange::Kind::copy_page, static_cast<int32_t>(group), from, to});
}

void ModelRunner::copy_state(int32_t from, int32_t to) { impl_->change({CacheChange::Kind::copy_state, 0, from, to}); }

void ModelRunner::clear_state(int32_t slot) { impl_->change({CacheChange::Kind::clear_state, 0, slot}); }

void ModelRunner::use_graphs(bool on) { impl_->uses_graphs = on; }

bool ModelRunner::shares_pages() const { return !impl_->model.depends_on_length(); }

int64_t ModelRunner::cache_bytes() const { return impl_->cache->bytes(); }

double ModelRunner::idle_share() {
  LAMINA_CHECK(impl_->idle, "runner: idle time is not measured; set measures_idle in the options");
  return impl_->idle->take_share();
}

std::unique_ptr<StepRunner> draft_runner(nn::Model* draft, ModelRunnerOptions target, int64_t rows) {
  if (draft == nullptr) return nullptr;
  target.rows = std::min(target.rows, rows);
  target.cache_bytes = 0;
  const int64_t context = draft->spec().context;
  target.context = target.context > 0 && context > 0 ? std::min(target.context, context) : context;
  target.activations.reset();
  target.measures_idle = false;
  target.leader.reset();  // rank 0 holds the whole draft model
  return std::make_unique<ModelRunner>(*draft, target);
}

}  // namespace lamina::infer
