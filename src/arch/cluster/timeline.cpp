// A picture of one step: the schedule of every pipeline stage, the parts of the step, and the memory of a device.
#include <algorithm>
#include <cmath>
#include <cstdio>

#include "lamina/arch/cluster/cluster_plan.h"
#include "lamina/arch/cluster/schedule.h"
#include "lamina/arch/plan.h"
#include "lamina/plot/axis.h"
#include "lamina/plot/svg_canvas.h"

namespace lamina::arch {
namespace {

using plot::Colour;

constexpr double kPictureWidth = 1120;
constexpr double kLeft = 96;
constexpr double kPlotWidth = kPictureWidth - kLeft - 32;
constexpr int64_t kMostRows = 16;
constexpr int64_t kUsualPasses = 40;   // number of passes drawn per stage, if that shows the steady state
constexpr int64_t kMostPasses = 4000;  // limit on the passes drawn in the whole picture

constexpr Colour kForward{66, 133, 207};
constexpr Colour kBackward{22, 135, 102};
constexpr Colour kRecompute{214, 148, 12};
constexpr Colour kTraffic{201, 83, 28};
constexpr Colour kUpdate{150, 94, 158};
constexpr Colour kIdle{232, 236, 241};
constexpr Colour kFrame{196, 203, 212};
constexpr Colour kOnBlock{255, 255, 254};  // not the background's white, because dark mode replaces the two differently
constexpr Colour kText{38, 43, 51};
constexpr Colour kQuiet{102, 110, 121};

constexpr const char* kDarkTimeline = R"(@media (prefers-color-scheme: dark) {
[fill="#262b33"] { fill: #e7ebf1 } [fill="#666e79"] { fill: #a3adba } [fill="#ffffff"] { fill: #14181f }
[fill="#e8ecf1"] { fill: #262d37 } [stroke="#c4cbd4"] { stroke: #465160 }
})";

struct Series {
  const char* name;
  Colour colour;
};
constexpr Series kLegend[] = {{"forward", kForward},         {"recomputation", kRecompute},
                              {"backward", kBackward},       {"communication (its share of a pass)", kTraffic},
                              {"optimizer update", kUpdate}, {"idle", kIdle}};

std::string shortened(double value, const char* unit, const char* format = "%.3g ") {
  char text[48];
  std::snprintf(text, sizeof text, format, value);
  return std::string(text) + unit;
}

double traffic_of(const PassSeconds& pass) { return pass.tensor + pass.context + pass.exchange; }

/// A horizontal bar of labelled parts.
struct BarPart {
  std::string name;
  double value = 0;
  Colour colour;
};

class TimelinePicture {
 public:
  explicit TimelinePicture(const ClusterPlan& plan)
      : plan_(plan),
        best_(plan.search.best.at(0)),
        stages_(stage_seconds(plan.cluster, plan.model, plan.setup, best_.layout)),
        canvas_(kPictureWidth, 100,
                {.title = "Timeline of a training step", .css = kDarkTimeline, .background = plot::kPaper}) {}

  std::string draw() {
    draw_heading();
    draw_schedule();
    draw_bars();
    canvas_.set_view(0, 0, kPictureWidth, y_ + 18);
    return canvas_.finish();
  }

 private:
  void text(double x, double y, const std::string& words, double size = 13, Colour colour = kText,
            plot::Anchor anchor = plot::Anchor::start, bool bold = false) {
    canvas_.text(x, y, words, {.size = size, .anchor = anchor, .colour = colour, .bold = bold});
  }

  void draw_heading() {
    text(28, 40, str(plan_.name, " on ", with_commas(plan_.devices), " × ", plan_.cluster_name), 21, kText,
         plot::Anchor::start, true);
    text(28, 64, to_text(best_.layout), 14, kQuiet);
    text(28, 86,
         str(shortened(best_.seconds.total(), "s per step"), " · ", short_number(best_.tokens_per_second),
             " tokens/s · MFU ", shortened(100 * best_.utilisation, "%", "%.1f "), " · batch ",
             with_commas(plan_.setup.batch), " × ", with_commas(plan_.setup.length), " tokens"),
         14, kQuiet);
    double x = kLeft;
    for (const Series& series : kLegend) {
      canvas_.box(x, 106, 14, 14, series.colour);
      text(x + 20, 118, series.name, 13);
      x += 24 + 6.9 * static_cast<double>(std::char_traits<char>::length(series.name)) + 14;
    }
    y_ = 138;
  }

