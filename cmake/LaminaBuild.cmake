# Compiler settings shared by every target, and the function that makes a room.
include(GNUInstallDirs)

if(NOT CMAKE_BUILD_TYPE)
  set(CMAKE_BUILD_TYPE Release CACHE STRING "" FORCE)
endif()
set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
set(CMAKE_RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/bin)

find_package(Threads REQUIRED)
find_package(nlohmann_json REQUIRED)
find_package(hwy CONFIG REQUIRED)
find_package(Boost 1.74 REQUIRED)  # headers only: Asio and Beast of `lamina serve`
find_package(OpenSSL REQUIRED)
foreach(library pcre2-8 utf8proc)
  find_library(LAMINA_${library} ${library})
  if(NOT LAMINA_${library})
    message(FATAL_ERROR "lib${library} is missing: tools/deps installs it (Debian: libpcre2-dev, libutf8proc-dev)")
  endif()
endforeach()
find_library(LAMINA_cairo cairo)  # may be missing
find_path(LAMINA_cairo_include cairo.h PATH_SUFFIXES cairo)

find_program(CCACHE ccache)
if(CCACHE)
  set(CMAKE_CXX_COMPILER_LAUNCHER ${CCACHE})
endif()

# Sources say "lamina/<room>/file.h" before and after installation: this link makes both the same.
file(MAKE_DIRECTORY ${PROJECT_BINARY_DIR}/include)
file(CREATE_LINK ${PROJECT_SOURCE_DIR}/src ${PROJECT_BINARY_DIR}/include/lamina SYMBOLIC)

configure_file(${PROJECT_SOURCE_DIR}/src/base/version.h.in ${PROJECT_BINARY_DIR}/generated/lamina/base/version.h @ONLY)

add_library(lamina_settings INTERFACE)
target_compile_features(lamina_settings INTERFACE cxx_std_20)
# Options for C++ sources alone; nvcc is told its own in LaminaCuda.cmake.
function(lamina_cxx_options)
  target_compile_options(lamina_settings INTERFACE "$<$<COMPILE_LANGUAGE:CXX>:${ARGN}>")
endfunction()
lamina_cxx_options(-Wall -Wextra -Wshadow -Wnon-virtual-dtor -Woverloaded-virtual -Wno-missing-field-initializers)
if(LAMINA_WERROR)
  lamina_cxx_options(-Werror)
endif()
if(LAMINA_SANITIZE)
  target_compile_options(lamina_settings INTERFACE -fsanitize=${LAMINA_SANITIZE} -fno-sanitize-recover=all
    -fno-omit-frame-pointer)
  target_link_options(lamina_settings INTERFACE -fsanitize=${LAMINA_SANITIZE})
  if(LAMINA_SANITIZE MATCHES "address.*undefined")
    # AddressSanitizer itself stops at accesses through null pointers and beyond objects. Without these checks of UBSan, kernels
    # compile in less than half of the time.
    target_compile_options(lamina_settings INTERFACE -fno-sanitize=null,vptr,object-size,pointer-overflow)
  endif()
