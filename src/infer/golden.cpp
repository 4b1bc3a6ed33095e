#include "lamina/infer/golden.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <random>

#include "lamina/arch/count.h"
#include "lamina/arch/layers.h"
#include "lamina/autograd/tape.h"

namespace lamina::infer {
namespace {

const std::string kGradient = "grad.";
const std::string kGreedy = "greedy";

std::vector<double> numbers(const Tensor& tensor) { return tensor.detach().to(DType::f64).to_vector<double>(); }

double largest(const std::vector<double>& values) {
  double most = 0;
  for (const double value : values) most = std::max(most, std::abs(value));
  return most;
}

/// Compares two tensors. NaN on either side counts as an infinite difference.
Comparison compare(const std::string& name, const Tensor& ours, const Tensor& golden, double tolerance,
                   double least_magnitude = 0.0) {
  Comparison result{name, 0, 0, tolerance, {}};
  if (ours.numel() != golden.numel()) {
    result.error = str("ours is ", ours.shape(), ", the golden ", golden.shape());
    return result;
  }
  const std::vector<double> a = numbers(ours);
  const std::vector<double> b = numbers(golden);
  for (size_t i = 0; i < a.size(); ++i) {
    const double difference = std::abs(a[i] - b[i]);
    result.absolute = std::isfinite(difference) ? std::max(result.absolute, difference) : INFINITY;
  }
  const double magnitude = std::max(largest(b), least_magnitude);
  result.relative = result.absolute == 0 ? 0 : result.absolute / magnitude;
  return result;
}

/// Number of tokens in each row of a mask [batch, seq].
std::vector<int64_t> lengths_of(const Tensor& mask, const Tensor& ids) {
  LAMINA_CHECK(mask.shape() == ids.shape() && ids.rank() == 2, "attention_mask of the golden file is ", mask.shape(),
               ", input_ids ", ids.shape(), "; expected one number for each token");
  const std::vector<int64_t> values = mask.to(DType::i64).to_vector<int64_t>();
  const int64_t seq = ids.dim(1);
  std::vector<int64_t> lengths;
  for (int64_t row = 0; row < ids.dim(0); ++row) {
    int64_t length = 0;
    for (int64_t i = 0; i < seq; ++i) {
      const bool real = values[static_cast<size_t>(row * seq + i)] != 0;
      LAMINA_CHECK(!real || length == i, "attention_mask of the golden file has a gap in row ", row,
                   "; expected padding only at the end");
      if (real) ++length;
    }
    lengths.push_back(length);
  }
  return lengths;
}

/// The values of a golden tensor [batch, seq, ...] with padding set to 0, as a model returns them.
Tensor without_padding(const Tensor& golden, const std::vector<int64_t>& lengths) {
  if (lengths.empty() || golden.rank() < 2 || golden.dim(0) != static_cast<int64_t>(lengths.size())) return golden;
  Tensor values = golden.clone();
  for (int64_t row = 0; row < golden.dim(0); ++row) {
    const int64_t length = lengths[static_cast<size_t>(row)];
    if (length < golden.dim(1)) values.slice(0, row, 1).slice(1, length, golden.dim(1) - length).fill_(0.0);
  }
  return values;
}

/// The next token at each position. The last position has no target.
Tensor targets_of(const Tensor& ids) {
  const int64_t seq = ids.rank() == 2 ? ids.dim(1) : 0;
  LAMINA_CHECK(seq >= 2, "input_ids of the golden file is ", ids.shape(),
               "; expected [batch, seq] with at least two tokens");
  Tensor targets = Tensor::full(ids.shape(), static_cast<double>(kIgnoreIndex), DType::i64, ids.device());
  targets.slice(1, 0, seq - 1).copy_(ids.slice(1, 1, seq - 1));
  return targets;
}

void compare_gradients(nn::Model& model, Tape& tape, const io::SafetensorsFile& golden,
                       const NameGradients& name_gradients, const GoldenOptions& options,
                       std::vector<Comparison>& list) {
  const double tolerance = options.gradient_tolerance;
  double most = 0;
  for (const std::string& name : golden.names()) {
    if (name.starts_with(kGradient)) most = std::max(most, largest(numbers(golden.tensor(name))));
  }
  nn::StateDict gradients = model.named_gradients(tape);
  std::erase_if(gradients, [](const auto& entry) { return !entry.tensor.defined(); });
  const std::map<std::string, Tensor> ours = by_name(name_gradients(gradients));
  for (const std::string& name : golden.names()) {
    if (!name.starts_with(kGradient)) continue;
    const auto found = ours.find(name.substr(kGradient.size()));
    if (found == ours.end()) {
      list.push_back({name, 0, 0, tolerance, "the model has no gradient of this name"});
    } else {
      list.push_back(compare(name, found->second, golden.tensor(name), tolerance, most * options.smallest_share));
    }
  }
}

bool has_gradients(const io::SafetensorsFile& golden) {
  return std::any_of(golden.names().begin(), golden.names().end(),
                     [](const std::string& name) { return name.starts_with(kGradient); });
}

/// The model inputs in a golden file.
struct GoldenInputs {
  Tensor ids;  ///< input of the decoder, if there is an encoder
  Tensor targets;
  nn::RunOptions run;
};

void check_global_tokens(const nn::Model& model, const Tensor& mask) {
  int64_t expected = 0;
  for (const arch::WrittenBlock& written : arch::written_blocks(model.spec())) {
    const auto* a = arch::attention_of(written.block->mixer);
    const auto* pattern = a == nullptr ? nullptr : std::get_if<arch::LongformerPattern>(&a->pattern);
    if (pattern != nullptr) expected = pattern->global_tokens;
  }
  const std::vector<int64_t> values = mask.to(DType::i64).to_vector<int64_t>();
  for (size_t i = 0; i < values.size(); ++i) {
    const auto at = static_cast<int64_t>(i) % mask.dim(-1);
    LAMINA_CHECK((values[i] != 0) == (at < expected), "global_attention_mask of the golden file has ", values[i],
                 " at position ", at, "; the architecture has ", expected, " global tokens, the first ones");
  }
}

GoldenInputs inputs_of(const nn::Model& model, const io::SafetensorsFile& golden) {
  const auto tokens = [&](const char* name) { return golden.tensor(name).to(DType::i64).to(model.device()); };
  GoldenInputs inputs;
  const Tensor ids = tokens("input_ids");
  std::vector<int64_t> lengths;
  if (golden.contains("attention_mask")) lengths = lengths_of(golden.tensor("attention_mask"), ids);
  if (golden.contains("global_attention_mask")) check_global_tokens(model, golden.tensor("global_attention_mask"));
  if (golden.contains("decoder_input_ids")) {
    inputs.ids = tokens("decoder_input_ids");
    inputs.run.source = ids;
    inputs.run.source_lengths = lengths;
  } else {
    inputs.ids = ids;
    inputs.run.lengths = lengths;
  }
  inputs.targets = golden.contains("labels") ? tokens("labels") : Tensor();
  return inputs;
}

Comparison compare_greedy(nn::Model& model, const io::SafetensorsFile& golden, double tie) {
  const std::vector<int64_t> expected = golden.tensor("greedy").to(DType::i64).to_vector<int64_t>();
  const bool decodes_source = golden.contains("decoder_input_ids");
  Tensor prompt;
  if (decodes_source) {
    prompt = inputs_of(model, golden).ids.slice(0, 0, 1).slice(1, 0, 1).contiguous();
  } else {
    prompt = golden.tensor("prompt").to(DType::i64).to(model.device());
  }
  LAMINA_CHECK(prompt.rank() == 2 && prompt.dim(0) == 1 && prompt.dim(1) > 0, "prompt of the golden file is ",
               prompt.shape(), "; expected [1, tokens]");
  nn::ModelCache cache = model.make_cache(1, prompt.dim(1) + static_cast<int64_t>(expected.size()));
  if (decodes_source) {
    const nn::RunOptions run = inputs_of(model, golden).run;
    std::vector<int64_t> lengths;
    if (!run.source_lengths.empty()) lengths.push_back(run.source_lengths.front());
    model.read_source(run.source.slice(0, 0, 1).contiguous(), cache, lengths);
  }
  Tensor ids = prompt;
  double different = 0;
  for (size_t i = 0; i < expected.size(); ++i) {
    const auto logits = numbers(model.cached_logits(ids, cache, {.counts = {}, .last_only = true}));
    const int64_t token = std::max_element(logits.begin(), logits.end()) - logits.begin();
    LAMINA_CHECK(expected[i] >= 0 && expected[i] < std::ssize(logits), "greedy of the golden file has token ",
                 expected[i], "; the model has ", logits.size());
    const double ahead = logits[static_cast<size_t>(token)] - logits[static_cast<size_t>(expected[i])];
    if (token != expected[i] && !(ahead <= tie * largest(logits))) ++different;
    // Continue with the golden token, so that a wrong token counts only once.
    ids = Tensor::from(std::vector<int64_t>{expected[i]}, {1, 1}, prompt.device());
  }
  return {kGreedy, different, different, 0, {}};
}

/// Shifts a model's parameters by the largest bf16 rounding error. The destructor restores them.
class MovedParameters {
 public:
  MovedParameters(nn::Model& model, std::mt19937_64& random) : parameters_(model.named_parameters()) {
    constexpr float kStep = 0x1p-8F;
    for (auto& [name, parameter] : parameters_) {
      std::vector<float> values = parameter.to_vector<float>();
      before_.push_back(parameter.clone());
      for (float& value : values) value *= random() % 2 == 0 ? 1 + kStep : 1 - kStep;
      parameter.copy_(Tensor::from(values, parameter.shape(), parameter.device()));
    }
  }
  ~MovedParameters() {
    for (size_t i = 0; i < before_.size(); ++i) parameters_[i].tensor.copy_(before_[i]);
  }
  MovedParameters(const MovedParameters&) = delete;
  MovedParameters& operator=(const MovedParameters&) = delete;

