#include <cmath>

#include "lamina/arch/layers.h"
#include "lamina/arch/resolve.h"
#include "lamina/arch/tensor_shards.h"
#include "lamina/arch/value_range.h"
#include "lamina/data/objectives/objective_batches.h"
#include "lamina/train/pass.h"
#include "lamina/train/recipe.h"

namespace lamina::train {
namespace {

using arch::Problem;

class Rules {
 public:
  explicit Rules(std::vector<Problem>& problems) : problems_(problems) {}

  void check(const Recipe& recipe) {
    arch::RangeCheck([this](const std::string& path, const std::string& message) {
      note("range", path, message, "give a number in that range");
    }).check(recipe, arch::kAnyNumber, "");
    recipe.data.task ? check_task(recipe) : check_data(recipe.data);
    check_objective(recipe);
    check_sizes(recipe);
    check_schedule(recipe);
    check_layout(recipe, [this](const char* rule, const std::string& path, const std::string& message,
                                const std::string& hint) { note(rule, path, message, hint); });
  }

 private:
  void check_objective(const Recipe& recipe) {
    if (data::is_causal(recipe.objective)) return;
    const std::string name(data::objective_name(recipe.objective));
    if (recipe.data.task) {
      note("objective", "objective", name + " of a task, which has targets of its own", "use causal, or a text");
    }
    if (recipe.data.order == data::Order::packed) {
      note("objective", "data.order", "packed rows are for the causal objective, given " + name,
           "use random, sequential or shuffled");
    }
    try {
      data::check_objective(recipe.objective, recipe.length);
    } catch (const Error& error) {
      note("objective", "objective", error.what(), "change the objective's parameters or the length");
    }
  }

  void check_data(const DataChoice& data) {
    if (data.train.empty()) {
      note("data", "data.train", "missing",
           "name a text or a token file, for example --set data.train=input.txt, or a task");
    }
    const std::string& kind = data.tokenizer;
    for (const std::string learned : {"bpe", "wordpiece", "unigram"}) {
      const bool named =
          kind == learned || kind.starts_with(learned + ":") || (learned == "bpe" && kind.starts_with("bpe"));
      if (!named) continue;
      const size_t begin = learned.size() + 1;
      const std::string size = kind.size() > begin && kind[begin - 1] == ':' ? kind.substr(begin) : "";
      const bool number = !size.empty() && size.size() < 8 && size.find_first_not_of("0123456789") == std::string::npos;
      if (number && std::stol(size) >= 257) continue;
      note("data", "data.tokenizer", "\"" + kind + "\"",
           "write " + learned + ":N with a vocabulary N of at least 257, as " + learned + ":4096");
    }
  }

  void check_task(const Recipe& recipe) {
    if (!recipe.data.train.empty() || !recipe.data.validation.empty()) {
      note("data", "data.task", "there is a text too", "leave out data.train and data.validation, or the task");
    }
    try {
      data::check_task(*recipe.data.task, recipe.length);
    } catch (const Error& error) {
      note("data", "data.task", error.what(), "`lamina data tasks` shows examples");
    }
  }

  void check_sizes(const Recipe& recipe) {
    const bool one_stack = !recipe.architecture.encoder;  // encoder–decoder models: see check_source()
    if (one_stack && recipe.length > recipe.architecture.context && recipe.architecture.context > 0) {
      note("length", "length",
           str(recipe.length, " tokens in a sequence, the architecture's context is ", recipe.architecture.context),
           "give a shorter length or set architecture.context");
    }
    const double tokens = static_cast<double>(recipe.batch) * static_cast<double>(recipe.length);
    if (tokens > 2147483647.0) {
      note("length", "batch", str(recipe.batch, " x ", recipe.length, " tokens in a pass, at most 2^31 are expected"),
           "give a smaller batch and raise accumulation");
    }
    if (recipe.accumulation > 1 && recipe.steps > 0 &&
        static_cast<double>(recipe.accumulation) * static_cast<double>(recipe.steps) >= std::pow(2.0, 43)) {
      note("length", "steps", "steps times accumulation is beyond 2^43", "give fewer");
    }
  }

  void check_schedule(const Recipe& recipe) {
    const int64_t warmup = std::visit([](const auto& s) { return s.warmup; }, recipe.schedule);
    if (recipe.steps > 0 && warmup > recipe.steps) {
      note("schedule", "schedule.warmup", str(warmup, " updates of warm-up, the whole run has ", recipe.steps),
           "give a shorter warm-up");
    }
  }

  void note(const char* rule, const std::string& path, const std::string& message, const std::string& hint) {
    problems_.push_back({rule, path, message, hint});
  }

