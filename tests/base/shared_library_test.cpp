#include "lamina/base/shared_library.h"

#include <gtest/gtest.h>

#include "support/close.h"

namespace lamina {
namespace {

TEST(shared_library, TheFirstNameThatIsFoundIsLoaded) {
  const SharedLibrary library("the maths library", {"libno-such-library.so.7", "libm.so.6"});
  ASSERT_TRUE(library.is_loaded());
  EXPECT_EQ(library.function<double (*)(double)>("floor")(2.5), 2.0);
}

TEST(shared_library, AMissingLibraryIsAnErrorOnlyWhenItIsUsed) {
  const SharedLibrary library("Some library", {"libno-such-library.so.7"});
  EXPECT_FALSE(library.is_loaded());
  EXPECT_NE(library.problem().find("libno-such-library.so.7"), std::string::npos);
  testing::expect_error([&] { library.function<void (*)()>("anything"); }, "Some library cannot be loaded");
  testing::expect_error([&] { library.function<void (*)()>("anything"); }, "LD_LIBRARY_PATH");
}

TEST(shared_library, AMissingFunctionIsNamed) {
  const SharedLibrary library("The maths library", {"libm.so.6"});
  testing::expect_error([&] { library.function<void (*)()>("no_such_function"); }, "has no function no_such_function");
}

}  // namespace
}  // namespace lamina
