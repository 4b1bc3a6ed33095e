#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "lamina/arch/edit.h"
#include "lamina/arch/picture.h"
#include "lamina/arch/plan.h"
#include "lamina/arch/presets.h"
#include "lamina/arch/resolve.h"
#include "lamina/base/philox.h"

namespace lamina::arch {
namespace {

/// Reproducible random numbers for one mutation.
class Dice {
 public:
  explicit Dice(uint64_t stream) : key_{1, stream} {}
  /// A number in [0, n); 0 for n = 0.
  uint64_t below(uint64_t n) { return philox_word(key_, next_++) % std::max<uint64_t>(n, 1); }

 private:
  RandomKey key_;
  uint64_t next_ = 0;
};

/// Reading any text must give a usable spec or an Error.
void read_and_use(const std::string& text) {
  try {
    const ArchSpec spec = resolve(read_arch(text, "mutated"));
    const Plan plan = make_plan("mutated", spec, {.length = 16});
    EXPECT_FALSE(to_text(plan).empty());
    EXPECT_FALSE(to_json_text(plan).empty());
    EXPECT_FALSE(draw(spec, "mutated").empty());
    EXPECT_EQ(read_spec(write_spec(spec), "again"), spec);
  } catch (const Error&) {
    SUCCEED();
  }
}

std::string preset_text(Dice& dice) {
  const std::span<const PresetFile> files = preset_files();
  return std::string(files[dice.below(files.size())].text);
}

TEST(Mutation, changedBytesNeverCrash) {
  for (uint64_t round = 0; round < 800; ++round) {
    Dice dice(round);
    std::string text = preset_text(dice);
    const uint64_t changes = 1 + dice.below(4);
    for (uint64_t i = 0; i < changes && !text.empty(); ++i) {
      const size_t at = dice.below(text.size());
      switch (dice.below(4)) {
        case 0: text[at] = static_cast<char>(dice.below(256)); break;
        case 1: text.erase(at, dice.below(40)); break;
        case 2: text.insert(at, text.substr(dice.below(text.size()), dice.below(60))); break;
        default: text.resize(at + 1); break;
      }
    }
    read_and_use(text);
  }
}

const std::vector<Json>& odd_values() {
  static const std::vector<Json> values = {0,
                                           1,
                                           -1,
                                           2,
                                           3,
                                           7,
                                           2147483647,
                                           int64_t{1} << 40,
                                           INT64_MAX,
                                           INT64_MIN,
                                           0.0,
                                           1e-9,
                                           0.5,
                                           1e30,
                                           -1e300,
                                           true,
                                           nullptr,
                                           "none",
                                           "rope",
                                           "",
                                           "moe",
                                           "x",
                                           Json::array(),
                                           Json::object(),
                                           Json::array({1, "a", {}}),
                                           Json::array({Json::array()})};
  return values;
}

/// Replaces a random element of a JSON tree with an odd value.
void disturb(Json& json, Dice& dice, int depth) {
  const bool descend = !json.empty() && (json.is_object() || json.is_array()) && dice.below(6) != 0 && depth < 12;
  if (!descend) {
    json = odd_values()[dice.below(odd_values().size())];
    return;
  }
  auto child = json.begin();
  std::advance(child, static_cast<std::ptrdiff_t>(dice.below(json.size())));
  disturb(*child, dice, depth + 1);
}

TEST(Mutation, oddValuesNeverCrash) {
  const std::vector<std::string> names = preset_names();
  for (uint64_t round = 0; round < 800; ++round) {
    Dice dice(100000 + round);
    Json json = spec_to_json(load_preset(names[dice.below(names.size())]), Defaults::write);
    const uint64_t changes = 1 + dice.below(3);
    for (uint64_t i = 0; i < changes; ++i) disturb(json, dice, 0);
    read_and_use(json.dump());
  }
}

TEST(Mutation, oddPathsNeverCrash) {
  const ArchSpec spec = load_preset("gemma-3-tiny");
  const std::vector<std::string> pieces = {"layers", "[0]",      "[*]", ".",    "pattern", "kind", "[",
                                           "]",      "position", "=",   "rope", "mixer",   "[9]",  "3",
                                           "ffn",    "d_ff",     "{}",  "\"",   "null",    "norm", "\xff"};
  for (uint64_t round = 0; round < 800; ++round) {
    Dice dice(200000 + round);
    std::string assignment;
    const uint64_t count = 1 + dice.below(10);
    for (uint64_t i = 0; i < count; ++i) assignment += pieces[dice.below(pieces.size())];
    try {
      resolve(with_overrides(spec, {assignment}));
    } catch (const Error&) {
      SUCCEED();
    }
  }
}

}  // namespace
}  // namespace lamina::arch
