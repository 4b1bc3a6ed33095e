#include "lamina/train/run_data.h"

#include <filesystem>

#include "lamina/base/files.h"

namespace lamina::train {
namespace {

namespace fs = std::filesystem;

constexpr const char* kTokenizer = "tokenizer.json";
constexpr const char* kTrain = "train.bin";
constexpr const char* kValidation = "validation.bin";

void check_target(const std::string& folder, bool force) {
  if (!fs::exists(folder)) return;
  const bool run = fs::exists(fs::path(folder) / "recipe.json");
  LAMINA_CHECK(run || (fs::is_directory(folder) && fs::is_empty(folder)), folder,
               ": is there and is no run; choose another folder (--run)");
  LAMINA_CHECK(force || !run, folder, ": a run is there already; go on with it (--resume ", folder,
               "), choose another folder (--run), or replace it (--force)");
}

bool is_token_file(const std::string& path) { return path.ends_with(".bin"); }

data::TokenFile open_tokens(const std::string& path, const char* key) {
  LAMINA_CHECK(fs::exists(path), path, ": the run's ", key, " is not there; put it back, or start a run with another");
  return data::TokenFile::open(path);
}

/// Where a run's tokens and their meaning come from.
struct Tokens {
  int64_t vocab_size = 0;  ///< 0: unknown
  std::string tokenizer;   ///< tokenizer.json's text; may be empty
};

/// Names become absolute, so that the run goes on from anywhere; what `lamina data prepare` made becomes its files.
void settle_names(Recipe& recipe) {
  for (std::string* path : {&recipe.data.train, &recipe.data.validation, &recipe.from}) {
    if (!path->empty()) *path = fs::absolute(*path).lexically_normal().string();
  }
  const fs::path prepared = recipe.data.train;
  if (!fs::exists(prepared / kTrain)) return;
  recipe.data.train = (prepared / kTrain).string();
  if (recipe.data.validation.empty() && fs::exists(prepared / kValidation)) {
    recipe.data.validation = (prepared / kValidation).string();
  }
}

Tokens from_token_files(const Recipe& recipe) {
  Tokens tokens;
  tokens.vocab_size = open_tokens(recipe.data.train, "data.train").vocab_size();
  if (!recipe.data.validation.empty()) {
    LAMINA_CHECK(is_token_file(recipe.data.validation), recipe.data.validation,
                 ": data.train is a token file, so this must be one too (.bin)");
    const data::TokenFile validation = open_tokens(recipe.data.validation, "data.validation");
    tokens.vocab_size = std::max(tokens.vocab_size, validation.vocab_size());
  }
  const fs::path beside = fs::path(recipe.data.train).parent_path() / kTokenizer;
  if (fs::exists(beside)) {
    tokens.tokenizer = read_text(beside.string());
  }
  return tokens;
}

}  // namespace

RunData open_run_data(const std::string& run_folder, const Recipe& recipe) {
  const fs::path made = fs::path(run_folder) / "data";
  if (fs::exists(made)) {
    RunData data{.train = open_tokens((made / kTrain).string(), "training data"), .validation = {}};
    if (fs::exists(made / kValidation)) data.validation = data::TokenFile::open((made / kValidation).string());
    return data;
  }
  RunData data{.train = open_tokens(recipe.data.train, "data.train"), .validation = {}};
  if (!recipe.data.validation.empty()) data.validation = open_tokens(recipe.data.validation, "data.validation");
  return data;
}

void start_run(const std::string& folder, const Recipe& recipe, const StartOptions& options) {
  check_target(folder, options.force);
  Recipe settled = recipe;
  settle_names(settled);
  // Before anything is read or encoded, everything that can be wrong without it; any vocabulary will do for that.
  resolve_recipe(settled, settled.architecture.vocab_size == 0 ? 1 : 0, "recipe");
  const fs::path parent = fs::path(folder).parent_path();
  std::error_code unmade;  // the new folder says what is missing
  if (!parent.empty()) fs::create_directories(parent, unmade);
  NewFolder target(folder, /*replace=*/true);
  const Tokens tokens = from_token_files(settled);
  const Recipe resolved = resolve_recipe(settled, tokens.vocab_size, "recipe");
  if (options.approve) options.approve(resolved);
  if (!tokens.tokenizer.empty()) write_text(target.path(kTokenizer), tokens.tokenizer);
  write_text(target.path("recipe.json"), write_recipe(resolved));
  target.publish();
}

}  // namespace lamina::train
