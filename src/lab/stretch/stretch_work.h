#pragma once

#include <chrono>
#include <string>

#include "lamina/lab/stretch/position_kinds.h"
#include "lamina/lab/stretch/stretch.h"

namespace lamina::lab {

/// Tracks progress and estimates the time left. Work is counted in FLOPs. Work that was already done is not counted in
/// the speed.
class StretchWork {
 public:
  explicit StretchWork(const StretchWatch& watch) : watch_(watch) {}

  void expect(double work) { total_ += work; }
  /// Removes work that an earlier process did.
  void found(double work) { total_ -= work; }
  void did(double work) { done_ += work; }
  void say(const std::string& what) const {
    if (!watch_.progress) return;
    const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count();
    const double left = done_ > 0 ? seconds * (total_ - done_) / done_ : 0;
    watch_.progress({what, total_ > 0 ? done_ / total_ : 1, left});
  }
  bool stopped() const { return watch_.stop && watch_.stop(); }

 private:
  const StretchWatch& watch_;
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
  double total_ = 0;
  double done_ = 0;
};

/// Thrown on a stop request; caught by stretch().
struct StretchStopped {};

/// Settings that all measurements share.
struct StretchReading {
  const StretchOptions& options;
  int64_t trained_length = 0;
  std::vector<int64_t> lengths;
  std::vector<double> depths;
  const Device& device;
};

/// Whether the options select the kind or scaling with this name.
bool wanted(const StretchOptions& options, const std::string& name);
/// Cache key for the measurements of this model: a hash of everything they depend on.
std::string reading_key(const StretchReading& reading, const std::string& model);

/// A training run. Its folder is named after the hash of recipe and data.
struct StretchRun {
  std::string name;
  train::Recipe recipe;
  std::string folder;
  double work = 0;  ///< FLOPs
};
StretchRun plan_stretch_run(const std::string& name, train::Recipe recipe, const std::string& runs);
/// Creates the run's folder with recipe and data, unless it exists.
void start_stretch_run(const StretchRun& run, const Device& device);
/// Trains to the end, or resumes. Does nothing if the run is finished.
void make_stretch_run(const StretchRun& run, const Device& device, StretchWork& work);

/// A row and the checkpoints it reads. A null `scaling` reads them unchanged.
struct StretchPlan {
  StretchRow row;
  const ScalingKind* scaling = nullptr;
  std::string text_model;      ///< checkpoint folder or file; empty: no perplexity
  std::string passkey_model;   ///< checkpoint folder or file; empty: no passkeys
  std::string text_failed;     ///< why the text model's training failed; then no perplexity is measured
  std::string passkey_failed;  ///< why the passkey model's training failed
  std::string key;             ///< cache key of the measurements (reading_key)
  double text_flops = 0;       ///< FLOPs per token at the training length, for the time estimate
  double passkey_flops = 0;    ///< FLOPs per token of the passkey model; 0: no passkeys
};
/// Fills the row, from `measured`/KEY.json if that exists. Only complete rows are stored there, so that failed ones are
/// tried again next time.
void measure_row(StretchPlan& plan, const StretchReading& reading, const ReadingText& text,
                 const PasskeyMaker& passkeys, const std::string& measured, StretchWork& work);
/// Estimated FLOPs of measure_row.
double reading_work(const StretchPlan& plan, const StretchReading& reading);

/// Trains every selected kind and measures it.
void stretch_kinds(const StretchReading& reading, StretchWork& work, const StretchWatch& watch, StretchResult& result);
/// Measures an existing model, unchanged and with scalings.
void stretch_model(const StretchReading& reading, StretchWork& work, const StretchWatch& watch, StretchResult& result);

}  // namespace lamina::lab
