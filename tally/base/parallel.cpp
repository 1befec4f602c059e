// The pool: num_threads() - 1 workers and the calling thread. Every thread has a part of a job's chunks, the same for
// jobs of the same size, so that it finds in its own cache what it wrote in the job before; it takes blocks of chunks
// from its part, ever smaller ones, and then from the parts of the others. A worker joins a job only while it is open,
// so the caller never waits for a worker that the system has not woken: with busy cores the caller does the work alone.
// Workers spin for kSpinNanoseconds, then sleep on `epoch_` (a futex).
// A worker that finds itself on the caller's processor leaves it and is kept away until they meet again: a system that
// packs threads onto few processors would wake it there each time, and the two would take turns.
// The pool is never destroyed: its threads sleep until the process ends, and a forked child works on alone.
#include "tally/base/parallel.h"

#include <sched.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <charconv>
#include <chrono>
#include <cstdlib>
#include <exception>
#include <memory>
#include <mutex>
#include <string_view>
#include <thread>
#include <vector>

#include "tally/base/error.h"

namespace tally {
namespace {

constexpr int kMaxThreads = 4096;
constexpr int kSpinNanoseconds = 30'000;
constexpr uint32_t kOpen = 1u << 31;  // in Pool::state_; the lower bits count the workers inside the job

thread_local bool inside_job = false;

void pause_cpu() {
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

// Returns when `word` is no longer `old`: spins first, then sleeps.
void wait_while_equal(const std::atomic<uint32_t>& word, uint32_t old) {
  const auto start = std::chrono::steady_clock::now();
  do {
    for (int i = 0; i < 64; ++i) {
      if (word.load(std::memory_order_acquire) != old) return;
      pause_cpu();
    }
  } while (std::chrono::steady_clock::now() - start < std::chrono::nanoseconds(kSpinNanoseconds));
  word.wait(old, std::memory_order_acquire);
}

int cpus_allowed() {
  for (int cpus = 1024; cpus <= (1 << 20); cpus *= 2) {  // the mask must be as long as the kernel's
    cpu_set_t* set = CPU_ALLOC(static_cast<size_t>(cpus));
    if (set == nullptr) break;
    const size_t bytes = CPU_ALLOC_SIZE(static_cast<size_t>(cpus));
    const int rc = sched_getaffinity(0, bytes, set);
    const int count = rc == 0 ? CPU_COUNT_S(bytes, set) : 0;
    const bool longer = rc != 0 && errno == EINVAL;
    CPU_FREE(set);
    if (count > 0) return std::min(count, kMaxThreads);
    if (!longer) break;
  }
  return 1;
}

// Keeps this thread off `cpu`, out of the processors `all` that it may use; what was kept from it before is given back.
// Where that is not possible (one processor, more than cpu_set_t has) nothing happens.
void leave_cpu(int cpu, const cpu_set_t& all) {
  cpu_set_t others = all;
  if (cpu < 0 || cpu >= CPU_SETSIZE) return;
  CPU_CLR(static_cast<unsigned>(cpu), &others);
  if (CPU_COUNT(&others) > 0) sched_setaffinity(0, sizeof others, &others);
}

int threads_wanted() {
  const char* text = std::getenv("TALLY_THREADS");
  if (text == nullptr) return cpus_allowed();
  const std::string_view view(text);
  int n = 0;
  const auto [end, status] = std::from_chars(view.data(), view.data() + view.size(), n);
  if (status != std::errc() || end != view.data() + view.size() || n < 1 || n > kMaxThreads)
    fail("TALLY_THREADS is \"{}\"; it must be a whole number from 1 to {}", view, kMaxThreads);
  return n;
}

// Runs chunks [first, last) in order; returns the index of the one that threw, or -1.
int64_t run_chunks(int64_t first, int64_t last, int64_t n, int64_t grain, detail::RangeFunction function,
                   const void* context, std::exception_ptr& error) {
  for (int64_t i = first; i < last; ++i) {
    const int64_t begin = i * grain;
    try {
      function(context, begin, n - begin > grain ? begin + grain : n);
    } catch (...) {
      error = std::current_exception();
      return i;
    }
  }
  return -1;
}

class Pool {
 public:
  static Pool& get() {
    static Pool* pool = new Pool;
    return *pool;
  }

  int threads() {
    const int n = threads_.load(std::memory_order_acquire);
    if (n > 0) return n;
    const std::lock_guard lock(submit_);
    if (threads_.load(std::memory_order_relaxed) == 0) threads_.store(threads_wanted(), std::memory_order_release);
    return threads_.load(std::memory_order_relaxed);
  }

  void set_threads(int n) {
    const std::lock_guard lock(submit_);
    stop_workers();
    threads_.store(n, std::memory_order_release);
  }

  // False when another thread is using the pool: the caller then works inline.
  bool run(int64_t n, int64_t grain, detail::RangeFunction function, const void* context) {
    std::unique_lock lock(submit_, std::try_to_lock);
    if (!lock.owns_lock()) return false;
    if (workers_.empty()) start_workers();
    n_ = n, grain_ = grain, function_ = function, context_ = context;
    cut((n - 1) / grain + 1);
    error_ = nullptr;
    caller_cpu_.store(sched_getcpu(), std::memory_order_relaxed);
    state_.store(kOpen, std::memory_order_release);
    epoch_.fetch_add(1, std::memory_order_release);
    epoch_.notify_all();
    take_blocks(0);
    close();
    const std::exception_ptr error = std::move(error_);
    lock.unlock();
    if (error) std::rethrow_exception(error);
    return true;
  }

 private:
  // Chunks [next, end) that nobody has taken yet.
  struct alignas(64) Part {
    std::atomic<int64_t> next;
    int64_t end;
  };

  void start_workers() {
    const int n = threads_.load(std::memory_order_relaxed) - 1;
    stop_.store(false, std::memory_order_relaxed);
    const uint32_t epoch = epoch_.load(std::memory_order_relaxed);
    workers_.reserve(static_cast<size_t>(n));
    parts_ = std::make_unique<Part[]>(static_cast<size_t>(n) + 1);
    try {
      for (int i = 0; i < n; ++i) workers_.emplace_back([this, epoch, i] { worker(i + 1, epoch); });
    } catch (const std::system_error&) {
      // The system allows no more threads: those that started suffice, the result is the same.
      if (workers_.empty()) threads_.store(1, std::memory_order_release);
    }
  }

  void stop_workers() {
    stop_.store(true, std::memory_order_relaxed);
    epoch_.fetch_add(1, std::memory_order_release);
    epoch_.notify_all();
    for (std::thread& t : workers_) t.join();
    workers_.clear();
  }

  void worker(int index, uint32_t seen) {
    inside_job = true;  // what a chunk calls runs inline
    cpu_set_t all;
    const bool known = sched_getaffinity(0, sizeof all, &all) == 0;
    for (;;) {
      wait_while_equal(epoch_, seen);
      seen = epoch_.load(std::memory_order_acquire);
      if (stop_.load(std::memory_order_relaxed)) return;
      if (const int cpu = caller_cpu_.load(std::memory_order_relaxed); known && sched_getcpu() == cpu)
        leave_cpu(cpu, all);
      if (!join()) continue;
      take_blocks(index);
      if (state_.fetch_sub(1, std::memory_order_acq_rel) == 1) state_.notify_one();  // closed, and I was the last
    }
  }

  bool join() {
    uint32_t state = state_.load(std::memory_order_relaxed);
    while (state & kOpen)
      if (state_.compare_exchange_weak(state, state + 1, std::memory_order_acq_rel)) return true;
    return false;
  }

  // No worker joins from here on; waits for those inside.
  void close() {
    uint32_t state = state_.fetch_and(~kOpen, std::memory_order_acq_rel) & ~kOpen;
    while (state != 0) {
      wait_while_equal(state_, state);
      state = state_.load(std::memory_order_acquire);
    }
  }

  // A part for every thread, as equal as possible.
  void cut(int64_t chunks) {
    part_count_ = std::min<int64_t>(threads_.load(std::memory_order_relaxed), chunks);
    const int64_t size = chunks / part_count_, longer = chunks % part_count_;
    for (int64_t i = 0, end = 0; i < part_count_; ++i) {
      parts_[i].next.store(end, std::memory_order_relaxed);
      parts_[i].end = end += size + (i < longer ? 1 : 0);
    }
    error_chunk_.store(chunks, std::memory_order_relaxed);
  }

  void take_blocks(int index) {
    for (int64_t i = 0; i < part_count_; ++i) take_part(parts_[(index + i) % part_count_]);
  }

  // Blocks of a part are handed out in ascending order, a taken block is always finished up to its own first throw, and
  // only chunks behind one that threw are left out: the lowest throwing chunk always runs and its exception is the one
  // kept, so the error does not depend on timing.
  void take_part(Part& part) {
    int64_t first = part.next.load(std::memory_order_relaxed);
    while (first < part.end && first < error_chunk_.load(std::memory_order_relaxed)) {
      const int64_t last = first + std::max<int64_t>(1, (part.end - first) / 4);
      if (!part.next.compare_exchange_weak(first, last, std::memory_order_relaxed)) continue;
      std::exception_ptr error;
      const int64_t thrown = run_chunks(first, last, n_, grain_, function_, context_, error);
      first = part.next.load(std::memory_order_relaxed);
      if (thrown < 0) continue;
      const std::lock_guard lock(error_mutex_);
      if (thrown < error_chunk_.load(std::memory_order_relaxed))
        error_chunk_.store(thrown, std::memory_order_relaxed), error_ = error;
    }
  }

  std::atomic<int> threads_{0};  // 0: not decided yet
  std::mutex submit_;
  std::vector<std::thread> workers_;
  std::atomic<bool> stop_{false};
  std::atomic<int> caller_cpu_{-1};  // where the last job was started
  alignas(64) std::atomic<uint32_t> epoch_{0};
  alignas(64) std::atomic<uint32_t> state_{0};
  // The job; written only while state_ is 0.
  alignas(64) int64_t n_ = 0;
  int64_t grain_ = 1, part_count_ = 0;
  std::unique_ptr<Part[]> parts_;
  detail::RangeFunction function_ = nullptr;
  const void* context_ = nullptr;
  std::mutex error_mutex_;
  std::exception_ptr error_;
  std::atomic<int64_t> error_chunk_{0};
};

}  // namespace

int num_threads() { return Pool::get().threads(); }

void set_num_threads(int n) {
  if (n < 1 || n > kMaxThreads) fail("the number of threads is {}; it must be from 1 to {}", n, kMaxThreads);
  TALLY_ASSERT(!inside_job);
  Pool::get().set_threads(n);
}

namespace detail {

void parallel_range(int64_t n, int64_t grain, RangeFunction function, const void* context) {
  TALLY_ASSERT(grain >= 1);
  if (n <= 0) return;
  if (n <= grain) return function(context, 0, n);
  if (!inside_job && num_threads() > 1) {
    inside_job = true;
    struct Leave {
      ~Leave() { inside_job = false; }
    } leave;
    if (Pool::get().run(n, grain, function, context)) return;
  }
  std::exception_ptr error;
  if (run_chunks(0, (n - 1) / grain + 1, n, grain, function, context, error) >= 0) std::rethrow_exception(error);
}

}  // namespace detail
}  // namespace tally
