#pragma once

#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "lamina/data/token_file.h"
#include "lamina/data/token_writer.h"
#include "support/temporary_folder.h"

namespace lamina::testing {

/// A mapping of bytes that lie in memory, exactly as long.
inline MappedFile in_memory(const std::string& bytes) {
  const std::shared_ptr<std::byte[]> copy(new std::byte[bytes.size()]);
  std::memcpy(copy.get(), bytes.data(), bytes.size());
  return {{copy.get(), bytes.size()}, copy};
}

/// Documents whose tokens are all different: 0, 1, 2, … through the file.
inline data::TokenFile counting_file(const std::string& path, const std::vector<int>& documents) {
  data::TokenWriter writer(path, 1 << 20, 7);
  int next = 0;
  for (const int length : documents) {
    std::vector<int32_t> ids;
    for (int i = 0; i < length; ++i) ids.push_back(next++);
    writer.write(ids);
    writer.end_document();
  }
  writer.publish();
  return data::TokenFile::open(path);
}

}  // namespace lamina::testing
