#pragma once

#include <chrono>
#include <string>

#include "lamina/lab/position_kinds.h"
#include "lamina/lab/stretch.h"

namespace lamina::lab {

/// Knows how much of the work is done and how long the rest will take. Work is counted in operations; what is found
/// done takes no time and says nothing about the speed.
class StretchWork {
 public:
  explicit StretchWork(const StretchWatch& watch) : watch_(watch) {}

  void expect(double work) { total_ += work; }
  /// Was there already.
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

/// Where it was asked to stop; caught by stretch().
struct StretchStopped {};

/// What all models are read with.
struct StretchReading {
  const StretchOptions& options;
  int64_t trained_length = 0;
  std::vector<int64_t> lengths;
  std::vector<double> depths;
  const Device& device;
};

/// Whether a kind or scaling of this name was asked for.
bool wanted(const StretchOptions& options, const std::string& name);
/// Names what is measured of this model: a hash of everything it depends on.
std::string reading_key(const StretchReading& reading, const std::string& model);

/// A training in a folder that is named after the hash of recipe and data.
struct StretchRun {
  std::string name;
  train::Recipe recipe;
  std::string folder;
  double work = 0;  ///< operations
};
StretchRun plan_stretch_run(const std::string& name, train::Recipe recipe, const std::string& runs);
/// Its folder, with recipe and data, where it is not there yet.
void start_stretch_run(const StretchRun& run, const Device& device);
/// Trains to the end, or goes on; a finished one is left as it is.
void make_stretch_run(const StretchRun& run, const Device& device, StretchWork& work);

/// A row and the checkpoints it reads; `scaling` null: as they are.
struct StretchPlan {
  StretchRow row;
  const ScalingKind* scaling = nullptr;
  std::string text_model;      ///< folder or file; empty: no perplexity
  std::string passkey_model;   ///< the same; empty: no passkeys
  std::string text_failed;     ///< why the text's model was not trained; then nothing is read from it
  std::string passkey_failed;  ///< the same of the passkeys' model
  std::string key;             ///< of what is measured, unique to everything it depends on
  double text_flops = 0;       ///< of a token at the trained length, for the time that is left
  double passkey_flops = 0;    ///< the same; 0: no passkeys
};
/// Fills the row, from `measured`/KEY.json if it was measured before. Only complete rows are kept there: what failed is
/// tried again next time.
void measure_row(StretchPlan& plan, const StretchReading& reading, const ReadingText& text,
                 const PasskeyMaker& passkeys, const std::string& measured, StretchWork& work);
/// Operations of that, roughly.
double reading_work(const StretchPlan& plan, const StretchReading& reading);

/// Trains kinds and reads them.
void stretch_kinds(const StretchReading& reading, StretchWork& work, const StretchWatch& watch, StretchResult& result);
/// Reads an existing model as it is and with scalings.
void stretch_model(const StretchReading& reading, StretchWork& work, const StretchWatch& watch, StretchResult& result);

}  // namespace lamina::lab
