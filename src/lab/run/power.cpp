#include "lamina/lab/run/power.h"

#include <algorithm>

#include "lamina/lab/run/findings.h"
#include "lamina/lab/run/format.h"
#include "lamina/lab/run/statistics.h"

namespace lamina::lab {

std::string power_sentence(const Study& study) {
  if (study.mode == Mode::search || study.mode == Mode::stretch || study.metric != Metric::loss) return "";
  const size_t comparisons = std::max<size_t>(variants_of(study).size(), 2) - 1;
  const double level = kLevel / static_cast<double>(comparisons);
  const std::optional<size_t> needed = pairs_needed(study.margin / study.spread, kPower, level);
  const std::string takes = str("finding ", percent_of(study.margin), " takes ",
                                needed ? std::to_string(*needed) : std::string("over 10,000"), " seeds");
  const std::optional<double> effect = detectable_effect(study.seeds.size(), kPower, level);
  const std::string assumed = str(" (power 0.8, if paired runs differ by ", percent_of(study.spread),
                                  comparisons > 1 ? str("; Holm's correction over ", comparisons, " variants)") : ")");
  if (!effect) return str("one seed allows no test; ", takes, assumed);
  return str(study.seeds.size(), " seeds find a difference of ", percent_of(*effect * study.spread), " of the loss; ",
             takes, assumed);
}

}  // namespace lamina::lab
