#include "lamina/tensor/tensor.h"

#include <atomic>
#include <cstring>

#include "lamina/tensor/copy.h"
#include "lamina/tensor/cuda/copy.h"

namespace lamina {

struct Tensor::Storage {
  /// Address of empty tensors, so that kernels may add offsets to a valid pointer. It is never read or written.
  alignas(64) static inline char nothing[64] = {};

  Device device;
  void* data;
  size_t bytes;
  std::shared_ptr<void> owner;  // keeps borrowed memory valid; null for own memory
  bool borrowed = false;
  bool released = false;  // memory was given back by release_memory(); `bytes` is its size
  std::atomic<uint64_t> version{0};

  Storage(const Device& where, size_t size) : device(where), data(nullptr), bytes(size) {
    if (bytes > 0) {
      allocate();
    } else if (device.kind() != DeviceKind::meta) {
      data = nothing;
    }
  }
  Storage(const Device& where, void* memory, std::shared_ptr<void> keeper)
      : device(where), data(memory), bytes(0), owner(std::move(keeper)), borrowed(true) {}
  ~Storage() {
    if (!released) deallocate();
  }
  void allocate() { data = device.allocator().allocate(bytes); }
  void deallocate() {
    if (bytes > 0) device.allocator().deallocate(data, bytes);
  }
  Storage(const Storage&) = delete;
  Storage& operator=(const Storage&) = delete;
};

/// Limit on a tensor's size, also on a meta device; no real tensor comes near it. Operation counts are small multiples
/// of a tensor's elements, so they cannot overflow.
constexpr int64_t kMaxTensorBytes = int64_t{1} << 50;

Tensor Tensor::empty(const Shape& shape, DType dtype, const Device& device) {
  Tensor result;
  result.impl_ = std::make_shared<Impl>();
  Impl& impl = *result.impl_;
  impl.shape = shape;
  impl.strides = contiguous_strides(shape);
  impl.numel = shape.numel();
  impl.dtype = dtype;
  int64_t bytes = 0;
  const bool fits = !__builtin_mul_overflow(impl.numel, static_cast<int64_t>(size_of(dtype)), &bytes);
  LAMINA_CHECK(fits && bytes <= kMaxTensorBytes, "tensor ", shape, " of ", dtype,
               " is larger than 1 PiB; expected at most that, fix the sizes");
  impl.storage = std::make_shared<Storage>(device, static_cast<size_t>(bytes));
  return result;
}

Tensor Tensor::zeros(const Shape& shape, DType dtype, const Device& device) { return full(shape, 0.0, dtype, device); }

Tensor Tensor::full(const Shape& shape, double value, DType dtype, const Device& device) {
  Tensor result = empty(shape, dtype, device);
  result.fill_(value);
  return result;
}

template <class T>
Tensor Tensor::from(std::span<const T> values, const Shape& shape, const Device& device) {
  Tensor result = empty(shape, dtype_of<T>(), device);
  LAMINA_CHECK(static_cast<int64_t>(values.size()) == result.numel(), "tensor ", shape, " has ", result.numel(),
               " elements; ", values.size(), " values were given");
  if (result.numel() > 0 && !result.is_meta()) {
    if (device.kind() == DeviceKind::cuda) {
      cuda::copy_from_host(values.data(), result);
    } else {
      std::memcpy(result.raw(), values.data(), values.size_bytes());
    }
  }
  return result;
}

Tensor Tensor::borrow(void* data, const Shape& shape, DType dtype, const Device& device, std::shared_ptr<void> owner) {
  const bool unread = shape.numel() == 0 || device.kind() == DeviceKind::meta;
  LAMINA_CHECK(data != nullptr || unread, "borrow: null memory for a tensor ", shape);
  LAMINA_CHECK(reinterpret_cast<uintptr_t>(data) % size_of(dtype) == 0, "borrow: memory for ", dtype,
               " must be aligned to ", size_of(dtype), " bytes; copy it instead");
  Tensor result;
  result.impl_ = std::make_shared<Impl>();
  Impl& impl = *result.impl_;
  impl.shape = shape;
  impl.strides = contiguous_strides(shape);
  impl.numel = shape.numel();
  impl.dtype = dtype;
  impl.storage = std::make_shared<Storage>(device, data, std::move(owner));
  return result;
}

const Device& Tensor::device() const { return impl().storage->device; }

bool Tensor::is_contiguous() const {
  int64_t expected = 1;
  for (int axis = rank() - 1; axis >= 0; --axis) {
    if (shape()[axis] != 1 && strides()[axis] != expected) return numel() == 0;
    expected *= shape()[axis];
  }
  return true;
}

template <class T>
T* Tensor::data() const {
  LAMINA_CHECK(dtype() == dtype_of<T>(), "tensor holds ", dtype(), ", read as ", dtype_of<T>(),
               "; convert with to(dtype) first");
  return static_cast<T*>(raw());
}

void* Tensor::raw() const {
  auto* bytes = static_cast<char*>(impl().storage->data);
  LAMINA_CHECK(bytes != nullptr || !impl().storage->released, "tensor ", shape(),
               ": its memory was released; restore it before the values are used (internal error, please report it)");
  return bytes == nullptr ? nullptr : bytes + impl().offset * static_cast<int64_t>(size_of(dtype()));
}

template <class T>
std::vector<T> Tensor::to_vector() const {
  LAMINA_CHECK(!is_meta(), "a meta tensor ", shape(), " has no values; build it on a device with memory");
  const Tensor dense = detach().to(dtype_of<T>()).contiguous();
  if (device().kind() == DeviceKind::cuda) {
    std::vector<T> values(static_cast<size_t>(numel()));
    cuda::copy_to_host(dense, values.data());
    return values;
  }
  const T* first = dense.data<T>();
  return first == nullptr ? std::vector<T>{} : std::vector<T>(first, first + dense.numel());
}

double Tensor::item() const {
  LAMINA_CHECK(numel() == 1, "item() needs one element; the tensor ", shape(), " has ", numel());
  return to_vector<double>().front();
}

Tensor Tensor::view(const Shape& shape, const Shape& strides, int64_t offset) const {
  Tensor result;
  result.impl_ = std::make_shared<Impl>(impl());
  result.impl_->link.reset();
  result.impl_->shape = shape;
  result.impl_->strides = strides;
  result.impl_->offset = offset;
  result.impl_->numel = shape.numel();
  return result;
}

void Tensor::record_view(const char* what, Tensor& result, std::function<Tensor(const Tensor&)> pullback) const {
  if (impl().link) impl().link->record_view(what, result, std::move(pullback));
}

namespace {

/// Computes an extent given as -1, and checks the number of elements.
Shape complete_shape(Shape wanted, const Shape& from) {
  int unknown = -1;
  int64_t known = 1;
  for (int axis = 0; axis < wanted.rank(); ++axis) {
    if (wanted[axis] == -1) {
      LAMINA_CHECK(unknown < 0, "reshape to ", wanted, ": only one extent may be -1");
      unknown = axis;
    } else {
      LAMINA_CHECK(!__builtin_mul_overflow(known, wanted[axis], &known), "reshape to ", wanted, ": too many elements");
    }
  }
  const int64_t total = from.numel();
  if (unknown >= 0) {
    LAMINA_CHECK(known > 0 && total % known == 0, "reshape of ", from, " to ", wanted, ": ", total,
                 " elements do not divide by ", known);
    wanted[unknown] = total / known;
  }
  LAMINA_CHECK(wanted.numel() == total, "reshape of ", from, " with ", total, " elements to ", wanted, " with ",
               wanted.numel(), "; the counts must agree");
  return wanted;
}

/// Strides with which `source` can be viewed in shape `wanted`; empty if a copy is needed. Source dimensions that are
/// contiguous among themselves form a block, and every wanted dimension must lie within one block.
std::optional<Shape> strides_for_view(const Tensor& source, const Shape& wanted) {
  if (source.is_contiguous()) return contiguous_strides(wanted);
  Shape strides = wanted;
  int target = wanted.rank() - 1;
  int64_t block = 1;
  int64_t filled = 1;
  int64_t base = source.strides()[-1];
  for (int axis = source.rank() - 1; axis >= 0; --axis) {
    block *= source.dim(axis);
    const bool block_ends = axis == 0 || (source.dim(axis - 1) != 1 && source.strides()[axis - 1] != block * base);
    if (!block_ends) continue;
    while (target >= 0 && (filled < block || wanted[target] == 1)) {
      strides[target] = filled * base;
      filled *= wanted[target--];
    }
    if (filled != block) return std::nullopt;
    if (axis > 0) base = source.strides()[axis - 1];
    block = filled = 1;
  }
  return target < 0 ? std::optional(strides) : std::nullopt;
}

}  // namespace

Tensor Tensor::reshape(const Shape& shape) const {
  const Shape wanted = complete_shape(shape, this->shape());
  const std::optional<Shape> strides = strides_for_view(*this, wanted);
  const Tensor source = strides ? *this : clone();
  Tensor result = source.view(wanted, strides.value_or(contiguous_strides(wanted)), source.impl().offset);
  source.record_view("reshape", result, [from = this->shape()](const Tensor& grad) { return grad.reshape(from); });
  return result;
}

Tensor Tensor::transpose(int axis_a, int axis_b) const {
  Shape shape = this->shape();
  Shape strides = this->strides();
  std::swap(shape[axis_a], shape[axis_b]);
  std::swap(strides[axis_a], strides[axis_b]);
  Tensor result = view(shape, strides, impl().offset);
  record_view("transpose", result, [axis_a, axis_b](const Tensor& grad) { return grad.transpose(axis_a, axis_b); });
  return result;
}

Tensor Tensor::slice(int axis, int64_t begin, int64_t length) const {
  const int64_t extent = dim(axis);
  LAMINA_CHECK(begin >= 0 && length >= 0 && begin <= extent && length <= extent - begin, "slice [", begin, ", ", begin,
               " + ", length, ") is outside axis ", axis, " of ", shape(), ", which has ", extent, " elements");
  Shape shape = this->shape();
  shape[axis] = length;
  Tensor result = view(shape, strides(), impl().offset + begin * strides()[axis]);
  record_view("slice", result, [from = this->shape(), axis, begin, length](const Tensor& grad) {
    Tensor whole = zeros(from, grad.dtype(), grad.device());
    whole.slice(axis, begin, length).copy_(grad);
    return whole;
  });
  return result;
}

Tensor Tensor::adjacent_view(const std::vector<Tensor>& slices, int axis) {
  if (slices.empty()) return {};
  const Tensor& first = slices[0];
  Shape shape = first.shape();
  shape[axis] = 0;
  for (const Tensor& slice : slices) {
    Shape expected = shape;
    if (slice.rank() == shape.rank()) expected[axis] = slice.dim(axis);
    const bool follows = slice.shape() == expected && slice.shares_memory_with(first) &&
                         slice.dtype() == first.dtype() && slice.strides() == first.strides() &&
                         slice.impl().offset == first.impl().offset + shape[axis] * first.strides()[axis];
    if (!follows) return {};
    shape[axis] += slice.dim(axis);
  }
  return first.view(shape, first.strides(), first.impl().offset);
}

Tensor Tensor::contiguous() const { return is_contiguous() ? *this : clone(); }

Tensor Tensor::clone() const {
  Tensor result = empty(shape(), dtype(), device());
  result.copy_(*this);
  record_view("clone", result, [](const Tensor& grad) { return grad; });
  return result;
}

Tensor Tensor::to(DType dtype) const {
  if (dtype == this->dtype()) return *this;
  Tensor result = empty(shape(), dtype, device());
  result.copy_(*this);
  record_view("to", result, [from = this->dtype()](const Tensor& grad) { return grad.to(from); });
  return result;
}

Tensor Tensor::to(const Device& device) const {
  if (device == this->device()) return *this;
  Tensor result = empty(shape(), dtype(), device);
  result.copy_(*this);
  record_view("to", result, [from = this->device()](const Tensor& grad) { return grad.to(from); });
  return result;
}

Tensor Tensor::detach() const { return impl().link ? view(shape(), strides(), impl().offset) : *this; }

namespace {

/// Returns `source`, or a copy of it if writing `target` would overwrite elements that are still to be read.
Tensor without_alias(const Tensor& source, const Tensor& target) {
  if (!source.shares_memory_with(target)) return source;
  const bool same_elements = source.raw() == target.raw() && source.strides() == target.strides();
  return same_elements ? source : source.detach().clone();
}

/// Copies between CPU and GPU. The source side converts to the target's dtype, the transfer is contiguous, and the
/// target side applies the strides.
void copy_between(const Tensor& source, Tensor& target) {
  if (source.device().kind() == DeviceKind::cpu) {
    const Tensor dense = source.to(target.dtype()).contiguous();
    if (target.is_contiguous()) return cuda::copy_from_host(dense.raw(), target);
    Tensor staged = Tensor::empty(target.shape(), target.dtype(), target.device());
    cuda::copy_from_host(dense.raw(), staged);
    return cuda::copy(staged, target);
  }
  const Tensor dense = source.to(target.dtype()).contiguous();
  if (target.is_contiguous()) return cuda::copy_to_host(dense, target.raw());
  Tensor staged = Tensor::empty(target.shape(), target.dtype(), target.device());
  cuda::copy_to_host(dense, staged.raw());
  cpu::copy(staged, target);
}

}  // namespace

Tensor& Tensor::copy_(const Tensor& source) {
  LAMINA_CHECK(source.shape() == shape(), "copy_: source is ", source.shape(), ", target is ", shape(),
               "; the shapes must be equal");
  mark_written("copy_");
  if (is_meta()) return *this;
  LAMINA_CHECK(!source.is_meta(), "copy_: the source is a meta tensor and has no values");
  if (device().kind() != source.device().kind()) {
    copy_between(source.detach(), *this);
  } else if (device().kind() == DeviceKind::cuda) {
    const bool two_streams = device() != source.device();  // work on two streams is not ordered
    if (two_streams) source.device().synchronize();
    cuda::copy(without_alias(source, *this), *this);
    if (two_streams) device().synchronize();
  } else {
    cpu::copy(without_alias(source, *this), *this);
  }
  return *this;
}

Tensor& Tensor::fill_(double value) {
  mark_written("fill_");
  if (is_meta()) return *this;
  if (device().kind() == DeviceKind::cuda) {
    cuda::fill(*this, value);
  } else {
    cpu::fill(*this, value);
  }
  return *this;
}

Tensor& Tensor::add_(const Tensor& other) {
  LAMINA_CHECK(other.shape() == shape(), "add_: ", other.shape(), " is added to ", shape(),
               "; the shapes must be equal");
  LAMINA_CHECK(is_floating(dtype()) && is_floating(other.dtype()), "add_: ", other.dtype(), " is added to ", dtype(),
               "; both must be floating");
  mark_written("add_");
  if (is_meta()) return *this;
  LAMINA_CHECK(!other.is_meta(), "add_: the other tensor is a meta tensor and has no values");
  LAMINA_CHECK(device() == other.device(), "add_: a tensor on ", other.device(), " is added to one on ", device(),
               "; move them together with to(device)");
  if (device().kind() == DeviceKind::cuda) {
    cuda::accumulate(without_alias(other, *this), *this);
  } else {
    cpu::accumulate(without_alias(other, *this), *this);
  }
  return *this;
}

uint64_t Tensor::version() const { return impl().storage->version.load(std::memory_order_relaxed); }

void Tensor::mark_written(const char* what) const {
  if (impl().link) impl().link->check_writable(what);
  impl().storage->version.fetch_add(1, std::memory_order_relaxed);
}

bool Tensor::shares_memory_with(const Tensor& other) const { return impl().storage == other.impl().storage; }

bool Tensor::owns_memory_alone() const {
  return impl_.use_count() == 1 && impl().storage.use_count() == 1 && !impl().storage->borrowed;
}

bool Tensor::is_same_view(const Tensor& other) const {
  return shares_memory_with(other) && impl().offset == other.impl().offset && shape() == other.shape() &&
         strides() == other.strides();
}

bool Tensor::has_memory() const { return !impl().storage->released; }

void Tensor::release_memory() const {
  Storage& storage = *impl().storage;
  LAMINA_CHECK(!storage.borrowed && !storage.released, "release_memory: the memory of the tensor ", shape(), " is ",
               storage.borrowed ? "borrowed; copy it first" : "already released");
  if (storage.bytes == 0) return;
  storage.deallocate();
  storage.data = nullptr;
  storage.released = true;
}

void Tensor::restore_memory(const std::function<void(Tensor)>& fill) const {
  Storage& storage = *impl().storage;
  if (!storage.released) return;
  storage.allocate();
  storage.released = false;
  const uint64_t version = storage.version.load(std::memory_order_relaxed);
  fill(view(shape(), strides(), impl().offset));
  storage.version.store(version, std::memory_order_relaxed);
}

#define LAMINA_INSTANTIATE(T)                                                       \
  template Tensor Tensor::from<T>(std::span<const T>, const Shape&, const Device&); \
  template T* Tensor::data<T>() const;                                              \
  template std::vector<T> Tensor::to_vector<T>() const;
LAMINA_INSTANTIATE(float)
LAMINA_INSTANTIATE(double)
LAMINA_INSTANTIATE(bf16)
LAMINA_INSTANTIATE(f16)
LAMINA_INSTANTIATE(int64_t)
LAMINA_INSTANTIATE(int32_t)
LAMINA_INSTANTIATE(uint8_t)
#undef LAMINA_INSTANTIATE

}  // namespace lamina
