// SPDX-License-Identifier: Apache-2.0
// Which work is worth several threads, and the threads that share it.
#pragma once

#include <algorithm>
#include <cstdint>

namespace halfstep::cpu {

// Work is counted in cheap elements: one read or two, an operation, a write, in the cache. benchmarks/teams.cpp measures what one
// costs (about 0.1 ns), what calling a thread costs (about 0.4 us while it spins, 3 us when it sleeps), and hence the smallest
// share that is worth a thread.
inline constexpr int64_t kShare = 32 * 1024;

// The number of threads, up to `most`, that get at least a share each of `work`; at least 1.
constexpr int threads_for(int64_t work, int most) { return int(std::max<int64_t>(1, std::min<int64_t>(work / kShare, most))); }

// The number of pieces for `threads` threads that share `work`. Long work has several pieces for each thread, so that
// a thread that is late or has a slower core leaves more of them to the others.
constexpr int pieces_for(int64_t work, int threads) {
  return threads == 1 ? 1 : work / threads < 16 * kShare ? threads : 2 * threads;
}

// The number of threads that work is cut for where results may not depend on how many there are: two as soon as that pays, and more
// where each gets several shares.
constexpr int threads_by_shape(int64_t work) {
  return work < 2 * kShare ? 1 : int(std::clamp<int64_t>(work / (8 * kShare), 2, 16));
}

// How many pieces of a dimension of n, of `least` each: two at once, as these cost little beside what they bring, and then larger
// ones, since each piece of a product packs all of the other operand.
constexpr int64_t pieces_by_shape(int64_t n, int64_t least) {
  return std::max({std::min<int64_t>(n / least, 2), std::min<int64_t>(n / (2 * least), 4), n / (4 * least)});
}

// The work of a matrix product, or of a convolution with k products an element: 16 multiplications and additions of float32,
// or twice as many of bfloat16, take as long as one cheap element; each number is moved once as well.
constexpr int64_t product_work(int64_t batch, int64_t m, int64_t n, int64_t k, bool bf16) {
  return batch * (m * n / (bf16 ? 32 : 16) * k + m * k + k * n + m * n);
}

// Calls task(context, i) once for each i in [0, tasks), on the calling thread and on up to threads - 1 others, and returns when all
// are done. The caller takes tasks like the other threads and waits only for tasks that another thread has begun: a thread that the
// system does not run does not help, but does not delay the call. A call from inside a task, or while another thread's call uses
// the pool, runs on the calling thread alone. `task` must not throw.
// All compute in the state of FloatState, whatever the caller's.
void run_team(int64_t tasks, int threads, void (*task)(void* context, int64_t i), void* context);

// Called after work that this thread did on OpenMP's threads. For some milliseconds these look out for more, each keeping a core
// busy, and the team would have to share those cores with them: until then, run_team gives its tasks to them.
void openmp_was_used();

// How often work has been given to more than one thread since the program began.
int64_t teams_called();

}  // namespace halfstep::cpu