 private:
  nn::StateDict parameters_;
  std::vector<Tensor> before_;
};

/// Compares encoder output, logits, loss and gradients, if the golden file has them.
void compare_forward(nn::Model& model, const io::SafetensorsFile& golden, const NameGradients& name_gradients,
                     const GoldenOptions& options, std::vector<Comparison>& list) {
  GoldenInputs inputs = inputs_of(model, golden);
  const auto compare_padded = [&](const char* name, const Tensor& ours, const std::vector<int64_t>& lengths) {
    list.push_back(compare(name, ours, without_padding(golden.tensor(name), lengths), options.logits_tolerance));
  };
  if (golden.contains("encoder")) compare_padded("encoder", model.encoded(inputs.run), inputs.run.source_lengths);
  if (golden.contains("logits")) {
    compare_padded("logits", model.logits(inputs.ids, inputs.run), inputs.run.lengths);
  }
  if (!golden.contains("loss") && !has_gradients(golden)) return;
  if (!inputs.targets.defined()) inputs.targets = targets_of(inputs.ids);
  Tape tape;
  for (auto& [name, parameter] : model.named_parameters()) tape.watch(parameter);
  const Tensor loss = model.loss(inputs.ids, inputs.targets, {}, inputs.run).cross_entropy;
  if (golden.contains("loss")) list.push_back(compare("loss", loss, golden.tensor("loss"), options.logits_tolerance));
  if (!has_gradients(golden)) return;
  tape.backward(loss);
  compare_gradients(model, tape, golden, name_gradients, options, list);
}

}  // namespace

arch::ArchSpec with_global_tokens(arch::ArchSpec spec, const io::SafetensorsFile& golden) {
  if (!golden.contains("global_attention_mask")) return spec;
  const Tensor mask = golden.tensor("global_attention_mask").to(DType::i64);
  LAMINA_CHECK(mask.rank() == 2 && mask.dim(0) > 0, "global_attention_mask of the golden file is ", mask.shape(),
               "; expected [batch, seq]");
  const std::vector<int64_t> first = mask.slice(0, 0, 1).contiguous().to_vector<int64_t>();
  const auto count = std::count_if(first.begin(), first.end(), [](int64_t value) { return value != 0; });
  for (arch::LayerGroup& group : spec.layers) {
    for (arch::Block& block : group.pattern) {
      auto* a = arch::attention_of(block.mixer);
      auto* pattern = a == nullptr ? nullptr : std::get_if<arch::LongformerPattern>(&a->pattern);
      if (pattern != nullptr) pattern->global_tokens = count;
    }
  }
  return spec;
}

std::vector<Comparison> compare_with_golden(nn::Model& model, const io::SafetensorsFile& golden,
                                            const NameGradients& name_gradients, const GoldenOptions& options) {
  std::vector<Comparison> list;
  if (golden.contains("input_ids")) compare_forward(model, golden, name_gradients, options, list);
  const bool decodes_source = golden.contains("decoder_input_ids") && golden.contains(kGreedy);
  if (golden.contains("prompt") || decodes_source) list.push_back(compare_greedy(model, golden, options.tie));
  LAMINA_CHECK(!list.empty(), "the golden file has neither input_ids with logits, loss or gradients, nor a prompt");
  return list;
}

GoldenOptions bf16_tolerances(nn::Model& model, const io::SafetensorsFile& golden,
                              const NameGradients& name_gradients) {
  // Rounding may change the choice of experts, which has a large effect. More trials are needed to cover this case.
  const arch::ParameterCount count = arch::count_parameters(model.spec());
  const int ways = count.active < count.total ? 32 : 4;
  constexpr GoldenOptions kNone{.logits_tolerance = 0, .gradient_tolerance = 0, .smallest_share = 1e-2};
  GoldenOptions options = kNone;
  std::mt19937_64 random(1);
  for (int way = 0; way < ways; ++way) {
    const MovedParameters moved(model, random);
    for (const Comparison& row : compare_with_golden(model, golden, name_gradients, kNone)) {
      if (row.name == kGreedy) continue;
      double& tolerance = row.name.starts_with(kGradient) ? options.gradient_tolerance : options.logits_tolerance;
      tolerance = std::max(tolerance, 2 * row.relative);
    }
  }
  options.tie = 2 * options.logits_tolerance;  // both models' logits may deviate
  return options;
}

}  // namespace lamina::infer
