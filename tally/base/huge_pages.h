// std::vector memory that large tables read at random ask for: from 2 MiB on in pages of that size where the system has
// them, which spares most of the page walks that 4 KiB pages cost.
#pragma once

#include <cstddef>
#include <cstdlib>
#include <new>
#include <vector>
#ifdef __linux__
#include <sys/mman.h>
#endif

namespace tally {

template <class T>
struct HugePages {
  using value_type = T;
  static constexpr size_t kPage = size_t{1} << 21;

  HugePages() = default;
  template <class U>
  HugePages(const HugePages<U>&) {}  // NOLINT: allocators convert
  template <class U>
  bool operator==(const HugePages<U>&) const {
    return true;
  }

  T* allocate(size_t n) {
    const size_t bytes = n * sizeof(T);
    if (n > ~size_t{0} / 2 / sizeof(T)) throw std::bad_alloc();
    void* p = bytes < kPage ? std::malloc(bytes) : std::aligned_alloc(kPage, (bytes + kPage - 1) / kPage * kPage);
    if (p == nullptr) throw std::bad_alloc();
#ifdef __linux__
    if (bytes >= kPage) madvise(p, bytes, MADV_HUGEPAGE);  // a wish: what it answers does not matter
#endif
    return static_cast<T*>(p);
  }
  void deallocate(T* p, size_t) { std::free(p); }
};

template <class T>
using HugeVector = std::vector<T, HugePages<T>>;

}  // namespace tally