  std::vector<Problem>& problems_;
};

/// An encoder–decoder model needs data with a source, and both source and target must fit its context.
void check_source(const Recipe& recipe, std::vector<Problem>& problems) {
  const char* path = recipe.data.task ? "data.task" : "objective";
  try {
    LAMINA_CHECK(recipe.data.task || data::has_source(recipe.objective), "the objective ",
                 data::objective_name(recipe.objective), " has no source for an encoder; use span or denoise");
    const PassLengths lengths = pass_lengths(recipe);
    const int64_t longest = std::max(lengths.source, lengths.ids);
    if (longest <= recipe.architecture.context) return;
    problems.push_back({"length", "length",
                        str("sources of ", lengths.source, " and targets of ", lengths.ids,
                            " tokens, the architecture's context is ", recipe.architecture.context),
                        "give a shorter length or set architecture.context"});
  } catch (const Error& error) {
    problems.push_back({"objective", path, error.what(), "or train a decoder"});
  }
}

/// Neighbours belong to the chunks of a text, so windows must consist of whole chunks.
void check_neighbours(const Recipe& recipe, std::vector<Problem>& problems) {
  if (!recipe.architecture.retrieval || !recipe.data.neighbours) return;
  const auto note = [&](const char* path, const std::string& message, const char* hint) {
    problems.push_back({"neighbours", path, message, hint});
  };
  const char* without = "or train without neighbours (data.neighbours=false)";
  const int64_t chunk = recipe.architecture.retrieval->chunk;
  if (recipe.length % chunk != 0) {
    note("length", str(recipe.length, " tokens, expected a multiple of the chunks of ", chunk),
         "set length, or architecture.retrieval.chunk");
  }
  if (recipe.data.task) note("data.task", "a task has no neighbours", without);
  if (!data::is_causal(recipe.objective)) {
    note("objective", str(data::objective_name(recipe.objective), " changes the text whose neighbours are known"),
         "use causal");
  }
  if (recipe.data.order == data::Order::packed) {
    note("data.order", "packed documents do not begin with a chunk", "use random, sequential or shuffled");
  }
}

/// An objective that predicts the next token needs causal attention: a model that sees the answer would learn to copy
/// it.
void check_direction(const Recipe& recipe, std::vector<Problem>& problems) {
  if (recipe.architecture.encoder) {
    check_source(recipe, problems);
    return;
  }
  const bool masked = std::holds_alternative<data::MaskedObjective>(recipe.objective);
  if (arch::is_causal(recipe.architecture) || masked) return;
  problems.push_back(
      {"objective", "objective",
       str(data::objective_name(recipe.objective), ", but attention is not causal: it would see the answer"),
       "set objective.kind=masked, or architecture.causal=true"});
}

}  // namespace

Recipe resolve_recipe(Recipe recipe, int64_t vocab_size, const std::string& name) {
  std::vector<Problem> problems;
  if (vocab_size > 0 && recipe.data.fit_vocab && recipe.from.empty()) {
    recipe.architecture.vocab_size = vocab_size;
    // The start token of a preset may be outside a new vocabulary. start_run() later sets that of the run's tokenizer.
    std::optional<arch::Encoder>& encoder = recipe.architecture.encoder;
    if (encoder) encoder->start_token = std::min(encoder->start_token, vocab_size - 1);
  }
  try {
    recipe.architecture = arch::resolve(recipe.architecture, "architecture");
  } catch (const arch::SpecError& error) {
    for (Problem problem : error.problems()) {
      problem.path = problem.path.empty() ? "architecture" : "architecture." + problem.path;
      problems.push_back(std::move(problem));
    }
  }
  if (recipe.length == 0) recipe.length = recipe.architecture.context;
  if (recipe.eval_batch == 0) recipe.eval_batch = recipe.batch;
  resolve_layout(recipe);
  const bool is_resolved = problems.empty();
  Rules(problems).check(recipe);
  if (is_resolved) check_direction(recipe, problems);
  if (is_resolved) check_neighbours(recipe, problems);
  if (is_resolved) {
    for (const std::vector<Problem>& found :
         {arch::tensor_parallel_problems(recipe.architecture, recipe.layout.tp),
          arch::expert_parallel_problems(recipe.architecture, recipe.layout.ep),
          arch::pipeline_problems(recipe.architecture, recipe.layout.pp, recipe.layout.chunks()),
          arch::context_parallel_problems(recipe.architecture, recipe.layout.cp)}) {
      for (Problem problem : found) {
        problem.path = "architecture." + problem.path;
        problems.push_back(std::move(problem));
      }
    }
  }
  if (vocab_size > recipe.architecture.vocab_size) {
    problems.push_back({"vocab", "architecture.vocab_size",
                        str(recipe.architecture.vocab_size, ", the data has tokens below ", vocab_size),
                        "use the tokenizer of this model (data.tokenizer), or a larger vocab_size"});
  }
  if (!problems.empty()) throw arch::SpecError(name, std::move(problems));
  return recipe;
}

}  // namespace lamina::train
