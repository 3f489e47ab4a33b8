// SPDX-License-Identifier: Apache-2.0
// Decides which work is worth several threads, and runs the threads that share it.
#pragma once

#include <algorithm>
#include <cstdint>

namespace halfstep::cpu {

// Least work that is worth a thread. Work is counted in cheap elements: one or two reads, an operation and a write, in the cache.
// benchmarks/teams.cpp measures the cost of an element (about 0.1 ns), and of waking a thread (about 0.4 us if it spins, 3 us if
// it sleeps).
inline constexpr int64_t kShare = 32 * 1024;

// Returns the number of threads, up to `most`, that get at least one share of `work` each; at least 1.
constexpr int threads_for(int64_t work, int most) { return int(std::max<int64_t>(1, std::min<int64_t>(work / kShare, most))); }

// Returns the number of pieces for `threads` threads that share `work`. Long work gets several pieces per thread, so that a late
// or slow thread leaves more of them to the others.
constexpr int pieces_for(int64_t work, int threads) {
  return threads == 1 ? 1 : work / threads < 16 * kShare ? threads : 2 * threads;
}

// Returns the number of threads for which to split work if results must not depend on how many there are: two as soon as that
// pays, more if each gets several shares.
constexpr int threads_by_shape(int64_t work) {
  return work < 2 * kShare ? 1 : int(std::clamp<int64_t>(work / (8 * kShare), 2, 16));
}

// Returns into how many pieces of at least `least` to split a dimension of n: two early, because they cost little compared with
// their gain; then larger ones, because each piece of a product packs all of the other operand.
constexpr int64_t pieces_by_shape(int64_t n, int64_t least) {
  return std::max({std::min<int64_t>(n / least, 2), std::min<int64_t>(n / (2 * least), 4), n / (4 * least)});
}

// Returns the work of a matrix product, or of a convolution with k products per element: 16 multiplications and additions of
// float32, or twice as many of bfloat16, take as long as one cheap element; each number is also moved once.
constexpr int64_t product_work(int64_t batch, int64_t m, int64_t n, int64_t k, bool bf16) {
  return batch * (m * n / (bf16 ? 32 : 16) * k + m * k + k * n + m * n);
}

// Calls task(context, i) once for each i in [0, tasks), on the calling thread and up to threads - 1 others, and returns when all
// are done. The caller takes tasks like the others and waits only for tasks that another thread has begun: a thread that the
// system does not run does not help, but does not delay the call. A call from inside a task, or while another thread uses the
// pool, runs on the calling thread alone. `task` must not throw.
// All threads compute in the state of FloatState, whatever the caller's is.
void run_team(int64_t tasks, int threads, void (*task)(void* context, int64_t i), void* context);

// Reports that this thread has used OpenMP's threads. For some milliseconds these keep their cores busy while they wait for more
// work, and the team would have to share the cores with them: until then, run_team gives its tasks to them.
void openmp_was_used();

// Returns how often work was given to more than one thread since the program began.
int64_t teams_called();

}  // namespace halfstep::cpu
