#include "lamina/io/piece_set.h"

#include <algorithm>
#include <charconv>
#include <set>

#include "lamina/base/crc32c.h"
#include "lamina/base/files.h"
#include "lamina/base/mapped_file.h"

namespace lamina::io {
namespace {

/// Parses the offset in the name of a piece, for example "128,0".
Shape parse_offset(std::string_view text, const std::string& place) {
  Shape offset;
  while (!text.empty()) {
    int64_t value = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    const auto used = static_cast<size_t>(end - text.data());
    const bool number = error == std::errc() && value >= 0 && (used == text.size() || text[used] == ',');
    LAMINA_CHECK(number && offset.rank() < Shape::kMaxRank, place,
                 ": its name does not end in @ and an offset, such as @128,0; the file is damaged");
    offset.push_back(value);
    text.remove_prefix(std::min(used + 1, text.size()));
  }
  return offset;
}

/// The indices [begin, end) of a dimension.
struct Interval {
  int64_t begin = 0;
  int64_t end = 0;
};
/// Intersection of two intervals. It is empty if begin >= end.
Interval common(int64_t begin_a, int64_t count_a, int64_t begin_b, int64_t count_b) {
  return {std::max(begin_a, begin_b), std::min(begin_a + count_a, begin_b + count_b)};
}

bool overlap(const Shape& offset_a, const Shape& shape_a, const Shape& offset_b, const Shape& shape_b) {
  for (int axis = 0; axis < offset_a.rank(); ++axis) {
    const Interval both = common(offset_a[axis], shape_a[axis], offset_b[axis], shape_b[axis]);
    if (both.begin >= both.end) return false;
  }
  return true;
}

void check_file(const std::string& folder, const ShardFile& file, bool with_checksum) {
  const std::string path = folder + "/" + file.name;
  LAMINA_CHECK(file_exists(path), path, ": does not exist, but the manifest lists it; copy the whole folder again");
  const MappedFile mapped = map_file(path, "a safetensors file");
  LAMINA_CHECK(mapped.bytes.size() == file.bytes, path, ": has ", mapped.bytes.size(), " bytes, the manifest says ",
               file.bytes, "; it is cut short or of another checkpoint, copy the folder again");
  if (!with_checksum) return;
  const uint32_t sum = crc32c(mapped.bytes.data(), mapped.bytes.size());
  LAMINA_CHECK(sum == file.crc32c, path, ": its checksum differs from the manifest's; the file is damaged, copy it ",
               "again or use another checkpoint");
}

}  // namespace

std::string piece_name(const std::string& tensor, const Shape& offset) {
  std::string name = tensor + "@";
  for (int axis = 0; axis < offset.rank(); ++axis) name += str(axis > 0 ? "," : "", offset[axis]);
  return name;
}

WrittenFile write_pieces(const std::string& path, const std::vector<TensorPiece>& pieces) {
  NamedTensors tensors;
  for (const TensorPiece& piece : pieces) tensors.push_back({piece_name(piece.tensor, piece.offset), piece.part});
  return write_safetensors(path, tensors, {{"format", kShardedFormat}});
}

PieceSet PieceSet::whole(const NamedTensors& tensors, std::string name) {
  PieceSet set;
  set.name_ = std::move(name);
  for (const NamedTensor& entry : tensors) {
    Shape first;
    for (int axis = 0; axis < entry.tensor.rank(); ++axis) first.push_back(0);
    Whole whole{{entry.tensor.dtype(), entry.tensor.shape()}, {}};
    whole.pieces.push_back({first, entry.tensor.detach(), nullptr, entry.name});
    LAMINA_CHECK(set.tensors_.emplace(entry.name, std::move(whole)).second, set.name_, ": two tensors are called '",
                 entry.name, "'; keep one");
  }
  return set;
}

PieceSet PieceSet::open_file(const std::string& path, const Device& device) {
  const auto file = std::make_shared<const SafetensorsFile>(SafetensorsFile::open(path, device));
  PieceSet set = whole(file->tensors(), path);
  for (auto& [name, whole] : set.tensors_) whole.pieces[0].file = file;
  return set;
}

PieceSet PieceSet::open(const std::string& folder, const Manifest& manifest, const std::string& group_name,
                        const Device& device, const ChecksumShare& checksums) {
  const ShardGroup& group = manifest.group(group_name, folder + "/" + kManifest);
  std::vector<SafetensorsFile> files;
  int number = 0;
  for (const ShardFile& file : group.files) {
    check_file(folder, file, number++ % checksums.parts == checksums.part);
    files.push_back(SafetensorsFile::open(folder + "/" + file.name, device));
  }
  return assemble(group, files, folder);
}

PieceSet PieceSet::assemble(const ShardGroup& group, const std::vector<SafetensorsFile>& files, std::string name) {
  PieceSet set;
  set.name_ = std::move(name);
  for (const auto& [tensor, type] : group.tensors) set.tensors_[tensor].type = type;
  for (const SafetensorsFile& opened : files) {
    const auto file = std::make_shared<const SafetensorsFile>(opened);
    for (const std::string& entry : file->names()) {
      const std::string place = str(set.name_, ": piece '", entry.substr(0, 200), "'");
      const size_t at = entry.rfind('@');
      LAMINA_CHECK(at != std::string::npos, place, " has no offset in its name, such as @128,0; the file is damaged");
      const Shape offset = parse_offset(std::string_view(entry).substr(at + 1), place);
      const auto found = set.tensors_.find(entry.substr(0, at));
      LAMINA_CHECK(found != set.tensors_.end(), place, " is of a tensor that the manifest does not list; ",
                   "the files are of different checkpoints");
      Whole& whole = found->second;
      const Shape& shape = file->shape(entry);
      LAMINA_CHECK(file->dtype(entry) == whole.type.dtype, place, " holds ", file->dtype(entry), ", the manifest says ",
                   whole.type.dtype, "; the files are of different checkpoints");
      bool fits = offset.rank() == whole.type.shape.rank() && shape.rank() == whole.type.shape.rank();
      for (int axis = 0; fits && axis < offset.rank(); ++axis) {
        fits = shape[axis] > 0 && offset[axis] <= whole.type.shape[axis] &&
               shape[axis] <= whole.type.shape[axis] - offset[axis];
      }
      LAMINA_CHECK(fits, place, " ", shape, " lies outside the tensor, which is ", whole.type.shape,
                   "; the files are of different checkpoints");
      whole.pieces.push_back({offset, file->tensor(entry), file, entry});
    }
  }
  for (auto& [tensor, whole] : set.tensors_) set.check_complete(tensor, whole);
  return set;
}

/// Checks that the pieces of a tensor cover it without gaps or overlaps. Sweeps along the axis with the most cuts, so a
/// piece is compared only with pieces that have not ended there.
void PieceSet::check_complete(const std::string& name, Whole& whole) const {
  std::vector<Stored>& pieces = whole.pieces;
  int axis = 0;
  size_t most = 0;
  for (int candidate = 0; candidate < whole.type.shape.rank(); ++candidate) {
    std::set<int64_t> begins;
    for (const Stored& piece : pieces) begins.insert(piece.offset[candidate]);
    if (begins.size() > most) axis = candidate;
    most = std::max(most, begins.size());
  }
  if (whole.type.shape.rank() > 0) {
    std::stable_sort(pieces.begin(), pieces.end(),
                     [&](const Stored& a, const Stored& b) { return a.offset[axis] < b.offset[axis]; });
  }
  int64_t held = 0;
  std::vector<const Stored*> open;
  for (const Stored& piece : pieces) {
    if (whole.type.shape.rank() > 0) {
      std::erase_if(open, [&](const Stored* other) {
        return other->offset[axis] + other->part.shape()[axis] <= piece.offset[axis];
      });
    }
    for (const Stored* other : open) {
      LAMINA_CHECK(!overlap(other->offset, other->part.shape(), piece.offset, piece.part.shape()), name_, ": pieces '",
                   other->name, "' and '", piece.name, "' overlap; the files are of different checkpoints");
    }
    open.push_back(&piece);
    held += piece.part.numel();
  }
  LAMINA_CHECK(held == whole.type.shape.numel(), name_, ": the pieces of tensor '", name, "' hold ", held, " of its ",
               whole.type.shape.numel(), " elements; a file is missing or of another checkpoint");
}

const PieceSet::Whole& PieceSet::at(const std::string& name) const {
  const auto found = tensors_.find(name);
  LAMINA_CHECK(found != tensors_.end(), name_, ": has no tensor '", name,
               "'; the checkpoint is of another architecture or recipe");
  return found->second;
}

std::vector<std::string> PieceSet::names() const {
  std::vector<std::string> names;
  for (const auto& [name, whole] : tensors_) names.push_back(name);
  return names;
}

bool PieceSet::contains(const std::string& name) const { return tensors_.contains(name); }
const Shape& PieceSet::shape(const std::string& name) const { return at(name).type.shape; }
DType PieceSet::dtype(const std::string& name) const { return at(name).type.dtype; }

void PieceSet::copy(const std::string& name, const Shape& offset, const Tensor& to) const {
  for (const Stored& piece : at(name).pieces) {
    Tensor from = piece.part;
    Tensor place = to.detach();
    bool meet = true;
    for (int axis = 0; meet && axis < offset.rank(); ++axis) {
      const Interval both = common(offset[axis], to.shape()[axis], piece.offset[axis], piece.part.shape()[axis]);
      meet = both.begin < both.end;
      if (!meet) break;
      from = from.slice(axis, both.begin - piece.offset[axis], both.end - both.begin);
      place = place.slice(axis, both.begin - offset[axis], both.end - both.begin);
    }
    if (!meet) continue;
    place.copy_(from);
    if (piece.file) piece.file->release(piece.name);
  }
}

Tensor PieceSet::tensor(const std::string& name) const {
  const Whole& whole = at(name);
  if (whole.pieces.size() == 1) return whole.pieces[0].part;
  const Device device = whole.pieces.empty() ? Device::cpu(1) : whole.pieces[0].part.device();
  Tensor result = Tensor::empty(whole.type.shape, whole.type.dtype, device);
  Shape first;
  for (int axis = 0; axis < whole.type.shape.rank(); ++axis) first.push_back(0);
  copy(name, first, result);
  return result;
}

}  // namespace lamina::io
