#pragma once

#include <array>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "lamina/arch/problem.h"
#include "lamina/arch/spec.h"
#include "lamina/data/batches.h"
#include "lamina/data/objectives/objective.h"
#include "lamina/data/tasks/task.h"
#include "lamina/train/layout.h"
#include "lamina/train/schedule.h"

namespace lamina::train {

/// Version of the file format. Raised if an old file would be read with a different meaning.
inline constexpr int64_t kRecipeSchema = 1;

inline constexpr arch::Limits kBelowOne{0, 0.9999999};  ///< Limits of a fraction below 1.

struct AdamWChoice {
  static constexpr std::string_view kKind = "adamw";
  static constexpr std::string_view kDoc = "Adam with decoupled weight decay (arXiv:1711.05101)";
  double lr = 1e-3;
  double beta1 = 0.9;
  double beta2 = 0.95;
  double eps = 1e-8;
  double weight_decay = 0.1;
  static void visit_fields(auto& self, auto&& field) {
    field("lr", self.lr, "highest learning rate");
    field("beta1", self.beta1, "decay rate of the mean gradient", kBelowOne);
    field("beta2", self.beta2, "decay rate of the mean squared gradient", kBelowOne);
    field("eps", self.eps, "added to the square root of the mean squared gradient");
    field("weight_decay", self.weight_decay, "weight decay; see decay_embeddings and decay_vectors",
          arch::kNotNegative);
  }
  bool operator==(const AdamWChoice&) const = default;
};

/// Factor on Muon's learning rate; see ops::MuonScale.
enum class MuonLr { aspect, match_adamw };
constexpr std::array<std::string_view, 2> names_of(MuonLr) { return {"aspect", "match_adamw"}; }

struct MuonChoice {
  static constexpr std::string_view kKind = "muon";
  static constexpr std::string_view kDoc =
      "orthogonalised momentum for the layers' matrices, AdamW for the rest "
      "(https://kellerjordan.github.io/posts/muon)";
  double lr = 0.02;
  double momentum = 0.95;
  bool nesterov = true;
  int64_t iterations = 5;
  MuonLr scale = MuonLr::aspect;
  double weight_decay = 0.0;
  AdamWChoice others;
  static void visit_fields(auto& self, auto&& field) {
    field("lr", self.lr, "highest learning rate of the matrices");
    field("momentum", self.momentum, "momentum coefficient", kBelowOne);
    field("nesterov", self.nesterov, "Nesterov momentum");
    field("iterations", self.iterations, "Newton-Schulz iterations per update", arch::Limits{1, 100});
    field("scale", self.scale,
          "factor on a matrix's rate: aspect sqrt(max(1, rows/cols)), match_adamw 0.2·sqrt(max(rows, cols))");
    field("weight_decay", self.weight_decay, "weight decay of the matrices", arch::kNotNegative);
    field("others", self.others, "AdamW for embeddings, the head, norms and biases");
  }
  bool operator==(const MuonChoice&) const = default;
};

struct SgdChoice {
  static constexpr std::string_view kKind = "sgd";
  static constexpr std::string_view kDoc = "gradient descent with momentum";
  double lr = 0.1;
  double momentum = 0.9;
  bool nesterov = false;
  double weight_decay = 0.0;
  static void visit_fields(auto& self, auto&& field) {
    field("lr", self.lr, "highest learning rate");
    field("momentum", self.momentum, "momentum coefficient; 0: none", kBelowOne);
    field("nesterov", self.nesterov, "Nesterov momentum");
    field("weight_decay", self.weight_decay, "weight decay; see decay_embeddings and decay_vectors",
          arch::kNotNegative);
  }
  bool operator==(const SgdChoice&) const = default;
};

using OptimizerChoice = std::variant<AdamWChoice, MuonChoice, SgdChoice>;  ///< How gradients become updates.

/// Training and validation data of a run.
struct DataChoice {
  std::string train;
  std::string validation;
  double validation_share = 0.1;
  std::string tokenizer;
  bool fit_vocab = true;
  data::Order order = data::Order::random;
  std::optional<data::Task> task;
  int64_t examples = 512;
  int64_t longer = 4;
  bool neighbours = true;
  static void visit_fields(auto& self, auto&& field) {
    field("train", self.train,
          "a text (.txt, .jsonl or a folder of them) or a token file of `lamina data`; required without a task");
    field("validation", self.validation,
          "validation data, of the same kinds; default: the end of a text given as train, none for a token file");
    field("validation_share", self.validation_share, "share of a text used for validation if validation is not given",
          kBelowOne);
    field("tokenizer", self.tokenizer,
          "char (characters), char+bytes (characters, and bytes for any other text), byte, bpe:N, wordpiece:N or "
          "unigram:N (a vocabulary of N learned from the text) or a tokenizer's file; default: that of the token file "
          "or of the model trained "
          "further, which allows no other, else char");
    field("fit_vocab", self.fit_vocab, "a new architecture's vocab_size becomes the tokenizer's");
    field(
        "order", self.order,
        "random: windows at random positions; sequential: one after another; shuffled: each once in an epoch; packed: "
        "documents end to end that do not attend to each other");
    field("task", self.task, "a synthetic task to learn instead of a text (docs/reference/tasks.md); default none");
    field("examples", self.examples, "of a task: number of validation examples, and of longer ones");
    field("longer", self.longer, "of a task: length of the longer examples, as a multiple of length; 1: none",
          arch::Limits{1, 1024});
    field("neighbours", self.neighbours,
          "of an architecture with retrieval: train with the neighbours that `lamina index neighbours` found, else as "
          "a plain decoder");
  }
  bool operator==(const DataChoice&) const = default;
};

/// Dropout probabilities in training.
struct DropoutChoice {
  double embedding = 0.0;
  double attention = 0.0;
  double residual = 0.0;
  static void visit_fields(auto& self, auto&& field) {
    field("embedding", self.embedding, "dropout probability of the embeddings", kBelowOne);
    field("attention", self.attention, "dropout probability of attention weights", kBelowOne);
    field("residual", self.residual, "dropout probability of every residual branch", kBelowOne);
  }
  bool operator==(const DropoutChoice&) const = default;
};

/// Type of weights and activations in training.
enum class Precision { f32, bf16 };
constexpr std::array<std::string_view, 2> names_of(Precision) { return {"f32", "bf16"}; }

/// A training run, read from its recipe file and checked. Two runs of one recipe with the same build are bit-identical.
struct Recipe {
  int64_t schema = kRecipeSchema;
  std::string about;
  /// In files: a preset name, a file name, or an inline architecture. Read and written separately, not by visit_fields.
  arch::ArchSpec architecture;
  std::string from;
  DataChoice data;
  data::Objective objective;
  int64_t batch = 12;
  int64_t length = 0;
  int64_t steps = 0;
  int64_t accumulation = 1;
  OptimizerChoice optimizer;
  Schedule schedule;
  double clip = 1.0;
  bool decay_embeddings = true;
  bool decay_vectors = false;
  DropoutChoice dropout;
  double label_smoothing = 0.0;
  double z_loss = 0.0;
  double ema = 0.0;
  double initial_deviation = 0.02;
  Precision dtype = Precision::f32;
  bool checkpointing = false;
  int64_t seed = 0;
  int64_t log_every = 10;
  int64_t eval_every = 250;
  int64_t eval_batch = 0;
  int64_t save_every = 500;
  bool save_in_background = true;
  LayoutChoice layout;
  static void visit_fields(auto& self, auto&& field) {
    field("schema", self.schema, "version of this format");
    field("about", self.about, "one-line description; has no effect");
    field("from", self.from,
          "a model to train further, any that `lamina convert` reads, or a run; its architecture comes with it");
    field("data", self.data, "training and validation data");
    field("objective", self.objective, "training objective");
    field("batch", self.batch, "sequences in a batch; data-parallel ranks share it");
    field("length", self.length,
          "tokens in a sequence (encoder–decoder: source and target together); default 0: the architecture's "
          "context",
          arch::kCount);
    field("steps", self.steps, "number of updates; required");
    field("accumulation", self.accumulation, "batches whose gradients are averaged for one update");
    field("optimizer", self.optimizer, "optimizer and its settings");
    field("schedule", self.schedule, "learning-rate schedule");
    field("clip", self.clip, "gradient clipping: largest norm of all gradients together; 0: off", arch::kNotNegative);
    field("decay_embeddings", self.decay_embeddings, "weight decay acts on embeddings and the head too");
    field("decay_vectors", self.decay_vectors, "weight decay acts on norms, biases and the like too");
    field("dropout", self.dropout, "dropout probabilities while training");
    field("label_smoothing", self.label_smoothing, "label smoothing: probability spread over all tokens", kBelowOne);
    field("z_loss", self.z_loss, "factor on log²(sum of exp(logits)), which keeps logits small", arch::kNotNegative);
    field("ema", self.ema,
          "decay of an exponential moving average of the weights, which is then evaluated and saved; 0: none",
          kBelowOne);
    field("initial_deviation", self.initial_deviation,
          "standard deviation of the initial weights; projections into the residual stream get it divided by "
          "√(2 · layers)",
          arch::kPositive);
    field("dtype", self.dtype, "f32, or bf16: weights and activations in bf16, with f32 copies of the weights");
    field("checkpointing", self.checkpointing,
          "activation checkpointing: recompute activations in backward, which needs less memory");
    field("seed", self.seed, "random seed of initial weights, batches and dropout", arch::kCount);
    field("log_every", self.log_every, "updates between two log lines");
    field("eval_every", self.eval_every, "updates between two evaluations on all validation data; 0: only at the end",
          arch::kCount);
    field("eval_batch", self.eval_batch, "sequences in a pass of the evaluation; default 0: as batch", arch::kCount);
    field("save_every", self.save_every, "updates between two checkpoints; 0: only at the end", arch::kCount);
    field(
        "save_in_background", self.save_in_background,
        "training continues while a checkpoint is written, from a copy in host memory; false: no copy, training waits");
    field("layout", self.layout, "how the run is divided over processes (docs/guides/distributed.md)");
  }
  bool operator==(const Recipe&) const = default;

