// Memory that a thread keeps from call to call, each array beginning with a cache line: tiles and vectors of 64 bytes that
// lie across two lines cost twice.

#pragma once

#include <cstddef>
#include <new>
#include <vector>

namespace paceline {

template <typename T>
struct LineAllocator {
  using value_type = T;
  static constexpr std::align_val_t kLine{64};

  LineAllocator() = default;
  template <typename Other>
  LineAllocator(const LineAllocator<Other>&) {}
  T* allocate(size_t count) { return static_cast<T*>(::operator new(count * sizeof(T), kLine)); }
  void deallocate(T* at, size_t) { ::operator delete(at, kLine); }
  template <typename Other>
  bool operator==(const LineAllocator<Other>&) const {
    return true;
  }
  template <typename Other>
  bool operator!=(const LineAllocator<Other>&) const {
    return false;
  }
};

template <typename T>
using Kept = std::vector<T, LineAllocator<T>>;

// At least `count` elements; grows, never shrinks.
template <typename T>
T* scratch(Kept<T>& kept, size_t count) {
  if (kept.size() < count) kept.resize(count);
  return kept.data();
}

}  // namespace paceline
