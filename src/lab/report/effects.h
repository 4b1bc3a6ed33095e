#pragma once

#include <string>
#include <vector>

#include "lamina/lab/report/results_file.h"

namespace lamina::lab::report {

/// A variant compared with its reference in the judged measure. One row of the forest plot.
struct Effect {
  std::string label;
  std::string reference;
  double difference = 0;
  Number low;  ///< 95 % confidence interval of the difference
  Number high;
  Number margin;  ///< largest absolute difference that counts as equivalent
  Number mean;    ///< mean of the reference
  Number size;    ///< size relative to the reference's, minus 1: FLOPs per token if the study matches compute, else
                  ///< parameters
  Number p;       ///< p value of the test that decided
  std::string mark;
  Number seeds_needed;
  size_t seeds = 0;
};
/// The effects in the order of the study, without the base and without variants that have no difference.
std::vector<Effect> effects_of(const Study& study);

/// "−0.0310 (−0.0412 to −0.0208)".
std::string written_effect(const Study& study, const Effect& effect);
/// "−0.0412 to −0.0208"; empty without an interval.
std::string written_interval(const Study& study, const Effect& effect);
/// The mark (or verdict) in the study's language.
std::string written_mark(const Study& study, const std::string& mark);
std::string written_verdict(const Study& study, const std::string& verdict);

/// The study's answer in one sentence with its confidence interval, and a second sentence about the other variants.
/// `mark` belongs to the first sentence. Both texts may be empty.
struct Answer {
  std::string text;
  std::string rest;
  std::string mark;
};
Answer answer_of(const Study& study);

/// A claim and what was measured about it.
struct ClaimRow {
  std::string claim;
  std::string claimed;   ///< "2.0 % or more better"; empty if unknown
  std::string measured;  ///< "1.8 % better (0.3 to 3.3 %)", or a sentence
  std::string verdict;   ///< the verdict as results.json has it
};
/// The study's claims with their verdicts. If the description has the claim, numbers come from the runs; otherwise from
/// the sentence in the file.
std::vector<ClaimRow> claims_of(const Study& study);

/// Sentences that are neither comparisons nor claims. They are in the study's language if they can be derived from
/// numbers.
std::vector<std::string> notes_of(const Study& study);

/// "loss = 1.21 + 350 · N^−0.31".
std::string written_law(const Scaling& scaling, const ScalingGroup& group);
/// "0.310 (0.251 to 0.383)".
std::string written_exponent(const Study& study, const ScalingGroup& group);

}  // namespace lamina::lab::report
