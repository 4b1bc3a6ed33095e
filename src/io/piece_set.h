#pragma once

#include <memory>

#include "lamina/io/manifest.h"
#include "lamina/io/safetensors.h"

namespace lamina::io {

/// A box of a whole tensor: elements [offset, offset + shape of part) of each dimension.
struct TensorPiece {
  std::string tensor;  ///< name of the whole tensor
  Shape offset;        ///< of the first element; one number per dimension
  Tensor part;         ///< the elements
};

/// The name of a piece in a file: the tensor's name, '@' and the offset, as in "embedding.weight@128,0". The piece's
/// shape is that of the file's entry, the whole shape is in the manifest.
std::string piece_name(const std::string& tensor, const Shape& offset);

/// Writes pieces to a safetensors file, atomically.
WrittenFile write_pieces(const std::string& path, const std::vector<TensorPiece>& pieces);

/// Which files of a checkpoint are compared with their checksums: every `parts`-th, from number `part` on. Ranks that
/// open a checkpoint together share the work.
struct ChecksumShare {
  int part = 0;
  int parts = 1;
};
inline constexpr ChecksumShare kNoChecksums{-1, 1};  ///< No file is compared.

/// Whole tensors that are stored as pieces, in any number of files. Pieces of a tensor do not overlap and have no gaps.
/// Reads any box of a tensor, however it was divided when it was written.
class PieceSet {
 public:
  /// Tensors that are whole already. `name` begins messages about them.
  static PieceSet whole(const NamedTensors& tensors, std::string name);
  /// Maps a file of whole tensors.
  static PieceSet open_file(const std::string& path, const Device& device);
  /// Maps the files of a group. Throws Error if a file is missing, has another size or checksum, or if the pieces are
  /// not exactly the tensors that the manifest lists.
  static PieceSet open(const std::string& folder, const Manifest& manifest, const std::string& group,
                       const Device& device, const ChecksumShare& checksums = {});
  /// As open(), from files that are open already. `name` begins messages.
  static PieceSet assemble(const ShardGroup& group, const std::vector<SafetensorsFile>& files, std::string name);

  std::vector<std::string> names() const;             ///< of the whole tensors, sorted
  bool contains(const std::string& name) const;       ///< whether there is a tensor of this name
  const Shape& shape(const std::string& name) const;  ///< of a whole tensor
  DType dtype(const std::string& name) const;         ///< of a whole tensor
  /// Copies the box of `to`'s shape at `offset` of a whole tensor into `to`, converted to its dtype and device. The
  /// mapped pages are released.
  void copy(const std::string& name, const Shape& offset, const Tensor& to) const;
  /// A whole tensor: a view if it is one piece, else a copy.
  Tensor tensor(const std::string& name) const;

 private:
  struct Stored {
    Shape offset;
    Tensor part;                                  ///< a view of the mapped file
    std::shared_ptr<const SafetensorsFile> file;  ///< null if the tensor is not from a file
    std::string name;                             ///< in the file
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