endif()
if(LAMINA_SIMD STREQUAL dynamic AND CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64")
  # The oldest CPU served has AVX2 (2013), unless this machine itself is older; AVX-512 is compiled beside it and chosen at
  # run time.
  set(baseline -march=x86-64-v3 -maes -mpclmul)  # without the latter two Highway takes the CPU for an older one
  if(EXISTS /proc/cpuinfo)
    file(STRINGS /proc/cpuinfo avx2 LIMIT_COUNT 1 REGEX " avx2 ")
    if(NOT avx2)
      set(baseline -march=x86-64-v2)
    endif()
  endif()
  lamina_cxx_options(${baseline})
elseif(CMAKE_SYSTEM_PROCESSOR MATCHES "aarch64|arm64")
  # Kernels keep vectors in arrays and structs, which the sizeless vectors of SVE do not allow: every ARM CPU runs the
  # NEON kernels, which Highway compiles for CPUs with AES instructions only (not for the Raspberry Pi 4).
  lamina_cxx_options(-march=armv8-a+crypto)
  target_compile_definitions(lamina_settings INTERFACE
    "HWY_DISABLED_TARGETS=(HWY_SVE|HWY_SVE2|HWY_SVE_256|HWY_SVE2_128)")
elseif(LAMINA_SIMD STREQUAL native)
  lamina_cxx_options(-march=native)
  target_compile_definitions(lamina_settings INTERFACE HWY_COMPILE_ONLY_STATIC)
endif()

# For code that nobody waits for, so that it compiles in a third of the time.
set(LAMINA_COLD_CODE -O1)
if(LAMINA_SANITIZE)
  set(LAMINA_COLD_CODE -O0)
endif()

# lamina_together(TARGET): its sources are compiled several at a time, so that what they include is read once. Names in
# their anonymous namespaces must differ.
function(lamina_together target)
  if(LAMINA_UNITY)
    set_target_properties(${target} PROPERTIES UNITY_BUILD ON UNITY_BUILD_BATCH_SIZE 8)
  endif()
endfunction()

# lamina_room(NAME [DEPENDS rooms…] [LINK private libraries…]): every source in src/NAME becomes the target lamina_NAME.
# DEPENDS is the rule who may enter which room.
function(lamina_room name)
  cmake_parse_arguments(ARG "" "" "DEPENDS;LINK;EXCLUDE" ${ARGN})
  file(GLOB_RECURSE sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/src/${name}/*.cpp)
  if(LAMINA_HAS_CUDA)
    file(GLOB_RECURSE kernels CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/src/${name}/*.cu)
    list(APPEND sources ${kernels})
    if(NOT LAMINA_HAS_CUDNN)
      list(FILTER sources EXCLUDE REGEX "_cudnn\\.cpp$")
    endif()
  else()
    list(FILTER sources EXCLUDE REGEX "_cuda\\.cpp$|_cudnn\\.cpp$")
  endif()
  foreach(pattern IN LISTS ARG_EXCLUDE)
    list(FILTER sources EXCLUDE REGEX ${pattern})
  endforeach()
  add_library(lamina_${name} STATIC ${sources})
  add_library(lamina::${name} ALIAS lamina_${name})
  set_target_properties(lamina_${name} PROPERTIES EXPORT_NAME ${name})
  if(NOT name MATCHES "^(tensor|ops)$")  # kernels are compiled once for each instruction set, by including themselves
    lamina_together(lamina_${name})
  endif()
  target_include_directories(lamina_${name} PUBLIC
    $<BUILD_INTERFACE:${PROJECT_BINARY_DIR}/include> $<BUILD_INTERFACE:${PROJECT_BINARY_DIR}/generated>
    $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/include>
    $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>)
  target_link_libraries(lamina_${name} PUBLIC ${ARG_DEPENDS} PRIVATE $<BUILD_INTERFACE:lamina_settings> ${ARG_LINK})
  target_compile_features(lamina_${name} PUBLIC cxx_std_20)
  # The fuzzer steers by what it reaches: of readers and of operators' checks. Nothing below these is fuzzed by itself, and
  # kernels have no branches that its bytes decide; they compile faster without.
  if(LAMINA_FUZZ AND NOT name MATCHES "^(nn|train|infer|lab)$")
    set(kernels ${sources})
    list(FILTER kernels INCLUDE REGEX "_cpu\\.cpp$")
    if(kernels)
      # Kernels alone can use the room's precompiled header: one has the options of the other.
      list(REMOVE_ITEM sources ${kernels})
      set_source_files_properties(${sources} PROPERTIES COMPILE_OPTIONS -fsanitize=fuzzer-no-link SKIP_PRECOMPILE_HEADERS ON)
    else()
      target_compile_options(lamina_${name} PRIVATE -fsanitize=fuzzer-no-link)
    endif()
  endif()
  install(TARGETS lamina_${name} EXPORT lamina ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR})
endfunction()
