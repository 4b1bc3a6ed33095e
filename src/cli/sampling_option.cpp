#include "lamina/cli/sampling_option.h"

#include <limits>

#include "lamina/cli/usage.h"

namespace lamina::cli {

void add_sampling(CLI::App& command, infer::SamplerOptions& sampler) {
  constexpr double kAny = std::numeric_limits<double>::max();
  command.add_option("--temperature", sampler.temperature, "Divides the logits; 0 takes the likeliest token")
      ->capture_default_str()
      ->check(between(0, kAny));
  command.add_option("--top-k", sampler.top_k, "Only the k likeliest tokens (0: all)")
      ->capture_default_str()
      ->check(at_least(0));
  command.add_option("--top-p", sampler.top_p, "Only the likeliest tokens that together reach this probability")
      ->capture_default_str()
      ->check(between(0, 1, true));
  command.add_option("--min-p", sampler.min_p, "Only tokens this likely, relative to the likeliest")
      ->capture_default_str()
      ->check(between(0, 1));
  command.add_option("--typical", sampler.typical_p, "Only tokens as surprising as expected, up to this probability")
      ->capture_default_str()
      ->check(between(0, 1, true));
  command.add_option("--repetition-penalty", sampler.repetition_penalty, "Above 1 makes earlier tokens less likely")
      ->capture_default_str()
      ->check(between(0, kAny, true));
  command.add_option("--presence-penalty", sampler.presence_penalty, "Subtracted from logits of tokens in the answer")
      ->capture_default_str()
      ->check(between(-kAny, kAny));
  command
      .add_option("--frequency-penalty", sampler.frequency_penalty,
                  "Subtracted from a token's logit for each time it is in the answer")
      ->capture_default_str()
      ->check(between(-kAny, kAny));
  command.add_option("--seed", sampler.seed, "Seed of the random numbers")->capture_default_str()->check(at_least(0));
}

}  // namespace lamina::cli