  /// Number of tokens in an update.
  int64_t tokens_per_step() const { return batch * length * accumulation; }
};

/// A file of presets/recipes, embedded in the library.
struct RecipeFile {
  std::string_view name;  ///< without .json
  std::string_view text;  ///< the JSON
};
/// Sorted by name. Generated by cmake/EmbedPresets.cmake.
std::span<const RecipeFile> recipe_files();

/// Loads a recipe and applies "path=value" assignments in order. Paths under `architecture` change the architecture. An
/// argument that ends in .json or has a slash is a file; otherwise it names one of recipe_files(). Throws an
/// arch::SpecError that lists all problems. The architecture is not resolved, because its vocabulary may not be known
/// yet.
Recipe load_recipe(const std::string& name_or_file, const std::vector<std::string>& assignments = {});
/// Reads a recipe from text; `name` prefixes messages.
Recipe read_recipe(std::string_view text, const std::string& name, const std::vector<std::string>& assignments = {});
/// Writes JSON with every key; read_recipe reads it back.
std::string write_recipe(const Recipe& recipe);
/// Reads the recipe that write_recipe() wrote for a run. Takes the architecture from the text even if `from` names a
/// model, because that model may no longer exist.
Recipe read_run_recipe(std::string_view text, const std::string& name);

/// Fills in derived values, resolves the architecture for this vocabulary size (0: keeps its own), and checks every
/// rule. Throws an arch::SpecError that lists all violations.
Recipe resolve_recipe(Recipe recipe, int64_t vocab_size, const std::string& name);

/// The list of all recipe keys in docs/reference/recipe-file.md.
std::string recipe_markdown();

}  // namespace lamina::train
