// Synthetic tasks against solvers that know the rules from their descriptions and see the spelled tokens alone.
#include "lamina/data/tasks/task.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include "lamina/base/error.h"
#include "support/error_of.h"

namespace lamina::data {
namespace {

using lamina::testing::error_of;
using Words = std::vector<std::string>;

/// Returns the expected answer that follows these words.
using Solver = std::string (*)(const Words&);

size_t bar_of(const Words& words) {
  return static_cast<size_t>(std::find(words.begin(), words.end(), "|") - words.begin());
}

std::string solve_copy(const Words& words) { return words[words.size() - bar_of(words) - 1]; }

std::string solve_reversal(const Words& words) { return words[2 * bar_of(words) - words.size()]; }

std::string solve_selective_copy(const Words& words) {
  Words items;
  for (size_t i = 0; i < bar_of(words); ++i) {
    if (words[i] != ".") items.push_back(words[i]);
  }
  return items[words.size() - bar_of(words) - 1];
}

std::string solve_induction(const Words& words) {
  EXPECT_EQ(words.back(), "!");
  return *(std::find(words.begin(), words.end(), "!") + 1);
}

std::string solve_mqar(const Words& words) {
  std::map<std::string, std::string> known;
  for (size_t i = 0; i + 1 < words.size(); ++i) {
    if (words[i][0] == 'k') known.emplace(words[i], words[i + 1]);
  }
  return known.at(words.back());
}

std::string solve_sorting(const Words& words) {
  std::multiset<int> numbers;
  for (size_t i = 0; i < bar_of(words); ++i) numbers.insert(std::stoi(words[i]));
  return std::to_string(*std::next(numbers.begin(), static_cast<std::ptrdiff_t>(words.size() - bar_of(words) - 1)));
}

/// Reads backwards from = to where the expression began: a number with no sign before it.
std::string solve_modular(const Words& words) {
  EXPECT_EQ(words.back(), "=");
  int sum = 0;
  for (size_t i = words.size() - 1; i-- > 0; --i) {
    const int digit = words[i][0] - '0';
    const bool first = i == 0 || (words[i - 1] != "+" && words[i - 1] != "-");
    sum += first || words[i - 1] == "+" ? digit : -digit;
    if (first) break;
  }
  return std::to_string(((sum % 5) + 5) % 5);
}

std::string solve_passkey(const Words& words) {
  const auto first = static_cast<size_t>(std::find(words.begin(), words.end(), "?") - words.begin());
  const auto last = static_cast<size_t>(words.rend() - std::find(words.rbegin(), words.rend(), "?") - 1);
  EXPECT_LT(first, last);
  return words[first + words.size() - last];
}

std::string solve_dyck(const Words& words) {
  const std::map<std::string, std::string> closing = {{"(", ")"}, {"[", "]"}, {"{", "}"}, {"<", ">"}};
  Words stack;
  for (const std::string& word : words) {
    if (closing.count(word) > 0) {
      stack.push_back(closing.at(word));
    } else {
      EXPECT_EQ(stack.back(), word);
      stack.pop_back();
    }
  }
  return stack.back();
}

const std::map<std::string, Solver>& solvers() {
  static const std::map<std::string, Solver> all = {
      {"copy", solve_copy},           {"reversal", solve_reversal}, {"selective_copy", solve_selective_copy},
      {"induction", solve_induction}, {"mqar", solve_mqar},         {"sorting", solve_sorting},
      {"modular", solve_modular},     {"passkey", solve_passkey},   {"dyck", solve_dyck}};
  return all;
}

int64_t scored_count(const Example& example) { return std::count(example.scored.begin(), example.scored.end(), true); }

TEST(Tasks, ASolverThatKnowsTheRuleAnswersEverythingFromTheTokensAlone) {
  ASSERT_EQ(all_tasks().size(), solvers().size());
  for (const Task& task : all_tasks()) {
    const Solver solve = solvers().at(std::string(task_name(task)));
    for (const int64_t length : {40, 41, 64, 130}) {
      for (uint64_t index = 0; index < 12; ++index) {
        const Example example = make_example(task, {3, index}, length);
        ASSERT_EQ(example.size(), length + 1) << task_name(task);
        EXPECT_FALSE(example.scored[0]);
        EXPECT_GT(scored_count(example), 0) << task_name(task);
        Words words;
        for (size_t i = 0; i < example.tokens.size(); ++i) {
          const std::string word = spelled(task, example.tokens[i]);
          if (example.scored[i]) {
            ASSERT_EQ(solve(words), word) << task_name(task) << " at " << i;
          }
          words.push_back(word);
        }
      }
    }
  }
}

TEST(Tasks, WhatIsAskedIsWhatTheDescriptionsSay) {
  const auto count = [](const Task& task, int64_t length) { return scored_count(make_example(task, {1, 1}, length)); };
  EXPECT_EQ(count(Copy{}, 64), 32);
  EXPECT_EQ(count(Sorting{}, 65), 32);
  EXPECT_EQ(count(SelectiveCopy{.items = 5}, 64), 5);
  EXPECT_EQ(count(Induction{.questions = 3}, 64), 3);
  EXPECT_EQ(count(Mqar{.pairs = 4, .questions = 6}, 64), 6);
  EXPECT_EQ(count(Passkey{.digits = 7}, 64), 7);
  // Every closing bracket and everything after = is scored, and nothing else.
  for (const Task& task : {Task(Dyck{}), Task(Modular{})}) {
    const Example example = make_example(task, {1, 2}, 200);
    for (size_t i = 1; i < example.tokens.size(); ++i) {
      const bool asked =
          std::holds_alternative<Dyck>(task) ? example.tokens[i] % 2 == 1 : spelled(task, example.tokens[i - 1]) == "=";
      EXPECT_EQ(example.scored[i], asked) << task_name(task) << " at " << i;
    }
  }
}

/// Guessing is right as often as it should be, and no answer is more likely than the others.
TEST(Tasks, ChanceIsWhatItShouldBe) {
  for (const Task& task : all_tasks()) {
    std::map<int64_t, double> seen;
    double asked = 0;
    for (uint64_t index = 0; index < 400; ++index) {
      const Example example = make_example(task, {11, index}, 64);
      for (size_t i = 0; i < example.tokens.size(); ++i) {
        if (!example.scored[i]) continue;
        ++seen[example.tokens[i]];
        ++asked;
      }
    }
    const double chance = chance_accuracy(task);
    EXPECT_EQ(static_cast<double>(seen.size()), std::round(1 / chance)) << task_name(task);
    if (std::holds_alternative<Sorting>(task)) continue;  // a row's answers depend on one another
    for (const auto& [answer, times] : seen) {
      // A row may ask for one answer several times: five deviations of 400 independent rows are the bound.
      EXPECT_NEAR(times / asked, chance, 5 * std::sqrt(chance / 400)) << task_name(task) << " " << answer;
    }
  }
}

TEST(Tasks, AnExampleIsAFunctionOfItsKey) {
  for (const Task& task : all_tasks()) {
    const Batch whole = task_batch(task, TaskPart::train, 5, 0, 6, 48);
    const Batch second = task_batch(task, TaskPart::train, 5, 3, 3, 48);
    EXPECT_EQ(whole.rows, 6);
    EXPECT_EQ(whole.length, 48);
    EXPECT_TRUE(std::equal(second.ids.begin(), second.ids.end(), whole.ids.begin() + 3 * 48)) << task_name(task);
    EXPECT_TRUE(std::equal(second.targets.begin(), second.targets.end(), whole.targets.begin() + 3 * 48));
    EXPECT_NE(whole.ids, task_batch(task, TaskPart::train, 6, 0, 6, 48).ids);
    EXPECT_NE(whole.ids, task_batch(task, TaskPart::validation, 5, 0, 6, 48).ids);
    for (size_t i = 0; i < whole.ids.size(); ++i) {
      ASSERT_GE(whole.ids[i], 0);
      ASSERT_LT(whole.ids[i], task_vocab_size(task));
      const bool last = i % 48 == 47;
      if (whole.targets[i] != kIgnoreIndex && !last) {
        EXPECT_EQ(whole.targets[i], whole.ids[i + 1]);
      }
    }
  }
}

TEST(Tasks, ThePasskeyStandsWhereItIsPut) {
  const Passkey task;
  for (const int64_t before : {int64_t{0}, int64_t{17}, task.room(64)}) {
    Dice dice({1, 2});
    const Example example = task.make_at(dice, 64, before);
    EXPECT_EQ(example.size(), 65);
    EXPECT_EQ(std::find(example.tokens.begin(), example.tokens.end(), 0) - example.tokens.begin(), before);
  }
  Dice dice({1, 2});
  EXPECT_NE(error_of([&] { task.make_at(dice, 64, task.room(64) + 1); }).find("words before the number"),
            std::string::npos);
}

TEST(Tasks, ParametersThatCannotBeAreNamed) {
  EXPECT_NE(error_of([] { check_task(Mqar{.pairs = 9, .keys = 8}, 64); }).find("a key for each pair"),
            std::string::npos);
  EXPECT_NE(error_of([] { check_task(Passkey{}, 10); }).find("it needs 11 or more"), std::string::npos);
  for (const Task& task : all_tasks()) {
    const int64_t shortest = std::visit([](const auto& t) { return t.shortest(); }, task);
    const Example example = make_example(task, {1, 1}, shortest);
    EXPECT_EQ(example.size(), shortest + 1) << task_name(task);
    EXPECT_GT(scored_count(example), 0) << task_name(task);
    EXPECT_NE(error_of([&] { check_task(task, shortest - 1); }).find("make rows longer"), std::string::npos);
    EXPECT_NE(error_of([&] { spelled(task, task_vocab_size(task)); }).find("token"), std::string::npos);
  }
}

}  // namespace
}  // namespace lamina::data