  /// Indices of the stages to draw: all of them, or some at equal distances, including the first and the last.
  std::vector<size_t> shown_stages(int64_t micro_batches) const {
    const auto count = static_cast<int64_t>(stages_.size());
    const int64_t passes = 2 * micro_batches * best_.layout.interleave;
    const int64_t rows = std::min(count, std::clamp<int64_t>(kMostPasses / passes, 6, kMostRows));
    std::vector<size_t> shown;
    for (int64_t i = 0; i < rows; ++i) {
      shown.push_back(static_cast<size_t>(rows == 1 ? 0 : i * (count - 1) / (rows - 1)));
    }
    return shown;
  }

  /// Number of micro-batches to draw: enough to show a steady state. The interleaved schedule needs a multiple of the
  /// stages.
  int64_t shown_micro_batches() const {
    const auto all = static_cast<int64_t>(best_.micro_batches);
    const auto stages = static_cast<int64_t>(stages_.size());
    const int64_t wanted = std::max<int64_t>(stages > 1 ? 2 * stages : 1, kUsualPasses / 2 / best_.layout.interleave);
    if (best_.layout.interleave == 1) return all <= wanted + wanted / 2 ? all : wanted;
    return std::min(all, (wanted + stages - 1) / stages * stages);
  }

  void draw_schedule() {
    const auto chunks = static_cast<double>(best_.layout.interleave);
    PipelineTimes times;
    for (const StageSeconds& stage : stages_) {
      times.forward.push_back(stage.forward.total() / chunks);
      times.backward.push_back(stage.backward.total() / chunks);
    }
    times.send = best_.send;
    const int64_t shown = shown_micro_batches();
    const auto schedule = simulate_pipeline(times, shown, best_.layout.interleave);
    double end = 0;
    for (const auto& passes : schedule) end = std::max(end, passes.back().end);
    const double finish = best_.seconds.data + best_.seconds.optimizer;
    const double scale = kPlotWidth / (end + finish);
    const std::vector<size_t> rows = shown_stages(shown);
    const double row_height = rows.size() > 8 ? 22 : rows.size() > 2 ? 30 : 44;
    for (size_t i = 0; i < rows.size(); ++i) {
      draw_stage(rows[i], schedule[rows[i]], scale, y_, row_height - 4);
      draw_finish(kLeft + end * scale, scale, y_, row_height - 4);
      text(kLeft - 10, y_ + (row_height - 4) / 2 + 4.5, stages_.size() == 1 ? "device" : str("stage ", rows[i] + 1), 12,
           kQuiet, plot::Anchor::end);
      y_ += row_height;
    }
    draw_time_axis(end + finish);
    const auto all = static_cast<int64_t>(best_.micro_batches);
    if (shown < all || rows.size() < stages_.size()) {
      text(kLeft, y_,
           str("Drawn: ", shown, " of ", with_commas(all), " micro-batches, ", rows.size(), " of ", stages_.size(),
               " stages. The time of the whole step is below."),
           12, kQuiet);
      y_ += 20;
    }
  }

  void draw_stage(size_t index, const std::vector<PipelinePass>& passes, double scale, double top, double height) {
    canvas_.box(kLeft, top, kPlotWidth, height, kIdle);
    const StageSeconds& stage = stages_[index];
    for (const PipelinePass& pass : passes) {
      const PassSeconds& part = pass.forward ? stage.forward : stage.backward;
      const double x = kLeft + pass.start * scale;
      const double width = (pass.end - pass.start) * scale;
      const double gap = width > 5 ? 1 : width > 2.5 ? 0.5 : 0;
      const double inner = width - gap;
      const double total = std::max(part.total(), 1e-30);
      // Recomputation is drawn at the beginning of a backward pass. Communication is a strip along the whole pass whose
      // height is its share of the time, so that it is visible in narrow passes, too.
      const double again = inner * part.recompute / total;
      const double traffic = height * traffic_of(part) / total;
      canvas_.box(x, top, inner, height, pass.forward ? kForward : kBackward);
      if (again > 0.05) canvas_.box(x, top, again, height, kRecompute);
      if (traffic > 0.05) canvas_.box(x, top + height - traffic, inner, traffic, kTraffic);
      const std::string number = std::to_string(pass.micro_batch + 1);
      if (inner - again > 6.5 * static_cast<double>(number.size()) + 2)
        text(x + (inner + again) / 2, top + height / 2 + 3.5, number, 10.5, kOnBlock, plot::Anchor::middle);
    }
  }

