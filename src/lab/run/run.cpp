#include "lamina/lab/run/run.h"

#include <chrono>
#include <cmath>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "lamina/arch/json.h"
#include "lamina/arch/value_json.h"
#include "lamina/base/files.h"
#include "lamina/base/version.h"
#include "lamina/data/sha256.h"
#include "lamina/infer/decode_speed.h"
#include "lamina/lab/study/study.h"
#include "lamina/train/memory.h"
#include "lamina/train/pass.h"
#include "lamina/train/run_data.h"

namespace lamina::lab {
namespace {

namespace fs = std::filesystem;
using arch::Json;
using Clock = std::chrono::steady_clock;

constexpr const char* kResult = "result.json";
constexpr size_t kRunHashDigits = 20;
constexpr int64_t kDecodeTokens = 256;
constexpr int kDecodeRounds = 3;

std::string inside(const RunPlan& plan, const char* name) { return (fs::path(plan.folder) / name).string(); }

std::string description(const train::Recipe& recipe, const StudyData& data, const Place& place) {
  Json json = arch::value_to_json(recipe, arch::Defaults::write);
  json.erase("about");
  for (const char* key : {"train", "validation", "tokenizer", "validation_share"}) json["data"].erase(key);
  Json architecture = arch::spec_to_json(recipe.architecture, arch::Defaults::write);
  architecture.erase("about");
  return Json{{"study_schema", kStudySchema}, {"version", std::string(kVersion)}, {"device", place.device},
              {"threads", place.threads},     {"data_sha256", data.hash},         {"recipe", json},
              {"architecture", architecture}}
      .dump();
}

bool weights_there(const RunPlan& plan) {
  return path_exists(inside(plan, "best")) || path_exists(inside(plan, "last"));
}

void prepare_folder(const RunPlan& plan, const Device& device) {
  if (path_exists(inside(plan, "recipe.json"))) {
    // The hash is the same, but the data may have moved.
    write_text(inside(plan, "recipe.json"), train::write_recipe(plan.recipe));
    return;
  }
  const auto approve = [&](const train::Recipe& recipe) { train::check_memory(recipe, device); };
  train::start_run(plan.folder, plan.recipe, {.force = false, .approve = approve, .watch = {}});
}

void drop_weights(const RunPlan& plan, bool keep) {
  std::error_code ignored;
  if (keep) {
    fs::remove(fs::path(plan.folder) / "last" / "training.safetensors", ignored);
    return;
  }
  for (const char* name : {"last", "best"}) fs::remove_all(inside(plan, name), ignored);
}

RunResult collect(const RunPlan& plan, const train::Trainer& trainer) {
  RunResult result;
  result.seed = plan.recipe.seed;
  result.tokens_per_step = plan.recipe.tokens_per_step();
  read_log_into(result, inside(plan, "log.jsonl"));
  const train::Progress& progress = trainer.progress();
  result.best_loss = progress.best_loss;
  result.best_step = progress.best_step;
  result.final_loss = progress.validation_loss;
  result.seconds = progress.seconds;
  result.peak_memory_bytes = trainer.device().allocator().counters().peak;
  if (result.best_loss && plan.validation_bytes > 0) {
    result.bits_per_byte = *result.best_loss * static_cast<double>(plan.validation_targets) / std::log(2.0) /
                           static_cast<double>(plan.validation_bytes);
  }
  return result;
}

/// Trains a run. Returns nothing if it was stopped.
std::optional<RunResult> train_run(const RunPlan& plan, const RunHooks& hooks) {
  const Device device = Device::named(plan.place.device, plan.place.threads, /*deterministic=*/true);
  prepare_folder(plan, device);
  train::Trainer trainer(plan.folder, device);
  std::string divergence;
  try {
    const train::Outcome outcome =
        trainer.run({.on_update = hooks.on_update, .on_evaluation = {}, .on_save = {}, .stop = hooks.stop});
    if (outcome == train::Outcome::stopped) return {};
  } catch (const train::NotFinite& error) {
    divergence = error.what();
  }
  RunResult result = collect(plan, trainer);
  if (!divergence.empty()) {
    result.diverged = true;
    result.divergence = divergence;
    result.final_loss.reset();
  }
  return result;
}

}  // namespace

RunPlan plan_run(train::Recipe recipe, int64_t seed, const StudyData& data, const Place& place,
                 const std::string& runs) {
  RunPlan plan;
  plan.place = place;
  recipe.seed = seed;
  plan.hash = data::sha256_hex(description(recipe, data, place)).substr(0, kRunHashDigits);
  plan.folder = (fs::path(runs) / plan.hash).string();
  plan.work = train::training_flops_per_token(recipe) * static_cast<double>(recipe.tokens_per_step()) *
              static_cast<double>(recipe.steps);
  plan.validation_bytes = data.validation_bytes;
  plan.validation_targets = data.validation_targets;
  plan.recipe = std::move(recipe);
  return plan;
}

RunOutcome execute_run(const RunPlan& plan, bool keep_weights, const RunHooks& hooks) {
  RunOutcome outcome;
  const auto start = Clock::now();
  try {
    outcome.result = read_run_result(inside(plan, kResult));
    outcome.cached = outcome.result.has_value() && (!keep_weights || weights_there(plan));
    if (!outcome.cached) {
      outcome.result = train_run(plan, hooks);
      if (outcome.result) {
        write_text(inside(plan, kResult), write_run_result(*outcome.result));
        drop_weights(plan, keep_weights);
      }
    }
    if (outcome.result) outcome.result->folder = plan.hash;
  } catch (const std::exception& error) {
    outcome.result.reset();
    outcome.cannot = error.what();
  }
  outcome.seconds = std::chrono::duration<double>(Clock::now() - start).count();
  return outcome;
}

void measure_run_decode(const RunPlan& plan, RunResult& result, const Device& device) {
  const train::Recipe& recipe = plan.recipe;
  const DType dtype = recipe.dtype == train::Precision::bf16 ? DType::bf16 : DType::f32;
  nn::Model model(recipe.architecture, device, {.dtype = dtype, .seed = static_cast<uint64_t>(recipe.seed)});
  // Decoding begins after one token.
  const int64_t tokens = std::max<int64_t>(std::min(recipe.length, kDecodeTokens) - 1, 1);
  result.decode_tokens_per_second =
      infer::measure_decode(model, {.tokens = tokens, .rounds = kDecodeRounds}).tokens_per_second;
  write_text(inside(plan, kResult), write_run_result(result));
}

}  // namespace lamina::lab
