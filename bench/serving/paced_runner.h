#pragma once

#include <chrono>
#include <deque>
#include <thread>

#include "lamina/infer/engine/step.h"

namespace lamina::bench {

/// How long the steps of an imaginary GPU take, in microseconds. The defaults are those of 1.03B parameters on an H200.
struct StepTimes {
  double step = 800;    ///< of a decoding step, without its rows
  double row = 3.7;     ///< of each decoding row
  double prompt = 3.8;  ///< of each prompt token
};

/// A runner without a model: sampled tokens are a hash of row and position, and a step ends when the imaginary GPU
/// would be done with it. It uses almost no CPU time, so that what is left is the work of the engine and of the server.
class PacedRunner final : public infer::StepRunner {
 public:
  PacedRunner(const StepTimes& times, int64_t rows, int64_t context, int64_t vocab) : times_(times) {
    shape_.page_size = 32;
    shape_.groups = {{0, rows * (context / shape_.page_size + 1) * 2, int64_t{1} << 20}};
    shape_.vocab_size = vocab;
    shape_.context = context;
    shape_.rows = rows;
    shape_.pipelined = true;
  }
  const infer::CacheShape& shape() const override { return shape_; }

  void run(const infer::StepPlan& plan) override {
    infer::StepResult result;
    double micros = times_.step;
    for (const infer::StepRow& row : plan.rows) {
      const auto tokens = static_cast<double>(row.tokens.size());
      micros += tokens > 1 ? tokens * times_.prompt : times_.row;
      infer::RowResult& one = result.rows.emplace_back();
      for (int32_t i = 0; i < row.samples; ++i) {
        const auto hash = static_cast<uint64_t>(row.row_id * 1000003 + row.drawn + i) * 0x9E3779B97F4A7C15U;
        const auto id = (hash >> 40) % static_cast<uint64_t>(shape_.vocab_size - kFirstToken) + kFirstToken;
        one.sampled.push_back({static_cast<infer::TokenId>(id), 0, {}});
      }
    }
    free_at_ = std::max(free_at_, Clock::now()) + std::chrono::nanoseconds(static_cast<int64_t>(micros * 1e3));
    in_flight_.emplace_back(free_at_, std::move(result));
  }
  infer::StepResult wait() override {
    auto [end, result] = std::move(in_flight_.front());
    in_flight_.pop_front();
    std::this_thread::sleep_until(end);
    return std::move(result);
  }
  void copy_page(int64_t, int32_t, int32_t) override {}
  void copy_state(int32_t, int32_t) override {}
  void clear_state(int32_t) override {}

 private:
  using Clock = std::chrono::steady_clock;
  static constexpr uint64_t kFirstToken = 300;  ///< tokens before are special ones and bytes in many vocabularies

  StepTimes times_;
  infer::CacheShape shape_;
  Clock::time_point free_at_;
  std::deque<std::pair<Clock::time_point, infer::StepResult>> in_flight_;
};

}  // namespace lamina::bench
