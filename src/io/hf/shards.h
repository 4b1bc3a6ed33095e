#pragma once

#include <deque>
#include <map>
#include <set>
#include <string>

#include "lamina/io/safetensors.h"

namespace lamina::io::hf {

/// The tensors of a folder: from model.safetensors, or from the files that model.safetensors.index.json lists.
class Shards {
 public:
  Shards(const std::string& folder, const Device& device);

  /// The stored name of a tensor, with or without the family's prefix ("model.", "transformer."); empty if it is
  /// missing.
  std::string find(const std::string& name) const;
  /// Returns the tensor and marks it as used.
  Tensor take(const std::string& stored_name);
  const Shape& shape(const std::string& stored_name) const { return file(stored_name).shape(stored_name); }
  DType dtype(const std::string& stored_name) const { return file(stored_name).dtype(stored_name); }
  /// Gives the tensor's file pages back to the system, after it was copied.
  void release(const std::string& stored_name) const { file(stored_name).release(stored_name); }
  std::vector<std::string> unused() const;
  const std::string& folder() const { return folder_; }

 private:
  const SafetensorsFile& file(const std::string& stored_name) const { return files_.at(where_.at(stored_name)); }
  void open(const std::string& file, const Device& device);

  std::string folder_;
  std::deque<SafetensorsFile> files_;
  std::map<std::string, size_t> where_;
  std::set<std::string> used_;
};

}  // namespace lamina::io::hf
