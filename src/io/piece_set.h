#pragma once

#include <memory>

#include "lamina/io/manifest.h"
#include "lamina/io/safetensors.h"

namespace lamina::io {

/// A part of a whole tensor: the box of elements [offset, offset + shape of part) in each dimension.
struct TensorPiece {
  std::string tensor;  ///< name of the whole tensor
  Shape offset;        ///< index of the first element, one number per dimension
  Tensor part;         ///< the elements
};

/// The name of a piece in a file: the tensor's name, '@' and the offset, for example "embedding.weight@128,0". The
/// file's entry has the piece's shape; the manifest has the whole tensor's shape.
std::string piece_name(const std::string& tensor, const Shape& offset);

/// Writes pieces to a safetensors file, atomically.
WrittenFile write_pieces(const std::string& path, const std::vector<TensorPiece>& pieces);

/// Selects the files of a checkpoint whose checksums are verified: every `parts`-th file, starting with number `part`.
/// So ranks that open a checkpoint together share the work.
struct ChecksumShare {
  int part = 0;
  int parts = 1;
};
inline constexpr ChecksumShare kNoChecksums{-1, 1};  ///< Verifies no file.

/// Whole tensors that are stored as pieces in any number of files. Pieces of a tensor neither overlap nor leave gaps.
/// Any box of a tensor can be read, no matter how the tensor was divided when it was written.
class PieceSet {
 public:
  /// A set of tensors that are already whole. `name` begins messages about them.
  static PieceSet whole(const NamedTensors& tensors, std::string name);
  /// Maps a file that holds whole tensors.
  static PieceSet open_file(const std::string& path, const Device& device);
  /// Maps the files of a group. Throws an Error if a file is missing or has another size or checksum, or if the pieces
  /// do not exactly make up the tensors in the manifest.
  static PieceSet open(const std::string& folder, const Manifest& manifest, const std::string& group,
                       const Device& device, const ChecksumShare& checksums = {});
  /// Like open(), with files that are already open. `name` begins messages.
  static PieceSet assemble(const ShardGroup& group, const std::vector<SafetensorsFile>& files, std::string name);

  std::vector<std::string> names() const;             ///< names of the whole tensors, sorted
  bool contains(const std::string& name) const;       ///< whether there is a tensor of this name
  const Shape& shape(const std::string& name) const;  ///< shape of the whole tensor
  DType dtype(const std::string& name) const;         ///< type of the whole tensor
  /// Reads a box of a whole tensor, with the shape of `to` and the given offset. Copies it into `to`, converted to its
  /// dtype and device. Releases the mapped pages.
  void copy(const std::string& name, const Shape& offset, const Tensor& to) const;
  /// A whole tensor: a view if it consists of one piece, otherwise a copy.
  Tensor tensor(const std::string& name) const;

 private:
  struct Stored {
    Shape offset;
    Tensor part;                                  ///< a view of the mapped file
    std::shared_ptr<const SafetensorsFile> file;  ///< null if the tensor does not come from a file
    std::string name;                             ///< name in the file
  };
  struct Whole {
    WholeTensor type;
    std::vector<Stored> pieces;
  };
  const Whole& at(const std::string& name) const;
  void check_complete(const std::string& name, Whole& whole) const;

  std::string name_;
  std::map<std::string, Whole> tensors_;
};

}  // namespace lamina::io
