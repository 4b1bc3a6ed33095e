// Copies walk the outer dimensions and convert one innermost run at a time. Dimensions that are dense in both tensors
// are merged first, so that a plain cast is one long run, split among the threads.
#include <cstring>

#include "lamina/tensor/copy.h"

namespace lamina::cpu {
namespace {

struct Walk {
  Shape shape;
  Shape source_strides;
  Shape target_strides;
};

/// Drops extents of 1 and merges neighbours that are dense in both tensors.
Walk merge_dimensions(const Tensor& source, const Tensor& target) {
  Walk walk;
  for (int axis = 0; axis < target.rank(); ++axis) {
    const int64_t extent = target.dim(axis);
    if (extent == 1) continue;
    const int64_t from = source.strides()[axis];
    const int64_t to = target.strides()[axis];
    const int last = walk.shape.rank() - 1;
    if (last >= 0 && walk.source_strides[last] == from * extent && walk.target_strides[last] == to * extent) {
      walk.shape[last] *= extent;
      walk.source_strides[last] = from;
      walk.target_strides[last] = to;
    } else {
      walk.shape.push_back(extent);
      walk.source_strides.push_back(from);
      walk.target_strides.push_back(to);
    }
  }
  if (walk.shape.rank() == 0) {
    walk.shape.push_back(1);
    walk.source_strides.push_back(1);
    walk.target_strides.push_back(1);
  }
  return walk;
}

template <class From, class To>
void convert_run(const From* from, int64_t from_stride, To* to, int64_t to_stride, int64_t count) {
  if (from_stride == 1 && to_stride == 1) {
    if constexpr (std::is_same_v<From, To>) {
      std::memcpy(to, from, static_cast<size_t>(count) * sizeof(To));
    } else {
      for (int64_t i = 0; i < count; ++i) to[i] = convert<To>(from[i]);
    }
    return;
  }
  for (int64_t i = 0; i < count; ++i) to[i * to_stride] = convert<To>(from[i * from_stride]);
}

template <class From, class To>
void add_run(const From* from, int64_t from_stride, To* to, int64_t to_stride, int64_t count) {
  using A = std::conditional_t<std::is_same_v<From, double> || std::is_same_v<To, double>, double, float>;
  if (from_stride == 1 && to_stride == 1) {
    for (int64_t i = 0; i < count; ++i) to[i] = convert<To>(convert<A>(to[i]) + convert<A>(from[i]));
    return;
  }
  for (int64_t i = 0; i < count; ++i) {
    to[i * to_stride] = convert<To>(convert<A>(to[i * to_stride]) + convert<A>(from[i * from_stride]));
  }
}

/// Calls run(from, from_stride, to, to_stride, count) for every innermost run.
template <class From, class To, class Run>
void walk_runs(const Threads& threads, const Walk& walk, const From* source, To* target, const Run& run_elements) {
  const int inner = walk.shape.rank() - 1;
  const int64_t length = walk.shape[inner];
  const int64_t runs = walk.shape.numel() / length;
  const int64_t from_stride = walk.source_strides[inner];
  const int64_t to_stride = walk.target_strides[inner];
  if (runs == 1) {
    threads.ranges(length, 65536, [&](int64_t begin, int64_t end) {
      run_elements(source + begin * from_stride, from_stride, target + begin * to_stride, to_stride, end - begin);
    });
    return;
  }
  threads.ranges(runs, rows_per_range(length, 65536), [&](int64_t begin, int64_t end) {
    for (int64_t run = begin; run < end; ++run) {
      int64_t rest = run;
      int64_t from = 0;
      int64_t to = 0;
      for (int axis = inner - 1; axis >= 0; --axis) {
        const int64_t position = rest % walk.shape[axis];
        rest /= walk.shape[axis];
        from += position * walk.source_strides[axis];
        to += position * walk.target_strides[axis];
      }
      run_elements(source + from, from_stride, target + to, to_stride, length);
    }
  });
}

}  // namespace

void copy(const Tensor& source, Tensor& target) {
  if (target.numel() == 0) return;
  const Walk walk = merge_dimensions(source, target);
  visit_dtype(source.dtype(), [&](auto from) {
    visit_dtype(target.dtype(), [&](auto to) {
      using From = typename decltype(from)::type;
      using To = typename decltype(to)::type;
      walk_runs(target.device().threads(), walk, source.data<From>(), target.data<To>(), convert_run<From, To>);
    });
  });
}

void accumulate(const Tensor& source, Tensor& target) {
  if (target.numel() == 0) return;
  const Walk walk = merge_dimensions(source, target);
  visit_floating(source.dtype(), [&](auto from) {
    visit_floating(target.dtype(), [&](auto to) {
      using From = typename decltype(from)::type;
      using To = typename decltype(to)::type;
      walk_runs(target.device().threads(), walk, source.data<From>(), target.data<To>(), add_run<From, To>);
    });
  });
}

void fill(Tensor& target, double value) {
  if (target.numel() == 0) return;
  visit_dtype(target.dtype(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    T element = convert<T>(value);
    T* first = target.data<T>();
    if (target.is_contiguous()) {
      target.device().threads().ranges(
          target.numel(), 65536, [&](int64_t begin, int64_t end) { std::fill(first + begin, first + end, element); });
      return;
    }
    Walk walk = merge_dimensions(target, target);
    for (int axis = 0; axis < walk.shape.rank(); ++axis) walk.source_strides[axis] = 0;
    walk_runs(target.device().threads(), walk, &element, first, convert_run<T, T>);
  });
}

}  // namespace lamina::cpu
