#include "lamina/lab/advise/advise.h"

#include <algorithm>
#include <cmath>

#include "lamina/arch/edit.h"
#include "lamina/arch/layers.h"
#include "lamina/arch/presets.h"
#include "lamina/arch/resolve.h"
#include "lamina/base/error.h"
#include "lamina/lab/advise/guide.h"
#include "lamina/train/memory.h"

namespace lamina::lab {
namespace {

constexpr double kShareOfMemory = 0.8;  // leaves room for the system and for estimation errors
constexpr double kTokensPerParameter = 20;
constexpr double kUsefulRepeats = 4;
constexpr double kLeastParameters = 2e5;      // about the size of the smallest shape to try
constexpr double kEmbeddingShare = 0.25;      // upper limit, as a share of all parameters
constexpr int64_t kSmallestVocabulary = 256;  // one token per byte

/// Choices that the rules make, before the sizes are known.
struct Choices {
  std::string base;
  std::string style;
  double d_ff_ratio = 4;
  double queries_per_kv_head = 1;
  std::vector<std::string> assignments;
  std::vector<Reason> reasons;
  arch::ArchSpec start;
};

Choices choose(const Facts& facts, Language language) {
  Choices choices;
  for (const Rule& rule : guide(language).rules) {
    if (!rule.holds(facts)) continue;
    if (!rule.base.empty()) {
      choices.base = rule.base;
      choices.style = rule.style;
    }
    choices.d_ff_ratio = rule.d_ff_ratio.value_or(choices.d_ff_ratio);
    choices.queries_per_kv_head = rule.queries_per_kv_head.value_or(choices.queries_per_kv_head);
    choices.assignments.insert(choices.assignments.end(), rule.assignments.begin(), rule.assignments.end());
    choices.reasons.push_back(rule.said);
  }
  choices.start = arch::with_overrides(arch::load_preset(choices.base), choices.assignments);
  return choices;
}

struct Shape {
  int64_t layers = 0;
  int64_t d_model = 0;
  int64_t vocabulary = 0;
};

int64_t head_width(int64_t d_model) { return d_model < 256 ? 32 : d_model < 2048 ? 64 : 128; }

/// The divisor of n_heads that is closest to this number of queries per KV head.
int64_t kv_heads(int64_t n_heads, double queries) {
  if (queries == 0) return 1;
  int64_t best = n_heads;
  const auto distance = [&](int64_t kv) {
    return std::abs(std::log(static_cast<double>(n_heads) / static_cast<double>(kv) / queries));
  };
  for (int64_t kv = n_heads; kv >= 1; --kv) {
    if (n_heads % kv == 0 && distance(kv) < distance(best)) best = kv;
  }
  return best;
}

/// Sizes that follow from a shape, named like the architecture's fields.
struct Sizes {
  int64_t n_heads = 0;
  int64_t n_kv_heads = 0;
  int64_t d_ff = 0;
};

Sizes sizes_of(const Choices& choices, const Shape& shape) {
  const int64_t n_heads = shape.d_model / head_width(shape.d_model);
  return {n_heads, kv_heads(n_heads, choices.queries_per_kv_head),
          static_cast<int64_t>(std::ceil(choices.d_ff_ratio * static_cast<double>(shape.d_model) / 64)) * 64};
}

std::vector<std::string> assignments_of(const Choices& choices, const Shape& shape, int64_t context) {
  const Sizes sizes = sizes_of(choices, shape);
  std::vector<std::string> list{str("vocab_size=", shape.vocabulary),
                                str("d_model=", shape.d_model),
                                str("context=", context),
                                str("layers[0].repeat=", shape.layers),
                                str("layers[0].pattern[0].mixer.n_heads=", sizes.n_heads),
                                str("layers[0].pattern[0].mixer.n_kv_heads=", sizes.n_kv_heads),
                                str("layers[0].pattern[0].ffn.d_ff=", sizes.d_ff)};
  list.insert(list.end(), choices.assignments.begin(), choices.assignments.end());
  return list;
}

/// Builds the shape directly, without parsing assignments, because many shapes are tried. `start` is the base with the
/// rules' assignments: one group of one block with attention and a dense FFN.
arch::ArchSpec built(const Choices& choices, const Shape& shape, int64_t context) {
  const Sizes sizes = sizes_of(choices, shape);
  arch::ArchSpec spec = choices.start;
  spec.vocab_size = shape.vocabulary;
  spec.d_model = shape.d_model;
  spec.context = context;
  spec.layers.at(0).repeat = shape.layers;
  arch::Block& block = spec.layers[0].pattern.at(0);
  auto& attention = std::get<arch::Attention>(block.mixer);
  attention.n_heads = sizes.n_heads;
  attention.n_kv_heads = sizes.n_kv_heads;
  if (auto* gated = std::get_if<arch::GatedFfn>(&block.ffn)) {
    gated->d_ff = sizes.d_ff;
  } else {
    std::get<arch::PlainFfn>(block.ffn).d_ff = sizes.d_ff;
  }
  return arch::resolve(spec, choices.base);
}

/// Bytes for training in f32 with `batch` sequences; or, for inference, bytes of the bf16 weights and the KV cache of
/// one sequence.
double memory_of(const arch::ArchSpec& spec, const Question& question, int64_t batch) {
  if (!question.generate) {
    train::Recipe recipe;
    recipe.architecture = spec;
    recipe.batch = batch;
    recipe.length = question.context;
    return train::memory_estimate(recipe);
  }
  double numbers = static_cast<double>(arch::count_parameters(spec).total);
  for (const arch::CacheRow& row : arch::cache_rows(spec)) numbers += row.at(question.context);
  return 2 * numbers;
}

bool fits_memory(const arch::ArchSpec& spec, const Question& question, int64_t batch) {
  return !question.memory || memory_of(spec, question, batch) <= kShareOfMemory * *question.memory;
}

/// The largest vocabulary whose embedding takes at most kEmbeddingShare of the resulting model.
int64_t vocabulary_for(const Choices& choices, const Question& question, const Shape& shape) {
  if (question.vocabulary) return *question.vocabulary;
  const auto embedding = [&](int64_t vocabulary) { return static_cast<double>(vocabulary * shape.d_model); };
  Shape smallest = shape;
  smallest.vocabulary = kSmallestVocabulary;
  const auto least = static_cast<double>(arch::count_parameters(built(choices, smallest, question.context)).total);
  const double tables = choices.start.head.tied ? 1 : 2;
  int64_t vocabulary = kSmallestVocabulary;
  for (const int64_t larger : {1024, 4096, 8192, 16384, 32768}) {
    const double all = least + tables * (embedding(larger) - embedding(kSmallestVocabulary));
    if (embedding(larger) <= kEmbeddingShare * all) vocabulary = larger;
  }
  return vocabulary;
}

/// The widest model with this many layers that is within the limits. Empty if there is none.
std::optional<Shape> widest(const Choices& choices, const Question& question, double parameters, int64_t layers) {
  const auto shape_of = [&](int64_t d_model) {
    Shape shape{layers, d_model, 0};
    shape.vocabulary = vocabulary_for(choices, question, shape);
    return shape;
  };
  const auto fits = [&](int64_t d_model) {
    const arch::ArchSpec spec = built(choices, shape_of(d_model), question.context);
    return static_cast<double>(arch::count_parameters(spec).total) <= parameters && fits_memory(spec, question, 1);
  };
  // Candidate widths: multiples of 64 up to 256, of 128 up to 1024, of 256 up to 2048, then of 512, so that groups of
  // four heads can share KV heads. A bisection finds the widest.
  const auto width = [](int64_t step) {
    if (step <= 4) return 64 * step;
    if (step <= 10) return 256 + 128 * (step - 4);
    return step <= 14 ? 1024 + 256 * (step - 10) : 2048 + 512 * (step - 14);
  };
  int64_t low = 0;
  int64_t high = 60;
  while (high - low > 1) {
    const int64_t middle = (low + high) / 2;
    (fits(width(middle)) ? low : high) = middle;
  }
  if (low == 0) return std::nullopt;
  return shape_of(width(low));
}

/// The preferred ratio d_model / layers for a number of parameters.
double aspect_for(double parameters) { return std::clamp(64 * std::pow(parameters / 1e8, 0.15), 48.0, 128.0); }

std::string count_text(double count) { return arch::with_commas(std::llround(count)); }

/// Tries all depths. Chooses the one whose widest model is closest to the preferred ratio and to the parameter limit.
Shape shape_for(const Choices& choices, const Question& question, double parameters) {
  const double wanted = aspect_for(parameters);
  std::optional<Shape> best;
  double least = 0;
  for (const int64_t layers :
       {2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30, 32, 36, 40, 48, 56, 64, 80, 96}) {
    const std::optional<Shape> shape = widest(choices, question, parameters, layers);
    if (!shape) break;  // deeper models are even larger
    const double count = static_cast<double>(arch::count_parameters(built(choices, *shape, question.context)).total);
    const double aspect = static_cast<double>(shape->d_model) / static_cast<double>(layers);
    const double badness = std::abs(std::log(aspect / wanted)) + 3 * (1 - count / parameters);
    if (!best || badness < least) {
      best = shape;
      least = badness;
    }
  }
  const std::string memory = question.memory ? arch::short_bytes(*question.memory) : "";
  LAMINA_CHECK(best, "no model of at most ", count_text(parameters), " parameters",
               memory.empty() ? "" : " fits into " + memory, " with a context of ", question.context,
               question.vocabulary ? str(" and a vocabulary of ", *question.vocabulary) : "",
               "; raise the limit, or reduce the context or the vocabulary");
  return *best;
}

/// The parameter count to aim for. Adds the limits that determine it to the reasons.
double parameters_for(const Question& question, std::vector<Reason>& reasons) {
  const Words& words = words_of(question.language);
  const auto add = [&](const char* subject, const std::string& advice) {
    Reason reason = guide(question.language).sizing.at(subject);
    reason.advice = advice;
    reasons.push_back(reason);
  };
  if (question.memory) add("memory", words("advise.fits", {{"memory", arch::short_bytes(*question.memory)}}));
  if (question.parameters) return *question.parameters;
  LAMINA_CHECK(question.memory || question.data,
               "the model size is not limited; give --parameters, --memory or --data");
  // Upper bound: the memory holds only bf16 weights.
  double parameters = question.memory ? *question.memory / 2 : 1e13;
  if (question.data) {
    const double by_data = std::max(kLeastParameters, *question.data * kUsefulRepeats / kTokensPerParameter);
    if (by_data < parameters) add("data", words("advise.data", {{"parameters", count_text(by_data)}}));
    parameters = std::min(parameters, by_data);
  }
  return parameters;
}

void check(const Question& question) {
  const auto positive = [](const char* option, const std::optional<double>& value, double least) {
    LAMINA_CHECK(!value || (*value >= least && *value <= 1e15), option, " ", *value, ": expected ", least, " or more");
  };
  positive("--parameters", question.parameters, 1e4);
  positive("--memory", question.memory, 1e6);
  positive("--data", question.data, 1);
  LAMINA_CHECK(question.context >= 8 && question.context <= (int64_t{1} << 24), "--context ", question.context,
               ": expected 8 to 16,777,216 tokens");
  LAMINA_CHECK(!question.vocabulary || (*question.vocabulary >= 2 && *question.vocabulary <= (1 << 24)),
               "--vocabulary ", question.vocabulary.value_or(0), ": expected 2 to 16,777,216");
  const auto known = {"quality", "balanced", "speed", "simple"};
  LAMINA_CHECK(std::find(known.begin(), known.end(), question.first) != known.end(), "--first ", question.first,
               ": expected quality, balanced, speed or simple");
}

/// Presets with their parameter counts, without the test presets. Computed only once.
const std::vector<std::pair<std::string, double>>& preset_sizes() {
  static const auto sizes = [] {
    std::vector<std::pair<std::string, double>> list;
    for (const std::string& name : arch::preset_names()) {
      if (name.ends_with("-tiny")) continue;
      const arch::ArchSpec spec = arch::resolve(arch::load_preset(name), name);
      if (!arch::is_causal(spec) || spec.encoder) continue;  // the guide is about decoders
      list.emplace_back(name, static_cast<double>(arch::count_parameters(spec).total));
    }
    return list;
  }();
  return sizes;
}

/// Presets whose size is within a factor of 1.25, nearest first.
std::vector<std::string> similar_presets(double parameters) {
  std::vector<std::pair<double, std::string>> near;
  for (const auto& [name, count] : preset_sizes()) {
    const double distance = std::abs(std::log(count / parameters));
    if (distance < std::log(1.25)) near.emplace_back(distance, name);
  }
  std::sort(near.begin(), near.end());
  std::vector<std::string> names;
  for (size_t i = 0; i < near.size() && i < 4; ++i) names.push_back(near[i].second);
  return names;
}

Facts facts_of(const Question& question, double parameters) {
  Facts facts{
      question.first, question.extrapolate, question.generate, static_cast<double>(question.context), parameters, {}};
  if (question.data) facts.tokens_per_parameter = *question.data / parameters;
  return facts;
}

/// Values for the placeholders {…} in the guide's texts.
std::map<std::string, std::string> numbers_of(const Choices& choices, const Shape& shape, double limit,
                                              const arch::ArchSpec& spec) {
  const Sizes sizes = sizes_of(choices, shape);
  const double share =
      static_cast<double>(shape.vocabulary * shape.d_model) / static_cast<double>(arch::count_parameters(spec).total);
  return {{"queries_per_kv_head", str(sizes.n_heads / sizes.n_kv_heads)},
          {"aspect", str(std::llround(static_cast<double>(shape.d_model) / static_cast<double>(shape.layers)))},
          {"aspect_wanted", str(std::llround(aspect_for(limit)))},
          {"head_dim", str(head_width(shape.d_model))},
          {"embedding_share", str(std::llround(100 * share))},
          {"least_parameters", count_text(kLeastParameters)}};
}

void fill(std::string& text, const std::map<std::string, std::string>& numbers) {
  for (const auto& [name, value] : numbers) {
    const std::string place = "{" + name + "}";
    for (size_t at = text.find(place); at != std::string::npos; at = text.find(place)) {
      text.replace(at, place.size(), value);
    }
  }
}

/// The recipe's batch, halved until the model fits in memory.
int64_t batch_for(const arch::ArchSpec& spec, const Question& question) {
  int64_t batch = train::load_recipe(guide().recipe).batch;
  while (batch > 1 && !question.generate && !fits_memory(spec, question, batch)) batch /= 2;
  return batch;
}

}  // namespace

Recommendation advise(const Question& question) {
  check(question);
  Recommendation result;
  result.question = question;
  double limit = parameters_for(question, result.reasons);
  Choices choices = choose(facts_of(question, limit), question.language);
  Shape shape = shape_for(choices, question, limit);
  const auto count = static_cast<double>(arch::count_parameters(built(choices, shape, question.context)).total);
  if (count < 0.7 * limit) {  // memory limits the model to less than assumed: apply the rules again
    limit = 1.1 * count;
    choices = choose(facts_of(question, count), question.language);
    shape = shape_for(choices, question, limit);
  }
  result.base = choices.base;
  const Words& words = words_of(question.language);
  const std::string size_text = words("advise.layers", {{"layers", str(shape.layers)}, {"width", str(shape.d_model)}});
  result.name = choices.style + words("list.separator") + size_text;
  result.assignments = assignments_of(choices, shape, question.context);
  const arch::ArchSpec spec = built(choices, shape, question.context);
  result.plan = arch::make_plan(result.name, spec, {1, question.context, question.generate ? 2 : 4});
  result.batch = batch_for(spec, question);
  result.memory_needed = memory_of(spec, question, result.batch);
  Reason size = guide(question.language).sizing.at("shape");
  size.advice = size_text;
  Reason vocabulary = guide(question.language).sizing.at("vocabulary");
  vocabulary.advice = words("advise.vocabulary", {{"vocabulary", arch::with_commas(shape.vocabulary)}});
  result.reasons.push_back(size);
  if (!question.vocabulary) result.reasons.push_back(vocabulary);
  result.reasons.insert(result.reasons.begin(), choices.reasons.begin(), choices.reasons.end());
  const auto numbers = numbers_of(choices, shape, limit, spec);
  for (Reason& reason : result.reasons) {
    fill(reason.advice, numbers);
    fill(reason.reason, numbers);
  }
  result.similar = similar_presets(static_cast<double>(result.plan.parameters.total));
  result.recipe = guide().recipe;
  return result;
}

}  // namespace lamina::lab