  void draw_finish(double x, double scale, double top, double height) {
    const double traffic = best_.seconds.data * scale;
    const double update = best_.seconds.optimizer * scale;
    if (traffic > 0.05) canvas_.box(x, top, traffic, height, kTraffic);
    if (update > 0.05) canvas_.box(x + traffic, top, update, height, kUpdate);
  }

  void draw_time_axis(double end) {
    const bool milliseconds = end < 1;
    const double unit = milliseconds ? 1e3 : 1;
    const plot::Axis axis = plot::linear_axis(0, end * unit, 8);
    canvas_.line({{kLeft, y_}, {kLeft + kPlotWidth, y_}}, {kFrame});
    for (const double tick : axis.ticks) {
      const double x = kLeft + kPlotWidth * tick / (end * unit);
      if (x > kLeft + kPlotWidth + 0.5) continue;
      canvas_.line({{x, y_}, {x, y_ + 5}}, {kFrame});
      text(x, y_ + 19, axis.label(tick) + (milliseconds ? " ms" : " s"), 12, kQuiet, plot::Anchor::middle);
    }
    y_ += 44;
  }

  void draw_bars() {
    const StepSeconds& s = best_.seconds;
    y_ += 14;
    draw_bar(str("Time of the whole step on its slowest stage: ", shortened(s.total(), "s")),
             {{"products", s.passes.products, kForward},
              {"attention", s.passes.mixing, {43, 96, 158}},
              {"memory-bound", s.passes.memory, {120, 139, 163}},
              {"recomputation", s.passes.recompute, kRecompute},
              {"tensor", s.passes.tensor, kTraffic},
              {"context", s.passes.context, {222, 116, 68}},
              {"experts", s.passes.exchange, {176, 66, 18}},
              {"pipeline", s.pipeline, {222, 116, 68}},
              {"data", s.data, {176, 66, 18}},
              {"optimizer", s.optimizer, kUpdate},
              {"bubble", s.bubble, {134, 142, 153}}},
             s.total(), [&](double value) { return shortened(100 * value / s.total(), "%", "%.0f "); });
    const DeviceMemory& m = best_.memory;
    draw_bar(str("Memory of a device: ", short_bytes(m.total()), " of ", short_bytes(m.capacity)),
             {{"weights", m.weights, kForward},
              {"gradients", m.gradients, kBackward},
              {"optimizer", m.optimizer, kUpdate},
              {"activations", m.activations, kRecompute},
              {"temporary", m.temporary, kTraffic}},
             std::max(m.capacity, m.total()), [](double value) { return short_bytes(value); });
  }

  template <class Format>
  void draw_bar(const std::string& title, const std::vector<BarPart>& parts, double whole, const Format& format) {
    constexpr double kBarHeight = 34;
    text(kLeft, y_, title, 14, kText, plot::Anchor::start, true);
    y_ += 10;
    canvas_.box(kLeft, y_, kPlotWidth, kBarHeight, kIdle);
    double x = kLeft;
    std::vector<const BarPart*> unlabelled;
    for (const BarPart& part : parts) {
      const double width = kPlotWidth * part.value / whole;
      if (width <= 0) continue;
      canvas_.box(x, y_, std::max(0.0, width - 1), kBarHeight, part.colour);
      const std::string label = part.name + " " + format(part.value);
      if (width > 7.0 * static_cast<double>(plot::text_columns(label)) + 8) {
        text(x + width / 2, y_ + kBarHeight / 2 + 4.5, label, 12, kOnBlock, plot::Anchor::middle);
      } else if (part.value >= 0.005 * whole) {
        unlabelled.push_back(&part);
      }
      x += width;
    }
    y_ += kBarHeight + 18;
    draw_small_labels(unlabelled, format);
    y_ += 22;
  }

  /// Draws a legend below the bar for parts that are too narrow for a label.
  template <class Format>
  void draw_small_labels(const std::vector<const BarPart*>& parts, const Format& format) {
    double x = kLeft;
    for (const BarPart* part : parts) {
      const std::string label = part->name + " " + format(part->value);
      canvas_.box(x, y_ - 9, 10, 10, part->colour);
      text(x + 15, y_, label, 12, kQuiet);
      x += 15 + 7.0 * static_cast<double>(plot::text_columns(label)) + 16;
    }
    if (!parts.empty()) y_ += 12;
  }

  const ClusterPlan& plan_;
  const StepEstimate& best_;
  std::vector<StageSeconds> stages_;
  plot::SvgCanvas canvas_;
  double y_ = 0;
};

}  // namespace

std::string draw_timeline(const ClusterPlan& plan) { return TimelinePicture(plan).draw(); }

}  // namespace lamina::arch
