#include "lamina/train/trainer.h"

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <numeric>

#include "lamina/base/files.h"
#include "lamina/base/version.h"
#include "lamina/io/model_file.h"
#include "lamina/train/pass.h"
#include "lamina/train/rank_agreement.h"

namespace lamina::train {
namespace {

using Json = nlohmann::ordered_json;
using Clock = std::chrono::steady_clock;

constexpr const char* kLast = "last";
constexpr const char* kBest = "best";

/// Adapts a run's layout to the number of ranks it resumes with. Pipeline stages, tensor-parallel and context-parallel
/// ranks are kept if they divide that number, in this order; data-parallel ranks are the rest. The number of
/// expert-parallel ranks becomes its largest divisor that also divides the data-parallel ranks.
Recipe recipe_for(Recipe recipe, const comm::Communicator* communicator) {
  const int64_t ranks = communicator == nullptr ? 1 : communicator->size();
  if (recipe.layout.ranks() == ranks) return recipe;
  if (ranks % recipe.layout.pp != 0) recipe.layout.pp = 1;
  if (recipe.layout.pp == 1) {
    recipe.layout.schedule = PipelineSchedule::one_forward_one_backward;
    recipe.layout.interleave = 1;
  }
  const int64_t of_stage = ranks / recipe.layout.pp;
  if (of_stage % recipe.layout.tp != 0) {
    recipe.layout.tp = 1;
    recipe.layout.sequence = false;
  }
  const int64_t of_tensor = of_stage / recipe.layout.tp;
  if (of_tensor % recipe.layout.cp != 0) recipe.layout.cp = 1;
  recipe.layout.dp = of_tensor / recipe.layout.cp;
  recipe.layout.ep = std::gcd(recipe.layout.dp, recipe.layout.ep);
  return resolve_recipe(std::move(recipe), 0, "recipe");
}

/// The recipe of a rank, once all ranks are known to have the same one.
Recipe agreed_recipe(const Recipe& run, comm::Communicator* communicator) {
  check_ranks_agree(communicator, {{"version of lamina", std::string(kVersion), "install one version on all hosts"},
                                   {"recipe", write_recipe(run),
                                    "all ranks must see the same run folder, on a file system that the hosts share"}});
  return recipe_for(run, communicator);
}

/// What all ranks must have alike before the first update.
std::vector<Agreement> agreements_of(const RunData& data, const Progress& progress) {
  const auto print_of = [](const std::optional<data::TokenFile>& file) {
    return file ? std::to_string(file->fingerprint()) : "";
  };
  const char* copy = "copy the files of rank 0 to its host, or keep them on a file system that the hosts share";
  return {{"training data", print_of(data.train_tokens), copy},
          {"validation data", print_of(data.validation_tokens), copy},
          {"neighbours of the training data", print_of(data.train_neighbours), copy},
          {"last checkpoint", std::to_string(progress.step),
           "all ranks must see the same run folder, on a file system that the hosts share"}};
}

double since(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

}  // namespace

Trainer::Trainer(const std::string& run_folder, const Device& device, TrainerOptions options)
    : communicator_(std::move(options.communicator)),
      folder_(writes() ? RunFolder(run_folder, std::move(options.lock)) : RunFolder::reader(run_folder)),
      learner_(agreed_recipe(folder_.recipe(), communicator_.get()), device, communicator_),
      flops_per_token_(training_flops_per_token(recipe())),
      data_(open_run_data(run_folder, learner_.recipe())),
      saver_(folder_, learner_, communicator_.get(), recipe().save_in_background) {
  if (writes()) check_run_data(run_folder, data_, options.accept_new_data, options.checking);
  const io::ChecksumShare checksums =
      communicator_ ? io::ChecksumShare{communicator_->rank(), communicator_->size()} : io::ChecksumShare{};
  if (const std::optional<Progress> last = folder_.load_last(learner_, checksums)) {
    progress_ = *last;
  } else {
    load_weights_to_start_from();
  }
  check_ranks_agree(communicator_.get(), agreements_of(data_, progress_));
}

void Trainer::load_weights_to_start_from() {
  const std::string& from = recipe().from;
  if (from.empty()) return;
  LAMINA_CHECK(path_exists(from), from, ": the model to train further is gone; it is read once, before the ",
               "first checkpoint");
  learner_.load_weights(io::read_model(from, Device::cpu()).tensors);
}

bool Trainer::due(int64_t every) const {
  return progress_.step == recipe().steps || (every > 0 && progress_.step % every == 0);
}

Outcome Trainer::run(const Watcher& watcher) {
  Outcome outcome = Outcome::stopped;
  try {
    outcome = run_updates(watcher);
    finish_save(watcher);
  } catch (const NotFinite&) {  // thrown on all ranks
    finish_save(watcher);
    throw;
  }
  if (failed_saves_.empty()) return outcome;
  const auto& [name, reason] = *failed_saves_.begin();
  throw Error(str("the run ended after update ", progress_.step, ", but its checkpoint could not be saved: ", reason,
                  ". ", folder_.file(name), " is older, or missing; make space and resume the run"));
}

Outcome Trainer::run_updates(const Watcher& watcher) {
  const auto start = Clock::now();
  const double seconds_before = progress_.seconds;
  elapsed_ = [start, seconds_before] { return seconds_before + since(start); };
  if (writes()) {
    log_ = std::make_unique<LogFile>(folder_.file("log.jsonl"), progress_.step);
    events_ = std::make_unique<EventWriter>(folder_.path());
  }
  bool stopped = false;
  // If the last checkpoint was written during an interrupted evaluation, repeat that evaluation first.
  while (!stopped && (progress_.step < recipe().steps || evaluation_due())) {
    if (!evaluation_due()) update(watcher);
    if (evaluation_due()) evaluate(watcher);
    progress_.seconds = elapsed_();
    stopped = meet(watcher);
    if (due(recipe().save_every) || stopped) save(watcher, kLast, /*with_state=*/true);
  }
  finish_save(watcher);
  spent_.all = since(start);
  return progress_.step < recipe().steps || evaluation_due() ? Outcome::stopped : Outcome::finished;
}

bool Trainer::meet(const Watcher& watcher) {
  const bool stops = watcher.stop && watcher.stop();
  std::vector<double> all{stops ? 1.0 : 0.0, saver_.status()};
  if (communicator_ && communicator_->size() > 1) all = comm::gather(*communicator_, all, "stop");
  bool any = false;
  std::vector<double> statuses;
  for (size_t i = 0; i < all.size(); i += 2) {
    any = any || all[i] != 0;
    statuses.push_back(all[i + 1]);
  }
  if (const std::optional<FinishedSave> save = saver_.advance(statuses)) take_result(watcher, *save);
  return any;
}

bool Trainer::evaluation_due() const {
  return data_.validation && progress_.step > 0 && due(recipe().eval_every) &&
         progress_.evaluated_step < progress_.step;
}

void Trainer::update(const Watcher& watcher) {
  const StepResult result = learner_.step(progress_.step, data_.batch_at);
  const auto start = Clock::now();
  spent_.steps += result.times;
  ++progress_.step;
  if (!began_ && writes()) discard_replaced_run(folder_.path());
  began_ = true;
  progress_.seconds = elapsed_();
  progress_.loss = result.loss;
  const double weight = std::max(0.02, 1.0 / static_cast<double>(progress_.step));
  progress_.smoothed_loss += weight * (result.loss - progress_.smoothed_loss);
  const double seconds = result.times.total();
  update_seconds_ = update_seconds_ == 0 ? seconds : 0.9 * update_seconds_ + 0.1 * seconds;
  const double rate = static_cast<double>(recipe().tokens_per_step()) / update_seconds_;
  const bool logged = writes() && (due(recipe().log_every) || progress_.step == 1);
  if (logged) log_update(result, rate);
  if (watcher.on_update) {
    const double left = static_cast<double>(recipe().steps - progress_.step) * update_seconds_;
    watcher.on_update({progress_, result, rate, rate * flops_per_token_, left, logged});
  }
  spent_.logging += since(start);
}

void Trainer::log_update(const StepResult& result, double tokens_per_second) {
  const Json line{{"step", progress_.step},
                  {"loss", result.loss},
                  {"smoothed_loss", progress_.smoothed_loss},
                  {"grad_norm", result.grad_norm},
                  {"lr", result.lr},
                  {"tokens", progress_.step * recipe().tokens_per_step()},
                  {"tokens_per_second", tokens_per_second},
                  {"seconds", progress_.seconds}};
  log_->write(line.dump());
  events_->write(progress_.step, {{"loss/train", result.loss},
                                  {"loss/train_smoothed", progress_.smoothed_loss},
                                  {"grad_norm", result.grad_norm},
                                  {"lr", result.lr},
                                  {"tokens_per_second", tokens_per_second}});
}

void Trainer::evaluate(const Watcher& watcher) {
  // Whether this evaluation improves depends on the result of that save.
  if (saver_.in_flight() == kBest) finish_save(watcher);
  const auto start = Clock::now();
  const std::optional<Measured> measured = learner_.evaluate(*data_.validation, watcher.stop);
  if (!measured) return;
  if (data_.longer) {
    const std::optional<Measured> longer = learner_.evaluate(*data_.longer, watcher.stop);
    if (!longer) return;
    progress_.longer_loss = longer->loss;
    progress_.longer_accuracy = longer->accuracy;
  }
  const double loss = measured->loss;
  progress_.validation_loss = loss;
  progress_.accuracy = measured->accuracy;
  progress_.evaluated_step = progress_.step;
  const bool improved = !progress_.best_loss || loss < *progress_.best_loss;
  if (improved) {
    best_before_ = {progress_.best_loss, progress_.best_step};
    progress_.best_loss = loss;
    progress_.best_step = progress_.step;
  }
  const double seconds = since(start);
  spent_.evaluations += seconds;
  Json line{{"step", progress_.step}, {"validation_loss", loss}, {"best_loss", *progress_.best_loss}};
  Scalars scalars{{"loss/validation", loss}};
  for (const auto& [key, value] : accuracies(progress_)) {
    line[key] = value;
    scalars.emplace_back("task/" + key, value);
  }
  if (writes()) {
    log_->write(line.dump());
    events_->write(progress_.step, scalars);
  }
  if (improved) save(watcher, kBest, /*with_state=*/false);
  if (watcher.on_evaluation) watcher.on_evaluation({progress_, improved, seconds});
}

void Trainer::save(const Watcher& watcher, const char* name, bool with_state) {
  finish_save(watcher);
  const auto start = Clock::now();
  saver_.start(name, progress_, with_state);
  spent_.checkpoints += since(start);
  if (!recipe().save_in_background) finish_save(watcher);
}

void Trainer::finish_save(const Watcher& watcher) {
  const auto start = Clock::now();
  const std::optional<FinishedSave> save = saver_.finish();
  spent_.checkpoints += since(start);
  if (save) take_result(watcher, *save);
}

void Trainer::take_result(const Watcher& watcher, const FinishedSave& save) {
  const std::string place = folder_.file(save.name);
  if (save.error.empty()) {
    failed_saves_.erase(save.name);
    if (watcher.on_save) watcher.on_save({save.progress, place, save.seconds});
    return;
  }
  failed_saves_[save.name] = save.error;
  if (save.name == kBest && progress_.best_step == save.progress.best_step) {
    // The best checkpoint on disk is still the previous one. So the next evaluation that beats it must be saved.
    std::tie(progress_.best_loss, progress_.best_step) = best_before_;
  }
  if (watcher.on_save_failed) watcher.on_save_failed({save.progress, place, save.error});
}

}  // namespace lamina::train
