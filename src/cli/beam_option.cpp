#include "lamina/cli/beam_option.h"

#include "lamina/infer/beam_search.h"

namespace lamina::cli {

void BeamChoice::add_to(CLI::App& command) {
  CLI::Option* beams = command.add_option("--beams", count, "Beam search with this many beams instead of sampling")
                           ->check(CLI::Range(int64_t{1}, int64_t{4096}));
  command
      .add_option("--length-penalty", length_penalty,
                  "With --beams: an answer's score is divided by its tokens to this power; above 0 favors long answers")
      ->capture_default_str()
      ->needs(beams);
  command
      .add_option("--early-stopping", early_stopping,
                  "With --beams: heuristic, first (as many answers as beams) or never (no better answer is possible)")
      ->capture_default_str()
      ->check(CLI::IsMember({"heuristic", "first", "never"}))
      ->needs(beams);
}

std::vector<infer::Generation> BeamChoice::search(nn::Model& model,
                                                  const std::vector<std::vector<text::TokenId>>& prompts,
                                                  const infer::GenerateOptions& given) const {
  infer::BeamOptions options;
  options.beams = count;
  options.length_penalty = length_penalty;
  options.early_stopping = early_stopping == "first"   ? infer::EarlyStopping::first
                           : early_stopping == "never" ? infer::EarlyStopping::never
                                                       : infer::EarlyStopping::heuristic;
  options.max_tokens = given.max_tokens;
  options.stop_tokens = given.stop_tokens;
  options.context = given.context;
  options.vocab_size = given.sampler.vocab_size;
  options.logit_cap = given.logit_cap;
  options.cache_dtype = given.cache_dtype;
  std::vector<infer::Generation> generations;
  for (const auto& prompt : prompts) {
    infer::BeamAnswer best = infer::beam_search(model, prompt, options).at(0);
    generations.push_back({std::move(best.ids), best.finish});
  }
  return generations;
}

}  // namespace lamina::cli
