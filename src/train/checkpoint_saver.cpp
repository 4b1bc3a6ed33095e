#include "lamina/train/checkpoint_saver.h"

#include <chrono>
#include <cstdio>
#include <filesystem>
#include <utility>

#include "lamina/io/checkpoint.h"

namespace lamina::train {
namespace {

namespace fs = std::filesystem;

// Statuses of a save that a rank reports.
constexpr double kBusy = 0;
constexpr double kDone = 1;
constexpr double kFailed = 2;
constexpr int kFileNumbers = 4;  // per rank: size and checksum of the file of each group

double now() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

std::string shard_name(const std::string& group, int rank, int ranks) {
  char numbers[64];
  std::snprintf(numbers, sizeof numbers, "-%05d-of-%05d.safetensors", rank, ranks);
  return group + numbers;
}

/// The pieces that this rank writes. `copy`: copied to host memory. Otherwise they alias the live tensors on a CPU.
std::vector<io::TensorPiece> pieces_to_write(const HeldPieces& held, bool copy) {
  const Device host = Device::cpu();  // a separate allocator, so that the cached blocks of training stay unchanged
  std::vector<io::TensorPiece> pieces;
  for (const HeldPiece& piece : held) {
    if (!piece.writes) continue;
    Tensor part = piece.part.detach();
    if (copy) {
      // On a GPU the copy is queued on the device's CUDA stream, after the update, and then waited for.
      Tensor own = Tensor::empty(part.shape(), part.dtype(), host);
      own.copy_(part);
      part = own;
    }
    pieces.push_back({piece.tensor, piece.offset, part});
  }
  return pieces;
}

NamedTensors whole_tensors(const std::vector<io::TensorPiece>& pieces) {
  NamedTensors tensors;
  for (const io::TensorPiece& piece : pieces) tensors.push_back({piece.tensor, piece.part});
  return tensors;
}

/// Names, types and shapes of all tensors of a run. Found by creating the run for one device on the meta device.
std::map<std::string, io::ShardGroup> whole_groups(const Recipe& recipe) {
  Recipe alone = recipe;
  alone.layout = {};
  Learner learner(alone, Device::meta());
  std::map<std::string, io::ShardGroup> groups;
  const auto add = [&](const char* group, const HeldPieces& pieces) {
    for (const HeldPiece& piece : pieces) groups[group].tensors[piece.tensor] = {piece.part.dtype(), piece.whole};
  };
  learner.with_kept_pieces([&](const HeldPieces& pieces) { add(io::kModelGroup, pieces); });
  add(io::kTrainingGroup, learner.training_pieces());
  return groups;
}

}  // namespace

CheckpointSaver::CheckpointSaver(const RunFolder& folder, Learner& learner, comm::Communicator* communicator,
                                 bool background)
    : folder_(folder), learner_(learner), communicator_(communicator), background_(background) {}

CheckpointSaver::~CheckpointSaver() {
  if (save_ && save_->job.valid()) save_->job.wait();
}

void CheckpointSaver::start(const std::string& name, const Progress& progress, bool with_state) {
  LAMINA_CHECK(!save_, "a save of ", in_flight(), " is in flight; finish() it first");
  save_ = std::make_unique<Save>();
  save_->name = name;
  save_->progress = progress;
  save_->with_state = with_state;
  save_->started = now();
  open_folder();
  if (save_->place.empty()) return;  // failed; written.error on rank 0 says why
  take_pieces();
  save_->job = std::async(std::launch::async, [this] { return write_files(); });
}

/// Creates the temporary folder on rank 0, and sends its name to the other ranks.
void CheckpointSaver::open_folder() {
  std::string name;
  if (writes()) {
    try {
      save_->folder = std::make_unique<NewFolder>(folder_.file(save_->name), /*replace=*/true);
      save_->place = save_->folder->path("");
      name = fs::path(save_->place).parent_path().filename().string();
    } catch (const Error& error) {
      save_->written.error = error.what();
    }
  }
  if (ranks() == 1) return;
  name = comm::broadcast_text(*communicator_, name, 0, "checkpoint folder");
  if (!writes() && !name.empty()) save_->place = folder_.file(name) + "/";
}

void CheckpointSaver::take_pieces() {
  const bool averaged = learner_.recipe().ema > 0;  // EMA: the kept weights exist only during the call below
  learner_.with_kept_pieces(
      [&](const HeldPieces& held) { save_->model = pieces_to_write(held, background_ || averaged); });
  if (save_->with_state) save_->training = pieces_to_write(learner_.training_pieces(), background_);
  if (ranks() > 1 && writes() && whole_.empty()) whole_ = whole_groups(learner_.recipe());
}

/// Runs in the writing thread. If there is only one rank, it also publishes the checkpoint.
CheckpointSaver::Written CheckpointSaver::write_files() const {
  Written written;
  try {
    const fs::path place(save_->place);
    if (ranks() > 1) {
      const int rank = communicator_->rank();
      const auto path = [&](const char* group) { return (place / shard_name(group, rank, ranks())).string(); };
      written.model = io::write_pieces(path(io::kModelGroup), save_->model);
      if (save_->with_state) written.training = io::write_pieces(path(io::kTrainingGroup), save_->training);
      return written;
    }
    io::write_native_files(place.string(), {learner_.recipe().architecture, whole_tensors(save_->model), {}, {}});
    if (save_->with_state) io::write_safetensors((place / kTrainingFile).string(), whole_tensors(save_->training));
    folder_.write_companions(place.string(), save_->progress);
    save_->folder->publish();
  } catch (const std::exception& error) {
    written.error = error.what();
  }
  return written;
}

io::Manifest CheckpointSaver::manifest() const {
  const LayoutChoice& layout = learner_.recipe().layout;
  io::Manifest manifest;
  manifest.step = save_->progress.step;
  manifest.layout = {{"dp", layout.dp}, {"tp", layout.tp}, {"pp", layout.pp},
                     {"cp", layout.cp}, {"ep", layout.ep}, {"zero", layout.zero}};
  for (const auto& [name, group] : whole_) {
    const bool training = name == io::kTrainingGroup;
    if (training && !save_->with_state) continue;
    io::ShardGroup& complete = manifest.groups[name] = group;
    for (int rank = 0; rank < ranks(); ++rank) {
      const double* numbers = &save_->files[static_cast<size_t>(rank * kFileNumbers + (training ? 2 : 0))];
      complete.files.push_back(
          {shard_name(name, rank, ranks()), static_cast<uint64_t>(numbers[0]), static_cast<uint32_t>(numbers[1])});
    }
  }
  return manifest;
}

/// Runs in rank 0's thread when all ranks have written their files.
CheckpointSaver::Written CheckpointSaver::publish() {
  Written written;
  try {
    const fs::path place(save_->place);
    const io::Manifest complete = manifest();
    // An incomplete checkpoint must not replace a complete one, so check that all pieces exist. Checksums are not
    // verified, because the files were just written.
    for (const auto& [name, group] : complete.groups) {
      io::PieceSet::open(place.string(), complete, name, Device::cpu(1), io::kNoChecksums);
    }
    io::write_architecture(place.string(), learner_.recipe().architecture);
    folder_.write_companions(place.string(), save_->progress);
    write_text((place / io::kManifest).string(), io::manifest_text(complete));
    save_->folder->publish();
  } catch (const std::exception& error) {
    written.error = error.what();
  }
  return written;
}

/// Takes the result of the job, if it has finished. With `wait`, waits for it.
void CheckpointSaver::collect(bool wait) {
  constexpr auto kLongest = std::chrono::seconds(1);  // ranks that wait for each other must report at least this often
  if (!save_->job.valid()) return;
  if (save_->job.wait_for(wait ? kLongest : std::chrono::seconds(0)) != std::future_status::ready) return;
  const Written written = save_->job.get();
  save_->written.error = written.error;
  if (save_->publishing) return;
  save_->written = written;
  save_->model.clear();
  save_->training.clear();
}

double CheckpointSaver::status() {
  if (!save_) return kDone;
  collect(/*wait=*/false);
  if (save_->job.valid()) return kBusy;
  return save_->written.error.empty() ? kDone : kFailed;
}

std::optional<FinishedSave> CheckpointSaver::advance(const std::vector<double>& statuses) {
  if (!save_) return {};
  int failed = -1;
  for (size_t rank = statuses.size(); rank-- > 0;) {
    if (statuses[rank] == kBusy) return {};
    if (statuses[rank] == kFailed) failed = static_cast<int>(rank);
  }
  if (failed >= 0) {
    const std::string own = save_->written.error;
    if (ranks() == 1) return ended(own);
    const std::string error = comm::broadcast_text(*communicator_, own, failed, "failed save");
    return ended(str("rank ", failed, ": ", error));
  }
  if (ranks() == 1 || save_->publishing) return ended("");
  const Written& own = save_->written;
  save_->files = comm::gather(*communicator_,
                              {static_cast<double>(own.model.bytes), static_cast<double>(own.model.crc32c),
                               static_cast<double>(own.training.bytes), static_cast<double>(own.training.crc32c)},
                              "checkpoint files");
  save_->publishing = true;
  if (writes()) save_->job = std::async(std::launch::async, [this] { return publish(); });
  return {};
}

std::optional<FinishedSave> CheckpointSaver::finish() {
  while (save_) {
    collect(/*wait=*/true);
    const std::vector<double> statuses =
        ranks() == 1 ? std::vector<double>{status()} : comm::gather(*communicator_, {status()}, "save");
    if (std::optional<FinishedSave> result = advance(statuses)) return result;
  }
  return {};
}

FinishedSave CheckpointSaver::ended(const std::string& error) {
  FinishedSave result{save_->name, save_->progress, error, now() - save_->started};
  save_.reset();
  return result;
}

}  // namespace lamina::train
